"""Which adapters are active, and why: a ledger that is only added to.

A trained adapter is a candidate until it is promoted. Each line of adapters/ledger.jsonl is a change of the active set,
with what justified it; the last line tells what is active now.
"""

import getpass
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from flywheel.errors import DataError, InputError, explain
from flywheel.evaluation.results import Comparison, Evaluation, pair_test
from flywheel.files import disk_errors, now, read_jsonl
from flywheel.records import AdapterCard, Record
from flywheel.workspace import ROLES, Workspace, read_card, read_record

Action = Literal["promote", "rollback", "prune"]


class Entry(Record):
    """One change of what is active."""

    time: str
    """UTC, ISO 8601."""
    who: str
    action: Action
    active: dict[str, str]
    """`role@version` by role, after the change; the base plays the others."""
    weights: dict[str, str]
    """SHA-256 of each active version's weights."""
    why: str
    evaluation: str = ""
    """Name of the report that justified it."""
    figures: Comparison | None = None
    forced: bool = False
    pruned: tuple[str, ...] = ()


class GateRefused(DataError):
    """A candidate has not been shown to be good enough."""


class Registry:
    """The adapters of a workspace.

    Raises:
        DataError: when the ledger is damaged.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._path = workspace.folder / "adapters" / "ledger.jsonl"
        self.entries: list[Entry] = []
        if self._path.exists():
            for line, row in read_jsonl(self._path):
                try:
                    self.entries.append(Entry.model_validate(row))
                except ValidationError as error:
                    raise DataError(f"{self._path}:{line} is damaged: {explain(error)}") from error

    def active(self) -> dict[str, str]:
        """`role@version` by role; empty when nothing was promoted yet."""
        return dict(self.entries[-1].active) if self.entries else {}

    def candidates(self) -> dict[str, str]:
        """The newest version of each role, where it is newer than the active one and was never active."""
        found = {}
        ever = {name for entry in self.entries for name in entry.active.values()}
        for role in ROLES:
            versions = self._workspace.versions(role)
            name = f"{role}@{versions[-1]}" if versions else ""
            if name and name not in ever:
                found[role] = name
        return found

    def states(self) -> dict[str, str]:
        """What each version is: `active`, `candidate` or `retired`; roles in order, oldest version first."""
        active, candidates = set(self.active().values()), set(self.candidates().values())
        names = [f"{role}@{version}" for role in ROLES for version in self._workspace.versions(role)]
        return {
            name: "active" if name in active else "candidate" if name in candidates else "retired" for name in names
        }

    def folders(self) -> dict[str, Path]:
        """Folders of the active adapters, by `role@version`."""
        return {name: self._workspace.adapter(name) for name in self.active().values()}

    def broken(self) -> dict[str, str]:
        """Active adapters that are gone, damaged, or not what was promoted, each with the reason."""
        found = {}
        for name, folder in self.folders().items():
            try:
                if read_card(folder).weights_hash != self.entries[-1].weights.get(name):
                    found[name] = f"{folder}: {name} is not what was promoted; go back with: flywheel rollback"
            except DataError as error:
                found[name] = str(error)
        return found

    def promote(self, names: Mapping[str, str], level: float = 0.05, allow_equal: bool = False) -> Entry:
        """Make candidates active, if an evaluation shows that the team is better with them.

        Args:
            names: `role@version` by role.
            level: of McNemar's exact test, two-sided.
            allow_equal: also if the two teams cannot be told apart.

        Raises:
            GateRefused: without such an evaluation.
            InputError: when they are active already.
        """
        before = self.active()
        after = self._changed(names)
        name, figures = self._evidence(before, after)
        share = f"{figures.shown_p}, right alone {figures.only_second} against {figures.only_first}"
        if figures.p < level and figures.better == figures.second:
            why = f"better in {name} ({share})"
        elif figures.p < level:
            raise GateRefused(f"the team is worse with {', '.join(names.values())} ({share} in {name})")
        elif allow_equal:
            why = f"not distinguishable in {name} ({share}), which was allowed"
        else:
            raise GateRefused(
                f"not distinguishable from what is active ({share} in {name}): more held-out questions may tell, "
                "--allow-equal takes it all the same"
            )
        return self._add("promote", after, why, evaluation=name, figures=figures)

    def force(self, names: Mapping[str, str], why: str) -> Entry:
        """Make adapters active without proof, for a reason that is recorded."""
        return self._add("promote", self._changed(names), why, forced=True)

    def rollback(self, why: str) -> Entry:
        """Make active what was so before the last promotion that still stands.

        Raises:
            InputError: when there is nothing to go back to.
        """
        stack: list[dict[str, str]] = [{}]
        for entry in self.entries:
            if entry.action == "promote":
                stack.append(entry.active)
            elif entry.action == "rollback":
                stack.pop()
        if len(stack) < 2:
            raise InputError("there is nothing to go back to: no promotion stands")
        return self._add("rollback", stack[-2], why)

    def prunable(self, keep: int) -> list[str]:
        """Versions that may go: neither active, nor to be gone back to, nor among the newest `keep` of their role."""
        used = {name for entry in self.entries for name in entry.active.values()}
        found = []
        for role in ROLES:
            versions = self._workspace.versions(role)
            found += [f"{role}@{version}" for version in versions[: len(versions) - max(1, keep)]]
        return [name for name in found if name not in used]

    def prune(self, names: list[str]) -> None:
        """Delete versions; the numbers are not used again."""
        import shutil

        for name in names:
            with disk_errors(self._workspace.adapter(name)):
                shutil.rmtree(self._workspace.adapter(name))
        self._add("prune", self.active(), f"pruned {', '.join(names)}", pruned=tuple(names))

    def _changed(self, names: Mapping[str, str]) -> dict[str, str]:
        """What is active afterwards, if the adapters fit the workspace.

        Raises:
            InputError: when nothing would change.
            DataError: when one is damaged, or was made for another base or history.
        """
        before = self.active()
        after = {**before, **names}
        if after == before:
            raise InputError(f"{', '.join(names.values()) or 'nothing'}: active already")
        for name in names.values():
            self._check(read_card(self._workspace.adapter(name)))
        return after

    def _check(self, card: AdapterCard) -> None:
        from flywheel.base_model import base_hash, resolve_folder

        config = self._workspace.config
        if card.history != config.team.history:
            raise DataError(f"{card.name} was trained with team.history={card.history}, not {config.team.history}")
        model = config.engine.original or config.engine.model
        if card.base != model and card.base_hash != base_hash(resolve_folder(model)):
            raise DataError(f"{card.name} was trained on {card.base}, and the engine's model is {model}")

    def _evidence(self, before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, Comparison]:
        """The newest evaluation on the frozen questions that compares the two teams.

        Raises:
            GateRefused: when there is none.
        """
        from flywheel.evaluation.held_out import frozen_hash

        frozen = frozen_hash(self._workspace)
        for name, evaluation in evaluations(self._workspace):
            if evaluation.questions_hash != frozen:
                continue
            arms = {tuple(sorted(arm.versions.items())): arm for arm in evaluation.arms}
            first, second = arms.get(tuple(sorted(before.items()))), arms.get(tuple(sorted(after.items())))
            if first and second and all(self._is_now(arm.weights) for arm in (first, second)):
                return name, pair_test(first.name, second.name, {first.name: first.right, second.name: second.right})
        raise GateRefused(
            "no evaluation on the held-out questions compares these with what is active: flywheel evaluate"
        )

    def _is_now(self, weights: Mapping[str, str]) -> bool:
        """Whether versions have the weights that they were evaluated with."""
        return all(read_card(self._workspace.adapter(name)).weights_hash == hash for name, hash in weights.items())

    def _add(
        self, action: Action, active: dict[str, str], why: str, evaluation: str = "",
        figures: Comparison | None = None, forced: bool = False, pruned: tuple[str, ...] = (),
    ) -> Entry:  # fmt: skip
        weights = {name: read_card(self._workspace.adapter(name)).weights_hash for name in active.values()}
        who = "unknown"
        with suppress(OSError, KeyError):
            who = getpass.getuser()
        entry = Entry(
            time=now(), who=who, action=action, active=active,
            weights=weights, why=why, evaluation=evaluation, figures=figures, forced=forced, pruned=pruned,
        )  # fmt: skip
        with disk_errors(self._path):
            self._path.parent.mkdir(exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(entry.model_dump_json() + "\n")
                file.flush()
                os.fsync(file.fileno())
        self.entries.append(entry)
        return entry


def evaluations(workspace: Workspace) -> Iterator[tuple[str, Evaluation]]:
    """Reports of evaluations by name, newest first; older formats are passed over."""
    found = []
    for path in workspace.reports.glob("*/evaluation.json"):
        with suppress(DataError):
            found.append((path.parent.name, read_record(path, Evaluation)))
    yield from sorted(found, key=lambda pair: pair[1].created, reverse=True)
