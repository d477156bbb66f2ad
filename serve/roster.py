"""Who is served: the engine's base and adapters, what their cards say, and which adapters were refused."""

import math
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flywheel.engines import CompletionRequest, Engine
from flywheel.errors import FlywheelError
from flywheel.records import BASE, AdapterCard, Message
from flywheel.stages import stage
from flywheel.workspace import ROLES, read_card

from .adapters import without
from .names import listed, resolve_model

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
    _folders: dict[str, Path] = field(default_factory=dict)
    _held: Counter[str] = field(default_factory=Counter)
    """Requests under way, by what answers them."""
    _changing: threading.Lock = field(default_factory=threading.Lock)
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
        """Serve what is to be served now. Requests in flight are not disturbed.

        An adapter that must not be served is left out, and its role goes on with the version that it has. A name whose
        weights are others now is refused as well: caches, ours and others', know adapters by name.

        Returns:
            `loaded` and `dropped` (names), and `refused` (name to reason).
        """
        with self._reloading:
            before = set(self.cards)
            adapters = dict(self.choose())
            refused = dict(self.sift({name: path for name, path in adapters.items() if name not in self.cards}))
            refused |= {
                name: reason for name in before & set(adapters) if (reason := self._changed(name, adapters[name]))
            }
            good = {name: path for name, path in adapters.items() if name not in refused or name in before}
            self.engine.load(self._folders | good)  # the old ones too: until names have changed they are asked for
            self._settle(good | self._kept(good, refused), refused)
            after = set(self.cards)
        return {"loaded": sorted(after - before), "dropped": sorted(before - after), "refused": self.refused}

    def _settle(self, loaded: Mapping[str, Path], refused: dict[str, str]) -> None:
        """Ask what is new for a canary, leave out what fails, and let the rest be asked for by name."""
        cards = {}
        for name, folder in loaded.items():
            if name in self.cards:
                cards[name] = self.cards[name]
            elif reason := unfit(self.engine, name):
                refused[name] = reason
            else:
                cards[name] = read_card(folder)
        for name in self._kept(cards, refused):
            cards[name] = self.cards[name]
        folders = {name: loaded.get(name) or self._folders[name] for name in cards}
        with self._changing:
            before = self._folders
            self.cards, self.refused, self._folders = cards, refused, folders
            still_asked = {name: folder for name, folder in before.items() if self._held[name]}
        if set(folders) != set(before) | set(loaded):
            self.engine.load(folders | still_asked)

    def _changed(self, name: str, folder: Path) -> str:
        """What is wrong with a served adapter's folder now; it goes on from memory."""
        try:
            if read_card(folder).weights_hash == self.cards[name].weights_hash:
                return ""
        except FlywheelError as error:
            return f"{error} (served from memory as it was)"
        return "other weights under a name that is served; names are not used twice (the old ones are served)"

    def _kept(self, new: Iterable[str], refused: Iterable[str]) -> dict[str, Path]:
        """Served adapters of roles whose new version is refused, and which would be left without any."""
        there = {name.partition("@")[0] for name in new}
        lost = {name.partition("@")[0] for name in refused} - there
        return {name: folder for name, folder in self._folders.items() if name.partition("@")[0] in lost}

    @contextmanager
    def held(self, model: str) -> Iterator[str]:
        """What a request for a model is answered by, which stays loaded meanwhile.

        Raises:
            UnknownModel: for an unknown name.
        """
        with self._changing:
            name = self.answers(model)
            self._held[name] += 1
        try:
            yield name
        finally:
            with self._changing:
                self._held[name] -= 1

    def names(self) -> tuple[str, ...]:
        """What can be asked for: the base, each role with an adapter, and each version."""
        return listed(self._versions())

    def without_adapter(self) -> list[str]:
        """Roles that the base plays."""
        served = {name.partition("@")[0] for name in self.cards}
        return [role for role in ROLES if role not in served]

    def answers(self, model: str) -> str:
        """What a request for a model is answered by: `base` or a version.

        Raises:
            UnknownModel: for an unknown name.
        """
        return resolve_model(model, self._versions())

    def _versions(self) -> tuple[str, ...]:
        """Those with cards; of an engine that was opened elsewhere, those that it lists."""
        return tuple(self.cards) or tuple(name for name in self.engine.models() if "@" in name)

    def warning(self, name: str, messages: Sequence[Message]) -> str:
        """What is wrong with asking a version in this way: with another prompt than it was trained with."""
        card = self.cards.get(name)
        if card is None or not messages or messages[0].role != "system":
            return ""
        role = stage("collect.team").WIKIPEDIA.role(card.role)
        for mode in ("full", "compact"):
            if mode != card.prompt and messages[0].content == role.prompt(mode):
                return f"{card.name} was trained with the {card.prompt} prompt and is asked with the {mode} one"
        return ""

    def described(self, created: int) -> list[dict[str, Any]]:
        """All names that can be asked for, in the shape of OpenAI's list of models, with what their cards say."""
        return [self._described(name, created) for name in self.names()]

    def _described(self, name: str, created: int) -> dict[str, Any]:
        entry: dict[str, Any] = {"id": name, "object": "model", "created": created, "owned_by": "flywheel"}
        card = self.cards.get(self.answers(name))
        if card:
            shown = {"base", "prompt", "history", "method", "rank", "rows", "last_loss", "created", "parents"}
            entry |= {"parent": BASE, "root": card.name, "card": card.model_dump(mode="json", include=shown)}
        return entry


def unfit(engine: Engine, name: str) -> str:
    """Why an adapter must not be served, as its answer to a canary shows; empty if it may.

    It must change something, if only the likelihood of a token: otherwise it is not at work, and the base would be
    served in its name. And what it computes must be numbers.
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
        return f"it does not answer: {error}"
    if own and own == base:
        return "it answers exactly as the base does"
    if not all(math.isfinite(value) for token in own for value in (token.logprob, *(other for _, other in token.top))):
        return "its numbers overflow"
    return ""
