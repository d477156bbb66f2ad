"""The wheel as one command: rounds that go on wherever they were stopped."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from flywheel.registry import Registry
from flywheel.store import TraceStore
from flywheel.turn import TurnState
from flywheel.workspace import ROLES, Workspace, read_record

QUESTIONS = ("--questions", "embedded", "--limit", "6", "--held-out-limit", "3", "--steps", "1", "--teacher")


def turn(workspace: Workspace, *arguments: str, code: int = 0) -> str:
    """Run the command as a user does; gives what it printed."""
    command = [sys.executable, "-m", "flywheel", "-w", str(workspace.folder), "turn", *arguments]
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


@pytest.mark.parametrize("step", ["train", "evaluate"])
def test_a_turn_that_was_killed_goes_on(workspace: Workspace, step: str) -> None:
    command = [sys.executable, "-m", "flywheel", "-w", str(workspace.folder), "turn", *QUESTIONS]
    child = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, process_group=0)
    assert child.stderr is not None
    for line in child.stderr:
        if line.strip() == f"-- {step}":
            break
    time.sleep(2)  # well inside the step: loading the model alone takes longer
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    before = state(workspace, 0)
    assert step not in before.steps
    printed = turn(workspace, *QUESTIONS)
    assert "-- collect: done before" in printed and f"-- {step}: done before" not in printed
    after = state(workspace, 0)
    assert after.finished
    assert {name: after.steps[name] for name in before.steps} == before.steps
    assert all(len(workspace.versions(role)) == 1 for role in ROLES), "nothing was trained twice"


def test_what_a_turn_refuses(workspace: Workspace) -> None:
    assert "serves what it trains" in turn(workspace, *QUESTIONS, "--engine", "openai:http://127.0.0.1:1/v1", code=2)
    printed = turn(workspace, "--questions", "embedded", "--limit", "1", "--held-out-limit", "2", code=3)
    assert "Let a teacher play the first round" in " ".join(printed.split())
    printed = turn(workspace, *QUESTIONS, code=2)
    assert "under way with another plan" in printed and "turns/1.json" in printed
    assert json.loads((workspace.folder / "turns" / "1.json").read_text())["steps"]["collect"]["result"].startswith(
        "0 of"
    )
