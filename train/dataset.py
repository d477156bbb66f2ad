"""The training rows of a role as a file: written from traces, and read back with care."""

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import ValidationError

from flywheel.errors import DataError, InputError, explain
from flywheel.evaluation.held_out import frozen_questions
from flywheel.exchange import write_parquet
from flywheel.files import disk_errors, read_jsonl, sha256, write_jsonl, write_text
from flywheel.pictures import funnel
from flywheel.questions import read_questions
from flywheel.records import DatasetCard, Example, Mark, Pair
from flywheel.rows import read_parquet
from flywheel.store import RolloutFilter, TraceStore
from flywheel.workspace import ROLES, Workspace, read_record

from .held_out import HeldOut
from .preferences import pairs_and_marks
from .select import Selection, select

Format = Literal["jsonl", "parquet"]
Row = TypeVar("Row", Example, Pair, Mark)

PREFERENCES = {"dpo": "pairs", "kto": "marks"}
"""Method of training -> the kind of rows that it takes."""


def preferences_file(workspace: Workspace, role: str, method: str) -> Path:
    """Where selection writes what a method is trained on."""
    return workspace.datasets / f"{role}.{PREFERENCES[method]}.jsonl"


def write_datasets(
    workspace: Workspace, rounds: Sequence[int] = (), folder: Path | None = None, held_out: Iterable[str] = (),
    kind: Format = "jsonl", command: str = "",
) -> Selection:  # fmt: skip
    """Select from the workspace's traces and write one file per role, with a card.

    Args:
        rounds: only these; all rounds if empty.
        folder: where to write, if not to the workspace's datasets.
        held_out: files of questions that must never be trained on, beside those that the workspace knows to be.
        command: what the user typed, for the card.

    Raises:
        DataError: when nothing is left, or the traces were made with different prompts or histories.
        InputError: when a file of questions cannot be read, or a rule does not exist.
    """
    if not workspace.traces.exists():
        raise DataError(f"there are no traces in {workspace.folder}; make some with: flywheel collect")
    folder = folder or workspace.datasets
    with TraceStore(workspace.traces) as store:
        barred = gather_held_out(workspace, store, held_out)
        wanted = tuple(dict.fromkeys(rounds or store.rounds()))
        rollouts = (rollout for number in wanted for rollout in store.rollouts(RolloutFilter(round=number)))
        selection = select(rollouts, workspace.config.select, barred)
        again = (rollout for number in wanted for rollout in store.rollouts(RolloutFilter(round=number)))
        pairs, marks = pairs_and_marks(again, selection, workspace.config.select, barred)
    if not selection.kept.total():
        raise DataError(f"nothing is left to train on ({selection.summary()})")
    if len(selection.histories) > 1:
        raise DataError(
            f"the correct rollouts mix {' and '.join(sorted(selection.histories))} history: choose with --round"
        )
    mixed = [f"{role} ({' and '.join(sorted(modes))})" for role, modes in selection.prompts.items() if len(modes) > 1]
    if mixed:
        raise DataError(f"the rows mix prompts of {', '.join(mixed)}: choose rounds of one kind with --round")
    marks = {role: found for role, found in marks.items() if {mark.label for mark in found} == {True, False}}
    card = DatasetCard(
        rounds=wanted, prompts={role: next(iter(modes)) for role, modes in selection.prompts.items()},
        history=next(iter(selection.histories)), rows=dict(selection.kept), calls=dict(selection.calls),
        dropped={f"{role}.{rule}": count for (role, rule), count in selection.dropped.items()},
        kinds=dict(selection.kinds), held_out=len(barred),
        pairs={role: len(found) for role, found in pairs.items()},
        marks={role: len(found) for role, found in marks.items()},
        effective={role: round(number, 1) for role, number in selection.effective.items()}, command=command,
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix=".new-", dir=_made(folder)) as name:
        new = Path(name)
        _write_rows(new, selection, pairs, marks, kind)
        funnel(card, new / "funnel.png")
        rows = [path for path in new.iterdir() if path.suffix in (".jsonl", ".parquet")]
        card = card.model_copy(update={"files": {path.name: sha256(path) for path in sorted(rows)}})
        write_text(new / "README.md", _readme(card))
        _swap(new, folder)
        write_text(folder / "card.json", card.model_dump_json(indent=2) + "\n")
    return selection


def _made(folder: Path) -> Path:
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def _write_rows(
    folder: Path, selection: Selection, pairs: dict[str, list[Pair]], marks: dict[str, list[Mark]], kind: Format
) -> None:
    for role, examples in selection.examples.items():
        if kind == "parquet":
            write_parquet(examples, Example, folder / f"{role}.parquet")
        else:
            write_jsonl(folder / f"{role}.jsonl", (example.model_dump_json() for example in examples))
        if pairs.get(role):
            write_jsonl(folder / f"{role}.pairs.jsonl", (pair.model_dump_json() for pair in pairs[role]))
        if marks.get(role):
            write_jsonl(folder / f"{role}.marks.jsonl", (mark.model_dump_json() for mark in marks[role]))


def _swap(new: Path, folder: Path) -> None:
    """Put a whole selection in the place of another; without a card, in between, nothing can be trained on.

    Files that no selection makes are left alone.
    """
    endings = (".jsonl", ".parquet", ".pairs.jsonl", ".marks.jsonl")
    with disk_errors(folder):
        for name in ("card.json", *(f"{role}{ending}" for role in ROLES for ending in endings)):
            (folder / name).unlink(missing_ok=True)
        for path in new.iterdir():
            path.replace(folder / path.name)


def _readme(card: DatasetCard) -> str:
    """A card that `datasets` reads: each role, and its pairs and marks, can be loaded by name."""
    names = {file: file.rpartition(".")[0].replace(".", "_") for file in card.files}
    configs = [line for file, name in names.items() for line in (f"- config_name: {name}", f"  data_files: {file}")]
    rows = [f"| {role} | {card.calls[role]} | {count} |" for role, count in card.rows.items()]
    return "\n".join([
        "---", "configs:", *configs, "---", "", "# Training rows", "",
        f"Selected by Flywheel from rounds {', '.join(map(str, card.rounds))}, in TRL's prompt-completion format.", "",
        "| role | calls | rows |", "|---|---|---|", *rows, "",
        "Made by:", "", f"    {card.command or 'flywheel select'}", "",
        "Load a role's rows with `datasets.load_dataset(FOLDER, \"page_search\", split=\"train\")`.",
        "What each rule dropped stands in card.json and funnel.png.", "",
    ])  # fmt: skip


def gather_held_out(workspace: Workspace, store: TraceStore, files: Iterable[str] = ()) -> HeldOut:
    """All questions that the workspace knows to be held out: those of another split in its traces, the frozen ones,
    those that its evaluations were made on, and those of the files."""
    held_out = HeldOut(frozen_questions(workspace))
    for id, text, split in store.questions():
        if split != "train":
            held_out.add(id, text)
    for evaluation in sorted(workspace.reports.glob("*/*.sqlite")):
        try:
            with TraceStore(evaluation, read_only=True) as evaluated:
                for id, text, _ in evaluated.questions():
                    held_out.add(id, text)
        except (DataError, InputError) as error:
            raise DataError(f"{error}; it may name held-out questions, so mend it or remove it") from error
    for file in files:
        for question in read_questions(file):
            held_out.add(question.id, question.question)
    return held_out


def read_examples(path: Path, role: str) -> tuple[list[Example], DatasetCard]:
    """The rows of a role, and the card that stands beside them.

    Raises:
        InputError: when a file is missing or a row is broken; names the line.
        DataError: when there are no rows.
    """
    return _read(path, role, Example)


def read_pairs(path: Path, role: str) -> tuple[list[Pair], DatasetCard]:
    """As `read_examples`, for the pairs of DPO."""
    return _read(path, role, Pair)


def read_marks(path: Path, role: str) -> tuple[list[Mark], DatasetCard]:
    """As `read_examples`, for the marks of KTO."""
    return _read(path, role, Mark)


def _read(path: Path, role: str, kind: type[Row]) -> tuple[list[Row], DatasetCard]:
    card_path = path.parent / "card.json"
    if not path.is_file():
        what = {Pair: "good and bad steps in the same situation", Mark: "good and bad steps"}.get(kind, "rows")
        raise InputError(f"{role} has no {what} ({path} is missing); make them with: flywheel select")
    if not card_path.exists():
        raise InputError(
            f"{path} has no card.json beside it, which says what it was collected with; use flywheel select"
        )
    card = read_record(card_path, DatasetCard)
    if role not in card.prompts:
        raise DataError(f"{card_path} does not know {role}: make the rows again with flywheel select")
    rows = []
    for number, row in read_parquet(path) if path.suffix == ".parquet" else read_jsonl(path):
        try:
            found = kind.model_validate(row)
        except ValidationError as error:
            raise InputError(f"{path}:{number}: not a training row ({explain(error)})") from error
        if found.role != role:
            raise InputError(f"{path}:{number}: a row of {found.role}, not of {role}")
        rows.append(found)
    if not rows:
        raise DataError(f"{path} has no rows")
    return rows, card
