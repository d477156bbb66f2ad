"""The base with an adapter on it, and what follows from the base's size."""

from typing import Any

import torch
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training

from flywheel.config import TrainConfig

RATES = ((0.5e9, 8e-4), (4e9, 4e-4), (20e9, 2e-4))
"""Most parameters of the base, learning rate. Measured here for 135M; from QLoRA (arXiv 2305.14314, appendix B) for
7B and more; the geometric mean between them."""
_LARGE = 1e-4


def quantized(settings: TrainConfig) -> bool:
    """Whether the base is loaded in 4 bits."""
    return settings.quantize == "nf4" or (settings.quantize == "auto" and torch.cuda.is_available())


def learning_rate(settings: TrainConfig, method: str, parameters: int) -> float:
    """What the settings say, or what suits a base of so many parameters; preferences take a tenth of it."""
    if method == "sft":
        return settings.learning_rate or next((rate for most, rate in RATES if parameters <= most), _LARGE)
    return settings.preference_learning_rate or learning_rate(settings, "sft", parameters) / 10


def with_adapter(model: Any, settings: TrainConfig, quantize: bool, autocast: bool = False) -> Any:
    """The base with a fresh adapter.

    Args:
        autocast: keep the adapter in float32; else it has the base's faster type, and needs an optimiser that keeps
            float32 copies.
    """
    if quantize:
        model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=torch.cuda.is_available())
    elif torch.cuda.is_available():
        model.gradient_checkpointing_enable()
        model.enable_input_require_grads()
    lora = LoraConfig(
        r=settings.rank, lora_alpha=settings.alpha, lora_dropout=settings.dropout, target_modules="all-linear",
        task_type="CAUSAL_LM",
    )  # fmt: skip
    return get_peft_model(model, lora, autocast_adapter_dtype=autocast)
