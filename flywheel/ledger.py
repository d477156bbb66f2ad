"""The record of what was active when, and why: adapters/ledger.jsonl, which is only added to."""

import getpass
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from flywheel.errors import DataError, explain
from flywheel.evaluation.results import Comparison
from flywheel.files import disk_errors, now
from flywheel.records import Record

Action = Literal["promote", "rollback", "prune"]


class Entry(Record):
    """One change of what is active."""

    time: str
    """UTC, ISO 8601."""
    who: str
    action: Action
    active: dict[str, str]
    """`role@version` by role, after the change; the base plays the others."""
    weights: dict[str, str]
    """SHA-256 of each active version's weights, as it was when the version was promoted."""
    why: str
    evaluation: str = ""
    """Name of the report that justified it."""
    figures: Comparison | None = None
    forced: bool = False
    pruned: tuple[str, ...] = ()


class Ledger:
    """All entries, oldest first.

    A last line without its end is a change that was never finished: it does not count, and the next takes its place.

    Raises:
        DataError: when it is damaged elsewhere.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.entries: list[Entry] = []
        self._whole = 0
        """Bytes up to the end of the last entry."""
        with disk_errors(path):
            lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        for number, line in enumerate(lines, start=1):
            try:
                entry = Entry.model_validate_json(line) if line.strip() else None
            except ValidationError as error:
                if number == len(lines) and not line.endswith(b"\n"):
                    break
                raise DataError(
                    f"{path}:{number} is damaged ({explain(error)}): mend that line, or remove it and those after it"
                ) from error
            self.entries += [entry] if entry else []
            self._whole += len(line)

    def add(
        self, action: Action, active: Mapping[str, str], weights: Mapping[str, str], why: str, *, evaluation: str = "",
        figures: Comparison | None = None, forced: bool = False, pruned: tuple[str, ...] = (),
    ) -> Entry:  # fmt: skip
        """Write a change down; it counts once it is on disk."""
        who = "unknown"
        with suppress(OSError, KeyError):
            who = getpass.getuser()
        entry = Entry(
            time=now(), who=who, action=action, active=dict(active), weights=dict(weights), why=why,
            evaluation=evaluation, figures=figures, forced=forced, pruned=pruned,
        )  # fmt: skip
        line = entry.model_dump_json().encode() + b"\n"
        with disk_errors(self._path):
            self._path.parent.mkdir(exist_ok=True)
            with self._path.open("ab") as file:
                file.truncate(self._whole)
                if self._whole and not self._ends_a_line():
                    line = b"\n" + line
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        self._whole += len(line)
        self.entries.append(entry)
        return entry

    def _ends_a_line(self) -> bool:
        with self._path.open("rb") as file:
            file.seek(self._whole - 1)
            return file.read(1) == b"\n"

    def standing(self) -> list[Entry]:
        """Promotions that were not taken back, oldest first."""
        stack: list[Entry] = []
        for entry in self.entries:
            if entry.action == "promote":
                stack.append(entry)
            elif entry.action == "rollback" and stack:
                # a rollback may go back over several promotions, if adapters of those between are gone
                stack.pop()
                while stack and stack[-1].active != entry.active:
                    stack.pop()
        return stack
