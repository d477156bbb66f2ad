"""Reads questions, and refuses broken files before any model is called."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from flywheel.errors import InputError, explain
from flywheel.evidence import from_triples
from flywheel.files import sha256
from flywheel.records import Question
from flywheel.rows import read_rows, supporting

_NAMES = {
    "id": ("_id", "qid", "question_id"),
    "question": ("Question", "Prompt", "prompt", "query"),
    "answer": ("Answer", "gold", "gold_answer", "answers", "golden_answers"),
    "aliases": ("answer_aliases", "answers_aliases"),
    "kind": ("type", "reasoning_types"),
}
"""Names that HotpotQA, 2WikiMultihopQA, MuSiQue, Bamboogle and FRAMES have for our fields, the first found counts."""


def read_questions(
    path: str, split: str = "", limit: int = 0, shuffle_seed: int | None = None, names: Mapping[str, str] | None = None
) -> list[Question]:
    """Read questions from a file or a dataset; `embedded` is the set that ships with Flywheel.

    Args:
        split: keep only this split, where questions name one.
        limit: keep at most so many (0: all), after shuffling.
        names: the file's name for a field of ours, where it is none that is known.

    Raises:
        InputError: for a missing file, a row without question or answer, or an id that occurs twice; names the line.
    """
    questions: dict[str, Question] = {}
    for place, row in read_rows(path):
        question = _question(row, place, names or {})
        if question.id in questions:
            raise InputError(f"{place}: the id {question.id!r} occurs twice")
        questions[question.id] = question
    chosen = [question for question in questions.values() if not split or question.split == split]
    if not chosen:
        splits = ", ".join(sorted({question.split for question in questions.values()}))
        if not splits:
            raise InputError(f"{path} is empty: it has no questions")
        raise InputError(f"{path} has no questions{f' of split {split!r} (it has: {splits})' if split else ''}")
    if shuffle_seed is not None:
        random.Random(shuffle_seed).shuffle(chosen)
    return chosen[:limit] if limit else chosen


def _question(row: dict[str, Any], place: str, names: Mapping[str, str]) -> Question:
    known = {name: value for name, value in row.items() if name in Question.model_fields and value is not None}
    known.pop("supporting", None)
    for name, others in _NAMES.items():
        found = (row[other] for other in others if row.get(other) is not None)
        if name not in known and (value := next(found, None)) is not None:
            known[name] = value
    for name, theirs in names.items():
        if row.get(theirs) is None:
            raise InputError(f"{place}: there is no {theirs!r} to take as {name!r} (it has: {', '.join(row)})")
        known[name] = row[theirs]
    if not known.get("split"):
        known.pop("split", None)
    _spread_answers(known)
    _as_texts(known)
    for name in ("question", "answer"):
        if not isinstance(known.get(name), str) or not known[name].strip():
            raise InputError(f"{place}: a question needs a text in the field {name!r}")
    known["supporting"] = supporting(row)
    known = from_triples(row.get("evidences"), known["supporting"], known["answer"]) | known
    # a question without an id is known by what it says, in whatever file and line it stands
    known.setdefault("id", f"q-{sha256(known['question'], known['answer'])[:12]}")
    try:
        return Question.model_validate(known)
    except ValidationError as error:
        foreign = {str(detail["loc"][0]) for detail in error.errors()} & {"evidence", "wording", "operation"}
        if foreign:  # a column of that name with a meaning of its own
            return _question({name: value for name, value in row.items() if name not in foreign}, place, names)
        raise InputError(f"{place}: {explain(error)}") from error


def _as_texts(known: dict[str, Any]) -> None:
    """Numbers where texts are meant, and lists written as one text, as tables have them."""
    for name in ("id", "answer", "kind", "split"):
        value = known.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            known[name] = str(int(value) if isinstance(value, float) and value.is_integer() else value)
    if isinstance(known.get("kind"), list):
        known["kind"] = ", ".join(map(str, known["kind"]))
    if isinstance(known.get("aliases"), str) and known["aliases"].strip():
        aliases = known["aliases"].strip()
        if "|" not in aliases:
            return
        known["aliases"] = [alias.strip() for alias in aliases.split("|") if alias.strip()]


def _spread_answers(known: dict[str, Any]) -> None:
    """Several golds in one field: the first is the answer, the others are aliases."""
    golds = known.get("answer")
    if isinstance(golds, dict):  # SQuAD's {"text": [...], "answer_start": [...]}
        golds = golds.get("text")
    if isinstance(golds, list) and golds and all(isinstance(gold, str) for gold in golds):
        known["answer"] = golds[0]
        known.setdefault("aliases", [gold for gold in dict.fromkeys(golds) if gold != golds[0]])


def parse_names(pairs: Sequence[str]) -> dict[str, str]:
    """`--map question=Prompt` as a mapping of our field names to the file's.

    Raises:
        InputError: for a field that questions do not have.
    """
    names = {}
    for pair in pairs:
        ours, _, theirs = pair.partition("=")
        if ours not in ("id", "question", "answer", "aliases", "kind", "split") or not theirs:
            raise InputError(
                f"--map {pair}: expected FIELD=NAME, the field one of id, question, answer, aliases, kind, split"
            )
        names[ours] = theirs
    return names


def summarise(questions: Sequence[Question]) -> str:
    """How many questions of which kinds, on one line."""
    kinds: dict[str, int] = {}
    for question in questions:
        kinds[question.kind or "any kind"] = kinds.get(question.kind or "any kind", 0) + 1
    listed = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items(), key=lambda item: -item[1])[:6])
    return f"{len(questions)} questions ({listed}{', ...' if len(kinds) > 6 else ''})"
