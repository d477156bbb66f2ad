"""`--engine auto`: which engine suits this machine and this model."""

import importlib.util
import shutil
from pathlib import Path

from flywheel.config import EngineConfig


def choose_engine(config: EngineConfig) -> tuple[EngineConfig, str]:
    """The settings with the engine filled in, and the reason."""
    kind, reason = _choose(config)
    return config.model_copy(update={"kind": kind}), reason


def _choose(config: EngineConfig) -> tuple[str, str]:
    gguf = config.model == "embedded" or Path(config.model).suffix == ".gguf"
    if _cuda():
        if not gguf and shutil.which(config.vllm):
            return "vllm", "there is a GPU, and vLLM is installed"
        return "transformers", "there is a GPU, and " + ("the model is a GGUF file" if gguf else "no vLLM")
    return "transformers", "there is no GPU, and it computes the requests of all roles together"


def _cuda() -> bool:
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return torch.cuda.is_available()
