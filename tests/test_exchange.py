"""Stores that are killed, resumed, exported and merged; `ask`, `show`, `export` and `import`."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import psutil
import pytest
from click.testing import CliRunner

from collect.collector import collect
from flywheel.cli import flywheel as group
from flywheel.config import Config, validate
from flywheel.errors import FlywheelError, InputError
from flywheel.exchange import export_rollouts, read_rollouts
from flywheel.records import Question, Rollout
from flywheel.store import RolloutFilter, TraceStore
from flywheel.teacher import teacher_engine
from flywheel.workspace import Workspace

SETTINGS = {
    "team": {"prompt": "compact", "history": "full"},
    "source": {"kind": "corpus", "path": "embedded", "passages": 8},
    "collect": {"concurrency": 8},
}

COLLECTION = """
import sys
from pathlib import Path
from collect.collector import collect
from flywheel.questions import read_questions
from flywheel.config import validate
from flywheel.engines.scripted import ScriptedEngine
from flywheel.store import TraceStore
from flywheel.teacher import Teacher
folder = Path(sys.argv[1])
questions = read_questions("embedded", "train", limit=100)
engine = ScriptedEngine(Teacher(questions), delay=0.01)
with TraceStore(folder / "traces.sqlite") as store:
    print("go", flush=True)
    collect(questions, {config}, engine, store, folder, round=0, samples=2, temperature=0.0)
""".replace("{config}", f"validate({SETTINGS!r}, 'test')")


def _config() -> Config:
    return validate(SETTINGS, "test")


def _timeless(rollout: Rollout) -> str:
    runs = tuple(
        run.model_copy(update={"calls": tuple(call.model_copy(update={"seconds": 0}) for call in run.calls)})
        for run in rollout.runs
    )
    return rollout.model_copy(update={"seconds": 0, "runs": runs}).model_dump_json()


@pytest.mark.parametrize("kills", [4, pytest.param(20, marks=pytest.mark.slow)])
def test_a_collection_that_is_killed_again_and_again_loses_nothing(
    tmp_path: Path, training_questions: list[Question], kills: int
) -> None:
    """Kill -9 at random moments of 200 rollouts; what the resumed collection holds equals an unbroken run's."""
    chance = random.Random(kills)
    seen = 0
    for number in range(kills + 1):
        process = subprocess.Popen(
            [sys.executable, "-c", COLLECTION, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert process.stdout is not None
        process.stdout.readline()
        if number < kills:
            time.sleep(chance.uniform(0.0, 6.0 / kills))
            process.send_signal(signal.SIGKILL)
        process.wait(timeout=120)
        with TraceStore(tmp_path / "traces.sqlite") as store:
            kept = store.count()
            assert kept >= seen
            seen = kept
    assert process.returncode == 0
    with TraceStore(tmp_path / "traces.sqlite") as store:
        broken = sorted(map(_timeless, store.rollouts()))
    chosen = training_questions[:100]
    with TraceStore(tmp_path / "other.sqlite") as store:
        engine = teacher_engine(chosen)
        collect(chosen, _config(), engine, store, tmp_path, round=0, samples=2, temperature=0.0)
        unbroken = sorted(map(_timeless, store.rollouts()))
    assert len(broken) == 200
    assert broken == unbroken


def test_a_killed_collection_leaves_no_workers_behind(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", COLLECTION, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    process.stdout.readline()
    deadline = time.monotonic() + 30
    while not (mine := [child.pid for child in psutil.Process(process.pid).children() if "monty" in child.name()]):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    while any(psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE for pid in mine):
        assert time.monotonic() < deadline, "workers outlive their parent"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory, training_questions: list[Question]) -> Path:
    """A workspace with 12 rollouts of a teacher, two of them wrong."""
    workspace = Workspace.create(
        tmp_path_factory.mktemp("traces") / "w", "[source]\nkind = 'corpus'\npath='embedded'\n"
    )
    computed = [question for question in training_questions if question.operation == "difference"]  # the teacher does
    copied = [question for question in training_questions if question.operation == "copy"]
    wrong = [question.model_copy(update={"answer": "nothing at all"}) for question in computed[:2]]
    with TraceStore(workspace.traces) as store:
        questions = [*wrong, *copied[:10]]
        collect(questions, _config(), teacher_engine(questions), store, workspace.cache,
                round=1, samples=1, temperature=0.0)  # fmt: skip
    return workspace.folder


def _run(*arguments: object, code: int = 0) -> str:
    """Run a command in this process; gives what it printed."""
    result = CliRunner(env={"COLUMNS": "200"}).invoke(group, [str(argument) for argument in arguments])
    if isinstance(result.exception, FlywheelError):
        assert code == result.exception.exit_code, result.exception
        return str(result.exception)
    assert result.exit_code == code, result.output + repr(result.exception)
    return result.output


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        ([], 12),
        (["--wrong"], 2),
        (["--right"], 10),
        (["--status", "finished", "--role", "supervisor"], 12),
        (["--status", "max_steps"], 0),
        (["--status", "infrastructure"], 0),
        (["--question", "WHAT IS"], None),
        (["--question", "xyzzy"], 0),
        (["--right", "--role", "page_search", "--round", 1], 10),
    ],
)
def test_show_filters(traces: Path, options: list[object], rows: int | None) -> None:
    with TraceStore(traces / "traces.sqlite", read_only=True) as store:
        asked = sum("what is" in rollout.question.question.lower() for rollout in store.rollouts())
    assert _run("-w", traces, "show", *options).count("r1/") == (asked if rows is None else rows)


def test_show_says_what_it_leaves_out(traces: Path) -> None:
    assert "7 more" in _run("-w", traces, "show", "--limit", 5)
    assert "no round 7" in _run("-w", traces, "show", "--round", 7, code=2)
    with TraceStore(traces / "traces.sqlite", read_only=True) as store:
        name = next(store.rollouts(RolloutFilter(right=False))).id
    assert "gold 'nothing at all': wrong" in _run("-w", traces, "show", name)
    assert "begin with 'r1/train'" in _run("-w", traces, "show", "r1/train", code=2)


@pytest.mark.parametrize("name", ["all.jsonl", "all.parquet", "dataset"])
def test_what_is_exported_is_read_back_the_same(traces: Path, tmp_path: Path, name: str) -> None:
    assert "wrote 12 rollouts" in _run("-w", traces, "export", tmp_path / name)
    with TraceStore(traces / "traces.sqlite", read_only=True) as store:
        assert list(read_rollouts(tmp_path / name)) == list(store.rollouts())
    _run("init", tmp_path / "other")
    assert "12 new, 0 known" in _run("-w", tmp_path / "other", "import", tmp_path / name)
    assert "0 new, 12 known" in _run("-w", tmp_path / "other", "import", tmp_path / name)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, "other"])


def test_a_bad_row_says_how_far_the_import_came(traces: Path, tmp_path: Path) -> None:
    _run("-w", traces, "export", tmp_path / "all.jsonl")
    lines = (tmp_path / "all.jsonl").read_text().splitlines()
    (tmp_path / "torn.jsonl").write_text("\n".join([*lines[:3], lines[3][:100], *lines[4:]]))
    _run("init", tmp_path / "other")
    assert "3 before it were imported" in _run("-w", tmp_path / "other", "import", tmp_path / "torn.jsonl", code=2)
    assert "9 new, 3 known" in _run("-w", tmp_path / "other", "import", tmp_path / "all.jsonl")


def test_an_exported_dataset_opens_with_datasets(traces: Path, tmp_path: Path) -> None:
    _run("-w", traces, "export", tmp_path / "dataset", "--right")
    loaded = datasets.load_from_disk(str(tmp_path / "dataset"))
    assert loaded.num_rows == 10
    row: Any = loaded[0]
    assert row["runs"][0]["calls"][0]["messages"][0]["role"] == "system"
    assert "exists already" in _run("-w", traces, "export", tmp_path / "dataset", code=2)


def test_other_stores_and_workspaces_are_merged(traces: Path, tmp_path: Path) -> None:
    _run("init", tmp_path / "other")
    assert "12 new" in _run("-w", tmp_path / "other", "import", traces)
    assert "12 known" in _run("-w", tmp_path / "other", "import", traces / "traces.sqlite")


def test_merging_keeps_what_is_here_unless_it_failed(traces: Path) -> None:
    with TraceStore(traces / "traces.sqlite", read_only=True) as store:
        rows = list(store.rollouts())
    failed = rows[0].model_copy(update={"status": "infrastructure", "failure": "gone"})
    other = rows[1].model_copy(update={"answer": "something else"})
    with TraceStore(Path(":memory:")) as mine:
        assert mine.merge([failed, rows[1]]) == {"new": 2}
        assert mine.merge([rows[0], other, rows[1], rows[2]]) == {"replaced": 1, "differs": 1, "known": 1, "new": 1}
        assert {row.id: row for row in mine.rollouts()} == {row.id: row for row in rows[:3]}
        assert mine.merge([failed]) == {"differs": 1}
        assert mine.count(RolloutFilter(status="infrastructure")) == 0


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("x.jsonl", '{"id": "a"}\n', "x.jsonl:1: not a rollout"),
        ("x.jsonl", "nonsense\n", "x.jsonl:1: not JSON"),
        ("x.parquet", "nonsense", "not a Parquet file"),
        ("x.sqlite", "nonsense", "not a usable trace store"),
        ("folder/x.txt", "nonsense", "neither a workspace nor an exported dataset"),
    ],
)
def test_what_is_no_rollout_is_refused(tmp_path: Path, name: str, content: str, reason: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)
    with pytest.raises(FlywheelError, match=reason):
        list(read_rollouts(path.parent if name.startswith("folder") else path))
    with pytest.raises(InputError, match="no such file"):
        list(read_rollouts(tmp_path / "nothing"))


def test_an_export_that_fails_leaves_nothing(traces: Path, tmp_path: Path) -> None:
    with TraceStore(traces / "traces.sqlite", read_only=True) as store:
        rows = list(store.rollouts())

    def failing() -> Any:
        yield rows[0]
        raise OSError(28, "No space left on device")

    with pytest.raises(FlywheelError, match="No space left"):
        export_rollouts(failing(), 2, tmp_path / "x.jsonl")
    with pytest.raises(InputError, match=r"name it .jsonl or .parquet"):
        export_rollouts(rows, 12, tmp_path / "x.doc")
    assert list(tmp_path.iterdir()) == []
    assert "no traces to export" in _run("-w", Workspace.create(tmp_path / "empty").folder, "export", "x.jsonl", code=2)


def test_texts_are_not_taken_for_markup(traces: Path, tmp_path: Path) -> None:
    with TraceStore(traces / "traces.sqlite", read_only=True) as store:
        rollout = next(store.rollouts())
    odd = rollout.model_copy(update={"answer": "[bold]x[/nope]", "id": "r1/[red]/0"})
    with TraceStore(tmp_path / "odd.sqlite") as store:
        store.add(odd)
    assert "[bold]x[/nope]" in _run("show", "--store", tmp_path / "odd.sqlite")
    assert "[bold]x[/nope]" in _run("show", "--store", tmp_path / "odd.sqlite", "r1/[red]/0")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_store_in_a_folder_that_cannot_be_written_can_be_read(traces: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.sqlite"
    with sqlite3.connect(traces / "traces.sqlite") as source, sqlite3.connect(copy) as target:
        source.backup(target)
        target.execute("PRAGMA journal_mode = WAL")
    for side in ("-wal", "-shm"):
        copy.with_name(copy.name + side).unlink(missing_ok=True)
    tmp_path.chmod(0o555)
    try:
        with TraceStore(copy, read_only=True) as store:
            assert store.count() == 12
    finally:
        tmp_path.chmod(0o755)


def test_nothing_is_overwritten(traces: Path, tmp_path: Path) -> None:
    for path in (traces / "traces.sqlite", tmp_path / "x.jsonl"):
        path.touch()
        assert "exists already" in _run("-w", traces, "export", path, "--format", "jsonl", code=2)
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "flywheel.toml").write_text("[source]\nkind = 'corpus'\n")
    _run("init", tmp_path / "w")
    assert Workspace(tmp_path / "w").config.source.kind == "corpus"


def test_a_round_keeps_to_its_questions_and_pages(
    make_workspace: Callable[..., Workspace], write_rows: Callable[..., Path], training_questions: list[Question]
) -> None:
    workspace = make_workspace()
    asked = [question.model_dump(mode="json") for question in training_questions[:2]]
    first = write_rows("first.jsonl", asked)
    other = write_rows("other.jsonl", [{**asked[0], "question": "Something else?"}])
    at = ("-w", workspace.folder, "collect", "--teacher", "--round", 0, "--questions")
    _run(*at, first)
    assert f"another question under the id {asked[0]['id']!r}" in _run(*at, other, code=2)
    pages = write_rows("pages.jsonl", [{"title": "Oslo", "text": "Oslo is a city."}])
    assert "source.kind" not in _run(*at, first, "--source", f"corpus:{pages}", code=2)
    assert "source.pages was 'embedded'" in _run(*at, first, "--source", f"corpus:{pages}", code=2)
    assert "takes no adapters" in _run(*at, first, "--no-adapters", code=2)
    assert "leave --round away" in _run(*at, first, "--new", code=2)


def test_ask_runs_the_team_once(qwen2: Path, make_workspace: Callable[..., Workspace]) -> None:
    workspace = make_workspace(qwen2)
    printed = _run("-w", workspace.folder, "ask", "How tall is the Eiffel Tower?")
    assert "supervisor step 1" in printed
    assert "answer: none was found" in printed  # the model is random
    shown = json.loads(_run("-w", workspace.folder, "ask", "How tall is the Eiffel Tower?", "--json"))
    assert shown["question"] == "How tall is the Eiffel Tower?"
    assert shown["runs"][0]["calls"][0]["messages"][1]["content"] == "Task: How tall is the Eiffel Tower?"
    assert "verdict" not in shown
    assert not workspace.traces.exists()
    assert "the question is empty" in _run("-w", workspace.folder, "ask", " ", code=2)
