"""The engine protocol: everything that completes messages is called in the same way."""

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable

from flywheel.config import EngineConfig
from flywheel.records import BASE, Message, Record
from flywheel.stages import stage

_LEAST_TEMPERATURE = 1e-4
"""Below it the likeliest token is as good as certain."""


class CompletionRequest(Record):
    """One request for one completion."""

    messages: tuple[Message, ...] = ()
    prompt: str = ""
    """Text to go on from as it stands, without a chat template; in place of messages."""
    model: str = BASE
    """A role, `role@version`, or `base`."""
    max_tokens: int = 512
    temperature: float = 0.0
    top_p: float = 1.0
    """Draw from the likeliest tokens that together have this probability."""
    seed: int = 0
    stop: tuple[str, ...] = ()
    """Texts that end the completion; they are not part of its text."""
    session: str = ""
    """Requests of one agent run share it, so that an engine finds the run's cached prefix. Never changes the result."""
    logprobs: int | None = None
    """How many of the likeliest tokens to give at each place, beside the one that was taken; None for no logprobs."""

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is taken; dividing by a temperature this small would overflow."""
        return self.temperature < _LEAST_TEMPERATURE


class TokenLogprob(Record):
    """A token of a completion and how likely it was, at temperature 1."""

    token: str
    logprob: float
    """Natural logarithm of its probability."""
    top: tuple[tuple[str, float], ...] = ()
    """The likeliest tokens at this place, likeliest first."""


class Completion(Record):
    """The answer to a request."""

    text: str
    """Without the stop text and without the end-of-turn token."""
    finish_reason: str
    """`stop` (end of turn or a stop text) or `length`."""
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    """Tokens of the prompt that did not have to be read again, as far as the engine tells."""
    model: str
    """What answered: `base` or an adapter version."""
    stop: str = ""
    """The stop text that ended it, if one did and the engine can tell."""
    logprobs: tuple[TokenLogprob, ...] = ()
    """One for each token, where they were asked for."""


class Watch:
    """How the one who asked follows a request while it is answered, or gives it up.

    Args:
        text: called with each new piece of the completion's text; together they are the whole. Must not block.
    """

    def __init__(self, text: Callable[[str], None] | None = None) -> None:
        self.text = text
        self._lock = threading.Lock()
        self._cancelled = False
        self._then: Callable[[], None] | None = None

    @property
    def cancelled(self) -> bool:
        """Whether the request is no longer wanted; the engine then drops it."""
        return self._cancelled

    def cancel(self) -> None:
        """Give the request up."""
        with self._lock:
            self._cancelled = True
            if self._then:
                self._then()

    def on_cancel(self, then: Callable[[], None] | None) -> None:
        """What else is to happen as soon as the request is given up; None for nothing any more."""
        with self._lock:
            self._then = then
            if self._cancelled and then:
                then()


class Engine(Protocol):
    """Completes messages. `complete` blocks, and may be called from many threads at once."""

    def complete(self, request: CompletionRequest, watch: Watch | None = None) -> Completion:
        """Complete one conversation.

        Raises:
            InfrastructureError: when the engine fails; the rollout is then retried, never trained on.
            InputError: for a model name that the engine does not serve.
            Cancelled: when the watch says so.
        """
        ...

    def models(self) -> tuple[str, ...]:
        """Names that a request may ask for."""
        ...

    def load(self, adapters: Mapping[str, Path]) -> None:
        """Serve these adapters from now on, by `role@version`; what was begun is finished as it was begun.

        Raises:
            DataError: for an adapter that cannot be served; those of before stay.
        """
        ...

    def close(self) -> None:
        """Free what the engine holds. Safe to call twice."""
        ...


@runtime_checkable
class KnowsTraining(Protocol):
    """An engine that can tell how its adapters were trained."""

    histories: Mapping[str, str]
    """`team.history` of the training, by role, of those roles that have an adapter."""


def open_engine(config: EngineConfig, adapters: Mapping[str, Path] | None = None) -> Engine:
    """Open the configured engine with adapters by `role@version`.

    A request for a bare role gets the newest version that was passed for it, or the base where there is none.

    Raises:
        InputError: when the model, an adapter or an option cannot be used with this engine.
        DataError: when an adapter is damaged or belongs to another base.
        InfrastructureError: when a server does not answer.
    """
    if config.kind == "auto":
        config, _ = stage("serve.choice").choose_engine(config)
    engine: Engine = stage(f"serve.{config.kind}_engine").open_engine(config, dict(adapters or {}))
    return engine
