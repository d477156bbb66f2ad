"""A deterministic engine for tests and for scripted teachers: a function from request to text."""

import time
from collections.abc import Callable, Iterable

from flywheel.engines.base import Completion, CompletionRequest
from flywheel.records import BASE

Script = Callable[[CompletionRequest], str]


class ScriptedEngine:
    """Answers with what a script returns. A script may sleep, or raise to play a failing engine.

    Args:
        script: a function of the request, or texts that are given out in turn, whatever is asked.
        delay: seconds each completion takes.
    """

    def __init__(self, script: Script | Iterable[str], delay: float = 0.0) -> None:
        self._script = script if callable(script) else _in_turn(script)
        self._delay = delay

    def complete(self, request: CompletionRequest) -> Completion:
        """Run the script; a text after which a stop text would have ended the completion is cut there."""
        if self._delay:
            time.sleep(self._delay)
        text, stop = cut_at_stop(self._script(request), request.stop)
        words = sum(len(message.content.split()) for message in request.messages)
        return Completion(
            text=text, finish_reason="stop", prompt_tokens=words, completion_tokens=len(text.split()),
            model=request.model or BASE, stop=stop,
        )  # fmt: skip

    def models(self) -> tuple[str, ...]:
        """Every name is served; these are the ones worth listing."""
        return (BASE,)

    def close(self) -> None:
        """Nothing to free."""


def _in_turn(texts: Iterable[str]) -> Script:
    iterator = iter(texts)

    def script(request: CompletionRequest) -> str:
        text = next(iterator, None)
        if text is None:
            raise AssertionError(f"the script has ended, but {request.model} was called again")
        return text

    return script


def cut_at_stop(text: str, stops: Iterable[str]) -> tuple[str, str]:
    """Cut a text before the first stop text in it.

    Returns:
        The text, and the stop text found (empty if none was).
    """
    found = [(position, stop) for stop in stops if stop and (position := text.find(stop)) >= 0]
    if not found:
        return text, ""
    position, stop = min(found)
    return text[:position], stop
