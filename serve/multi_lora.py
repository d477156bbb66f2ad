"""Many LoRA adapters on one base, chosen per token, so that all roles are computed together.

The adapters' A matrices stand side by side in one matrix, their B matrices below each other, and a mask per token
keeps the columns of its adapter: y = W x + B (mask ? A x : 0). A token whose mask is all zero is exactly the base's.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from flywheel.records import BASE

from .adapters import AdapterWeights, check_fit, linear_shapes


class LoraBank:
    """The adapters of a model, and which tokens of the current pass use which.

    Args:
        model: the base; its linear layers that an adapter changes are wrapped in place.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._shapes = linear_shapes(model)
        self._wrapped: dict[str, _LoraLinear] = {}
        self._row = {BASE: 0}
        self._table = torch.zeros(1, 0, dtype=torch.bool)
        self.mask: Tensor | None = None
        """Of truth values, shape (tokens, ranks of all adapters); None while every token is the base's."""

    def load(self, adapters: Sequence[AdapterWeights]) -> None:
        """Hold these adapters in place of those of before.

        Raises:
            DataError: for an adapter that does not fit the base; then nothing has changed.
        """
        for adapter in adapters:
            check_fit(adapter, self._shapes)
        ends = [sum(other.rank for other in adapters[: index + 1]) for index in range(len(adapters))]
        places = [slice(end - adapter.rank, end) for adapter, end in zip(adapters, ends, strict=True)]
        table = torch.zeros(len(adapters) + 1, ends[-1] if ends else 0, dtype=torch.bool)
        for row, place in enumerate(places, start=1):
            table[row, place] = True
        for path in {path for adapter in adapters for path in adapter.layers} | set(self._wrapped):
            self._set(path, adapters, places)
        self._row = {BASE: 0} | {adapter.name: row for row, adapter in enumerate(adapters, start=1)}
        some = next(iter(self._wrapped.values()), None)
        self._table = table.to(some.device) if some else table

    def choose(self, names: Sequence[str]) -> None:
        """Say which adapter, or the base, each token of the next forward pass uses.

        Raises:
            KeyError: for an adapter that is not held; the base must never answer in its name.
        """
        rows = [self._row[name] for name in names]
        self.mask = self._table[rows] if any(rows) else None

    def _set(self, path: str, adapters: Sequence[AdapterWeights], places: Sequence[slice]) -> None:
        if path not in self._wrapped:
            self._wrapped[path] = self._wrap(path)
        outputs, inputs = self._shapes[path]
        ranks = places[-1].stop if places else 0
        down, up = torch.zeros(inputs, ranks), torch.zeros(ranks, outputs)
        for adapter, place in zip(adapters, places, strict=True):
            if path in adapter.layers:
                a, b = adapter.layers[path]
                down[:, place], up[place] = a.T, b.T
        self._wrapped[path].hold(down, up)

    def _wrap(self, path: str) -> "_LoraLinear":
        parent, _, attribute = path.rpartition(".")
        wrapped = _LoraLinear(self._model.get_submodule(path), self)
        setattr(self._model.get_submodule(parent), attribute, wrapped)
        return wrapped


class _LoraLinear(nn.Module):
    def __init__(self, base: Any, bank: LoraBank) -> None:
        super().__init__()
        self.base = base
        self._bank = bank
        self.device = base.weight.device
        self.dtype = base.weight.dtype if base.weight.dtype.is_floating_point else torch.bfloat16
        self._down = self._up = torch.zeros(0)

    def hold(self, down: Tensor, up: Tensor) -> None:
        """Take the matrices of all adapters: (inputs, ranks) and (ranks, outputs)."""
        self._down, self._up = down.to(self.device, self.dtype), up.to(self.device, self.dtype)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.base(x)
        mask = self._bank.mask
        if mask is None:
            return y
        # chosen, not multiplied: what overflows in one adapter must not reach another's tokens as 0 x infinity
        return y + torch.where(mask, x @ self._down, 0) @ self._up
