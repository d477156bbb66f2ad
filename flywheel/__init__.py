"""Flywheel: specialise a small local model for every role of an agent team, using only the team's own correct runs."""

__version__ = "0.1.0"
