"""Reading and writing files so that nothing is lost: atomic writes, JSON Lines with clear errors, content hashes."""

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

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
        with path.open("rb") as file:
            begin = file.read(4096).lstrip(b"\xef\xbb\xbf \t\r\n")
            file.seek(0)
            for number, row in _array(path, file) if begin.startswith(b"[") else _lines(path, file):
                if not isinstance(row, dict):
                    raise InputError(f"{path}:{number}: expected a JSON object, found {type(row).__name__}")
                yield number, row
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error


def _array(path: Path, file: BinaryIO) -> Iterator[tuple[int, Any]]:
    try:
        yield from enumerate(_parse(file.read()), start=1)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not a JSON array in UTF-8 ({_short(error)})") from error


def _lines(path: Path, file: BinaryIO) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(file, start=1):
        if line.strip():
            try:
                row = _parse(line)
            except UnicodeDecodeError as error:
                raise InputError(f"{path}:{number}: not UTF-8 text ({error.reason})") from error
            except (ValueError, RecursionError) as error:
                raise InputError(f"{path}:{number}: not JSON ({_short(error)})") from error
            yield number, row


def _parse(text: bytes) -> Any:
    found = json.loads(text.decode("utf-8-sig"))
    return _valid(found) if b"\\ud" in text.lower() else found


def _valid(value: Any) -> Any:
    """The same with valid texts: JSON can spell halves of characters."""
    if isinstance(value, str):
        return valid_text(value)
    if isinstance(value, list):
        return [_valid(item) for item in value]
    return {valid_text(key): _valid(item) for key, item in value.items()} if isinstance(value, dict) else value


def _short(error: Exception) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else str(error).splitlines()[0][:200]


def now() -> str:
    """The time, in UTC, as records keep it: ISO 8601 to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def valid_text(text: str) -> str:
    """A text that can be written as UTF-8: halves of characters that a broken reply may hold are replaced."""
    return text.encode("utf-8", "replace").decode("utf-8")


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
