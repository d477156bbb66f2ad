"""The trace store: every rollout, agent run, call and message in one SQLite file.

A rollout is written whole, in one transaction, so a killed collection loses the rollouts in flight and nothing else.
Its record is kept as compressed JSON, since the texts of a rollout repeat each other many times over; system prompts,
which repeat from rollout to rollout, are stored once by content hash. Beside it stand the columns that are asked by.
"""

import json
import sqlite3
import threading
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from flywheel.errors import DataError, InfrastructureError
from flywheel.files import sha256
from flywheel.records import Rollout

FORMAT_VERSION = 2

_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE messages (hash TEXT PRIMARY KEY, content TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE rollouts (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, question_id TEXT NOT NULL, sample INTEGER NOT NULL,
    round INTEGER NOT NULL, status TEXT NOT NULL, split TEXT NOT NULL, question TEXT NOT NULL, answer TEXT NOT NULL,
    exact_match INTEGER NOT NULL, f1 REAL NOT NULL, match INTEGER NOT NULL, seconds REAL NOT NULL,
    record BLOB NOT NULL, UNIQUE (round, question_id, sample));
CREATE TABLE agent_runs (
    rollout INTEGER NOT NULL REFERENCES rollouts (number) ON DELETE CASCADE, run INTEGER NOT NULL, role TEXT NOT NULL,
    status TEXT NOT NULL, PRIMARY KEY (rollout, run)) WITHOUT ROWID;
CREATE TABLE calls (
    rollout INTEGER NOT NULL, run INTEGER NOT NULL, call INTEGER NOT NULL, model TEXT NOT NULL,
    prompt_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL, seconds REAL NOT NULL, error TEXT,
    PRIMARY KEY (rollout, run, call),
    FOREIGN KEY (rollout, run) REFERENCES agent_runs (rollout, run) ON DELETE CASCADE) WITHOUT ROWID;
"""


@dataclass(frozen=True)
class RolloutFilter:
    """Which rollouts are meant; what is None does not matter."""

    round: int | None = None
    id: str | None = None
    """The start of the id is enough."""
    right: bool | None = None
    """By `match`; rollouts that met an infrastructure failure are neither right nor wrong."""
    role: str | None = None
    status: str | None = None
    """How an agent run ended (of `role`, if given); or `infrastructure`."""
    question: str | None = None
    """Part of the question's text or id, in upper or lower case."""

    def condition(self) -> tuple[str, list[int | str]]:
        """SQL for a WHERE, and its values."""
        parts: list[tuple[str, list[int | str]]] = [("1", [])]
        if self.round is not None:
            parts.append(("round = ?", [self.round]))
        if self.id is not None:
            parts.append(("substr(id, 1, length(?)) = ?", [self.id, self.id]))
        if self.right is not None:
            parts.append(("status = 'finished' AND match = ?", [int(self.right)]))
        if self.question is not None:
            text = "instr(lower(question || ' ' || question_id), lower(?)) > 0"
            parts.append((text, [self.question]))
        if self.status == "infrastructure":
            parts.append(("status = 'infrastructure'", []))
        status = None if self.status == "infrastructure" else self.status
        wanted = [(name, value) for name, value in (("role", self.role), ("status", status)) if value is not None]
        if wanted:
            same = " AND ".join(f"agent_runs.{name} = ?" for name, _ in wanted)
            text = f"EXISTS (SELECT 1 FROM agent_runs WHERE rollout = rollouts.number AND {same})"
            parts.append((text, [value for _, value in wanted]))
        return " AND ".join(text for text, _ in parts), [value for _, values in parts for value in values]


class TraceStore:
    """All rollouts of a workspace. Safe to use from several threads; one process writes at a time.

    Args:
        read_only: leave the file as it is, and make none.

    Raises:
        DataError: when the file is of another format version or no trace store.
    """

    def __init__(self, path: Path, read_only: bool = False) -> None:
        self._lock = threading.Lock()
        self._prompts: dict[str, str] = {}
        try:
            if read_only:
                self._database = _open_read_only(path)
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=30)
                self._database.execute("PRAGMA journal_mode = WAL")
                self._database.execute("PRAGMA synchronous = NORMAL")
                self._database.execute("PRAGMA foreign_keys = ON")
            self._open_format(path, read_only)
        except (sqlite3.Error, OSError) as error:
            raise DataError(f"{path} is not a usable trace store: {error}") from error

    def _open_format(self, path: Path, read_only: bool) -> None:
        tables = {name for (name,) in self._database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if not tables and not read_only:
            self._database.executescript(f"BEGIN; {_SCHEMA} COMMIT;")
            self._database.execute("INSERT INTO meta VALUES ('format_version', ?)", (str(FORMAT_VERSION),))
            return
        row = None
        if "meta" in tables:
            row = self._database.execute("SELECT value FROM meta WHERE key = 'format_version'").fetchone()
        if row is None or row[0] != str(FORMAT_VERSION):
            found = "none" if row is None else row[0]
            raise DataError(
                f"{path} has format version {found}, this Flywheel reads {FORMAT_VERSION}: "
                "use the Flywheel that wrote it"
            )

    def __enter__(self) -> "TraceStore":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; what was added is on disk."""
        self._database.close()

    def add(self, rollout: Rollout) -> None:
        """Write a rollout, in place of an earlier one of the same round, question and sample.

        Raises:
            InfrastructureError: when the disk refuses; the store is as it was before.
        """
        with self._lock:
            try:
                self._database.execute("BEGIN IMMEDIATE")
                self._write(rollout)
                self._database.execute("COMMIT")
            except (sqlite3.Error, OverflowError) as error:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise InfrastructureError(f"cannot write the trace store: {error}") from error

    def _write(self, rollout: Rollout) -> None:
        run = self._database.execute
        verdict, question = rollout.verdict, rollout.question
        key = (rollout.round, question.id, rollout.sample)
        run("DELETE FROM rollouts WHERE round = ? AND question_id = ? AND sample = ?", key)
        columns = (
            rollout.id, question.id, rollout.sample, rollout.round, rollout.status, question.split,
            question.question, rollout.answer,
            verdict.exact_match, verdict.f1, verdict.match, rollout.seconds, self._pack(rollout),
        )  # fmt: skip
        number = run(f"INSERT INTO rollouts VALUES (NULL, {', '.join('?' * len(columns))})", columns).lastrowid
        many = self._database.executemany
        runs = list(enumerate(rollout.runs))
        many(
            "INSERT INTO agent_runs VALUES (?, ?, ?, ?)", [(number, place, one.role, one.status) for place, one in runs]
        )
        many(
            "INSERT INTO calls VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    number,
                    place,
                    call.index,
                    call.model,
                    call.prompt_tokens,
                    call.completion_tokens,
                    call.seconds,
                    call.error,
                )
                for place, one in runs
                for call in one.calls
            ],
        )

    def _pack(self, rollout: Rollout) -> bytes:
        """The record as compressed JSON, with the hashes of system prompts in their place."""
        record = rollout.model_dump(mode="json")
        for message in _system_messages(record):
            content = message["content"]
            message["content"] = digest = sha256(content)
            self._database.execute("INSERT OR IGNORE INTO messages VALUES (?, ?)", (digest, content))
        return zlib.compress(
            json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
        )

    def _unpack(self, packed: bytes) -> Rollout:
        """The record out of its stored form.

        Raises:
            DataError: when the file is damaged.
        """
        try:
            record = json.loads(zlib.decompress(packed).decode("utf-8", "surrogatepass"))
            for message in _system_messages(record):
                message["content"] = self._prompt(message["content"])
            return Rollout.model_validate(record)
        except (zlib.error, ValueError, KeyError, TypeError) as error:
            raise DataError(f"the trace store is damaged: {error}") from error

    def _prompt(self, digest: str) -> str:
        if digest not in self._prompts:
            ((content,),) = self._read("SELECT content FROM messages WHERE hash = ?", (digest,))
            self._prompts[digest] = content
        return self._prompts[digest]

    def verdicts(self, round: int) -> dict[tuple[str, int], bool]:
        """Whether each rollout of the round that need not be made again was right, by (question id, sample)."""
        query = "SELECT question_id, sample, match FROM rollouts WHERE round = ? AND status = 'finished'"
        return {(question, sample): bool(match) for question, sample, match in self._read(query, (round,))}

    def questions(self, round: int | None = None) -> list[tuple[str, str, str]]:
        """(id, text, split) of every question that there are rollouts of, in one round or in all."""
        where, values = RolloutFilter(round=round).condition()
        query = f"SELECT DISTINCT question_id, question, split FROM rollouts WHERE {where}"
        return [(id, text, split) for id, text, split in self._read(query, values)]

    def rounds(self) -> list[int]:
        """The rounds that hold rollouts."""
        return [number for (number,) in self._read("SELECT DISTINCT round FROM rollouts ORDER BY round")]

    def count(self, chosen: RolloutFilter | None = None) -> int:
        """Number of rollouts."""
        where, values = (chosen or RolloutFilter()).condition()
        return int(self._read(f"SELECT COUNT(*) FROM rollouts WHERE {where}", values)[0][0])

    def meta(self, key: str) -> str | None:
        """A remark stored beside the rollouts."""
        rows = self._read("SELECT value FROM meta WHERE key = ?", (key,))
        return str(rows[0][0]) if rows else None

    def set_meta(self, key: str, value: str) -> None:
        """Store a remark beside the rollouts."""
        self._read("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def rollouts(self, chosen: RolloutFilter | None = None, limit: int = -1) -> Iterator[Rollout]:
        """Read rollouts back, oldest first.

        Args:
            chosen: which ones; all if None.
            limit: at most so many, if not negative.
        """
        where, values = (chosen or RolloutFilter()).condition()
        # numbers first: a reader of thousands of rollouts must not hold them all in memory
        query = f"SELECT number FROM rollouts WHERE {where} ORDER BY round, number LIMIT ?"
        for (number,) in self._read(query, (*values, limit)):
            for (packed,) in self._read("SELECT record FROM rollouts WHERE number = ?", (number,)):
                yield self._unpack(packed)

    def get(self, id: str) -> Rollout | None:
        """The rollout of that id."""
        rows = self._read("SELECT record FROM rollouts WHERE id = ?", (id,))
        return self._unpack(rows[0][0]) if rows else None

    def merge(self, rollouts: Iterable[Rollout]) -> Counter[str]:
        """Add rollouts that are not here yet; what is here stays, except that a finished one replaces a failed one.

        Returns:
            How many were `new`, `known`, `replaced` (a failed one), and how many were left out because the store has
            another rollout of that round, question and sample (`differs`).

        Raises:
            InfrastructureError: when the disk refuses.
        """
        counts: Counter[str] = Counter()
        for rollout in rollouts:
            key = (rollout.round, rollout.question.id, rollout.sample)
            key_or_id = "(round = ? AND question_id = ? AND sample = ?) OR id = ?"
            here = self._read(f"SELECT record FROM rollouts WHERE {key_or_id}", (*key, rollout.id))
            old = self._unpack(here[0][0]) if here else None
            if len(here) > 1 or (old and old.id != rollout.id):
                counts["differs"] += 1
                continue
            if old is None:
                counts["new"] += 1
            elif old == rollout:
                counts["known"] += 1
                continue
            elif old.status == "infrastructure" and rollout.status == "finished":
                counts["replaced"] += 1
            else:
                counts["differs"] += 1
                continue
            self.add(rollout)
        return counts

    def _read(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._lock:
            try:
                return self._database.execute(query, values).fetchall()
            except sqlite3.Error as error:
                raise DataError(f"the trace store cannot be used: {error}") from error


def _system_messages(record: dict[str, Any]) -> Iterator[dict[str, str]]:
    for run in record["runs"]:
        for call in run["calls"]:
            yield from (message for message in call["messages"] if message["role"] == "system")


def _open_read_only(path: Path) -> sqlite3.Connection:
    """Open without writing; in a folder that cannot be written, SQLite must be told that nobody else writes there."""
    address = path.resolve().as_uri()
    database = sqlite3.connect(f"{address}?mode=ro", uri=True, check_same_thread=False, timeout=30)
    try:
        database.execute("SELECT COUNT(*) FROM sqlite_master")
    except sqlite3.OperationalError:
        database.close()
        database = sqlite3.connect(f"{address}?mode=ro&immutable=1", uri=True, check_same_thread=False)
    return database
