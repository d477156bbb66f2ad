"""Who is served: the engine's base and adapters, what their cards say, and which adapters were refused."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flywheel.engines import CompletionRequest, Engine
from flywheel.errors import FlywheelError, InfrastructureError
from flywheel.records import BASE, AdapterCard, Message
from flywheel.stages import stage
from flywheel.workspace import ROLES, read_card

from .adapters import without
from .names import resolve_model

Choose = Callable[[], Mapping[str, Path]]
Sift = Callable[[Mapping[str, Path]], Mapping[str, str]]


@dataclass
class Roster:
    """An engine and its adapters.

    `choose` says which adapters are to be served (asked at the start and at each reload), `sift` which of them must not
    be, and why.
    """

    engine: Engine
    choose: Choose = dict
    sift: Sift = lambda adapters: {}
    cards: dict[str, AdapterCard] = field(default_factory=dict)
    """By `role@version`."""
    refused: dict[str, str] = field(default_factory=dict)
    """Adapters that are not served, each with the reason."""
    _reloading: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def open(cls, opener: Callable[[dict[str, Path]], Engine], choose: Choose, sift: Sift) -> "Roster":
        """Open an engine with those adapters that can be served."""
        adapters = dict(choose())
        refused = dict(sift(adapters))
        good = without(adapters, refused)
        roster = cls(opener(good), choose, sift)
        roster._settle(good, refused)
        return roster

    def reload(self) -> dict[str, Any]:
        """Serve what is to be served now; adapters that must not be are left out. Requests in flight are not disturbed.

        Returns:
            `loaded` and `dropped` (names), and `refused` (name to reason).
        """
        before = set(self.cards)
        with self._reloading:
            adapters = dict(self.choose())
            refused = dict(self.sift({name: path for name, path in adapters.items() if name not in self.cards}))
            good = without(adapters, refused)
            self.engine.load(good)
            self._settle(good, refused)
        after = set(self.cards)
        return {"loaded": sorted(after - before), "dropped": sorted(before - after), "refused": self.refused}

    def _settle(self, loaded: Mapping[str, Path], refused: dict[str, str]) -> None:
        """Take adapters out again that are not at work, and remember what is served."""
        silent = [name for name in loaded if name not in self.cards and answers_as_base(self.engine, name)]
        served = without(loaded, silent)
        if silent:
            self.engine.load(served)
        self.cards = {name: read_card(path) for name, path in served.items()}
        self.refused = refused | dict.fromkeys(silent, "it answers exactly as the base does")

    def without_adapter(self) -> list[str]:
        """Roles that the base plays."""
        served = {name.partition("@")[0] for name in self.cards}
        return [role for role in ROLES if role not in served]

    def answers(self, model: str) -> str:
        """What a request for a model is answered by: `base` or a version.

        Raises:
            InputError: for an unknown name.
        """
        return resolve_model(model, tuple(self.cards)) if self.cards else model

    def warning(self, model: str, messages: Sequence[Message]) -> str:
        """What is wrong with asking a model in this way: a role with another prompt than it was trained with."""
        card = self.cards.get(self.answers(model))
        if card is None or not messages or messages[0].role != "system":
            return ""
        role = stage("collect.team").WIKIPEDIA.role(card.role)
        for mode in ("full", "compact"):
            if mode != card.prompt and messages[0].content == role.prompt(mode):
                return f"{card.name} was trained with the {card.prompt} prompt and is asked with the {mode} one"
        return ""

    def described(self, created: int) -> list[dict[str, Any]]:
        """All names that can be asked for, in the shape of OpenAI's list of models, with what their cards say."""
        return [self._described(name, created) for name in self.engine.models()]

    def _described(self, name: str, created: int) -> dict[str, Any]:
        entry: dict[str, Any] = {"id": name, "object": "model", "created": created, "owned_by": "flywheel"}
        card = self.cards.get(self.answers(name)) if self.cards and name != BASE else None
        if card:
            shown = {"base", "prompt", "history", "method", "rank", "rows", "last_loss", "created", "parents"}
            entry |= {"parent": BASE, "root": card.name, "card": card.model_dump(mode="json", include=shown)}
        return entry


def answers_as_base(engine: Engine, name: str) -> bool:
    """Whether an adapter changes nothing, not even the likelihood of a token: then it is not at work.

    Raises:
        InfrastructureError: when it does not answer.
    """
    messages = (
        Message(role="system", content=stage("collect.team").WIKIPEDIA.role(name.partition("@")[0]).prompt("compact")),
        Message(role="user", content="In which year was the Eiffel Tower finished?"),
    )
    try:
        own, base = (
            engine.complete(CompletionRequest(messages=messages, model=model, max_tokens=8, logprobs=5)).logprobs
            for model in (name, BASE)
        )
    except FlywheelError as error:
        raise InfrastructureError(f"{name} does not answer: {error}") from error
    return bool(own) and own == base
