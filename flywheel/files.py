"""Reading and writing files so that nothing is lost: atomic writes, JSON Lines with clear errors, content hashes."""

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO

from flywheel.errors import InfrastructureError, InputError


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn a full or unwritable disk into one clear line.

    Raises:
        InfrastructureError: when the system refuses a write below `path`.
    """
    try:
        yield
    except OSError as error:
        raise InfrastructureError(f"cannot write {path}: {error.strerror or error}") from error


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all (temporary file beside it, then rename)."""
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).chmod(0o644)
            Path(temporary).replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()
            raise


def write_jsonl(path: Path, rows: Iterable[str]) -> None:
    """Write lines that are already JSON, whole or not at all."""
    write_text(path, "".join(f"{row}\n" for row in rows))


def read_jsonl(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, object) for each line that is not blank; of a JSON array (position, object) for each item.

    Raises:
        InputError: when the file is missing or a line is not a JSON object; names file and line.
    """
    try:
        file = path.open(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    with file:
        try:
            is_array = file.read(1) == "["
            file.seek(0)
            for number, row in _array(path, file) if is_array else _lines(path, file):
                if not isinstance(row, dict):
                    raise InputError(f"{path}:{number}: expected a JSON object, found {type(row).__name__}")
                yield number, row
        except UnicodeDecodeError as error:
            raise InputError(f"{path}: not UTF-8 text ({error.reason})") from error


def _array(path: Path, file: TextIO) -> Iterator[tuple[int, Any]]:
    try:
        yield from enumerate(json.load(file), start=1)
    except json.JSONDecodeError as error:
        raise InputError(f"{path}: not a JSON array ({error})") from error


def _lines(path: Path, file: TextIO) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(file, start=1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except json.JSONDecodeError as error:
                raise InputError(f"{path}:{number}: not JSON ({error})") from error


def sha256(*parts: Path | bytes | str) -> str:
    """SHA-256 over the contents of files and literal parts, as hexadecimal digits."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, Path):
            with part.open("rb") as file:
                while block := file.read(1 << 20):
                    digest.update(block)
        else:
            digest.update(part.encode() if isinstance(part, str) else part)
    return digest.hexdigest()
