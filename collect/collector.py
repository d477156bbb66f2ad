"""The collection loop: questions x samples -> rollouts in the store, several at once, resumable."""

import queue
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from flywheel.config import Config
from flywheel.engines import Engine
from flywheel.progress import Tracker
from flywheel.records import Question, Rollout
from flywheel.store import TraceStore

from .passages import PassageFinder
from .rollout import Setup, run_rollout
from .sandbox import Sandbox
from .sources import open_source
from .team import WIKIPEDIA

_TEAM_DEPTH = 3
"""Agents of one rollout that can hold a sandbox session at the same time."""


@dataclass
class Summary:
    """What a collection made."""

    rollouts: int = 0
    skipped: int = 0
    """Finished in an earlier run of the same collection."""
    exact: int = 0
    match: int = 0
    infrastructure: int = 0
    failure: str = ""
    """The last infrastructure failure."""
    tokens: int = 0
    """Tokens that models wrote."""
    calls: Counter[str] = field(default_factory=Counter)
    """Model calls by role."""
    errors: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Steps that went wrong, by role and kind of error."""
    interrupted: bool = False

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
            for call in run.calls:
                self.calls[run.role] += 1
                self.tokens += call.completion_tokens
                if call.error:
                    self.errors[run.role, call.error] += 1


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
    model: str = "",
    versions: dict[str, str] | None = None,
    title: str = "collect",
) -> Summary:
    """Make the rollouts that the round does not have yet. Ctrl-C ends it after the rollouts in flight are dropped.

    Args:
        model: ask for this model in every role's name (such as `base`); empty asks for the role.
        versions: `role@version` to ask for, by role.
    """
    done = store.finished(round)
    jobs = [(question, sample) for sample in range(samples) for question in questions]
    todo = [(question, sample) for question, sample in jobs if (question.id, sample) not in done]
    summary = Summary(skipped=len(jobs) - len(todo))
    if not todo:
        return summary
    workers = min(config.collect.concurrency, len(todo))
    sandbox = Sandbox(sessions=workers * _TEAM_DEPTH + 1)
    try:
        setup = Setup(
            config=config, team=WIKIPEDIA, engine=engine, source=open_source(config.source, cache),
            passages=PassageFinder(config.source), sandbox=sandbox, round=round, temperature=temperature, model=model,
            versions=versions or {},
        )  # fmt: skip
        with Tracker(title, len(todo), parallel=workers) as tracker:
            for rollout in _in_parallel(setup, todo, workers):
                store.add(rollout)
                summary.add(rollout)
                tracker.advance(note=f"{summary.match} right")
    except KeyboardInterrupt:
        summary.interrupted = True
    finally:
        sandbox.close()
    return summary


def _in_parallel(setup: Setup, todo: list[tuple[Question, int]], workers: int) -> Iterator[Rollout]:
    """Yield rollouts as they finish. Threads are daemons: an interrupt does not wait for a slow model."""
    jobs: queue.SimpleQueue[tuple[Question, int] | None] = queue.SimpleQueue()
    results: queue.SimpleQueue[Rollout | BaseException] = queue.SimpleQueue()

    def work() -> None:
        while job := jobs.get():
            try:
                results.put(run_rollout(setup, *job))
            except BaseException as error:
                results.put(error)

    for job in todo:
        jobs.put(job)
    for _ in range(workers):
        jobs.put(None)
        threading.Thread(target=work, daemon=True).start()
    for _ in todo:
        result = results.get()
        if isinstance(result, BaseException):
            raise result
        yield result
