"""Turns the wheel once with each seed of a plan.

    teacher's traces -> adapters -> own runs on new questions -> correct ones kept -> adapters -> held-out table

Every step leaves its result in the workspace, so that a stopped demo goes on where it was.
"""

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console

from flywheel.base_model import resolve_folder
from flywheel.engines import Engine, open_engine
from flywheel.errors import InfrastructureError, InputError
from flywheel.evaluation.arms import Arm, arm_store, evaluate_arms
from flywheel.evaluation.held_out import freeze
from flywheel.evaluation.results import Evaluation, compare
from flywheel.evaluation.tables import print_evaluation, print_roles
from flywheel.files import now, write_text
from flywheel.progress import duration
from flywheel.records import BASE, Question, Rollout
from flywheel.registry import GateRefused, Registry
from flywheel.report.page import render
from flywheel.stages import stage
from flywheel.store import RolloutFilter, TraceStore
from flywheel.teacher import teacher_engine
from flywheel.workspace import ROLES, Workspace, processors

from .plan import CONTROL, SETTINGS, WARM, Plan, choose_questions

WARM_ROUND = 0
_OTHER = "{} holds a demo of another size or version; choose another with --folder, or remove it"


def run_demo(plan: Plan, folder: Path, console: Console, model: str = "embedded") -> None:
    """Turn the wheel once with each seed; what an earlier call has finished is not done again.

    Args:
        folder: the workspace; with more than one seed, a folder of workspaces.
        model: the base.

    Raises:
        InputError: when the folder holds a demo of another size, version or base.
    """
    several = len(plan.seeds) > 1
    if (folder / "workspace.json").exists() if several else any(folder.glob("seed-*/demo.json")):
        raise InputError(_OTHER.format(folder))
    wheels: list[_Wheel] = []
    for seed in plan.seeds:
        workspace = _open_workspace(plan, seed, folder / f"seed-{seed}" if several else folder, model)
        wheel = _Wheel(plan, seed, workspace, console)
        if not wheels:
            console.print(
                f"The demo works in {folder}. It takes about {duration(60 * plan.minutes * len(plan.seeds))} on two "
                "cores; stopped by Ctrl-C, it goes on when run again."
            )
        if several:
            console.rule(f"seed {seed}")
        wheel.turn()
        wheels.append(wheel)
    if several:
        _conclude(plan, wheels, folder, console)


def _conclude(plan: Plan, wheels: Sequence["_Wheel"], folder: Path, console: Console) -> None:
    """The table over all seeds, where the last round and its control lose answers, and which of them is better."""
    console.rule("all seeds together")
    names = wheels[0].results
    results = {name: [rollout for wheel in wheels for rollout in wheel.results[name]] for name in names}
    evaluation = compare(results, _pairs(plan), now())  # the seeds have different questions
    last = plan.own_arms[-1]
    shown = next(pair for pair in evaluation.comparisons if (pair.first, pair.second) == (CONTROL, last))
    proved = shown.better == last and shown.p < 0.05
    print_evaluation(evaluation, console)
    for arm in evaluation.arms:
        if arm.name in (CONTROL, last):
            print_roles(arm, console)
    write_text(folder / "evaluation.json", evaluation.as_json())
    console.print(
        f"The self-collected round {'beats' if proved else 'does not beat'} a control of as many steps on the "
        f"teacher's traces alone ({shown.only_second} to {shown.only_first}, {shown.shown_p})."
    )


def _pairs(plan: Plan) -> list[tuple[str, str]]:
    """What is tested: each team against the base, the rounds against the warm start, the control against the last."""
    last = plan.own_arms[-1]
    pairs = [(BASE, WARM), (BASE, last), *((WARM, arm) for arm in plan.own_arms)]
    return [*pairs, (CONTROL, last)] if plan.control else pairs


def _open_workspace(plan: Plan, seed: int, folder: Path, model: str) -> Workspace:
    if not (folder / "workspace.json").exists():
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(f"{folder} exists and is not a demo; choose another with --folder")
        resolve_folder(model)  # a model that is not there is named before anything is made
        workspace = Workspace.create(folder, SETTINGS.format(model=model, seed=seed, temperature=plan.temperature))
        write_text(folder / "demo.json", json.dumps({"plan": asdict(plan), "seconds": {}}) + "\n")
        return workspace
    try:
        notes = json.loads((folder / "demo.json").read_text(encoding="utf-8"))
        found, seconds = notes["plan"], notes["seconds"]
        if not all(isinstance(value, int | float) for value in seconds.values()):
            raise ValueError("seconds")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{folder} is a workspace, but not of a demo; choose another with --folder") from error
    if found != json.loads(json.dumps(asdict(plan))):
        raise InputError(_OTHER.format(folder))
    workspace = Workspace(folder)
    if workspace.config.engine.model != model:
        raise InputError(f"{folder} holds a demo with {workspace.config.engine.model}; choose another with --folder")
    return workspace


class _Wheel:
    """One turn in its workspace, and how long each step has taken."""

    def __init__(self, plan: Plan, seed: int, workspace: Workspace, console: Console) -> None:
        self.plan = plan
        self.workspace = workspace
        self.console = console
        self.results: dict[str, list[Rollout]] = {}
        """Held-out rollouts by team, once they are there."""
        self._warm, self._own, self._held_out = choose_questions(plan, seed)
        self._number = 0
        self._seconds: dict[str, float] = json.loads(self._notes.read_text(encoding="utf-8"))["seconds"]

    def turn(self) -> None:
        """All steps, and what they came to."""
        plan = self.plan
        with self._step(f"A scripted teacher plays the team on {len(self._warm)} plainly worded questions"):
            self._collect(self._warm, teacher_engine(self._warm), WARM_ROUND, temperature=0.0, versions={})
        with self._step("Train one adapter per role on the teacher's traces: the warm start"):
            self._train([WARM])
        for number, arm in zip(plan.own_rounds, plan.own_arms, strict=True):
            again = "" if number == 1 else ", and again those that it has not solved"
            with self._step(
                f"The team with these adapters answers {len(self._own[number - 1])} new questions in other words{again}"
            ):
                self._collect_own(number)
            beside = plan.control and number == plan.rounds
            control = "; beside them the control: as many steps on the teacher's traces alone" if beside else ""
            roles = "the adapters" if len(plan.round_steps) == len(ROLES) else f"the {', '.join(plan.round_steps)}"
            with self._step(f"Keep its correct runs, and train {roles} again from the base on all kept runs{control}"):
                self._train([arm, *([CONTROL] if beside else [])])
        with self._step(f"Serve base and adapters, and put {len(self._held_out)} held-out questions to every team"):
            evaluation = self._evaluate()
        self._report(evaluation)

    @property
    def _notes(self) -> Path:
        return self.workspace.folder / "demo.json"

    @contextmanager
    def _step(self, title: str) -> Iterator[None]:
        """Announce a step and add up its time, over all runs of the demo."""
        self._number += 1
        total = 3 + 2 * self.plan.rounds
        spent = sum(self._seconds.values())
        clock = f"{duration(spent)} of about {self.plan.minutes}m so far"
        self.console.print(f"\n[bold]{self._number}/{total} {title}[/bold] [dim]({clock})[/dim]")
        started = time.monotonic()
        try:
            yield
        finally:
            self._seconds[title] = self._seconds.get(title, 0.0) + time.monotonic() - started
            write_text(self._notes, json.dumps({"plan": asdict(self.plan), "seconds": self._seconds}) + "\n")

    def _collect_own(self, number: int) -> None:
        """Record the team's rollouts of a round: on its new questions, and on those still unsolved."""
        with TraceStore(self.workspace.traces) as store:
            earlier = [store.verdicts(before) for before in self.plan.own_rounds if before < number]
            begun = store.verdicts(number)
        solved = {question for verdicts in earlier for (question, _), right in verdicts.items() if right}
        asked = [question for questions in self._own[:number] for question in questions]
        questions = [question for question in asked if question.id not in solved]
        if len(begun) >= len(questions) * self.plan.samples:
            return
        arm = self.plan.arms[number - 1]
        with self._serving([arm]) as engine:
            temperature = self.workspace.config.collect.temperature
            self._collect(questions, engine, number, temperature, self.plan.adapters(arm))

    def _train(self, arms: Sequence[str]) -> None:
        """Select from the rounds that each arm learns from, and train its versions, those of all arms side by side."""
        plan, trainings = self.plan, []
        for arm in arms:
            last = plan.own_arms.index(arm) + 1 if arm in plan.own_arms else WARM_ROUND
            folder = self.workspace.datasets / arm.replace(" ", "-")
            selection = stage("train.dataset").write_datasets(self.workspace, range(last + 1), folder)
            if last:
                stage("train.commands").print_selection(selection, self.console)
            steps = plan.warm_steps if arm == WARM else plan.round_steps
            version = plan.arms.index(arm) + 1
            trainings += [
                stage("train.side_by_side").Training(role, folder / f"{role}.jsonl", count, version)
                for role, count in steps.items()
                if version not in self.workspace.versions(role)
            ]
        if trainings:
            stage("train.side_by_side").train_side_by_side(self.workspace, trainings, min(2, processors()))

    def _evaluate(self) -> Evaluation:
        """Run every team that is not finished on the held-out questions, all from one server."""
        config, plan = self.workspace.config, self.plan
        teams = [Arm(arm, config, versions=plan.adapters(arm)) for arm in plan.arms]
        arms = [Arm(BASE, config, model=BASE), *teams]
        freeze(self.workspace, list(self._held_out))
        with self._serving(plan.arms) as engine:
            evaluation, self.results = evaluate_arms(
                self.workspace, arms, self._held_out, engine, "held-out", _pairs(plan)
            )
        return evaluation

    def _report(self, evaluation: Evaluation) -> None:
        """Print the held-out table, the tests, the minutes, and where to look further."""
        console = self.console
        console.print()
        print_evaluation(evaluation, console)
        if not self.plan.control:
            console.print(
                "No control was trained in this run: the change from the warm start to the self-collected round may "
                "come from the longer training alone. `flywheel demo` trains the control beside it."
            )
        spent = sum(self._seconds.values())
        console.print(
            f"\n{duration(spent)} in all: " + ", ".join(duration(seconds) for seconds in self._seconds.values())
        )
        self._promote()
        path = self.workspace.reports / "report.html"
        render(self.workspace, path)
        console.print(f"Everything to look at, in one page: {path}", soft_wrap=True)
        last = self.plan.own_arms[-1]
        shown = (rollout for rollout in self.results[last] if rollout.verdict.match and len(rollout.runs) > 3)
        if example := next(shown, None):
            where = arm_store(self.workspace.reports / "held-out", last)
            console.print(f"One rollout as a tree: flywheel show --store {where} {example.id}", soft_wrap=True)
        console.print(f"Serve the adapters to any OpenAI client: flywheel -w {self.workspace.folder} serve")

    def _promote(self) -> None:
        """Make active what has proved to be better: the warm start than the base, then each own round than that."""
        with self.workspace.lock("adapters"):
            registry = Registry(self.workspace)
            for arm in (WARM, *self.plan.own_arms):
                adapters = self.plan.adapters(arm)
                if registry.active() == adapters:
                    continue
                try:
                    self.console.print(f"promoted: {arm}, {registry.promote(adapters).why}")
                except GateRefused as error:
                    self.console.print(f"not promoted: {arm}, {error}")

    @contextmanager
    def _serving(self, arms: Sequence[str]) -> Iterator[Engine]:
        """A server with the adapters of these arms, and an engine that talks to it."""
        adapters = list(dict.fromkeys(adapter for arm in arms for adapter in self.plan.adapters(arm).values()))
        with stage("serve.server").running(self.workspace.folder, adapters, self.workspace.overrides) as url:
            click.echo(f"serving base, {', '.join(adapters)} at {url}", err=True)
            settings = self.workspace.config.engine.model_copy(update={"kind": "openai", "url": url})
            engine = open_engine(settings)
            try:
                yield engine
            finally:
                engine.close()

    def _collect(
        self, questions: Sequence[Question], engine: Engine, round: int, temperature: float, versions: dict[str, str]
    ) -> None:
        own = round != WARM_ROUND
        with TraceStore(self.workspace.traces) as store:
            summary = stage("collect.collector").collect(
                questions, self.workspace.config, engine, store, self.workspace.cache, round=round,
                samples=self.plan.samples if own else 1, target=int(own and self.plan.samples > 1),
                temperature=temperature, versions=versions,
            )  # fmt: skip
            rollouts = list(store.rollouts(RolloutFilter(round=round)))
        if summary.interrupted:
            raise KeyboardInterrupt
        if summary.infrastructure:
            raise InfrastructureError(
                f"{summary.infrastructure} rollouts failed: {summary.failure}; run the demo again"
            )
        right = [rollout for rollout in rollouts if rollout.verdict.match]
        kinds = Counter(rollout.question.kind for rollout in right)
        balance = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
        self.console.print(f"{len(right)} of {len(rollouts)} runs are correct ({balance})")
