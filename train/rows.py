"""Examples -> token rows: exactly the tokens that serving would send and expect, with the loss on completions only."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flywheel.chat import encode, end_of_turn, prompt_ids
from flywheel.errors import DataError
from flywheel.records import Example

IGNORED = -100
"""Label of tokens that bear no loss (the convention of PyTorch's cross entropy)."""


@dataclass(frozen=True)
class Row:
    """Token ids and labels of one example, of equal length."""

    ids: list[int]
    labels: list[int]
    weight: float

    @property
    def trained(self) -> int:
        """Tokens that bear loss."""
        return sum(label != IGNORED for label in self.labels)


def tokenise(tokenizer: Any, example: Example) -> Row:
    """Tokens of an example: each trained turn is preceded by exactly the prompt that its call was sent.

    Raises:
        DataError: when a later prompt does not begin with the tokens of an earlier one and its completion, so that
            training and serving would see different tokens.
    """
    ending = end_of_turn(tokenizer)
    ids: list[int] = []
    labels: list[int] = []
    for target in example.targets:
        position = len(example.prompt) + target
        prompt = prompt_ids(tokenizer, example.messages[:position])
        if prompt[: len(ids)] != ids:
            raise DataError(f"{example.calls[0]}: the chat template does not keep the tokens of earlier turns")
        labels += [IGNORED] * (len(prompt) - len(ids))
        completion = encode(tokenizer, example.messages[position].content + ending)
        ids = prompt + completion
        labels += completion
    return Row(ids=ids, labels=labels, weight=example.weight)


def usable(rows: Sequence[Row], max_tokens: int) -> tuple[list[Row], int]:
    """The rows that fit, and how many were too long: a cut completion would teach to stop in the middle."""
    fitting = [row for row in rows if len(row.ids) <= max_tokens and row.trained]
    return fitting, len(rows) - len(fitting)
