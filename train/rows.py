"""Examples -> token rows: exactly the tokens that serving would send and expect, the loss on the completion only."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flywheel.chat import encode, end_of_turn, prompt_ids
from flywheel.records import Example


@dataclass(frozen=True)
class Row:
    """Token ids of one example: the prompt, then the completion with the tokens that end the turn."""

    prompt: list[int]
    completion: list[int]
    weight: float
    run: str

    def __len__(self) -> int:
        return len(self.prompt) + len(self.completion)


def tokenise(tokenizer: Any, example: Example) -> Row:
    """Tokens of an example: the prompt as serving renders it, and what the model wrote, with the end of its turn."""
    return Row(
        prompt=prompt_ids(tokenizer, example.prompt),
        completion=encode(tokenizer, example.completion[0].content + end_of_turn(tokenizer)),
        weight=example.weight,
        run=example.run,
    )


def usable(rows: Sequence[Row], max_tokens: int) -> tuple[list[Row], int]:
    """The rows that fit, and how many were too long: a cut completion would teach to stop in the middle."""
    fitting = [row for row in rows if len(row) <= max_tokens]
    return fitting, len(rows) - len(fitting)
