"""The training rows of a role as a file: written from traces, and read back with care."""

from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from flywheel.errors import DataError, InputError
from flywheel.files import read_jsonl, write_jsonl, write_text
from flywheel.records import DatasetCard, Example
from flywheel.store import TraceStore
from flywheel.workspace import Workspace

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
        rollouts = (rollout for number in wanted for rollout in store.rollouts(number))
        selection = select(rollouts, workspace.config.select)
    if not selection.kept:
        raise DataError(f"nothing is left to train on ({selection.summary()})")
    if len(selection.modes) > 1:
        modes = "; ".join(f"{prompt} prompt with {history} history" for prompt, history in sorted(selection.modes))
        raise DataError(f"the correct rollouts mix {modes}: choose rounds of one kind with --round")
    prompt, history = next(iter(selection.modes))
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
    if not path.exists() or not card_path.exists():
        missing = path if not path.exists() else card_path
        raise InputError(f"{role} has no dataset ({missing} is missing); make it with: flywheel select")
    try:
        card = DatasetCard.model_validate_json(card_path.read_text(encoding="utf-8"))
    except ValidationError as error:
        raise InputError(
            f"{card_path} is damaged ({error.errors()[0]['msg']}); make it with: flywheel select"
        ) from error
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
