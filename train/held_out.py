"""Questions that must never be trained on, recognised in whatever file and wording they come back."""

from collections import Counter, defaultdict
from collections.abc import Iterable

from flywheel.grading import normalise
from flywheel.grading.forms import words
from flywheel.grading.words import COPULAS, FUNCTION
from flywheel.records import Question

NEAR = 0.6
"""Two questions are near if each has all names and numbers of the other, and they share this much of their other words
(Jaccard index of stems, without words that every question may have)."""
_NAMELESS = 0.8
"""The same for two questions without any name or number."""
_COMMON = frozenset(
    "what which who whom whose where when why how many much please tell me you say answer question q a give find know "
    "can could can't i we our us exactly".split()
)
"""Words that ask, and tell nothing of what is asked."""


class HeldOut:
    """A set of questions, asked whether a question is one of them.

    A question is recognised by its id, by its text after the official normaliser, or by being near (see NEAR).
    """

    def __init__(self, questions: Iterable[Question] = ()) -> None:
        self._ids: set[str] = set()
        self._texts: set[str] = set()
        self._known: list[tuple[frozenset[str], frozenset[str]]] = []
        self._with: defaultdict[str, list[int]] = defaultdict(list)
        """Places of the known questions that have a word."""
        for question in questions:
            self.add(question.id, question.question)

    def __len__(self) -> int:
        return len(self._texts)

    def add(self, id: str, text: str) -> None:
        """Hold a question out from now on."""
        self._ids.add(id)
        if normalise(text) in self._texts:
            return
        self._texts.add(normalise(text))
        names, content = _signature(text)
        for word in content:
            self._with[word].append(len(self._known))
        self._known.append((names, content))

    def __contains__(self, question: Question) -> bool:
        return self.holds(question.id, question.question)

    def holds(self, id: str, text: str) -> bool:
        """Whether a question is one of them."""
        if id in self._ids or normalise(text) in self._texts:
            return True
        names, content = _signature(text)
        shared = Counter(place for word in content for place in self._with.get(word, ()))
        return any(_near(names, content, *self._known[place]) for place in shared)


def _near(names: frozenset[str], content: frozenset[str], names2: frozenset[str], content2: frozenset[str]) -> bool:
    named = names | names2
    if not named <= content or not named <= content2:
        return False
    return _jaccard(content - named, content2 - named) >= (NEAR if named else _NAMELESS)


def _signature(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """(names and numbers, all words that tell something) of a question, as stems.

    The first word of a text is capital by its place, so that it may be a name or not: it counts as no name.
    """
    found = words(text)
    telling = [(place, word) for place, word in enumerate(found) if word.form not in FUNCTION | COPULAS | _COMMON]
    names = {word.stem for place, word in telling if word.number or (word.capital and place > 0)}
    return frozenset(names), frozenset(word.stem for _, word in telling if len(word.form) > 1 or word.number)


def _jaccard(first: frozenset[str], second: frozenset[str]) -> float:
    union = first | second
    return len(first & second) / len(union) if union else 1.0
