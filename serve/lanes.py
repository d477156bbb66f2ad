"""The key/value cache of sequences that are decoded together, each in a lane of its own.

Lanes have room for a whole sequence from the start, so that a step writes one position per lane and copies nothing.
"""

from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface
from transformers.cache_utils import Cache

ATTENTION = "flywheel_lanes"


def lane_attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, scaling: float | None = None,
    dropout: float = 0.0, **_: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    """Attention that does not copy grouped keys and values once per query head.

    Query heads that share a key/value head become more queries of that head. Shapes: query (rows, heads, new, size), key
    and value (rows, groups, past + new, size), mask (rows, 1, new, past + new) with True where a query may look.
    """
    rows, heads, new, size = query.shape
    groups = key.shape[1]
    shared = heads // groups
    grouped = query.reshape(rows, groups, shared * new, size)
    mask = attention_mask if attention_mask is None or new == 1 else attention_mask.repeat(1, 1, shared, 1)
    out = torch.nn.functional.scaled_dot_product_attention(grouped, key, value, attn_mask=mask, scale=scaling)
    return out.reshape(rows, heads, new, size).transpose(1, 2).contiguous(), None


AttentionInterface.register(ATTENTION, lane_attention)


class Prefix:
    """Keys and values of a finished sequence, to start a longer one from."""

    def __init__(self, model: str, ids: list[int], keys: Tensor, values: Tensor) -> None:
        self.model = model
        self.ids = ids
        self.keys = keys
        self.values = values

    @property
    def bytes(self) -> int:
        """Memory it holds."""
        return self.keys.nbytes + self.values.nbytes

    def common(self, ids: list[int]) -> int:
        """How many tokens a sequence shares with it from the start."""
        for position, (a, b) in enumerate(zip(self.ids, ids, strict=False)):
            if a != b:
                return position
        return min(len(self.ids), len(ids))


class Lanes:
    """Storage of all lanes; tensors of shape (layers, lanes, groups, length, size)."""

    def __init__(self, config: Any, lanes: int, length: int, dtype: torch.dtype, device: Any) -> None:
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        shape = (config.num_hidden_layers, lanes, config.num_key_value_heads, length, size)
        self.keys = torch.zeros(shape, dtype=dtype, device=device)
        self.values = torch.zeros(shape, dtype=dtype, device=device)
        self.length = length

    def load(self, lane: int, prefix: Prefix, length: int) -> None:
        """Put the first tokens of a prefix into a lane."""
        self.keys[:, lane, :, :length] = prefix.keys[:, :, :length]
        self.values[:, lane, :, :length] = prefix.values[:, :, :length]

    def save(self, lane: int, model: str, ids: list[int]) -> Prefix:
        """Copy a lane's first len(ids) positions out."""
        length = len(ids)
        return Prefix(model, ids, self.keys[:, lane, :, :length].clone(), self.values[:, lane, :, :length].clone())

    def move(self, source: int, target: int, length: int) -> None:
        """Copy one lane over another."""
        self.keys[:, target, :, :length] = self.keys[:, source, :, :length]
        self.values[:, target, :, :length] = self.values[:, source, :, :length]


class LaneView(Cache):  # type: ignore[misc]  # transformers is untyped here
    """What one forward pass sees of the lanes: some lanes, and where each one's new tokens go.

    Args:
        lanes: the storage.
        rows: lanes of the batch, or None for the first ones in order, which needs no gathering.
        positions: index of each new token in its lane, of shape (rows, new).
        width: positions of each lane that attention looks at.
    """

    def __init__(self, lanes: Lanes, rows: Tensor | None, positions: Tensor, width: int) -> None:
        self.layers = []
        self._lanes = lanes
        self._rows = rows
        self._positions = positions
        self._width = width
        self._index = torch.arange(positions.shape[0], device=positions.device)[:, None] if rows is None else rows[:, None]

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Write the new keys and values of a layer, and return all that attention looks at."""
        keys, values = self._lanes.keys[layer_idx], self._lanes.values[layer_idx]
        keys[self._index, :, self._positions] = key_states.transpose(1, 2)
        values[self._index, :, self._positions] = value_states.transpose(1, 2)
        if self._rows is None:
            count = self._positions.shape[0]
            return keys[:count, :, : self._width], values[:count, :, : self._width]
        return keys[self._rows, :, : self._width], values[self._rows, :, : self._width]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Positions are passed explicitly, so transformers need not derive them from here."""
        return 0

    def get_mask_sizes(self, *_: Any, **__: Any) -> tuple[int, int]:
        """Length and offset of the keys, for a mask that is passed ready-made."""
        return self._width, 0
