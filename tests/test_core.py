"""Records, store, settings, statistics and workspace."""

import json
import random
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flywheel.config import Config, load_config
from flywheel.errors import DataError, InfrastructureError, InputError
from flywheel.files import read_jsonl, write_text
from flywheel.grading import grade
from flywheel.progress import Tracker
from flywheel.records import AgentRun, Call, Message, Question, Rollout, Verdict
from flywheel.statistics import bootstrap_interval, mcnemar_exact
from flywheel.store import FORMAT_VERSION, TraceStore
from flywheel.workspace import Workspace

TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40)
MESSAGES = st.lists(
    st.builds(Message, role=st.sampled_from(["system", "user", "assistant"]), content=TEXT), min_size=1, max_size=5
).map(tuple)


@st.composite
def rollouts(draw: st.DrawFn) -> Rollout:
    """Rollouts with all kinds of texts in them."""
    number = draw(st.integers(0, 5))
    name = f"r1/q{number}/0"
    calls = tuple(
        Call(
            id=f"{name}.0.{index}", index=index, messages=draw(MESSAGES), completion=draw(TEXT), finish_reason="stop",
            prompt_tokens=3, completion_tokens=draw(st.integers(0, 99)), seed=1, temperature=0.7, model="base",
            seconds=0.25, code=draw(st.none() | TEXT), observation=draw(st.none() | TEXT),
            error=draw(st.sampled_from([None, "parse", "execution", "repeated"])),
        )
        for index in range(draw(st.integers(0, 3)))
    )  # fmt: skip
    run = AgentRun(
        id=f"{name}.0", role="supervisor", parent_call=None, task=draw(TEXT), status="finished", report=draw(TEXT),
        calls=calls,
    )  # fmt: skip
    return Rollout(
        id=name, question=Question(id=f"q{number}", question="What?", answer="That", aliases=("It",)), sample=0, seed=7,
        round=1, status=draw(st.sampled_from(["finished", "infrastructure"])), answer=draw(TEXT),
        verdict=Verdict(exact_match=draw(st.booleans()), f1=0.5, match=draw(st.booleans()), reason="equal"),
        runs=(run,), seconds=1.5, failure=draw(TEXT), prompt="compact", history="full",
    )  # fmt: skip


@given(rollouts())
def test_a_record_survives_json(rollout: Rollout) -> None:
    assert Rollout.model_validate_json(rollout.model_dump_json()) == rollout


@settings(max_examples=25, deadline=None)
@given(st.lists(rollouts(), max_size=6))
def test_the_store_gives_back_what_was_added(rows: list[Rollout]) -> None:
    with TraceStore(Path(":memory:")) as store:
        for rollout in rows:
            store.add(rollout)
        last = {rollout.id: rollout for rollout in rows}
        assert {rollout.id: rollout for rollout in store.rollouts()} == last
        done = {(row.question.id, 0): row.verdict.match for row in last.values() if row.status == "finished"}
        assert store.verdicts(1) == done


def _rollout(number: int, text: str = "seen") -> Rollout:
    call = Call(
        id=f"r1/q{number}/0.0.0", index=0, messages=(Message(role="system", content="same prompt" * 50),),
        completion=text, finish_reason="stop", prompt_tokens=1, completion_tokens=1, seed=1, temperature=0,
        model="base",
        seconds=0,
    )  # fmt: skip
    run = AgentRun(
        id=f"r1/q{number}/0.0",
        role="supervisor",
        parent_call=None,
        task="",
        status="finished",
        report="",
        calls=(call,),
    )
    return Rollout(
        id=f"r1/q{number}/0", question=Question(id=f"q{number}", question="?", answer="!"), sample=0, seed=1, round=1,
        status="finished", answer="!", verdict=grade("!", ["!"]), runs=(run,), seconds=0, prompt="full",
        history="summarised",
    )  # fmt: skip


def test_messages_are_stored_once(tmp_path: Path) -> None:
    with TraceStore(tmp_path / "t.sqlite") as store:
        for number in range(20):
            store.add(_rollout(number))
    with sqlite3.connect(tmp_path / "t.sqlite") as database:
        assert database.execute("SELECT content FROM messages").fetchall() == [("same prompt" * 50,)]


def test_a_store_of_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    TraceStore(path).close()
    with sqlite3.connect(path) as database:
        database.execute("UPDATE meta SET value = '99' WHERE key = 'format_version'")
    with pytest.raises(DataError, match=f"format version 99.*reads {FORMAT_VERSION}"):
        TraceStore(path)


def test_a_file_that_is_no_store_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    path.write_text("not a database, but long enough to be looked at " * 30)
    with pytest.raises(DataError, match="not a usable trace store"):
        TraceStore(path)


def test_a_full_disk_leaves_the_store_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    with TraceStore(path) as store:
        store.add(_rollout(1))
        pages = store._database.execute("PRAGMA page_count").fetchone()[0]
        store._database.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(InfrastructureError, match="full"):
            store.add(_rollout(2, random.Random(0).randbytes(300_000).hex()))
        assert [rollout.question.id for rollout in store.rollouts()] == ["q1"]
    with TraceStore(path) as store:
        assert store.count() == 1


def test_writes_are_whole_or_not_at_all(tmp_path: Path) -> None:
    write_text(tmp_path / "a.txt", "first")
    with pytest.raises(UnicodeEncodeError):
        write_text(tmp_path / "a.txt", "\ud800")
    assert (tmp_path / "a.txt").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InfrastructureError, match="cannot write"):
        write_text(tmp_path / "file" / "below", "text")


@pytest.mark.parametrize(("line", "reason"), [("{", "not JSON"), ("[1]", "expected a JSON object")])
def test_a_broken_line_is_named(tmp_path: Path, line: str, reason: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1}\n\n' + line + "\n")
    with pytest.raises(InputError, match=rf"rows.jsonl:3: {reason}"):
        list(read_jsonl(path))


@pytest.mark.parametrize(
    ("text", "overrides", "reason"),
    [
        ("[engine]\nmodle = 'x'", (), "unknown key 'engine.modle'; did you mean 'model'"),
        ("[engnie]\nmodel = 'x'", (), "unknown key 'engnie'; did you mean 'engine'"),
        ("[engine]\nbatch = 0", (), "engine.batch"),
        ("[engine", (), "not TOML"),
        ("", ("engine.batch",), "expected section.key=value"),
        ("", ("engine.btach=3",), "did you mean 'batch'"),
        ("", ("collect.executor=docker",), "collect.executor"),
    ],
)
def test_wrong_settings_are_explained(tmp_path: Path, text: str, overrides: tuple[str, ...], reason: str) -> None:
    (tmp_path / "flywheel.toml").write_text(text)
    with pytest.raises(InputError, match=reason) as caught:
        load_config(tmp_path / "flywheel.toml", overrides)
    assert len(str(caught.value).splitlines()) == 1


def test_overrides_lie_on_top_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "flywheel.toml").write_text("[engine]\nmodel = 'a'\nbatch = 3\n")
    config = load_config(tmp_path / "flywheel.toml", ["engine.model=b/c", "train.learning_rate=1e-3"])
    assert (config.engine.model, config.engine.batch, config.train.learning_rate) == ("b/c", 3, 1e-3)
    assert config.digest("engine") != Config().digest("engine")
    assert config.digest("collect") == Config().digest("collect")


def test_a_workspace_of_another_version_is_refused(tmp_path: Path) -> None:
    Workspace.create(tmp_path / "w")
    with pytest.raises(InputError, match="a workspace already"):
        Workspace.create(tmp_path / "w")
    (tmp_path / "w" / "workspace.json").write_text(json.dumps({"format_version": 7}))
    with pytest.raises(DataError, match="format 7"):
        Workspace(tmp_path / "w")
    with pytest.raises(InputError, match="not a workspace"):
        Workspace(tmp_path)


def test_the_eta_counts_what_is_under_way_as_half_done(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also at the end, when less is under way than could be."""
    seconds = iter(range(0, 10_000, 20))
    monkeypatch.setattr("flywheel.progress.time.monotonic", lambda: float(next(seconds)))
    with Tracker("work", 10, parallel=4) as tracker:
        for _ in range(10):
            tracker.advance()
    lines = capsys.readouterr().err.splitlines()
    assert "work: 1/10, ETA 1m 33s" in lines[0]  # after 40 s, with 1 + 4 / 2 of 10 done
    assert "ETA 0s" not in "".join(lines) and "work: 9/10, ETA 19s" in lines[-2]
    assert lines[-1].startswith("work: 10/10, done in")


def test_mcnemar_and_bootstrap() -> None:
    first = [True] * 3 + [False] * 13
    second = [False] * 3 + [True] * 13
    only_first, only_second, p = mcnemar_exact(first, second)
    assert (only_first, only_second) == (3, 13)
    assert p == pytest.approx(0.0213, abs=1e-4)
    assert mcnemar_exact([True], [True])[2] == 1.0
    low, high = bootstrap_interval([1.0] * 40 + [0.0] * 60)
    assert 0.28 < low < 0.34 < 0.46 < high < 0.52
