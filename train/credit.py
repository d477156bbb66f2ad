"""Which agent runs deserve the credit of a right answer, and which deserve some although the answer was wrong."""

import ast
import re
from collections.abc import Iterable

from flywheel.grading.forms import Word, words
from flywheel.grading.words import APPROXIMATE, COPULAS, FUNCTION, HEDGES
from flywheel.records import AgentRun, Rollout

_CUT = 200
"""Characters of a report that must have come back; a long one may have been cut."""
_COVERED = 0.6
"""Share of the words of a report without names and numbers that must stand in the observations."""


def report_used(rollout: Rollout, run: AgentRun) -> bool:
    """Whether the report came back to the caller as an observation; a root's report is the answer."""
    if run.parent_call is None:
        return True
    for parent in rollout.runs:
        for call in parent.calls:
            if call.id == run.parent_call:
                return call.observation is None or run.report[:_CUT] in call.observation
    return False


def grounded(run: AgentRun) -> bool:
    """Whether the report says nothing that the run has not seen: no number and no name from memory.

    Numbers may be computed: if the last step's code has arithmetic or a comparison in it, its own numbers must have
    been seen. So must values that code compares with one another: a right choice between two made-up numbers is luck.
    `Yes`, `no`, and a report that nothing was found claim nothing.
    """
    seen = {word.stem for text in _evidence(run) for word in words(text)}
    if any(word.stem not in seen for call in run.calls for word in _compared(call.code or "")):
        return False
    claims = [word for word in _claims(run.report) if word.form not in ("yes", "no")]
    missing = [word for word in claims if word.stem not in seen]
    code = run.calls[-1].code if run.calls else None
    if any(word.number for word in missing) and code and re.search(r"[-+*/<>]|\babs\b|\blen\b|\bround\b", code):
        operands = [word for word in words(re.sub(r"[^\w.]", " ", code)) if word.number]
        missing = [word for word in missing if not word.number] + [
            word for word in operands if word.stem not in seen and len(word.form) > 1
        ]
    if any(word.number or word.capital for word in claims):
        return not any(word.number or word.capital for word in missing)
    if any(word.form in HEDGES for word in words(run.report)):
        return True
    return len(missing) <= (1 - _COVERED) * len(claims)


def _compared(code: str) -> Iterable[Word]:
    """Words of literal values that are compared with literal values, such as both years of `1889 < 1931`."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if all(isinstance(side, ast.Constant) and isinstance(side.value, int | float | str) for side in sides):
                yield from (word for side in sides for word in words(str(side.value)))  # type: ignore[attr-defined]


def _evidence(run: AgentRun) -> Iterable[str]:
    yield run.task
    yield from (call.observation for call in run.calls if call.observation)


def _claims(report: str) -> list[Word]:
    """Words of weight; the first word of a sentence is capital by its place alone, and claims nothing by that."""
    found: list[Word] = []
    for sentence in re.split(r"(?<=[.!?])\s+", report):
        for place, word in enumerate(words(sentence)):
            if word.form in FUNCTION | COPULAS | APPROXIMATE | HEDGES:
                continue
            begins = place == 0 and len(words(sentence)) > 3
            found.append(Word(word.form, word.capital and not begins, word.after_comma))
    return found


def facts(run: AgentRun) -> frozenset[str]:
    """Numbers and names of a report that its task did not have: what the run has found out."""
    known = {word.stem for word in words(run.task)}
    return frozenset(
        word.stem for word in _claims(run.report) if (word.number or word.capital) and word.stem not in known
    )


def same_finding(run: AgentRun, other: AgentRun) -> bool:
    """Whether one run's report holds what another, of the same role and on the same task, has found out."""
    found = facts(other)
    return run.role == other.role and _task(run) == _task(other) and bool(found) and found <= facts(run)


def _task(run: AgentRun) -> frozenset[str]:
    return frozenset(word.stem for word in words(run.task) if word.form not in FUNCTION)
