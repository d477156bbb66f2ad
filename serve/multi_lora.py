"""Many LoRA adapters on one base, chosen per token, so that all roles are computed together.

The adapters' A matrices stand side by side in one matrix, their B matrices below each other, and a mask per token
keeps the columns of its adapter: y = W x + B (mask * (A x)). A token whose mask is all zero is exactly the base's.
"""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from flywheel.errors import DataError


class LoraBank:
    """The adapters of a model, and which tokens of the current pass use which.

    Args:
        model: the base; its linear layers that an adapter changes are wrapped in place.
        adapters: folder of each adapter, by name.

    Raises:
        DataError: for an adapter that does not fit the base, is not finite, or changes nothing.
    """

    def __init__(self, model: nn.Module, adapters: dict[str, Path]) -> None:
        self._row = {name: row for row, name in enumerate(adapters, start=1)}
        self.mask: Tensor | None = None
        """Shape (tokens, ranks of all adapters); None while every token is the base's."""
        loaded = {name: _read_adapter(folder, name) for name, folder in adapters.items()}
        ranks = [rank for _, rank in loaded.values()]
        self._table = torch.zeros(len(adapters) + 1, sum(ranks))
        for index, rank in enumerate(ranks):
            self._table[index + 1, sum(ranks[:index]) : sum(ranks[:index]) + rank] = 1
        modules = dict(model.named_modules())
        for path in sorted({path for weights, _ in loaded.values() for path in weights}):
            if path not in modules:
                raise DataError(
                    f"an adapter changes {path}, which this base does not have: it was made for another base"
                )
            self._wrap(modules, path, loaded, ranks)

    def choose(self, names: list[str]) -> None:
        """Say which adapter each token of the next forward pass uses; other names mean the base."""
        rows = [self._row.get(name, 0) for name in names]
        self.mask = self._table[rows] if any(rows) else None

    def _wrap(
        self, modules: dict[str, nn.Module], path: str, loaded: dict[str, tuple[dict[str, Any], int]], ranks: list[int]
    ) -> None:
        base: Any = modules[path]
        device = base.weight.device
        dtype = base.weight.dtype if base.weight.dtype.is_floating_point else torch.bfloat16
        down = torch.zeros(base.in_features, sum(ranks))
        up = torch.zeros(sum(ranks), base.out_features)
        start = 0
        for (name, (weights, _)), rank in zip(loaded.items(), ranks, strict=True):
            if path in weights:
                a, b = weights[path]
                if a.shape[1] != base.in_features or b.shape[0] != base.out_features:
                    raise DataError(f"{name} was made for a base of another size ({path} differs)")
                down[:, start : start + rank] = a.T
                up[start : start + rank] = b.T
            start += rank
        parent, _, attribute = path.rpartition(".")
        wrapped = _LoraLinear(base, down.to(device, dtype), up.to(device, dtype), self)
        setattr(modules[parent], attribute, wrapped)
        self._table = self._table.to(device, dtype)


class _LoraLinear(nn.Module):
    def __init__(self, base: nn.Module, down: Tensor, up: Tensor, bank: LoraBank) -> None:
        super().__init__()
        self.base = base
        self._down = down
        self._up = up
        self._bank = bank

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.base(x)
        mask = self._bank.mask
        return y if mask is None else y + ((x @ self._down) * mask) @ self._up


def _read_adapter(folder: Path, name: str) -> tuple[dict[str, tuple[Tensor, Tensor]], int]:
    """(A, scaled B) by module path, in float32, and the rank."""
    try:
        config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
        tensors = load_file(folder / "adapter_model.safetensors")
        rank, alpha = int(config["r"]), float(config["lora_alpha"])
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"cannot read the adapter {name} in {folder}: {error}") from error
    unusual = [key for key in ("use_dora", "modules_to_save", "rank_pattern", "alpha_pattern") if config.get(key)]
    if unusual or config.get("bias", "none") != "none":
        raise DataError(f"the adapter {name} uses {', '.join(unusual) or 'bias'}, which cannot be served")
    scale = alpha / rank**0.5 if config.get("use_rslora") else alpha / rank
    weights = {}
    for key, tensor in tensors.items():
        if key.endswith(".lora_A.weight"):
            path = key.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
            other = tensors.get(key.replace(".lora_A.", ".lora_B."))
            if other is None or tensor.shape[0] != rank:
                raise DataError(f"the adapter {name} is damaged at {path}")
            weights[path] = tensor.float(), other.float() * scale
    if not weights or not any(b.any() for _, b in weights.values()):
        raise DataError(f"the adapter {name} changes nothing; it would be served as the base")
    if not all(a.isfinite().all() and b.isfinite().all() for a, b in weights.values()):
        raise DataError(f"the adapter {name} holds numbers that are not finite; train it again")
    return weights, rank
