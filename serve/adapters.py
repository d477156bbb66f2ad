"""Adapters before they are served: their weights, and what cannot be right about them, whatever the engine."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from flywheel.base_model import base_hash, resolve_folder
from flywheel.errors import DataError
from flywheel.workspace import read_card

UNSERVABLE = (
    "use_dora", "use_rslora", "modules_to_save", "rank_pattern", "alpha_pattern", "trainable_token_indices",
    "layer_replication", "fan_in_fan_out", "lora_bias",
)  # fmt: skip
"""Settings of PEFT under which a LoRA is more than A and B matrices of one rank and scale."""


@dataclass(frozen=True)
class AdapterWeights:
    """A LoRA: for each linear layer by its path, A of shape (rank, inputs) and scaled B of shape (outputs, rank)."""

    name: str
    rank: int
    layers: Mapping[str, tuple[Tensor, Tensor]]


def read_adapter(folder: Path, name: str) -> AdapterWeights:
    """The weights of an adapter, in float32, the scale in B.

    Raises:
        DataError: when it cannot be read or served, is not finite, or changes nothing.
    """
    config = _config(folder, name)
    try:
        tensors = load_file(folder / "adapter_model.safetensors")
        rank, scale = config["r"], config["lora_alpha"] / config["r"]
    except (OSError, ArithmeticError, SafetensorError) as error:
        raise DataError(f"cannot read the adapter {name} in {folder}: {error}") from error
    unusual = [key for key in UNSERVABLE if config.get(key)]
    unusual += [key for key, usual in (("bias", "none"), ("peft_type", "LORA")) if config.get(key, usual) != usual]
    if unusual:
        raise DataError(f"the adapter {name} uses {', '.join(unusual)}, which cannot be served")
    layers = {}
    for path in dict.fromkeys(key.removeprefix("base_model.model.").rpartition(".lora_")[0] for key in tensors):
        a, b = (tensors.pop(f"base_model.model.{path}.lora_{matrix}.weight", None) for matrix in "AB")
        if a is None or b is None or not (a.dim() == b.dim() == 2 and a.shape[0] == b.shape[1] == rank):
            raise DataError(f"the adapter {name} is damaged at {path or 'a tensor without a layer'}")
        if not (a.is_floating_point() and b.is_floating_point()):
            raise DataError(f"the adapter {name} is quantised at {path}, which cannot be served")
        layers[path] = a.float(), b.float() * scale
    if tensors:
        raise DataError(f"the adapter {name} holds {next(iter(tensors))}, which cannot be served")
    if not any(a.any() and b.any() for a, b in layers.values()):
        raise DataError(f"the adapter {name} changes nothing; it would be served as the base")
    if not all(a.isfinite().all() and b.isfinite().all() for a, b in layers.values()):
        raise DataError(f"the adapter {name} holds numbers that are not finite; train it again")
    return AdapterWeights(name, rank, layers)


def _config(folder: Path, name: str) -> dict[str, Any]:
    """PEFT's settings of an adapter."""
    try:
        config: dict[str, Any] = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
        config["r"], config["lora_alpha"] = int(config["r"]), float(config["lora_alpha"])
    except (OSError, ValueError, KeyError, TypeError, ArithmeticError, RecursionError) as error:
        raise DataError(f"cannot read the adapter {name} in {folder}: {error}") from error
    return config


def check_fit(adapter: AdapterWeights, shapes: Mapping[str, tuple[int, int]]) -> None:
    """Whether every layer that an adapter changes is there in the base, and has its size.

    Args:
        shapes: (outputs, inputs) of the base's linear layers, by path.

    Raises:
        DataError: names the first layer that does not fit.
    """
    for path, (a, b) in adapter.layers.items():
        if path not in shapes:
            raise DataError(f"{adapter.name} changes {path}, which this base does not have: it is another base's")
        if shapes[path] != (b.shape[0], a.shape[1]):
            raise DataError(f"{adapter.name} was made for a base of another size ({path} differs)")


def linear_shapes(model: nn.Module) -> dict[str, tuple[int, int]]:
    """(outputs, inputs) of a model's linear layers, by path; in 4 bits they tell the sizes that they stand for."""
    found = {}
    for path, module in model.named_modules():
        if isinstance(module, nn.Linear):
            found[path] = (module.out_features, module.in_features)
    return found


def shapes_of(folder: Path) -> dict[str, tuple[int, int]]:
    """The same for a model in a folder, without its weights."""
    from transformers import AutoConfig, AutoModelForCausalLM

    with torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
    return linear_shapes(model)


def check_base(adapters: Mapping[str, Path], fingerprint: str, model: str) -> None:
    """Whether adapters were trained on the base with this fingerprint.

    Args:
        model: the base's name, for the error.

    Raises:
        DataError: names the first that was not, or whose card or weights are damaged.
    """
    for name, folder in adapters.items():
        card = read_card(folder)
        if card.base_hash != fingerprint:
            raise DataError(f"{name} was trained on {card.base}, and {model} has other weights: train it again")
        config = _config(folder, name)
        if (config.get("r"), config.get("lora_alpha")) != (card.rank, card.alpha):
            raise DataError(f"{folder}: rank and alpha of {name} are not those its card was written for")


def sift(adapters: Mapping[str, Path], model: str) -> dict[str, str]:
    """The adapters that must not be served on a base, each with the reason.

    Raises:
        InputError: when there is no such base.
    """
    if not adapters:
        return {}
    base = resolve_folder(model)
    fingerprint, shapes = base_hash(base), shapes_of(base)
    refused: dict[str, str] = {}
    for name, folder in adapters.items():
        try:
            check_base({name: folder}, fingerprint, model)
            check_fit(read_adapter(folder, name), shapes)
        except DataError as error:
            refused[name] = str(error)
    return refused


def without(adapters: Mapping[str, Path], names: Iterable[str]) -> dict[str, Path]:
    """The adapters but the named ones."""
    barred = set(names)
    return {name: folder for name, folder in adapters.items() if name not in barred}
