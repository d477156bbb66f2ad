"""Two engines as one: a teacher plays some roles, and what it wrote is marked as its own."""

from collections.abc import Mapping
from pathlib import Path

from flywheel.engines.base import Completion, CompletionRequest, Engine, Watch

TEACHER = "teacher:"
"""Begins the name under which a role is asked of the teacher, and the name that its calls are marked with."""


class RoutedEngine:
    """Sends requests for `teacher:NAME` to the teacher, which is asked for NAME, and all others to the own engine.

    Args:
        own: None if the teacher plays every role.
        label: what the teacher's completions are marked with, after `teacher:`.
    """

    def __init__(self, own: Engine | None, teacher: Engine, label: str) -> None:
        self._own = own
        self._teacher = teacher
        self._label = label

    def complete(self, request: CompletionRequest, watch: Watch | None = None) -> Completion:
        """See Engine."""
        if not request.model.startswith(TEACHER):
            return (self._own or self._teacher).complete(request, watch)
        asked = request.model_copy(update={"model": request.model.removeprefix(TEACHER)})
        return self._teacher.complete(asked, watch).model_copy(update={"model": f"{TEACHER}{self._label}"})

    def models(self) -> tuple[str, ...]:
        """What the own engine serves."""
        return (self._own or self._teacher).models()

    def load(self, adapters: Mapping[str, Path]) -> None:
        """See Engine; the teacher takes none."""
        if self._own:
            self._own.load(adapters)

    def close(self) -> None:
        """Close both."""
        self._teacher.close()
        if self._own:
            self._own.close()
