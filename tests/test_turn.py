"""The wheel as one command: rounds that go on wherever they were stopped."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from flywheel.evaluation.held_out import freeze
from flywheel.questions import read_questions
from flywheel.registry import Registry
from flywheel.store import TraceStore
from flywheel.turn import TurnState
from flywheel.workspace import ROLES, Workspace, read_record

ROOT = Path(__file__).parent.parent
QUESTIONS = ("--questions", "embedded", "--limit", "6", "--held-out-limit", "3", "--steps", "1", "--teacher")


def turn(workspace: Workspace, *arguments: str, code: int = 0, settings: tuple[str, ...] = ()) -> str:
    """Run the command as a user does; gives what it printed."""
    overrides = [part for setting in settings for part in ("-o", setting)]
    command = [sys.executable, "-m", "flywheel", "-w", str(workspace.folder), *overrides, "turn", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    printed = done.stdout + done.stderr
    assert done.returncode == code, printed
    assert "Traceback" not in printed
    return printed


@pytest.fixture
def workspace(qwen2: Path, make_workspace: Callable[..., Workspace]) -> Workspace:
    """For a tiny model, with one CPU for everything."""
    return make_workspace(qwen2)


def state(workspace: Workspace, number: int) -> TurnState:
    """The file of a turn."""
    return read_record(workspace.folder / "turns" / f"{number}.json", TurnState)


def test_two_rounds_in_one_command(workspace: Workspace) -> None:
    printed = turn(workspace, *QUESTIONS, "--rounds", "2", "--allow-equal")
    assert "== round 0" in printed and "== round 1" in printed
    assert "collect: 6 of 6 rollouts right" in printed
    assert "which was allowed" in printed
    assert "base against new" in printed and "active against new" in printed
    assert "active: 3 of 3 answers are in an earlier report" in printed, "round 0 has asked this team"
    first, second = state(workspace, 0), state(workspace, 1)
    assert first.finished and second.finished
    assert list(first.steps) == ["collect", "select", "audit", "train", "evaluate", "promote"]
    assert first.candidates == {role: f"{role}@1" for role in ROLES}
    assert second.before == first.candidates
    with TraceStore(workspace.traces, read_only=True) as store:
        models = {call.model for row in store.rollouts() for run in row.runs for call in run.calls}
        assert store.rounds() == [0, 1]
    assert models == {"teacher:scripted", "supervisor@1"}  # the random model never calls another role
    assert Registry(workspace).active() == second.candidates


def test_one_role_after_the_other(workspace: Workspace) -> None:
    printed = turn(workspace, *QUESTIONS, "--sequential")
    assert printed.count("kept what was active: not distinguishable") == 3
    steps = list(state(workspace, 0).steps)
    assert steps[:3] == ["collect", "select", "audit"]
    assert [step.split()[0] for step in steps[3:]] == ["train", "evaluate", "promote"] * 3
    assert len({step.split()[1] for step in steps[3:]}) == 3
    assert Registry(workspace).active() == {}


@pytest.mark.parametrize("step", ["collect", "train", "evaluate"])
def test_a_turn_that_was_killed_goes_on(workspace: Workspace, step: str) -> None:
    """The turn alone is killed; what it has started ends with it."""
    command = [sys.executable, "-m", "flywheel", "-w", str(workspace.folder), "turn", *QUESTIONS]
    child = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    assert child.stderr is not None
    for line in child.stderr:
        if line.strip() == f"-- {step}":
            break
    time.sleep(0.2 if step == "collect" else 2)  # well inside the step: loading the model alone takes longer
    ours = psutil.Process(child.pid).children(recursive=True)
    child.kill()
    child.wait()
    assert ours
    assert not psutil.wait_procs(ours, timeout=30)[1], "a child goes on without its turn"
    before = state(workspace, 0)
    assert step not in before.steps
    printed = turn(workspace, *QUESTIONS)
    assert "== round 0" in printed and "== round 1" not in printed
    assert f"-- {step}: done before" not in printed
    assert ("-- collect: done before" in printed) == (step != "collect")
    after = state(workspace, 0)
    assert after.finished
    assert {name: after.steps[name] for name in before.steps} == before.steps
    assert all(len(workspace.versions(role)) == 1 for role in ROLES), "nothing was trained twice"


def test_what_has_changed_since_a_turn_was_begun(workspace: Workspace, tmp_path: Path) -> None:
    """Refused before anything is done, if rollouts depend on it; else the steps that depend on it are done again."""
    rows = (ROOT / "data" / "questions.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    asked = tmp_path / "asked.jsonl"
    asked.write_text("".join(rows[:6]), encoding="utf-8")
    held_out = tmp_path / "held-out.jsonl"
    held_out.write_text("".join(row for row in rows if '"split": "test"' in row), encoding="utf-8")
    command = ("--questions", str(asked), "--held-out-limit", "2", "--teacher", "--steps", "1")
    named = ("--held-out", str(held_out))
    (workspace.folder / "reports" / "report.html").mkdir(parents=True)
    printed = turn(workspace, *command, *named)
    assert "its report could not be written" in printed and "kept what was active" in printed
    path = workspace.folder / "turns" / "0.json"
    begun = json.loads(path.read_text())
    path.write_text(json.dumps(begun | {"finished": ""}))
    printed = turn(workspace, *command, *named, settings=("engine.batch=2", "collect.concurrency=2"))
    assert printed.count("done before") == 6, "what changes no answer changes nothing"
    path.write_text(json.dumps(begun | {"finished": ""}))
    for change in ("collect.temperature=0.1", "engine.context=700", "source.passages=3"):
        assert "have changed since it was begun" in turn(workspace, *command, settings=(change,), code=2)
    asked.write_text("".join(rows[:7]), encoding="utf-8")
    assert "have changed since it was begun" in turn(workspace, *command, code=2)
    asked.write_text("".join(rows[:6]), encoding="utf-8")
    freeze(workspace, read_questions("embedded", "test", 3, 5))
    assert "other held-out questions are frozen here" in turn(workspace, *command, *named, code=2)
    printed = turn(workspace, *command)
    assert "-- select, again" in printed and "-- evaluate, again" in printed
    assert set(state(workspace, 0).reports.values()) == {"round-0", "round-0.2"}


def test_what_a_turn_refuses(workspace: Workspace) -> None:
    assert "serves what it trains" in turn(workspace, *QUESTIONS, "--engine", "openai:http://127.0.0.1:1/v1", code=2)
    assert "trains on engine.model" in turn(workspace, *QUESTIONS, "--engine", "transformers:/elsewhere", code=2)
    assert "needs --teacher" in turn(workspace, *QUESTIONS[:-1], "--teacher-role", "supervisor", code=2)
    assert "no such file" in turn(workspace, *QUESTIONS, "--held-out", "nosuch.jsonl", code=2)
    same = ("--questions", "embedded", "--split", "test", "--limit", "3", "--held-out", "embedded", "--teacher")
    assert "there is nothing to train on" in turn(workspace, *same, code=2)
    assert not workspace.held_out.exists(), "what is refused freezes nothing"
    printed = turn(workspace, "--questions", "embedded", "--limit", "1", "--held-out-limit", "2", code=3)
    assert "Let a teacher play the first round" in " ".join(printed.split())
    printed = turn(workspace, *QUESTIONS, code=2)
    assert "under way with another plan" in printed and "turns/1.json" in printed
    assert json.loads((workspace.folder / "turns" / "1.json").read_text())["steps"]["collect"]["result"].startswith(
        "0 of"
    )
