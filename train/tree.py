"""Rows that share prefixes as one sequence: a token that several rows begin with is computed once.

The rows of a batch form a prefix tree (a trie) of tokens. Its nodes are laid out in one sequence, parents before their
children; a token attends to its ancestors only, and its position is its depth. So every token sees exactly what it sees
in its own row, and a system prompt, a task, or the earlier steps of a run are there once, however many rows begin with
them. The loss is that of the separate rows: the sum over the rows' trained tokens of weight x cross entropy.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from .rows import Row


@dataclass
class Tree:
    """A prefix tree of token rows, laid out for one forward pass. N nodes, T targets."""

    tokens: list[int] = field(default_factory=list)
    """Token of each node (N)."""
    parents: list[int] = field(default_factory=list)
    """Node before it in its row, or -1 (N); always smaller than the node."""
    depths: list[int] = field(default_factory=list)
    """Position of the node in its row, from 0 (N)."""
    targets: dict[tuple[int, int], float] = field(default_factory=dict)
    """(node that predicts, token that follows) -> summed weight (T)."""
    rows: int = 0
    row_tokens: int = 0
    """Tokens that the rows have when each stands alone."""
    row_targets: int = 0
    """Those of them that are trained."""

    @classmethod
    def of(cls, rows: Sequence[Row]) -> "Tree":
        """The tree of these rows."""
        tree = cls()
        children: dict[tuple[int, int], int] = {}
        for row in rows:
            tree._add(row, children)
        return tree

    def _add(self, row: Row, children: dict[tuple[int, int], int]) -> None:
        node = -1
        for place, token in enumerate((*row.prompt, *row.completion)):
            if place >= len(row.prompt):
                key = (node, token)
                self.targets[key] = self.targets.get(key, 0.0) + row.weight
            following = children.get((node, token))
            if following is None:
                following = len(self.tokens)
                children[node, token] = following
                self.tokens.append(token)
                self.parents.append(node)
                self.depths.append(place)
            node = following
        self.rows += 1
        self.row_tokens += len(row)
        self.row_targets += len(row.completion)

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def is_chain(self) -> bool:
        """No node has two children: an ordinary causal sequence, which needs no mask of its own."""
        return all(parent == node - 1 for node, parent in enumerate(self.parents))

    def inputs(self) -> dict[str, Tensor]:
        """What a causal language model of transformers takes, and what the loss needs.

        Returns:
            `input_ids` and `position_ids` (1, N); `attention_mask` (1, 1, N, N), true where a row attends to a column,
            left out for a chain; `predictors` (P), the nodes whose logits are wanted; `logit` (T), which of these
            predicts each target; `labels` and `weights` (T); `row_targets` (), a number.
        """
        predictors = sorted({node for node, _ in self.targets})
        places = {node: place for place, node in enumerate(predictors)}
        found = {
            "input_ids": torch.tensor([self.tokens]),
            "position_ids": torch.tensor([self.depths]),
            "predictors": torch.tensor(predictors),
            "logit": torch.tensor([places[node] for node, _ in self.targets]),
            "labels": torch.tensor([token for _, token in self.targets]),
            "weights": torch.tensor(list(self.targets.values())),
            "row_targets": torch.tensor(self.row_targets),
        }
        if not self.is_chain:
            found["attention_mask"] = self.mask()[None, None]
        return found

    def mask(self) -> Tensor:
        """(N, N), true where the node of the row attends to the node of the column: itself and its ancestors."""
        size = len(self)
        mask = torch.zeros(size, size, dtype=torch.bool)
        for node, parent in enumerate(self.parents):
            if parent >= 0:
                mask[node] = mask[parent]
            mask[node, node] = True
        return mask
