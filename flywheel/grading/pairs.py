"""Predictions to grade, out of a file."""

from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from flywheel.errors import InputError, explain
from flywheel.files import read_jsonl


class Pair(BaseModel):
    """A prediction and what it should have been."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    question: str = ""
    gold: str
    aliases: list[str] = []
    prediction: str


def read_pairs(path: Path) -> Iterator[Pair]:
    """Read JSON Lines of {question, gold, aliases, prediction}; other fields are let be.

    Raises:
        InputError: when the file is missing, or a row lacks a field or has one of a wrong type; names file and line.
    """
    for number, row in read_jsonl(path):
        try:
            yield Pair.model_validate(row)
        except ValidationError as error:
            raise InputError(f"{path}:{number}: {explain(error)}") from error
