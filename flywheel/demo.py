"""`flywheel demo`: the whole wheel for real, on the packaged model and the embedded encyclopedia, on a CPU in minutes.

    teacher's traces -> adapters -> own runs on new questions -> correct ones kept -> adapters -> held-out table

Every step is a command of its own that leaves its result in the workspace, so that a stopped demo goes on where it was.
"""

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import click
from rich.console import Console

from flywheel.base_model import resolve_folder
from flywheel.engines import Engine, open_engine
from flywheel.errors import InfrastructureError, InputError
from flywheel.evaluation.arms import Arm, arm_store, evaluate_arms
from flywheel.evaluation.held_out import freeze
from flywheel.evaluation.tables import print_evaluation
from flywheel.files import write_text
from flywheel.progress import duration
from flywheel.questions import read_questions
from flywheel.records import BASE, Question
from flywheel.registry import GateRefused, Registry
from flywheel.report.page import render
from flywheel.stages import stage
from flywheel.store import RolloutFilter, TraceStore
from flywheel.teacher import teacher_engine
from flywheel.workspace import ROLES, Workspace, processors

SETTINGS = """\
# The demo: a small model with short prompts on a CPU.

[team]
prompt = "compact"
history = "full"
supervisor_steps = 4
wiki_search_steps = 4
page_search_steps = 3

[engine]
kind = "transformers"
model = "{model}"
context = 1024
batch = 32
max_tokens = 80

[source]
kind = "corpus"
path = "embedded"
passages = 8

[collect]
concurrency = 32
temperature = 0.7

[train]
learning_rate = 8e-4
batch = 2
"""

WARM, SELF, CONTROL = "warm start", "self-collected", "control"
WARM_ROUND, OWN_ROUND = 0, 1
VERSIONS = {WARM: 1, SELF: 2, CONTROL: 3}


@dataclass(frozen=True)
class Plan:
    """How much of everything a demo does."""

    suffix: str
    warm_questions: int
    """Questions that the teacher plays, all in the plainest wording."""
    own_questions: int
    """New training questions, in other wordings, that the team answers itself."""
    samples: int
    """Rollouts per new question."""
    warm_steps: dict[str, int]
    """Optimiser steps of the warm start, by role."""
    round_steps: dict[str, int]
    """Optimiser steps of the self-collected round, and of its control, by role; from the base again."""
    held_out: int
    control: bool
    minutes: int
    """Expected on two cores."""
    seed: int = 0
    kinds: tuple[str, ...] = ()
    """Kinds of questions; all if empty."""


QUICK = Plan(
    suffix="-quick", warm_questions=80, own_questions=16, samples=1,
    warm_steps={"supervisor": 26, "wiki_search": 16, "page_search": 22},
    round_steps={"supervisor": 26, "wiki_search": 16, "page_search": 22}, held_out=20, control=False, minutes=4,
    kinds=("one_hop",),
)  # fmt: skip
STANDARD = Plan(
    suffix="", warm_questions=240, own_questions=120, samples=1,
    warm_steps={"supervisor": 120, "wiki_search": 32, "page_search": 44},
    round_steps={"supervisor": 140, "wiki_search": 38, "page_search": 52}, held_out=110, control=False, minutes=16,
)  # fmt: skip
FULL = Plan(
    suffix="-full", warm_questions=320, own_questions=600, samples=2,
    warm_steps={"supervisor": 200, "wiki_search": 60, "page_search": 80},
    round_steps={"supervisor": 400, "wiki_search": 100, "page_search": 120}, held_out=300, control=True, minutes=80,
)  # fmt: skip


def run_demo(plan: Plan, folder: Path, console: Console, model: str = "embedded") -> None:
    """Turn the wheel once; what an earlier call has finished is not done again.

    Args:
        model: the base; another one than the packaged model is only used when the demo is begun.

    Raises:
        InputError: when the folder holds a demo of another size.
    """
    demo = _Demo(plan, _open_workspace(plan, folder, model), console)
    console.print(
        f"The demo works in {demo.workspace.folder}. It takes about {plan.minutes} minutes on two cores; "
        "stopped by Ctrl-C, it goes on when run again."
    )
    warm, own, held_out = choose_questions(plan)
    with demo.step(f"A scripted teacher plays the team on {len(warm)} plainly worded questions"):
        demo.teach(warm)
    with demo.step("Train one adapter per role on the teacher's traces: the warm start"):
        demo.train(WARM, rounds=[WARM_ROUND], steps=plan.warm_steps)
    with demo.step(
        f"The team with these adapters answers {len(own)} new questions in other words, {plan.samples} times each"
    ):
        demo.collect_own(own)
    with demo.step("Keep its correct runs, and train the adapters again from the base on all that was kept"):
        demo.train(SELF, rounds=[WARM_ROUND, OWN_ROUND], steps=plan.round_steps)
    if plan.control:
        with demo.step("Train the control: as many steps on the teacher's traces alone"):
            demo.train(CONTROL, rounds=[WARM_ROUND], steps=plan.round_steps)
    with demo.step(f"Serve base and adapters, and put {len(held_out)} held-out questions to every team"):
        demo.evaluate(held_out)
    demo.report()


def choose_questions(plan: Plan) -> tuple[list[Question], list[Question], list[Question]]:
    """Questions for the teacher, for the team's own round, and held out; no question is in two of them.

    The teacher's are worded plainly. The team's own are worded otherwise, and the held-out ones in every way, as real
    questions are, so that there is something left to learn.
    """
    read = read_questions
    training: list[Question] = read("embedded", "train", 0, plan.seed)
    held_out: list[Question] = read("embedded", "test", 0, plan.seed)
    plain = [question for question in training if question.wording == 0]
    varied = [question for question in training if question.wording != 0]
    if plan.kinds:
        plain, varied, held_out = (
            [question for question in questions if question.kind in plan.kinds]
            for questions in (plain, varied, held_out)
        )
    always = [question for question in held_out if not question.id.rpartition("-")[2].isdigit()]
    others = [question for question in held_out if question not in always]
    return plain[: plan.warm_questions], varied[: plan.own_questions], (always + others)[: plan.held_out]


def _open_workspace(plan: Plan, folder: Path, model: str) -> Workspace:
    if not (folder / "workspace.json").exists():
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(f"{folder} exists and is not a demo; choose another with --folder")
        resolve_folder(model)  # a model that is not there is named before anything is made
        workspace = Workspace.create(folder, SETTINGS.format(model=model))
        write_text(folder / "demo.json", json.dumps({"plan": asdict(plan), "seconds": {}}) + "\n")
        return workspace
    try:
        found = json.loads((folder / "demo.json").read_text(encoding="utf-8"))["plan"]
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{folder} is a workspace, but not of a demo; choose another with --folder") from error
    if found != json.loads(json.dumps(asdict(plan))):
        raise InputError(f"{folder} holds a demo of another size; choose another with --folder, or remove it")
    return Workspace(folder)


class _Demo:
    """The steps of a demo in its workspace, and how long each has taken."""

    def __init__(self, plan: Plan, workspace: Workspace, console: Console) -> None:
        self.plan = plan
        self.workspace = workspace
        self.console = console
        self._number = 0
        self._seconds: dict[str, float] = json.loads(self._notes.read_text(encoding="utf-8"))["seconds"]

    @property
    def _notes(self) -> Path:
        return self.workspace.folder / "demo.json"

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Announce a step and add up its time, over all runs of the demo."""
        self._number += 1
        total = 6 if self.plan.control else 5
        spent = sum(self._seconds.values())
        clock = f"{duration(spent)} of about {self.plan.minutes}m so far"
        self.console.print(f"\n[bold]{self._number}/{total} {title}[/bold] [dim]({clock})[/dim]")
        started = time.monotonic()
        try:
            yield
        finally:
            self._seconds[title] = self._seconds.get(title, 0.0) + time.monotonic() - started
            write_text(self._notes, json.dumps({"plan": asdict(self.plan), "seconds": self._seconds}) + "\n")

    def teach(self, questions: Sequence[Question]) -> None:
        """Record the teacher's rollouts."""
        self._collect(questions, teacher_engine(questions), WARM_ROUND, samples=1, temperature=0.0, versions={})

    def collect_own(self, questions: Sequence[Question]) -> None:
        """Record the team's own rollouts, with the warm-start adapters, from a served base."""
        with TraceStore(self.workspace.traces) as store:
            if len(store.verdicts(OWN_ROUND)) == len(questions) * self.plan.samples:
                return
        with self._serving([WARM]) as engine:
            temperature = self.workspace.config.collect.temperature
            self._collect(questions, engine, OWN_ROUND, self.plan.samples, temperature, self._adapters(WARM))

    def train(self, arm: str, rounds: Sequence[int], steps: dict[str, int]) -> None:
        """Select from the rounds and train the arm's version of every role."""
        folder = self.workspace.datasets / arm.replace(" ", "-")
        selection = stage("train.dataset").write_datasets(self.workspace, rounds, folder)
        if OWN_ROUND in rounds:
            stage("train.commands").print_selection(selection, self.console)
        missing = [role for role in ROLES if VERSIONS[arm] not in self.workspace.versions(role)]
        if missing:
            datasets = {role: folder / f"{role}.jsonl" for role in missing}
            jobs = min(2, processors())
            stage("train.side_by_side").train_side_by_side(self.workspace, datasets, steps, jobs)

    def evaluate(self, questions: Sequence[Question]) -> None:
        """Run every arm that is not finished on the held-out questions, all from one server."""
        config = self.workspace.config
        names = [WARM, SELF, CONTROL] if self.plan.control else [WARM, SELF]
        arms = [Arm(BASE, config, model=BASE), *(Arm(name, config, versions=self._adapters(name)) for name in names)]
        pairs = [(BASE, WARM), (BASE, SELF), (WARM, SELF)] + ([(CONTROL, SELF)] if self.plan.control else [])
        freeze(self.workspace, list(questions))
        with self._serving(names) as engine:
            self._evaluation, results = evaluate_arms(self.workspace, arms, questions, engine, "held-out", pairs)
        self._example = next(
            (rollout for rollout in results[SELF] if rollout.verdict.match and len(rollout.runs) > 3), None
        )

    def report(self) -> None:
        """Print the held-out table, the tests, the minutes, and where to look further."""
        console = self.console
        console.print()
        print_evaluation(self._evaluation, console)
        if not self.plan.control:
            console.print(
                "No control was trained in this run: the change from the warm start to the self-collected round may "
                "come from the longer training alone. `flywheel demo --full` trains the control beside it."
            )
        spent = sum(self._seconds.values())
        console.print(
            f"\n{duration(spent)} in all: " + ", ".join(duration(seconds) for seconds in self._seconds.values())
        )
        self._promote()
        path = self.workspace.reports / "report.html"
        render(self.workspace, path)
        console.print(f"Everything to look at, in one page: {path}", soft_wrap=True)
        if self._example:
            where = arm_store(self.workspace.reports / "held-out", SELF)
            console.print(f"One rollout as a tree: flywheel show --store {where} {self._example.id}")
        console.print(f"Serve the adapters to any OpenAI client: flywheel -w {self.workspace.folder} serve")

    def _promote(self) -> None:
        """Make active what has proved to be better: the warm start than the base, then the own round than that."""
        registry = Registry(self.workspace)
        for arm in (WARM, SELF):
            if registry.active() == self._adapters(arm):
                continue
            try:
                self.console.print(f"promoted: {arm}, {registry.promote(self._adapters(arm)).why}")
            except GateRefused as error:
                self.console.print(f"not promoted: {arm}, {error}")

    def _adapters(self, arm: str) -> dict[str, str]:
        return {role: f"{role}@{VERSIONS[arm]}" for role in ROLES}

    @contextmanager
    def _serving(self, arms: Sequence[str]) -> Iterator[Engine]:
        """A server with the adapters of these arms, and an engine that talks to it."""
        adapters = [adapter for arm in arms for adapter in self._adapters(arm).values()]
        with stage("serve.server").running(self.workspace.folder, adapters, self.workspace.overrides) as url:
            click.echo(f"serving base, {', '.join(adapters)} at {url}", err=True)
            settings = self.workspace.config.engine.model_copy(update={"kind": "openai", "url": url})
            engine = open_engine(settings)
            try:
                yield engine
            finally:
                engine.close()

    def _collect(
        self, questions: Sequence[Question], engine: Engine, round: int, samples: int, temperature: float,
        versions: dict[str, str],
    ) -> None:  # fmt: skip
        with TraceStore(self.workspace.traces) as store:
            summary = stage("collect.collector").collect(
                questions, self.workspace.config, engine, store, self.workspace.cache, round=round, samples=samples,
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
