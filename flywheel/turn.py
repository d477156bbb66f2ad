"""`flywheel turn`: collect -> select -> audit -> train -> evaluate -> promote, one round after the other.

Each step is the command of that name, run as a process of its own: what it held in memory, on a GPU or not, is free for
the next one. A turn is a file, turns/N.json, in which every finished step stands with a fingerprint of what went into
it: the same command goes on after the last finished step, and a step whose inputs have changed is done again.
"""

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import click
from pydantic import Field

from flywheel.children import start
from flywheel.errors import DataError, FlywheelError, InputError
from flywheel.evaluation.held_out import freeze, frozen_hash, frozen_questions
from flywheel.evaluation.results import Evaluation, hash_questions
from flywheel.evaluation.settings import all_settings
from flywheel.evaluation.teams import ACTIVE
from flywheel.files import now, sha256, write_text
from flywheel.progress import duration
from flywheel.records import BASE, DatasetCard, Question, Record
from flywheel.registry import GateRefused, Registry, evaluations
from flywheel.stages import stage
from flywheel.store import TraceStore
from flywheel.workspace import ROLES, Workspace, read_card, read_record

NEW = "new"
"""The name of the team with a round's candidates in its evaluations."""


class Plan(Record):
    """What a turn is asked to do."""

    questions: tuple[str, ...]
    """The options of `flywheel collect` that say which questions, source and engine to take."""
    evaluate: tuple[str, ...] = ()
    """Those of `flywheel evaluate` that say which source and engine to take."""
    collect: tuple[str, ...] = ()
    """Further options of `flywheel collect`: samples, budget."""
    teacher: tuple[str, ...] = ()
    """Those that name a teacher; only the first round has one."""
    select: tuple[str, ...] = ()
    train: tuple[str, ...] = ()
    jobs: int = 0
    """Roles trained side by side; 0 leaves it to the settings."""
    sequential: bool = False
    level: float = 0.05
    allow_equal: bool = False


class Done(Record):
    """A finished step."""

    inputs: str
    """Fingerprint of what went into it."""
    finished: str
    """UTC, ISO 8601."""
    seconds: float
    result: str = ""
    """What it came to, in a line."""


class TurnState(Record):
    """How far a round is."""

    round: int
    plan: Plan
    asked: str
    """Fingerprint of what the rollouts depend on: questions, settings, teacher."""
    before: dict[str, str]
    """What was active when it began."""
    order: tuple[str, ...] = ()
    """Roles in the order in which they are trained."""
    steps: dict[str, Done] = Field(default_factory=dict)
    candidates: dict[str, str] = Field(default_factory=dict)
    """The version that each role's training is to make."""
    reports: dict[str, str] = Field(default_factory=dict)
    """Names of its evaluations, by the fingerprint of what went into them."""
    finished: str = ""
    """UTC, ISO 8601; empty while it goes on."""


class StepFailed(FlywheelError):
    """A step ended with an error, which it has printed itself."""

    def __init__(self, name: str, code: int) -> None:
        super().__init__(f"the turn stops at {name}; the reason stands above, and the same command goes on from there")
        self.exit_code = code


def run_turns(workspace: Workspace, plan: Plan, rounds: int) -> None:
    """Turn the wheel so many times; a turn that was begun is the first.

    Raises:
        StepFailed: when a step does.
        InputError: when an unfinished turn was begun with another plan, or other settings.
        DataError: when a round leaves nothing to train on.
    """
    with workspace.lock("turn"):
        for _ in range(rounds):
            _Turn(workspace, _begin(workspace, plan)).run()


def turns(workspace: Workspace) -> list[TurnState]:
    """All turns of a workspace, by round."""
    found = [read_record(path, TurnState) for path in _folder(workspace).glob("*.json")]
    return sorted(found, key=lambda state: state.round)


def _folder(workspace: Workspace) -> Path:
    return workspace.folder / "turns"


def _begin(workspace: Workspace, plan: Plan) -> TurnState:
    known = turns(workspace)
    if known and not known[-1].finished:
        if known[-1].plan != plan:
            changed = [name for name in Plan.model_fields if getattr(plan, name) != getattr(known[-1].plan, name)]
            raise InputError(
                f"round {known[-1].round} is under way with another plan ({', '.join(changed)}): finish it with the "
                f"options it was begun with, or give it up by removing {_folder(workspace) / str(known[-1].round)}.json"
            )
        if known[-1].asked != _asked(workspace, plan):
            raise InputError(
                f"the questions or settings of round {known[-1].round} have changed since it was begun: set them back, "
                f"or give it up by removing {_folder(workspace) / str(known[-1].round)}.json"
            )
        return known[-1]
    with TraceStore(workspace.traces) as store:
        taken = [*store.rounds(), *(state.round for state in known)]
    first = 0 if plan.teacher else 1
    before = Registry(workspace).active()
    return TurnState(round=max(taken) + 1 if taken else first, plan=plan, asked=_asked(workspace, plan), before=before)


def _asked(workspace: Workspace, plan: Plan) -> str:
    """Fingerprint of what the rollouts of a round depend on, beside the adapters."""
    config, path = workspace.config, Path(plan.questions[1])
    sampling = config.collect.model_dump(include={"samples", "temperature"})
    return sha256(
        str(
            (plan.questions, plan.collect, plan.teacher, sorted(all_settings(config).items()), sorted(sampling.items()))
        ),
        sha256(path) if path.is_file() else "",
    )


class _Turn:
    """One round."""

    def __init__(self, workspace: Workspace, state: TurnState) -> None:
        self._workspace = workspace
        self._state = state

    def run(self) -> None:
        """Do every step that is not done yet."""
        plan, number = self._state.plan, self._state.round
        click.echo(f"== round {number}", err=True)
        self._note()  # from now on the round is under way
        self._step("collect", sha256(self._state.asked, str(self._state.before)), self._collect)
        rows_from = sha256(self._traces(), self._config("select"), str(plan.select), frozen_hash(self._workspace))
        self._step("select", rows_from, self._select)
        roles = [role for role, count in self._rows().items() if count]
        rows = {role: sha256(self._workspace.dataset(role)) for role in roles}
        self._step("audit", sha256(*rows.values()), lambda: self._flywheel("audit", "--show", 0))
        self._note(order=self._state.order or tuple(self._order(roles)))
        for group in [[role] for role in self._state.order] if plan.sequential else [roles]:
            self._improve(group, sha256(*(rows[role] for role in group)))
        self._note(finished=now())
        try:
            self._flywheel("report")
        except StepFailed:
            click.echo("the round is finished, but its report could not be written: flywheel report", err=True)
        spent = sum(done.seconds for done in self._state.steps.values())
        click.echo(f"== round {number} took {duration(spent)}", err=True)
        for name, done in self._state.steps.items():
            click.echo(f"{name}: {done.result or 'done'} ({duration(done.seconds)})")

    def _improve(self, roles: list[str], rows: str) -> None:
        """Train roles, and let them play from now on if the team is better with them."""
        plan, title = self._state.plan, f" {roles[0]}" if self._state.plan.sequential else ""
        engine = self._workspace.config.engine
        inputs = sha256(rows, self._config("train"), engine.model, engine.dtype, str(plan.train))
        self._step(f"train{title}", inputs, lambda: self._train(roles))
        played = [*self._before(roles).values(), *self._new(roles).values()]
        weights = [read_card(self._workspace.adapter(name)).weights_hash for name in played]
        settings = str(sorted(all_settings(self._workspace.config).items()))
        inputs = sha256(*weights, frozen_hash(self._workspace), settings, str(plan.evaluate))
        self._step(f"evaluate{title}", inputs, lambda: self._evaluate(roles, inputs))
        inputs = sha256(inputs, str((plan.level, plan.allow_equal)))
        self._step(f"promote{title}", inputs, lambda: self._promote(roles))

    def _step(self, name: str, inputs: str, work: Callable[[], str | None]) -> None:
        """Do a step, unless it was done with the same inputs."""
        done = self._state.steps.get(name)
        if done and done.inputs == inputs:
            click.echo(f"-- {name}: done before", err=True)
            return
        click.echo(f"-- {name}" + (", again: what goes into it has changed" if done else ""), err=True)
        began = time.monotonic()
        result = work() or ""
        finished = Done(inputs=inputs, finished=now(), seconds=round(time.monotonic() - began, 1), result=result)
        self._note(steps={**self._state.steps, name: finished})

    def _note(self, **change: object) -> None:
        """Write down how far the round is."""
        self._state = self._state.model_copy(update=change)
        write_text(_folder(self._workspace) / f"{self._state.round}.json", self._state.model_dump_json(indent=2) + "\n")

    # --- collect, select

    def _collect(self) -> str:
        plan, number = self._state.plan, self._state.round
        taught = plan.teacher if self._is_first() else ()
        before = self._state.before
        named = [part for name in before.values() for part in ("--adapter", name)]
        whole = taught and stage("collect.teaching").Teaching(taught[1], taught[3::2]).whole
        playing = [] if whole else named or (["--no-adapters"] if Registry(self._workspace).active() else [])
        self._flywheel("collect", *plan.questions, *plan.collect, *taught, *playing, "--round", number)
        with TraceStore(self._workspace.traces, read_only=True) as store:
            verdicts = store.verdicts(number)
        return f"{sum(verdicts.values())} of {len(verdicts)} rollouts right"

    def _is_first(self) -> bool:
        return not any(state.finished for state in turns(self._workspace))

    def _traces(self) -> str:
        """Fingerprint of which rollouts there are, and which of them are right."""
        with TraceStore(self._workspace.traces, read_only=True) as store:
            return sha256(*(str(sorted(store.verdicts(number).items())) for number in store.rounds()))

    def _select(self) -> str:
        with TraceStore(self._workspace.traces, read_only=True) as store:
            right = any(any(store.verdicts(number).values()) for number in store.rounds())
        if not right:
            raise DataError(
                f"round {self._state.round} leaves nothing to train on: no rollout is right. Let a teacher play the "
                f"first round (remove {_folder(self._workspace) / str(self._state.round)}.json, then --teacher), or "
                "take easier questions"
            )
        self._flywheel("select", *self._state.plan.select)
        return ", ".join(f"{count} rows of {role}" for role, count in self._rows().items())

    def _rows(self) -> dict[str, int]:
        """How many rows the selection has made, by role."""
        card = read_record(self._workspace.datasets / "card.json", DatasetCard)
        return {role: card.rows.get(role, 0) for role in ROLES}

    # --- train, evaluate, promote

    def _order(self, roles: Iterable[str]) -> list[str]:
        """The role that lost most answers in the newest evaluation first."""
        newest = next(evaluations(self._workspace), None)
        lost = newest[1].arms[-1].lost_by() if newest else Counter()
        return sorted(roles, key=lambda role: -lost[role])

    def _train(self, roles: Sequence[str]) -> str:
        workspace = self._workspace
        numbers = {role: workspace.unfinished(role) or workspace.next_version(role) for role in roles}
        planned = {role: f"{role}@{number}" for role, number in numbers.items()}
        kept = {role: name for role, name in self._state.candidates.items() if role in roles and self._is_made(name)}
        self._note(candidates={**self._state.candidates, **planned, **kept})
        missing = [role for role in roles if role not in kept]
        if len(missing) == len(ROLES):
            jobs = ("--jobs", self._state.plan.jobs) if self._state.plan.jobs else ()
            self._flywheel("train", "--all", *jobs, *self._state.plan.train)
        else:
            for role in missing:
                self._flywheel("train", "--role", role, *self._state.plan.train)
        return ", ".join(self._state.candidates[role] for role in roles)

    def _is_made(self, name: str) -> bool:
        """Whether a version was trained on the rows that lie here now."""
        folder, role = self._workspace.adapter(name), name.partition("@")[0]
        if not (folder / "card.json").exists():
            return False
        return read_card(folder).dataset_hash == sha256(self._workspace.dataset(role))

    def _new(self, roles: Sequence[str]) -> dict[str, str]:
        return {role: self._state.candidates[role] for role in roles}

    def _before(self, roles: Sequence[str]) -> dict[str, str]:
        """The team that these roles are to make better: what was active, and what this round has promoted since."""
        active = Registry(self._workspace).active()
        promoted = {
            role: name
            for role, name in self._state.candidates.items()
            if role not in roles and active.get(role) == name
        }
        return {**self._state.before, **promoted}

    def _evaluate(self, roles: Sequence[str], inputs: str) -> str:
        before = ACTIVE if self._before(roles) else BASE
        after = f"{NEW}:{','.join([before, *self._new(roles).values()])}"
        name = "-".join([f"round-{self._state.round}", *([roles[0]] if self._state.plan.sequential else [])])
        earlier = sum(1 for known in self._state.reports.values() if known == name or known.startswith(f"{name}."))
        name = self._state.reports.get(inputs) or (f"{name}.{earlier + 1}" if earlier else name)
        self._note(reports={**self._state.reports, inputs: name})
        self._flywheel("evaluate", "--team", before, "--team", after, "--name", name, *self._state.plan.evaluate)
        evaluation = read_record(self._workspace.reports / name / "evaluation.json", Evaluation)
        first, second = evaluation.arms
        return f"exact match {first.exact_match:.0%} before, {second.exact_match:.0%} after"

    def _promote(self, roles: Sequence[str]) -> str:
        plan, new = self._state.plan, self._new(roles)
        with self._workspace.lock("adapters"):
            registry = Registry(self._workspace)
            if new.items() <= registry.active().items():  # a crash came between the ledger and our own file
                return f"promoted {', '.join(new.values())}: {registry.entries[-1].why}"
            try:
                entry = registry.promote(new, plan.level, plan.allow_equal)
            except GateRefused as error:
                return f"kept what was active: {error}"
        return f"promoted {', '.join(new.values())}: {entry.why}"

    # --- processes

    def _config(self, *sections: str) -> str:
        return self._workspace.config.digest(*sections)

    def _flywheel(self, *arguments: object) -> None:
        """Run a command of ours with the terminal that we have.

        Raises:
            StepFailed: when it ends with an error.
            KeyboardInterrupt: when it was interrupted.
        """
        overrides = [part for override in self._workspace.overrides for part in ("-o", override)]
        command = [sys.executable, "-m", "flywheel", "-w", str(self._workspace.folder), *overrides]
        child = start([*command, *map(str, arguments)])
        try:
            code = child.wait()
        except KeyboardInterrupt:  # on a terminal the child has got it as well, otherwise it is passed on
            child.terminate()
            child.wait()
            raise
        if code == 130:
            raise KeyboardInterrupt
        if code:
            raise StepFailed(str(arguments[0]), code)


def freeze_held_out(workspace: Workspace, asked: Sequence[Question], held_out: Sequence[Question] | None) -> None:
    """See that the workspace has held-out questions, and others than those to train on, before a turn spends anything.

    Args:
        asked: the questions to collect.
        held_out: those to hold out; None for those that are frozen already.

    Raises:
        InputError: when others are frozen, or none of `asked` is left to train on.
    """
    frozen = frozen_questions(workspace)
    if held_out is not None and frozen and hash_questions(frozen) != hash_questions(held_out):
        raise InputError(
            "other held-out questions are frozen here: leave --held-out away, or freeze these with flywheel evaluate "
            "--questions FILE --freeze"
        )
    known = stage("train.held_out").HeldOut(frozen or held_out or ())
    near = sum(question in known for question in asked)
    if near == len(asked):
        raise InputError("all questions are held out, or near to one that is: there is nothing to train on")
    if near:
        click.echo(
            f"{near} of {len(asked)} questions are held out, or near to one that is: no rows come of them", err=True
        )
    if not frozen and held_out:
        freeze(workspace, list(held_out))
