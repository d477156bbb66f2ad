"""Everything that a report shows, read from a workspace."""

import base64
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flywheel.errors import DataError, InputError
from flywheel.evaluation.origins import find_origin
from flywheel.evaluation.results import Evaluation
from flywheel.files import now
from flywheel.ledger import Entry
from flywheel.records import AdapterCard, DatasetCard, Rollout
from flywheel.registry import Registry, evaluations
from flywheel.rows import read_rows
from flywheel.store import TraceStore
from flywheel.turn import TurnState, turns
from flywheel.workspace import ROLES, Workspace, read_card, read_record


@dataclass
class RoundCost:
    """What a round of collection took."""

    round: int
    rollouts: int = 0
    right: int = 0
    calls: int = 0
    tokens: int = 0
    prompt_tokens: int = 0
    seconds: float = 0.0
    """Model time, summed over calls that ran side by side."""
    teacher: bool = False
    errors: Counter[str] = field(default_factory=Counter)
    """Steps that went wrong, by `role.kind`."""


@dataclass
class Report:
    """A workspace at a moment."""

    title: str
    made: str
    rounds: list[RoundCost]
    turns: list[TurnState]
    evaluations: list[tuple[str, Evaluation]]
    """Oldest first."""
    selection: DatasetCard | None
    adapters: list[tuple[AdapterCard, str, str]]
    """Card, state, and the loss curve as a data URI."""
    ledger: list[Entry]
    rollouts: int
    left_out: list[str]
    """What is damaged, and why."""


def gather(workspace: Workspace) -> Report:
    """Read everything but the rollouts themselves; what is damaged is named, and left out."""
    registry, left_out = Registry(workspace), _LeftOut()
    costs, found = [], []
    with left_out:
        costs = list(_costs(workspace))
    with left_out:
        found = turns(workspace)
    return Report(
        title=workspace.folder.name, made=now(), rounds=costs,
        turns=found, evaluations=list(evaluations(workspace))[::-1], selection=_selection(workspace),
        adapters=list(_adapters(workspace, registry, left_out)), ledger=registry.entries,
        rollouts=sum(cost.rollouts for cost in costs), left_out=left_out.reasons,
    )  # fmt: skip


class _LeftOut:
    """Passes over what is damaged, and keeps the reason."""

    def __init__(self, reasons: list[str] | None = None) -> None:
        self.reasons = [] if reasons is None else reasons

    def __enter__(self) -> None:
        """Begin to read something."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, DataError | InputError):
            self.reasons.append(str(error))
            return True
        return False


def read_all(workspace: Workspace, left_out: list[str]) -> Iterator[tuple[str, Rollout]]:
    """All rollouts with where they come from: `round N`, or an evaluation's team.

    Args:
        left_out: is told of stores that cannot be read.
    """
    for source, path in _stores(workspace):
        with _LeftOut(left_out), TraceStore(path, read_only=True) as store:
            for rollout in store.rollouts():
                yield source or f"round {rollout.round}", rollout


def _stores(workspace: Workspace) -> Iterator[tuple[str, Path]]:
    if workspace.traces.exists():
        yield "", workspace.traces
    for path in sorted(workspace.reports.glob("*/*.sqlite")):
        yield f"{path.parent.name}: {path.stem}", path


def trained_calls(workspace: Workspace, left_out: list[str]) -> set[str]:
    """Ids of the calls that the present selection made rows of.

    Args:
        left_out: is told of files that cannot be read.
    """
    found: set[str] = set()
    for role in ROLES:
        path = workspace.dataset(role)
        with _LeftOut(left_out):
            if not path.exists():
                continue
            found.update(str(row["call"]) for _, row in read_rows(str(path)) if "call" in row)
    return found


def summary(source: str, rollout: Rollout) -> dict[str, Any]:
    """What the list of rollouts shows and is searched by."""
    origin = find_origin(rollout) if not rollout.verdict.match and rollout.status == "finished" else None
    return {
        "id": rollout.id, "source": source, "question": rollout.question.question, "kind": rollout.question.kind or "",
        "gold": rollout.question.answer, "answer": rollout.answer, "right": rollout.verdict.match,
        "reason": rollout.verdict.reason, "failure": rollout.failure, "origin": str(origin) if origin else "",
    }  # fmt: skip


def detail(rollout: Rollout, trained: set[str]) -> dict[str, Any]:
    """A rollout as the tree shows it: steps with what was written, seen, and trained."""
    return {"runs": [
        {"id": run.id, "role": run.role, "parent": run.parent_call, "task": run.task, "status": run.status,
         "report": run.report, "calls": [
             {"id": call.id, "text": call.completion, "seen": call.observation, "error": call.error,
              "model": call.model, "tokens": call.completion_tokens, "read": call.prompt_tokens,
              "seconds": round(call.seconds, 2), "trained": call.id in trained, "system": _system(call.messages)}
             for call in run.calls]}
        for run in rollout.runs]}  # fmt: skip


def _system(messages: Iterable[Any]) -> str:
    return next((message.content for message in messages if message.role == "system"), "")


def _costs(workspace: Workspace) -> Iterator[RoundCost]:
    if not workspace.traces.exists():
        return
    found: dict[int, RoundCost] = {}
    with TraceStore(workspace.traces, read_only=True) as store:
        for rollout in store.rollouts():
            cost = found.setdefault(rollout.round, RoundCost(rollout.round))
            cost.rollouts += 1
            cost.right += rollout.verdict.match
            for run in rollout.runs:
                for call in run.calls:
                    cost.calls += 1
                    cost.tokens += call.completion_tokens
                    cost.prompt_tokens += call.prompt_tokens
                    cost.seconds += call.seconds
                    cost.teacher |= call.model.startswith("teacher")
                    if call.error:
                        cost.errors[f"{run.role}.{call.error}"] += 1
    yield from (found[number] for number in sorted(found))


def _selection(workspace: Workspace) -> DatasetCard | None:
    path = workspace.datasets / "card.json"
    try:
        return read_record(path, DatasetCard) if path.exists() else None
    except DataError:  # of an older version: it is not shown
        return None


def _adapters(workspace: Workspace, registry: Registry, left_out: _LeftOut) -> Iterator[tuple[AdapterCard, str, str]]:
    for name, state in registry.states().items():
        folder = workspace.adapter(name)
        with left_out:
            yield read_card(folder), state, _picture(folder / "loss.png")


def _picture(path: Path) -> str:
    if not path.exists():
        return ""
    return f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}"
