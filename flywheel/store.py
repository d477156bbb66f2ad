"""The trace store: every rollout, agent run, call and message in one SQLite file.

A rollout is written whole, in one transaction, so a killed collection loses the rollouts in flight and nothing else.
Messages are stored once (system prompts repeat thousands of times); a call lists the messages it was sent.
"""

import json
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from flywheel.errors import DataError, InfrastructureError
from flywheel.files import sha256
from flywheel.records import AgentRun, Call, Message, Question, Rollout, Verdict

FORMAT_VERSION = 1

_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE messages (id INTEGER PRIMARY KEY, hash TEXT NOT NULL UNIQUE, role TEXT NOT NULL, content TEXT NOT NULL);
CREATE TABLE rollouts (
    id TEXT PRIMARY KEY, question_id TEXT NOT NULL, sample INTEGER NOT NULL, seed INTEGER NOT NULL,
    round INTEGER NOT NULL, status TEXT NOT NULL, answer TEXT NOT NULL, exact_match INTEGER NOT NULL, f1 REAL NOT NULL,
    match INTEGER NOT NULL, reason TEXT NOT NULL, seconds REAL NOT NULL, failure TEXT NOT NULL, prompt TEXT NOT NULL,
    history TEXT NOT NULL, question TEXT NOT NULL, UNIQUE (round, question_id, sample));
CREATE TABLE agent_runs (
    id TEXT PRIMARY KEY, rollout_id TEXT NOT NULL REFERENCES rollouts (id) ON DELETE CASCADE, position INTEGER NOT NULL,
    role TEXT NOT NULL, parent_call TEXT, task TEXT NOT NULL, status TEXT NOT NULL, report TEXT NOT NULL);
CREATE INDEX agent_runs_by_rollout ON agent_runs (rollout_id, position);
CREATE TABLE calls (
    id TEXT PRIMARY KEY, run_id TEXT NOT NULL REFERENCES agent_runs (id) ON DELETE CASCADE, position INTEGER NOT NULL,
    messages TEXT NOT NULL, completion TEXT NOT NULL, finish_reason TEXT NOT NULL, prompt_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL, seed INTEGER NOT NULL, temperature REAL NOT NULL, model TEXT NOT NULL,
    seconds REAL NOT NULL, code TEXT, observation TEXT, error TEXT);
CREATE INDEX calls_by_run ON calls (run_id, position);
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
            text = "instr(lower(json_extract(question, '$.question') || ' ' || question_id), lower(?)) > 0"
            parts.append((text, [self.question]))
        if self.status == "infrastructure":
            parts.append(("status = 'infrastructure'", []))
        status = None if self.status == "infrastructure" else self.status
        wanted = [(name, value) for name, value in (("role", self.role), ("status", status)) if value is not None]
        if wanted:
            same = " AND ".join(f"agent_runs.{name} = ?" for name, _ in wanted)
            text = f"EXISTS (SELECT 1 FROM agent_runs WHERE rollout_id = rollouts.id AND {same})"
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
        try:
            if read_only:
                name = f"{path.resolve().as_uri()}?mode=ro"
                self._database = sqlite3.connect(name, uri=True, check_same_thread=False, timeout=30)
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
            except sqlite3.Error as error:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise InfrastructureError(f"cannot write the trace store: {error}") from error

    def _write(self, rollout: Rollout) -> None:
        run = self._database.execute
        key = (rollout.round, rollout.question.id, rollout.sample)
        run("DELETE FROM rollouts WHERE round = ? AND question_id = ? AND sample = ?", key)
        verdict = rollout.verdict
        run(
            f"INSERT INTO rollouts VALUES ({', '.join('?' * 16)})",
            (
                rollout.id, rollout.question.id, rollout.sample, rollout.seed, rollout.round, rollout.status,
                rollout.answer, verdict.exact_match, verdict.f1, verdict.match, verdict.reason, rollout.seconds,
                rollout.failure, rollout.prompt, rollout.history, rollout.question.model_dump_json(),
            ),
        )  # fmt: skip
        for position, agent_run in enumerate(rollout.runs):
            run(
                "INSERT INTO agent_runs VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    agent_run.id, rollout.id, position, agent_run.role, agent_run.parent_call, agent_run.task,
                    agent_run.status, agent_run.report,
                ),
            )  # fmt: skip
            for call in agent_run.calls:
                messages = json.dumps([self._message_id(message) for message in call.messages])
                run(
                    f"INSERT INTO calls VALUES ({', '.join('?' * 15)})",
                    (
                        call.id, agent_run.id, call.index, messages, call.completion, call.finish_reason,
                        call.prompt_tokens, call.completion_tokens, call.seed, call.temperature, call.model,
                        call.seconds, call.code, call.observation, call.error,
                    ),
                )  # fmt: skip

    def _message_id(self, message: Message) -> int:
        digest = sha256(message.role, "\0", message.content)
        row = self._database.execute("SELECT id FROM messages WHERE hash = ?", (digest,)).fetchone()
        if row is None:
            insert = "INSERT INTO messages (hash, role, content) VALUES (?, ?, ?) RETURNING id"
            row = self._database.execute(insert, (digest, message.role, message.content)).fetchone()
        return int(row[0])

    def verdicts(self, round: int) -> dict[tuple[str, int], bool]:
        """Whether each rollout of the round that need not be made again was right, by (question id, sample)."""
        query = "SELECT question_id, sample, match FROM rollouts WHERE round = ? AND status = 'finished'"
        return {(question, sample): bool(match) for question, sample, match in self._read(query, (round,))}

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
        # ids first: a reader of thousands of rollouts must not hold them all in memory
        query = f"SELECT id FROM rollouts WHERE {where} ORDER BY round, rowid LIMIT ?"
        for (id,) in self._read(query, (*values, limit)):
            for row in self._read("SELECT * FROM rollouts WHERE id = ?", (id,)):
                yield self._rollout(row)

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
            here = self._read("SELECT * FROM rollouts WHERE round = ? AND question_id = ? AND sample = ?", key)
            old = self._rollout(here[0]) if here else None
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

    def _rollout(self, row: Sequence[Any]) -> Rollout:
        (
            id,
            _,
            sample,
            seed,
            round,
            status,
            answer,
            exact,
            f1,
            match,
            reason,
            seconds,
            failure,
            prompt,
            history,
            text,
        ) = row
        runs = self._read("SELECT * FROM agent_runs WHERE rollout_id = ? ORDER BY position", (id,))
        return Rollout(
            id=id, question=Question.model_validate_json(text), sample=sample, seed=seed, round=round, status=status,
            answer=answer, verdict=Verdict(exact_match=bool(exact), f1=f1, match=bool(match), reason=reason),
            runs=tuple(self._agent_run(run) for run in runs), seconds=seconds, failure=failure, prompt=prompt,
            history=history,
        )  # fmt: skip

    def _agent_run(self, row: Sequence[Any]) -> AgentRun:
        id, _, _, role, parent_call, task, status, report = row
        calls = self._read("SELECT * FROM calls WHERE run_id = ? ORDER BY position", (id,))
        return AgentRun(
            id=id, role=role, parent_call=parent_call, task=task, status=status, report=report,
            calls=tuple(self._call(call) for call in calls),
        )  # fmt: skip

    def _call(self, row: Sequence[Any]) -> Call:
        (id, _, index, messages, completion, finish, prompt_tokens, completion_tokens, seed, temperature, model) = row[
            :11
        ]
        seconds, code, observation, error = row[11:]
        return Call(
            id=id, index=index, messages=self._messages(json.loads(messages)), completion=completion,
            finish_reason=finish, prompt_tokens=prompt_tokens, completion_tokens=completion_tokens, seed=seed,
            temperature=temperature, model=model, seconds=seconds, code=code, observation=observation, error=error,
        )  # fmt: skip

    def _messages(self, ids: list[int]) -> tuple[Message, ...]:
        marks = ", ".join("?" * len(ids))
        rows = self._read(f"SELECT id, role, content FROM messages WHERE id IN ({marks})", ids)
        found = {number: Message(role=role, content=content) for number, role, content in rows}
        return tuple(found[number] for number in ids)

    def _read(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._lock:
            try:
                return self._database.execute(query, values).fetchall()
            except sqlite3.Error as error:
                raise DataError(f"the trace store cannot be used: {error}") from error
