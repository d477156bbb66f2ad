"""Rollouts in and out of files: JSON Lines, Parquet, Hugging Face datasets, and other trace stores."""

import shutil
import types
import typing
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from flywheel.errors import InputError, explain
from flywheel.files import disk_errors, read_jsonl
from flywheel.progress import Tracker
from flywheel.records import Rollout
from flywheel.rows import read_parquet
from flywheel.store import TraceStore

FORMATS = ("jsonl", "parquet", "hf")
_ROWS = 500
"""Rollouts written at once, so that memory does not grow with their number."""


def export_rollouts(rollouts: Iterable[Rollout], total: int, path: Path, kind: str | None = None) -> None:
    """Write rollouts to a file, or to the folder of a dataset, whole or not at all.

    Args:
        kind: one of FORMATS; None goes by the path's ending.

    Raises:
        InputError: when the format cannot be told, or a folder is in the way.
        InfrastructureError: when the disk refuses.
    """
    kind = kind or {".jsonl": "jsonl", ".parquet": "parquet", "": "hf"}.get(path.suffix.lower())
    if kind is None:
        raise InputError(f"{path}: name it .jsonl or .parquet, or say --format")
    if path.exists():
        raise InputError(f"{path} exists already; choose another name")
    temporary = path.with_name(f".{path.name}.part")
    with disk_errors(path), Tracker("export", total) as tracker:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            if kind == "jsonl":
                _write_jsonl(_counted(rollouts, tracker), temporary)
            else:
                _write_batches(_counted(rollouts, tracker), Rollout, temporary)
            if kind == "hf":
                _to_dataset(temporary, path)
            else:
                temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def _counted(rollouts: Iterable[Rollout], tracker: Tracker) -> Iterator[Rollout]:
    for rollout in rollouts:
        yield rollout
        tracker.advance()


def _write_jsonl(rollouts: Iterable[Rollout], path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        for rollout in rollouts:
            file.write(rollout.model_dump_json() + "\n")


def write_parquet(records: Iterable[BaseModel], kind: type[BaseModel], path: Path) -> None:
    """Write records of one kind to a Parquet file, whole or not at all.

    Raises:
        InfrastructureError: when the disk refuses.
    """
    temporary = path.with_name(f".{path.name}.part")
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            _write_batches(iter(records), kind, temporary)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def _write_batches(records: Iterator[BaseModel], kind: type[BaseModel], path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    schema = pyarrow.schema(list(arrow_type(kind)))
    with pyarrow.parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        while rows := list(islice(records, _ROWS)):
            writer.write_table(pyarrow.Table.from_pylist([row.model_dump() for row in rows], schema=schema))


def _to_dataset(parquet: Path, folder: Path) -> None:
    """A folder that `datasets.load_from_disk` opens."""
    import datasets

    datasets.disable_progress_bars()
    cache = folder.with_name(f".{folder.name}.cache")
    try:
        datasets.Dataset.from_parquet(str(parquet), cache_dir=str(cache)).save_to_disk(str(folder))
    finally:
        shutil.rmtree(cache, ignore_errors=True)


def arrow_type(annotation: Any) -> Any:
    """The Arrow type that holds a field of a record without loss."""
    import pyarrow

    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        fields = [(name, arrow_type(field.annotation)) for name, field in annotation.model_fields.items()]
        return pyarrow.struct(fields)
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return arrow_type(next(argument for argument in arguments if argument is not type(None)))
    if origin is tuple:
        return pyarrow.list_(arrow_type(arguments[0]))
    if origin is typing.Literal:
        return pyarrow.string()
    return {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64(), bool: pyarrow.bool_()}[annotation]


def read_rollouts(path: Path) -> Iterator[Rollout]:
    """Read rollouts from an exported file or dataset, from a trace store, or from a workspace.

    Raises:
        InputError: when there is nothing to read, or a row is no rollout; names file and row.
        DataError: when a trace store has another format.
    """
    if path.is_dir() and (path / "traces.sqlite").exists():
        path = path / "traces.sqlite"
    if not path.exists():
        raise InputError(f"cannot read {path}: no such file or folder")
    if path.suffix == ".sqlite":
        with TraceStore(path, read_only=True) as store:
            yield from store.rollouts()
        return
    for number, row in _rows(path):
        try:
            yield Rollout.model_validate(row)
        except ValidationError as error:
            raise InputError(f"{path}:{number}: not a rollout ({explain(error)})") from error


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    if path.is_dir():
        yield from _dataset_rows(path)
    elif path.suffix.lower() == ".parquet":
        yield from read_parquet(path)
    else:
        yield from read_jsonl(path)


def _dataset_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    import datasets

    try:
        loaded = datasets.load_from_disk(str(path))
    except Exception as error:  # the library has many ways to say that this is no dataset
        raise InputError(f"{path} is neither a workspace nor an exported dataset") from error
    yield from enumerate(loaded, start=1)
