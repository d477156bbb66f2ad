"""Which adapters are active, and why.

A trained adapter is a candidate until it is promoted: by an evaluation that shows the team to be better with it, or by
force, for a reason that is recorded.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from flywheel.errors import DataError, InputError
from flywheel.evaluation.results import ArmResult, Comparison, Evaluation, pair_test
from flywheel.evaluation.settings import compared_settings
from flywheel.files import disk_errors
from flywheel.ledger import Entry, Ledger
from flywheel.records import AdapterCard
from flywheel.workspace import ROLES, Workspace, read_card, read_record


class GateRefused(DataError):
    """A candidate has not been shown to be good enough."""


class Registry:
    """The adapters of a workspace.

    Raises:
        DataError: when the ledger is damaged.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._ledger = Ledger(workspace.folder / "adapters" / "ledger.jsonl")

    @property
    def entries(self) -> list[Entry]:
        """The ledger, oldest first."""
        return self._ledger.entries

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
        """What each version is: `active`, `candidate` or `retired`; roles in order, oldest version first.

        Active ones are there even if their folders are not.
        """
        playing = self.active()
        active, candidates = set(playing.values()), set(self.candidates().values())
        names = []
        for role in ROLES:
            there = [f"{role}@{version}" for version in self._workspace.versions(role)]
            names += [*there, *({playing[role]} - set(there) if role in playing else ())]
        return {
            name: "active" if name in active else "candidate" if name in candidates else "retired" for name in names
        }

    def folders(self) -> dict[str, Path]:
        """Folders of the active adapters, by `role@version`."""
        return {name: self._workspace.adapter(name) for name in self.active().values()}

    def broken(self) -> dict[str, str]:
        """Active adapters that are gone, damaged, or not what was promoted, each with the reason."""
        return self._broken(self.entries[-1]) if self.entries else {}

    def refuse_broken(self, names: Iterable[str]) -> None:
        """See that adapters, so far as they are active, are what was promoted.

        Raises:
            DataError: when one is not.
        """
        broken = self.broken()
        for name in names:
            if name in broken:
                raise DataError(broken[name])

    def _broken(self, entry: Entry) -> dict[str, str]:
        """What an entry made active and what is not so any more, each with the reason."""
        found = {}
        for name in entry.active.values():
            folder = self._workspace.adapter(name)
            try:
                if read_card(folder).weights_hash != entry.weights.get(name):
                    found[name] = f"{folder}: {name} is not what was promoted; go back with: flywheel rollback"
            except DataError as error:
                found[name] = f"{name} is active: {error}; go back with: flywheel rollback"
        return found

    def promote(
        self, names: Mapping[str, str], level: float = 0.05, allow_equal: bool = False, reason: str = ""
    ) -> Entry:
        """Make candidates active, if an evaluation shows that the team is better with them.

        Args:
            names: `role@version` by role.
            level: of McNemar's exact test, two-sided.
            allow_equal: also if the two teams cannot be told apart.
            reason: what else to write into the ledger.

        Raises:
            GateRefused: without such an evaluation.
            InputError: when they are active already.
            DataError: when one of them, or of those that stay, is damaged.
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
        why = f"{why}; {reason}" if reason else why
        return self._ledger.add("promote", after, self._weights(after), why, evaluation=name, figures=figures)

    def force(self, names: Mapping[str, str], why: str) -> Entry:
        """Make adapters active without proof, for a reason that is recorded."""
        after = self._changed(names)
        return self._ledger.add("promote", after, self._weights(after), why, forced=True)

    def rollback(self, why: str) -> Entry:
        """Make active what was so before the last promotion that still stands, and is still what it was then.

        Raises:
            InputError: when there is nothing to go back to.
        """
        standing = self._ledger.standing()
        if not standing:
            raise InputError("there is nothing to go back to: no promotion stands")
        for entry in reversed(standing[:-1]):
            if not (broken := self._broken(entry)):
                return self._ledger.add("rollback", entry.active, entry.weights, why)
            why += f"; passed over {', '.join(entry.active.values())}, since {', '.join(broken)} is not there as it was"
        return self._ledger.add("rollback", {}, {}, why)

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
        weights = self.entries[-1].weights if self.entries else {}
        self._ledger.add("prune", self.active(), weights, f"pruned {', '.join(names)}", pruned=tuple(names))

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
        self.refuse_broken(name for role, name in before.items() if role not in names)
        for name in names.values():
            self._check(read_card(self._workspace.adapter(name)))
        return after

    def _check(self, card: AdapterCard) -> None:
        from flywheel.base_model import base_hash, resolve_folder

        config = self._workspace.config
        if card.history != config.team.history:
            raise DataError(
                f"{card.name} was trained with team.history={card.history}, and here it is {config.team.history}: set "
                "it back, or train again"
            )
        model = config.engine.original or config.engine.model
        if card.base != model and card.base_hash != base_hash(resolve_folder(model)):
            raise DataError(
                f"{card.name} was trained on {card.base}, and the engine's model is {model}: set engine.model back, or "
                "train again"
            )

    def _weights(self, active: Mapping[str, str]) -> dict[str, str]:
        """Hashes of what is active from now on; of what was so before, those that it was promoted with."""
        known = self.entries[-1].weights if self.entries else {}
        playing = set(self.active().values())
        return {
            name: known[name] if name in playing else read_card(self._workspace.adapter(name)).weights_hash
            for name in active.values()
        }

    def _evidence(self, before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, Comparison]:
        """The newest evaluation on the frozen questions, with the settings of now, that compares the two teams.

        Raises:
            GateRefused: when there is none, or its questions were trained on.
        """
        from flywheel.evaluation.held_out import frozen_hash, trained_on

        frozen, changed = frozen_hash(self._workspace), ""
        for name, evaluation in evaluations(self._workspace):
            if evaluation.questions_hash != frozen:
                continue
            arms = {tuple(sorted(arm.versions.items())): arm for arm in evaluation.arms}
            first, second = arms.get(tuple(sorted(before.items()))), arms.get(tuple(sorted(after.items())))
            if not first or not second:
                continue
            now = compared_settings(self._workspace.config)
            if other := [key for key in now if evaluation.settings.get(key) != now[key]]:
                changed = changed or f" ({name} does, but with another {', '.join(other)})"
                continue
            if not all(self._is_now(arm) for arm in (first, second)):
                continue
            if leaked := trained_on(self._workspace, second.versions.values()):
                raise GateRefused(
                    f"{len(leaked)} questions that were trained on are held out or near to one that is, such as "
                    f"{leaked[0]}: freeze others with flywheel evaluate --questions FILE --freeze"
                )
            return name, pair_test(first.name, second.name, {first.name: first.right, second.name: second.right})
        raise GateRefused(
            "no evaluation on the held-out questions compares these with what is active: flywheel evaluate" + changed
        )

    def _is_now(self, arm: ArmResult) -> bool:
        """Whether versions have the weights and prompts that they were evaluated with."""
        for name in arm.versions.values():
            card = read_card(self._workspace.adapter(name))
            prompt = arm.prompts.get(card.role, self._workspace.config.team.prompt)
            if card.weights_hash != arm.weights.get(name) or card.prompt != prompt:
                return False
        return True


def evaluations(workspace: Workspace) -> Iterator[tuple[str, Evaluation]]:
    """Reports of evaluations by name, newest first; older formats are passed over."""
    found = []
    for path in workspace.reports.glob("*/evaluation.json"):
        with suppress(DataError):
            found.append((path.parent.name, read_record(path, Evaluation)))
    yield from sorted(found, key=lambda pair: pair[1].created, reverse=True)
