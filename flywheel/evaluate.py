"""Held-out evaluation: the same questions and seeds for every team, graded, with intervals and paired tests."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from flywheel.config import Config
from flywheel.engines import Engine
from flywheel.errors import InfrastructureError, InputError
from flywheel.files import sha256
from flywheel.records import BASE, Prompt, Question, Record, Rollout
from flywheel.stages import stage
from flywheel.statistics import bootstrap_interval, mcnemar_exact
from flywheel.store import RolloutFilter, TraceStore


@dataclass(frozen=True)
class Arm:
    """A team to evaluate: who plays the roles, and with which prompts."""

    name: str
    config: Config
    model: str = ""
    """`base` to let the base play every role."""
    versions: dict[str, str] = field(default_factory=dict)
    """`role@version` by role; a role that is missing is played by the base."""
    prompts: dict[str, Prompt] = field(default_factory=dict)
    """Which prompt a role gets, where not the team's."""

    def digest(self) -> str:
        """Fingerprint of everything that decides what the team answers."""
        return sha256(
            self.config.digest("team", "source"),
            self.config.engine.model,
            self.model,
            str(self.versions),
            str({role: prompt for role, prompt in self.prompts.items() if prompt != self.config.team.prompt} or ""),
        )


class ArmResult(Record):
    """How a team did on the questions."""

    name: str
    questions: int
    exact_match: float
    exact_match_interval: tuple[float, float]
    """Bootstrap, 95%."""
    match: float
    match_interval: tuple[float, float]
    f1: float
    f1_interval: tuple[float, float]
    calls: float
    """Model calls per question."""
    failed_steps: float
    """Share of steps without code, with code that failed, or repeated."""
    seconds: float
    """Model time per question, summed over its calls."""
    by_kind: dict[str, tuple[int, int]]
    """Kind of question: exact matches, questions."""


class Comparison(Record):
    """Two teams on the same questions, by exact match."""

    first: str
    second: str
    only_first: int
    only_second: int
    p: float
    """McNemar's exact test, two-sided."""


class Evaluation(Record):
    """The results of all teams."""

    questions: tuple[str, ...]
    """Ids, so that it can be repeated on the same ones."""
    arms: tuple[ArmResult, ...]
    comparisons: tuple[Comparison, ...]


def run_arm(arm: Arm, questions: Sequence[Question], engine: Engine, folder: Path, cache: Path) -> list[Rollout]:
    """Run a team on the questions at temperature 0; what an earlier call finished is not run again.

    Raises:
        InfrastructureError: when rollouts failed; the same call tries them again.
        InputError: when the folder holds this arm's rollouts with other adapters or settings.
    """
    versions = {role.name: arm.versions.get(role.name, BASE) for role in stage("collect.team").WIKIPEDIA.roles}
    with TraceStore(arm_store(folder, arm.name)) as store:
        if (store.meta("arm") or arm.digest()) != arm.digest():
            raise InputError(f"{folder} holds results of other adapters or settings; choose another name for these")
        store.set_meta("arm", arm.digest())
        summary = stage("collect.collector").collect(
            questions, arm.config, engine, store, cache, round=0, samples=1, temperature=0.0, model=arm.model,
            versions=versions, prompts=arm.prompts, title=f"evaluate {arm.name}",
        )  # fmt: skip
        if summary.interrupted:
            raise KeyboardInterrupt
        if summary.infrastructure:
            raise InfrastructureError(f"{summary.infrastructure} rollouts of {arm.name} failed: {summary.failure}")
        by_id = {rollout.question.id: rollout for rollout in store.rollouts(RolloutFilter(round=0))}
    return [by_id[question.id] for question in questions]


def arm_store(folder: Path, name: str) -> Path:
    """Where an arm's rollouts are kept, for `flywheel show --store`."""
    return folder / f"{name.replace(' ', '-').replace(',', '')}.sqlite"


def compare(results: dict[str, list[Rollout]], pairs: Sequence[tuple[str, str]]) -> Evaluation:
    """Summarise each arm and test the pairs."""
    ids = tuple(rollout.question.id for rollout in next(iter(results.values())))
    exact = {name: [rollout.verdict.exact_match for rollout in rollouts] for name, rollouts in results.items()}
    comparisons = []
    for first, second in pairs:
        only_first, only_second, p = mcnemar_exact(exact[first], exact[second])
        comparisons.append(Comparison(first=first, second=second, only_first=only_first, only_second=only_second, p=p))
    arms = tuple(summarise(name, rollouts) for name, rollouts in results.items())
    return Evaluation(questions=ids, arms=arms, comparisons=tuple(comparisons))


def summarise(name: str, rollouts: Sequence[Rollout]) -> ArmResult:
    """The figures of one arm."""
    size = len(rollouts)
    exact = [float(rollout.verdict.exact_match) for rollout in rollouts]
    match = [float(rollout.verdict.match) for rollout in rollouts]
    f1 = [rollout.verdict.f1 for rollout in rollouts]
    calls = [call for rollout in rollouts for run in rollout.runs for call in run.calls]
    by_kind: dict[str, tuple[int, int]] = {}
    for rollout in rollouts:
        right, total = by_kind.get(rollout.question.kind or "any kind", (0, 0))
        by_kind[rollout.question.kind or "any kind"] = right + rollout.verdict.exact_match, total + 1
    return ArmResult(
        name=name, questions=size,
        exact_match=sum(exact) / size, exact_match_interval=bootstrap_interval(exact),
        match=sum(match) / size, match_interval=bootstrap_interval(match),
        f1=sum(f1) / size, f1_interval=bootstrap_interval(f1),
        calls=len(calls) / size, failed_steps=sum(call.error is not None for call in calls) / max(1, len(calls)),
        seconds=sum(call.seconds for call in calls) / size, by_kind=by_kind,
    )  # fmt: skip


def print_evaluation(evaluation: Evaluation, console: Console) -> None:
    """The table of teams with 95% bootstrap intervals, the same by kind of question, and the tests."""
    table = Table(title=f"{len(evaluation.questions)} held-out questions", box=SIMPLE_HEAD)
    table.add_column("team")
    for column in ("exact match", "F1", "match", "calls", "failed steps"):
        table.add_column(column, justify="right")
    for arm in evaluation.arms:
        table.add_row(
            arm.name, _percent(arm.exact_match, arm.exact_match_interval), _percent(arm.f1, arm.f1_interval),
            f"{arm.match:.0%}", f"{arm.calls:.1f}", f"{arm.failed_steps:.0%}",
        )  # fmt: skip
    console.print(table)
    kinds = sorted({kind for arm in evaluation.arms for kind in arm.by_kind})
    by_kind = Table(title="exact matches by kind of question", box=SIMPLE_HEAD)
    by_kind.add_column("team")
    for kind in kinds:
        by_kind.add_column(kind.replace("_", " "), justify="right")
    for arm in evaluation.arms:
        counts = [arm.by_kind.get(kind, (0, 0)) for kind in kinds]
        by_kind.add_row(arm.name, *(f"{right}/{total}" for right, total in counts))
    console.print(by_kind)
    for pair in evaluation.comparisons:
        console.print(describe(pair))


def describe(pair: Comparison) -> str:
    """A comparison in words; what cannot be told apart is said to be so."""
    better = pair.second if pair.only_second > pair.only_first else pair.first
    verdict = f"{better} is better" if pair.p < 0.05 else "not distinguishable"
    p = "p < 0.0001" if pair.p < 0.0001 else f"p = {pair.p:.4f}"
    return (
        f"{pair.first} against {pair.second}: only the first right {pair.only_first}, "
        f"only the second {pair.only_second}, McNemar {p}: {verdict}"
    )


def _percent(value: float, interval: tuple[float, float]) -> str:
    return f"{value:.0%} [{100 * interval[0]:.0f}, {100 * interval[1]:.0f}]"


def as_json(evaluation: Evaluation, **more: Any) -> str:
    """The evaluation as a JSON text, with further facts beside it."""
    import json

    return json.dumps(evaluation.model_dump() | more, indent=2) + "\n"
