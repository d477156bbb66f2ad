"""Stage 1, questions -> traces: runs a team of agents over questions and records every model call."""
