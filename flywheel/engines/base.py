"""The engine protocol: everything that completes messages is called in the same way."""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from flywheel.config import EngineConfig
from flywheel.records import BASE, Message, Record
from flywheel.stages import stage


class CompletionRequest(Record):
    """One request for one completion."""

    messages: tuple[Message, ...]
    model: str = BASE
    """A role, `role@version`, or `base`."""
    max_tokens: int = 512
    temperature: float = 0.0
    seed: int = 0
    stop: tuple[str, ...] = ()
    """Texts that end the completion; they are not part of its text."""
    session: str = ""
    """Requests of one agent run share it, so that an engine finds the run's cached prefix. Never changes the result."""


class Completion(Record):
    """The answer to a request."""

    text: str
    """Without the stop text and without the end-of-turn token."""
    finish_reason: str
    """`stop` (end of turn or a stop text) or `length`."""
    prompt_tokens: int
    completion_tokens: int
    model: str
    """What answered: `base` or an adapter version."""
    stop: str = ""
    """The stop text that ended it, if one did and the engine can tell."""


class Engine(Protocol):
    """Completes messages. `complete` blocks, and may be called from many threads at once."""

    def complete(self, request: CompletionRequest) -> Completion:
        """Complete one conversation.

        Raises:
            InfrastructureError: when the engine fails; the rollout is then retried, never trained on.
            InputError: for a model name that the engine does not serve.
        """
        ...

    def models(self) -> tuple[str, ...]:
        """Names that a request may ask for."""
        ...

    def close(self) -> None:
        """Free what the engine holds. Safe to call twice."""
        ...


def open_engine(config: EngineConfig, adapters: Mapping[str, Path] | None = None) -> Engine:
    """Open the configured engine with adapters by `role@version`.

    A request for a bare role gets the newest version that was passed for it, or the base where there is none.

    Raises:
        InputError: when the model, an adapter or an option cannot be used with this engine.
        InfrastructureError: when a server does not answer.
    """
    modules = {"transformers": "transformers_engine", "llamacpp": "llamacpp_engine", "openai": "openai_engine"}
    engine: Engine = stage(f"serve.{modules[config.kind]}").open_engine(config, dict(adapters or {}))
    return engine
