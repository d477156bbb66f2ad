"""Grading of answers: the official exact match and token F1, unchanged, and `match`, what a careful person accepts."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

from flywheel.records import Verdict

from .gaia import gaia
from .match import match
from .official import exact_match, normalise, token_f1

if TYPE_CHECKING:
    from flywheel.engines import Engine

__all__ = ["Grader", "GraderName", "exact_match", "gaia", "grade", "match", "normalise", "open_grader", "token_f1"]

Grader = Callable[[str, Sequence[str], str], Verdict]
"""Grades a prediction against a gold and its aliases, knowing the question."""

GraderName = Literal["match", "gaia", "judge"]


def grade(prediction: str, golds: Sequence[str], question: str = "") -> Verdict:
    """Grade an answer against a gold and its aliases, with `match` for what a careful person accepts.

    `match` is stricter than exact match where the official normaliser loses meaning (an empty answer, `2.1` and `21`)
    and wider where it is blind to form (`41 years` for `41`, `December 14, 1990` for `14 December 1990`).
    """
    return _verdict(
        prediction, golds, next((found for gold in golds if (found := match(prediction, gold, question))), "")
    )


def open_grader(name: GraderName, engine: "Engine | None" = None) -> Grader:
    """The grader of that name. Exact match and F1 are the official ones with each; they differ in `match`.

    Args:
        name: `match`; `gaia`, the scorer of the GAIA benchmark; or `judge`, which has the engine's base model decide on
            the answers that `match` does not accept.
        engine: for `judge`.
    """
    if name == "gaia":
        return _grade_gaia
    if name == "match":
        return grade
    from .judge import judge

    def grade_judged(prediction: str, golds: Sequence[str], question: str) -> Verdict:
        verdict = grade(prediction, golds, question)
        if verdict.match or not prediction.strip():
            return verdict
        assert engine is not None
        return _verdict(prediction, golds, judge(engine, prediction, golds, question))

    return grade_judged


def _grade_gaia(prediction: str, golds: Sequence[str], question: str) -> Verdict:
    return _verdict(prediction, golds, next((found for gold in golds if (found := gaia(prediction, gold))), ""))


def _verdict(prediction: str, golds: Sequence[str], reason: str) -> Verdict:
    return Verdict(
        exact_match=exact_match(prediction, golds),
        f1=round(token_f1(prediction, golds), 4),
        match=bool(reason),
        reason=reason or "differs",
    )
