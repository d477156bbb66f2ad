"""Decides which rollout comes next: so many samples of each question, or as many as it takes to be right."""

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence

from flywheel.records import Question

_MOST_SAMPLES = 4
"""With a target, no question takes more than so many times its share of the budget."""


class Schedule:
    """Hands out (question, sample) pairs, each one once.

    Without a target every question gets the same number of samples, pass by pass. With one, a question is left alone
    once that many of its rollouts are right, and what it did not need goes to the questions that are not yet there,
    those with the fewest samples first, until the budget of samples x questions is spent. A question never has more
    rollouts under way than it still lacks right ones.

    Args:
        samples: rollouts per question; times the questions, the budget.
        target: right rollouts that a question needs, or 0.
        done: verdicts of the rollouts that need not be made again, by (question id, sample).
    """

    def __init__(
        self, questions: Sequence[Question], samples: int, target: int, done: Mapping[tuple[str, int], bool]
    ) -> None:
        self._questions = list(questions)
        self._target = target
        ids = {question.id for question in questions}
        counted = {key: right for key, right in done.items() if key[0] in ids and (target or key[1] < samples)}
        self._taken = set(counted)
        self._samples = samples
        self._most = samples * _MOST_SAMPLES if target else samples
        self._right = Counter(question for (question, _), right in counted.items() if right)
        self._count = Counter(question for question, _ in counted)
        self._under_way: Counter[str] = Counter()
        self.skipped = len(counted)
        self.budget = max(0, samples * len(self._questions) - self.skipped)
        """Most rollouts still to make."""
        self._left = self.budget
        self._places = {question.id: place for place, question in enumerate(self._questions)}
        self._offered: set[str] = set()
        self._waiting: list[tuple[int, int]] = []
        """A heap of (samples so far, place of the question)."""
        for question in self._questions:
            self._offer(question.id)

    @property
    def solved(self) -> int:
        """Questions with enough right rollouts: the target's number, or at least one."""
        return sum(self._right[question.id] >= max(1, self._target) for question in self._questions)

    def take(self) -> tuple[Question, int] | None:
        """The next rollout to make; None if there is none, at least until one under way has ended."""
        while self._left > 0 and self._waiting:
            _, place = heapq.heappop(self._waiting)
            question = self._questions[place]
            self._offered.discard(question.id)
            if not self._wants(question.id):
                continue
            sample = next(number for number in range(self._most) if (question.id, number) not in self._taken)
            self._taken.add((question.id, sample))
            self._count[question.id] += 1
            self._under_way[question.id] += 1
            self._left -= 1
            self._offer(question.id)
            return question, sample
        return None

    def end(self) -> None:
        """Hand out nothing more."""
        self._left = 0

    def ended(self, question: str, right: bool) -> None:
        """Say that a rollout which was handed out has ended."""
        self._under_way[question] -= 1
        self._right[question] += right
        self._offer(question)

    def _offer(self, question: str) -> None:
        """Put a question in line, unless it stands there or wants nothing now."""
        if question not in self._offered and self._wants(question):
            self._offered.add(question)
            heapq.heappush(self._waiting, (self._count[question], self._places[question]))

    def _wants(self, question: str) -> bool:
        if self._count[question] >= self._most:
            return False
        return not self._target or self._right[question] + self._under_way[question] < self._target
