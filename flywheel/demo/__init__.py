"""`flywheel demo`: the whole wheel for real, on the packaged model and the embedded encyclopedia, on a CPU."""

from .plan import FULL, QUICK, STANDARD, Plan, choose_questions
from .wheel import run_demo

__all__ = ["FULL", "QUICK", "STANDARD", "Plan", "choose_questions", "run_demo"]
