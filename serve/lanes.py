"""The key/value cache of sequences that are computed together, each in a lane of its own, and attention over it.

A forward pass takes any number of new tokens of any lanes, laid end to end: one token of a sequence that is being
generated, many of one whose prompt is being read. Nothing is padded, and lanes have room for a whole sequence from the
start, so nothing is copied either.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface
from transformers.cache_utils import Cache

ATTENTION = "flywheel_lanes"


@dataclass(frozen=True)
class Feed:
    """New tokens of one lane in a forward pass."""

    lane: int
    start: int
    """Position of the first new token in its sequence."""
    ids: list[int]


class Prefix:
    """Keys and values of a finished sequence, to start a longer one from."""

    def __init__(self, ids: list[int], keys: Tensor, values: Tensor) -> None:
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

    def clear(self, lane: int) -> None:
        """Wipe what a sequence before has left: numbers that are not finite would pass through every mask."""
        self.keys[:, lane] = 0
        self.values[:, lane] = 0

    def load(self, lane: int, prefix: Prefix, length: int) -> None:
        """Put the first tokens of a prefix into a lane."""
        self.keys[:, lane, :, :length] = prefix.keys[:, :, :length]
        self.values[:, lane, :, :length] = prefix.values[:, :, :length]

    def save(self, lane: int, ids: list[int]) -> Prefix:
        """Copy a lane's first len(ids) positions out."""
        length = len(ids)
        return Prefix(ids, self.keys[:, lane, :, :length].clone(), self.values[:, lane, :, :length].clone())

    def move(self, source: int, target: int, length: int) -> None:
        """Copy one lane over another."""
        self.keys[:, target, :, :length] = self.keys[:, source, :, :length]
        self.values[:, target, :, :length] = self.values[:, source, :, :length]


class LaneView(Cache):  # type: ignore[misc]  # transformers is untyped here
    """What one forward pass does with the lanes: where its tokens go, and what each of them may look at.

    Attributes:
        ids: all new tokens, of shape (1, tokens).
        positions: their positions, of the same shape.
        last: index of each feed's last token.
    """

    def __init__(self, lanes: Lanes, feeds: list[Feed], device: Any) -> None:
        self.layers: list[Any] = []
        self._lanes = lanes
        counts = [len(feed.ids) for feed in feeds]
        ends = [sum(counts[: index + 1]) for index in range(len(counts))]
        self.ids = torch.tensor([[token for feed in feeds for token in feed.ids]], device=device)
        positions = [position for feed in feeds for position in range(feed.start, feed.start + len(feed.ids))]
        self.positions = torch.tensor([positions], device=device)
        self.last = torch.tensor(ends, device=device) - 1
        self._token_lanes = torch.tensor([feed.lane for feed in feeds for _ in feed.ids], device=device)
        # Feeds of one token are answered together; they need no copy when they are the first lanes in order.
        single = [(end - 1, feed) for end, feed in zip(ends, feeds, strict=True) if len(feed.ids) == 1]
        self._single = torch.tensor([index for index, _ in single], dtype=torch.long, device=device)
        lanes_used = [feed.lane for _, feed in single]
        self._single_lanes: Tensor | slice = torch.tensor(lanes_used, dtype=torch.long, device=device)
        if lanes_used == list(range(len(single))):
            self._single_lanes = slice(0, len(single))
        starts = torch.tensor([feed.start for _, feed in single], device=device)
        self._width = max((feed.start for _, feed in single), default=-1) + 1
        self._single_mask = torch.arange(self._width, device=device) <= starts[:, None, None, None]
        self._reading = [
            (end - len(feed.ids), feed) for end, feed in zip(ends, feeds, strict=True) if len(feed.ids) > 1
        ]
        self._reading_masks = [
            torch.arange(feed.start + len(feed.ids), device=device)
            <= torch.arange(feed.start, feed.start + len(feed.ids), device=device)[:, None]
            for _, feed in self._reading
        ]

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Write the new keys and values of a layer, and return those of all its lanes."""
        keys, values = self._lanes.keys[layer_idx], self._lanes.values[layer_idx]
        keys[self._token_lanes, :, self.positions[0]] = key_states[0].transpose(0, 1)
        values[self._token_lanes, :, self.positions[0]] = value_states[0].transpose(0, 1)
        return keys, values

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, scale: float | None) -> Tensor:
        """Attention of the new tokens over their lanes.

        Query heads that share a key/value head become more queries of that head, so that nothing is repeated for them.

        Args:
            query: shape (1, heads, tokens, size).
            keys: shape (lanes, groups, length, size); values likewise.

        Returns:
            Shape (1, tokens, heads, size).
        """
        _, heads, tokens, size = query.shape
        groups = keys.shape[1]
        shared = heads // groups
        attention = torch.nn.functional.scaled_dot_product_attention
        out = query.new_empty(tokens, heads, size)
        if len(self._single):
            rows = query[0].transpose(0, 1)[self._single].reshape(-1, groups, shared, size)
            found_keys = keys[self._single_lanes, :, : self._width]
            found_values = values[self._single_lanes, :, : self._width]
            answered = attention(rows, found_keys, found_values, attn_mask=self._single_mask, scale=scale)
            out[self._single] = answered.reshape(-1, heads, size)
        for (first, feed), mask in zip(self._reading, self._reading_masks, strict=True):
            count, width = len(feed.ids), feed.start + len(feed.ids)
            rows = query[:, :, first : first + count].reshape(1, groups, shared * count, size)
            found_keys = keys[feed.lane : feed.lane + 1, :, :width]
            found_values = values[feed.lane : feed.lane + 1, :, :width]
            answered = attention(rows, found_keys, found_values, attn_mask=mask.repeat(shared, 1), scale=scale)
            out[first : first + count] = answered.reshape(heads, count, size).transpose(0, 1)
        return out[None]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Positions are passed explicitly, so transformers need not derive them from here."""
        return 0

    def get_mask_sizes(self, *_: Any, **__: Any) -> tuple[int, int]:
        """Part of the interface; masks are made here and not by transformers."""
        return self.positions.shape[1], 0


def _attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, scaling: float | None = None,
    *, lane_view: LaneView, **_: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    return lane_view.attend(query, key, value, scaling), None


AttentionInterface.register(ATTENTION, _attention)
