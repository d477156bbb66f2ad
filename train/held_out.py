"""Questions that must never be trained on, recognised in whatever file and wording they come back."""

from flywheel.grading import normalise
from flywheel.grading.forms import words
from flywheel.grading.words import COPULAS, FUNCTION
from flywheel.records import Question

NEAR = 0.6
"""Two questions are near if they name the same things (names and numbers), and share this much of their other words
(Jaccard index of stems, without function words)."""


class HeldOut:
    """A set of questions, asked whether a question is one of them.

    A question is recognised by its id, by its text after the official normaliser, or by being near (see NEAR).
    """

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._texts: set[str] = set()
        self._near: dict[frozenset[str], list[frozenset[str]]] = {}

    def __len__(self) -> int:
        return len(self._texts)

    def add(self, id: str, text: str) -> None:
        """Hold a question out from now on."""
        self._ids.add(id)
        if normalise(text) in self._texts:
            return
        self._texts.add(normalise(text))
        names, rest = _signature(text)
        if names:
            self._near.setdefault(names, []).append(rest)

    def __contains__(self, question: Question) -> bool:
        if question.id in self._ids or normalise(question.question) in self._texts:
            return True
        names, rest = _signature(question.question)
        return any(_jaccard(rest, other) >= NEAR for other in self._near.get(names, ()))


def _signature(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """(names and numbers, other words) of a question, as stems."""
    found = [word for word in words(text) if word.form not in FUNCTION]
    names = {word.stem for place, word in enumerate(found) if word.number or (word.capital and place > 0)}
    rest = {word.stem for word in found if word.stem not in names and word.form not in COPULAS}
    return frozenset(names), frozenset(rest)


def _jaccard(first: frozenset[str], second: frozenset[str]) -> float:
    union = first | second
    return len(first & second) / len(union) if union else 1.0
