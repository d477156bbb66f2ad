"""The collection loop: questions x samples -> rollouts in the store, several at once, resumable."""

import contextlib
import queue
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from flywheel.config import Config
from flywheel.engines import Engine, KnowsTraining
from flywheel.errors import InfrastructureError, InputError
from flywheel.grading import open_grader
from flywheel.progress import Tracker
from flywheel.records import BASE, Prompt, Question, Rollout
from flywheel.store import TraceStore
from flywheel.workspace import ROLES

from .passages import PassageFinder
from .rollout import Setup, run_rollout
from .sandbox import Sandbox
from .schedule import Schedule
from .sources import open_source
from .team import WIKIPEDIA

_TEAM_DEPTH = 3
"""Agents of one rollout that can hold a sandbox session at the same time."""
_FAILURES_IN_A_ROW = 8
"""Infrastructure failures after which collection stops (twice the concurrency, if that is more): the engine is gone."""


@dataclass
class Summary:
    """What a collection made."""

    rollouts: int = 0
    skipped: int = 0
    """Finished in an earlier run of the same collection."""
    questions: int = 0
    solved: int = 0
    """Questions with a right rollout, or with as many as were asked for; earlier runs of the collection count."""
    exact: int = 0
    match: int = 0
    infrastructure: int = 0
    failure: str = ""
    """The last infrastructure failure."""
    seconds: float = 0.0
    """Wall clock."""
    tokens: int = 0
    """Tokens that models wrote."""
    prompt_tokens: int = 0
    calls: Counter[str] = field(default_factory=Counter)
    """Model calls by role."""
    runs: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Agent runs by role and status."""
    errors: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Steps that went wrong, by role and kind of error."""
    interrupted: bool = False
    spent: str = ""
    """Which budget ended it, `tokens` or `hours`."""
    gave_up: bool = False
    """Stopped because too many rollouts in a row met an infrastructure failure."""

    def add(self, rollout: Rollout) -> None:
        """Count one rollout."""
        self.rollouts += 1
        if rollout.status == "infrastructure":
            self.infrastructure += 1
            self.failure = rollout.failure
        else:
            self.exact += rollout.verdict.exact_match
            self.match += rollout.verdict.match
        for run in rollout.runs:
            self.runs[run.role, run.status] += 1
            for call in run.calls:
                self.calls[run.role] += 1
                self.tokens += call.completion_tokens
                self.prompt_tokens += call.prompt_tokens
                if call.error:
                    self.errors[run.role, call.error] += 1

    def failed_steps(self, role: str) -> float:
        """Share of the role's steps that had no code, failed, or repeated another."""
        return sum(count for (name, _), count in self.errors.items() if name == role) / max(1, self.calls[role])


@dataclass(frozen=True)
class Budget:
    """What a collection may spend; 0 is no limit. Rollouts under way at its end are finished."""

    tokens: int = 0
    """Tokens that models write."""
    seconds: float = 0.0

    def spent(self, summary: Summary) -> str:
        """Which part of it is spent; empty if none is."""
        if self.tokens and summary.tokens >= self.tokens:
            return "tokens"
        return "hours" if self.seconds and summary.seconds >= self.seconds else ""


def collect(
    questions: Sequence[Question],
    config: Config,
    engine: Engine,
    store: TraceStore,
    cache: Path,
    *,
    round: int,
    samples: int,
    temperature: float,
    target: int = 0,
    model: str = "",
    versions: dict[str, str] | None = None,
    prompts: dict[str, Prompt] | None = None,
    budget: Budget | None = None,
    title: str = "collect",
) -> Summary:
    """Make the rollouts that the round does not have yet. Ctrl-C ends it after the rollouts in flight are dropped.

    Args:
        target: right rollouts after which a question is sampled no more; 0 takes all samples of each.
        model: ask for this model in every role's name (such as `base`); empty asks for the role.
        versions: `role@version` to ask for, by role.
        prompts: which prompt a role gets, where not the team's.
        budget: when to begin no more rollouts.
    """
    schedule = Schedule(questions, samples, target, store.verdicts(round))
    summary = Summary(skipped=schedule.skipped, questions=len(questions), solved=schedule.solved)
    if not schedule.budget:
        return summary
    workers = min(config.collect.concurrency, schedule.budget)
    started = time.monotonic()
    in_a_row = 0
    try:
        with opened_setup(
            config, engine, cache, sessions=workers, round=round, temperature=temperature, model=model,
            versions=versions or {}, prompts=prompts or {},
        ) as setup, Tracker(title, schedule.budget, parallel=workers) as tracker:  # fmt: skip
            for rollout in _in_parallel(setup, schedule, workers):
                store.add(rollout)
                summary.add(rollout)
                summary.solved = schedule.solved
                summary.seconds = time.monotonic() - started
                tracker.advance(note=_note(summary))
                if budget and not summary.spent and (part := budget.spent(summary)):
                    summary.spent = part
                    schedule.end()
                in_a_row = in_a_row + 1 if rollout.status == "infrastructure" else 0
                if in_a_row >= max(_FAILURES_IN_A_ROW, 2 * workers):
                    summary.gave_up = True
                    break
    except KeyboardInterrupt:
        summary.interrupted = True
    except InfrastructureError as error:  # of the disk: those of engines and networks are in the rollouts
        summary.gave_up, summary.failure = True, str(error)
    return summary


@contextlib.contextmanager
def opened_setup(
    config: Config, engine: Engine, cache: Path, *, sessions: int, round: int, temperature: float, model: str,
    versions: dict[str, str], prompts: dict[str, Prompt],
) -> Iterator[Setup]:  # fmt: skip
    """Open source, passages and sandbox for so many rollouts at once.

    Raises:
        InputError: when the engine's adapters were trained with another history than the team has.
    """
    if isinstance(engine, KnowsTraining) and model != BASE:
        for role in ROLES:
            if (history := engine.histories.get(role, config.team.history)) != config.team.history:
                raise InputError(
                    f"{role} is served by an adapter that was trained with team.history={history}, and here it is "
                    f"{config.team.history}: add -o team.history={history}, or use the base with --no-adapters"
                )
    sandbox = Sandbox(sessions=sessions * _TEAM_DEPTH + 1)
    try:
        yield Setup(
            config=config, team=WIKIPEDIA, engine=engine, source=open_source(config.source, cache),
            passages=PassageFinder(config.source, cache), sandbox=sandbox, round=round, temperature=temperature,
            grader=open_grader(config.collect.grader, engine), model=model, versions=versions,
            prompts=prompts,
        )  # fmt: skip
    finally:
        sandbox.close()


def _note(summary: Summary) -> str:
    """The state of things, for the line of progress."""
    parts = [f"{summary.match} right", f"{summary.solved}/{summary.questions} questions solved"]
    if summary.seconds > 1:
        parts.append(f"{summary.tokens / summary.seconds:.0f} tokens/s")
    if failing := {role: share for role in summary.calls if (share := summary.failed_steps(role)) >= 0.005}:
        parts.append("failed steps " + ", ".join(f"{role} {share:.0%}" for role, share in failing.items()))
    if summary.infrastructure:
        parts.append(f"{summary.infrastructure} infrastructure failures")
    return ", ".join(parts)


def _in_parallel(setup: Setup, schedule: Schedule, workers: int) -> Iterator[Rollout]:
    """Yield rollouts as they finish. Threads are daemons: an interrupt does not wait for a slow model."""
    jobs: queue.SimpleQueue[tuple[Question, int] | None] = queue.SimpleQueue()
    results: queue.SimpleQueue[Rollout | BaseException] = queue.SimpleQueue()

    def work() -> None:
        while job := jobs.get():
            try:
                results.put(run_rollout(setup, *job))
            except BaseException as error:
                results.put(error)

    def hand_out(under_way: int) -> int:
        while under_way < workers and (job := schedule.take()):
            jobs.put(job)
            under_way += 1
        return under_way

    for _ in range(workers):
        threading.Thread(target=work, daemon=True).start()
    try:
        under_way = hand_out(0)
        while under_way:
            result = results.get()
            if isinstance(result, BaseException):
                raise result
            schedule.ended(result.question.id, result.status == "finished" and result.verdict.match)
            under_way = hand_out(under_way - 1)  # before the caller writes the rollout down
            yield result
    finally:
        for _ in range(workers):
            jobs.put(None)
