"""A deterministic engine for tests and for scripted teachers: a function from request to text."""

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from flywheel.engines.base import Completion, CompletionRequest, Watch
from flywheel.engines.text import cut_at_stop
from flywheel.errors import Cancelled
from flywheel.records import BASE

Script = Callable[[CompletionRequest], str]


class ScriptedEngine:
    """Answers with what a script returns. A script may sleep, or raise to play a failing engine.

    Args:
        script: a function of the request, or texts that are given out in turn, whatever is asked.
        delay: seconds each completion takes; a watched one comes word by word, in the same time.
    """

    def __init__(self, script: Script | Iterable[str], delay: float = 0.0) -> None:
        self._script = script if callable(script) else _in_turn(script)
        self._delay = delay

    def complete(self, request: CompletionRequest, watch: Watch | None = None) -> Completion:
        """Run the script; a text after which a stop text would have ended the completion is cut there."""
        text, stop = cut_at_stop(self._script(request), request.stop)
        pieces = text.split(" ") if watch else [text]
        for number, piece in enumerate(pieces):
            if self._delay:
                time.sleep(self._delay / len(pieces))
            if watch and watch.cancelled:
                raise Cancelled("the request was cancelled")
            if watch and watch.text:
                watch.text(piece if number == 0 else f" {piece}")
        words = sum(len(message.content.split()) for message in request.messages) or len(request.prompt.split())
        return Completion(
            text=text, finish_reason="stop", prompt_tokens=words, completion_tokens=len(text.split()),
            model=request.model or BASE, stop=stop,
        )  # fmt: skip

    def models(self) -> tuple[str, ...]:
        """Every name is served; these are the ones worth listing."""
        return (BASE,)

    def load(self, adapters: Mapping[str, Path]) -> None:
        """A script has no adapters."""

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
