"""Finds the stages by name, so that what joins them needs no import of one stage by another.

In a checkout `collect`, `train` and `serve` are top-level packages; an installed wheel nests them in `flywheel`.
"""

import importlib
import importlib.util
from types import ModuleType

STAGES = ("collect", "train", "serve")


def stage(module: str) -> ModuleType:
    """Import a module by its name in a checkout, such as `collect.rollout`, wherever the stage lives."""
    root = module.partition(".")[0]
    nested = root in STAGES and importlib.util.find_spec(f"flywheel.{root}") is not None
    return importlib.import_module(f"flywheel.{module}" if nested else module)
