"""Rows out of the files that people have: JSON Lines, JSON, CSV, Parquet, or a dataset of the Hugging Face hub."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flywheel.errors import InfrastructureError, InputError
from flywheel.files import read_jsonl, valid_text
from flywheel.records import Support
from flywheel.workspace import data_folder

HUB = "hf:"


def read_rows(path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (place, row), the place being what an error should name: `file:line`, or `dataset:row`.

    Args:
        path: a file, by its ending .jsonl, .json, .csv, .tsv or .parquet; `embedded` for the questions that ship with
            Flywheel; or `hf:dataset[/config][:split]`.

    Raises:
        InputError: when there is no such file or dataset, or it cannot be read as what its name says.
    """
    if path.startswith(HUB):
        yield from _hub(path.removeprefix(HUB))
        return
    file = data_folder() / "questions.jsonl" if path == "embedded" else Path(path)
    if not file.is_file():
        raise InputError(f"cannot read {path}: {'it is a folder' if file.is_dir() else 'no such file'}")
    match file.suffix.lower():
        case ".csv" | ".tsv":
            yield from _csv(file)
        case ".parquet":
            yield from ((f"{file}:{number}", row) for number, row in read_parquet(file))
        case _:
            for number, row in read_jsonl(file):
                yield f"{file}:{number}", row


def _csv(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    csv.field_size_limit(1 << 30)
    with file.open(encoding="utf-8-sig", newline="") as lines:
        reader = csv.DictReader(lines, delimiter="\t" if file.suffix.lower() == ".tsv" else ",", strict=True)
        try:
            names = list(reader.fieldnames or ())
            if twice := [name for name in names if names.count(name) > 1]:
                raise InputError(f"{file}:1: the name {twice[0]!r} stands twice in the first line")
            for row in reader:
                place = f"{file}:{reader.line_num}"
                if None in row or None in row.values():
                    raise InputError(f"{place}: this row has not as many fields as the first line has names")
                yield place, {name: value for name, value in row.items() if value != ""}
        except (csv.Error, UnicodeDecodeError) as error:
            raise InputError(f"{file}:{reader.line_num + 1}: not CSV in UTF-8 ({error})") from error


def read_parquet(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (row number, row) of a Parquet file.

    Raises:
        InputError: when it is none.
    """
    import pyarrow
    import pyarrow.parquet

    try:
        batches = pyarrow.parquet.ParquetFile(file).iter_batches(500)
        yield from enumerate((row for batch in batches for row in batch.to_pylist()), start=1)
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: not a Parquet file ({_first_line(error)})") from error


def _hub(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """A dataset by `owner/name[/config][:split]`, or a local folder of one."""
    import datasets

    dataset, _, split = name.partition(":")
    config: str | None = None
    if not Path(dataset).is_dir() and dataset.count("/") == 2:
        dataset, _, config = dataset.rpartition("/")
    datasets.disable_progress_bars()
    try:
        loaded = datasets.load_dataset(dataset, config, split=split or None)
    except (ConnectionError, TimeoutError) as error:
        raise InfrastructureError(f"cannot reach the hub for {dataset}: {_first_line(error)}") from error
    except Exception as error:  # the library has many ways to say that a dataset, config or split does not exist
        raise InputError(f"cannot load the dataset {name}: {_first_line(error)}") from error
    parts = {split: loaded} if split else dict(loaded)
    for part, rows in parts.items():
        for number, row in enumerate(rows, start=1):
            yield f"{HUB}{dataset}:{part}:{number}", {"split": part, **row}


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


def paragraphs(row: dict[str, Any]) -> list[Support]:
    """The paragraphs that come with a question in files of HotpotQA, 2WikiMultihopQA and MuSiQue."""
    found = row.get("paragraphs") or row.get("context")
    if isinstance(found, dict):  # as Parquet files on the hub have it: a list of titles, a list of lists of sentences
        columns = [found.get("title"), found.get("sentences") or found.get("content")]
        found = list(zip(*columns, strict=False)) if all(isinstance(column, list) for column in columns) else []
    if not isinstance(found, list):
        return []
    return [support for item in found if (support := _paragraph(item)) is not None]


def _paragraph(item: Any) -> Support | None:
    if isinstance(item, dict):
        title, text = item.get("title"), item.get("text") or item.get("paragraph_text") or item.get("sentences")
    elif isinstance(item, list | tuple) and len(item) == 2:
        title, text = item
    else:
        return None
    if isinstance(text, list):
        text = "".join(part if part.startswith(" ") else f" {part}" for part in text if isinstance(part, str)).strip()
    if not isinstance(title, str) or not isinstance(text, str) or not title.strip() or not text.strip():
        return None
    return Support(page=valid_text(title.strip()), text=valid_text(text.strip()))


def supporting(row: dict[str, Any]) -> tuple[Support, ...]:
    """The paragraphs that the dataset marks as supporting the answer."""
    items = row.get("paragraphs")
    marked = (
        [item for item in items if isinstance(item, dict) and item.get("is_supporting")]
        if isinstance(items, list)
        else []
    )
    if marked:
        return tuple(found for item in marked if (found := _paragraph(item)) is not None)
    named = _supporting_titles(row)
    return tuple(found for found in paragraphs(row) if found.page in named)


def _supporting_titles(row: dict[str, Any]) -> set[str]:
    facts = row.get("supporting_facts") or row.get("supporting_titles")
    titles = facts.get("title") if isinstance(facts, dict) else facts
    if not isinstance(titles, list):
        return set()
    firsts = [title[0] if isinstance(title, list | tuple) and title else title for title in titles]
    return {title.strip() for title in firsts if isinstance(title, str)}
