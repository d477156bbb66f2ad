"""Stage 3, adapters -> engines: one base in memory, every role served from it."""
