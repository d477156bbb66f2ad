"""The training rows of a role as a file: written from traces, and read back with care."""

from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from flywheel.errors import DataError, InputError
from flywheel.files import read_jsonl, write_jsonl, write_text
from flywheel.records import DatasetCard, Example
from flywheel.store import RolloutFilter, TraceStore
from flywheel.workspace import Workspace, read_record

from .select import Selection, select


def write_datasets(workspace: Workspace, rounds: Sequence[int] = (), folder: Path | None = None) -> Selection:
    """Select from the workspace's traces and write one file per role, with a card.

    Args:
        rounds: only these; all rounds if empty.
        folder: where to write, if not to the workspace's datasets.

    Raises:
        DataError: when nothing is left, or the traces were made with different prompts or histories.
    """
    if not workspace.traces.exists():
        raise DataError(f"there are no traces in {workspace.folder}; make some with: flywheel collect")
    folder = folder or workspace.datasets
    with TraceStore(workspace.traces) as store:
        wanted = tuple(rounds or store.rounds())
        rollouts = (rollout for number in wanted for rollout in store.rollouts(RolloutFilter(round=number)))
        selection = select(rollouts, workspace.config.select)
    if not selection.kept:
        raise DataError(f"nothing is left to train on ({selection.summary()})")
    if len(selection.modes) > 1:
        modes = "; ".join(f"{prompt} prompt with {history} history" for prompt, history in sorted(selection.modes))
        raise DataError(f"the correct rollouts mix {modes}: choose rounds of one kind with --round")
    prompt, history = next(iter(selection.modes))
    for stale in folder.glob("*.jsonl"):  # a role without rows must not keep those of an earlier selection
        stale.unlink()
    for role, examples in selection.examples.items():
        write_jsonl(folder / f"{role}.jsonl", (example.model_dump_json() for example in examples))
    rows = {role: len(examples) for role, examples in selection.examples.items()}
    card = DatasetCard(
        rounds=wanted, prompt=prompt, history=history, rows=rows, calls=dict(selection.calls),
        dropped={f"{role}.{rule}": count for (role, rule), count in selection.dropped.items()},
        kinds=dict(selection.kinds),
    )  # fmt: skip
    write_text(folder / "card.json", card.model_dump_json(indent=2) + "\n")
    return selection


def read_examples(path: Path, role: str) -> tuple[list[Example], DatasetCard]:
    """The rows of a role, and the card that stands beside them.

    Raises:
        InputError: when a file is missing or a row is broken; names the line.
        DataError: when there are no rows.
    """
    card_path = path.parent / "card.json"
    if not path.is_file():
        raise InputError(f"{role} has no dataset ({path} is missing); make it with: flywheel select")
    if not card_path.exists():
        raise InputError(
            f"{path} has no card.json beside it, which says what it was collected with; use flywheel select"
        )
    card = read_record(card_path, DatasetCard)
    examples = []
    for number, row in read_jsonl(path):
        try:
            example = Example.model_validate(row)
        except ValidationError as error:
            detail = error.errors()[0]
            place = ".".join(map(str, detail["loc"]))
            raise InputError(f"{path}:{number}: not a training row ({place}: {detail['msg']})") from error
        if example.role != role:
            raise InputError(f"{path}:{number}: a row of {example.role}, not of {role}")
        examples.append(example)
    if not examples:
        raise DataError(f"{path} has no rows")
    return examples, card
