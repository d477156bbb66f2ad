"""Reads questions, and refuses broken files before any model is called."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from flywheel.errors import InputError
from flywheel.files import read_jsonl
from flywheel.records import Question
from flywheel.workspace import data_folder

_NAMES = {"_id": "id", "gold": "answer", "answer_aliases": "aliases", "type": "kind"}
"""Field names of HotpotQA, 2WikiMultihopQA and MuSiQue files, and ours."""


def read_questions(path: str, split: str = "", limit: int = 0, shuffle_seed: int | None = None) -> list[Question]:
    """Read a JSON Lines file of questions; `embedded` is the set that ships with Flywheel.

    Args:
        split: keep only this split, where questions name one.
        limit: keep at most so many (0: all), after shuffling.

    Raises:
        InputError: for a missing file, a row without question or answer, or an id that occurs twice; names the line.
    """
    file = data_folder() / "questions.jsonl" if path == "embedded" else Path(path)
    questions: dict[str, Question] = {}
    for number, row in read_jsonl(file):
        question = _question(row, f"{file}:{number}", number)
        if question.id in questions:
            raise InputError(f"{file}:{number}: the id {question.id!r} occurs twice")
        questions[question.id] = question
    chosen = [question for question in questions.values() if not split or question.split == split]
    if not chosen:
        splits = ", ".join(sorted({question.split for question in questions.values()}))
        if not splits:
            raise InputError(f"{file} is empty: it has no questions")
        raise InputError(f"{file} has no questions{f' of split {split!r} (it has: {splits})' if split else ''}")
    if shuffle_seed is not None:
        random.Random(shuffle_seed).shuffle(chosen)
    return chosen[:limit] if limit else chosen


def _question(row: dict[str, Any], place: str, number: int) -> Question:
    named = {_NAMES.get(name, name): value for name, value in row.items()}
    known = {name: value for name, value in named.items() if name in Question.model_fields and value is not None}
    known.setdefault("id", f"line-{number}")
    if not known.get("split"):
        known.pop("split", None)
    for name in ("question", "answer"):
        if not isinstance(known.get(name), str) or not known[name].strip():
            raise InputError(f"{place}: a question needs a text in the field {name!r}")
    try:
        return Question.model_validate(known)
    except ValidationError as error:
        detail = error.errors()[0]
        raise InputError(f"{place}: {'.'.join(map(str, detail['loc']))}: {detail['msg']}") from error


def summarise(questions: Sequence[Question]) -> str:
    """How many questions of which kinds, on one line."""
    kinds: dict[str, int] = {}
    for question in questions:
        kinds[question.kind or "any kind"] = kinds.get(question.kind or "any kind", 0) + 1
    return f"{len(questions)} questions ({', '.join(f'{count} {kind}' for kind, count in sorted(kinds.items()))})"
