"""The whole wheel, command by command, on a tiny random model; and the demo."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from flywheel.demo import FULL, QUICK, STANDARD, Plan, choose_questions, run_demo
from flywheel.errors import InputError
from flywheel.grading import normalise
from flywheel.records import Question
from flywheel.store import RolloutFilter, TraceStore
from flywheel.workspace import ROLES, Workspace
from serve.server import running
from train.held_out import HeldOut

TINY = Plan(
    suffix="", warm_questions=6, own_questions=4, samples=1, rounds=2, seeds=(0, 1),
    warm_steps=dict.fromkeys(ROLES, 1), round_steps={"supervisor": 2}, held_out=2, control=True, minutes=1,
)  # fmt: skip


def flywheel(*arguments: object, code: int = 0) -> str:
    """Run the command as a user does; gives what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "flywheel", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    printed = done.stdout + done.stderr
    assert done.returncode == code, printed
    assert "Traceback" not in printed
    return printed


def test_the_wheel_turns(qwen2: Path, make_workspace: Callable[..., Workspace]) -> None:
    workspace = make_workspace(qwen2)
    at = ("-w", workspace.folder)
    questions = ("--questions", "embedded", "--limit", 8)
    printed = flywheel(*at, "collect", *questions, "--teacher", "--round", 0)
    assert "8 rollouts, 8 right (8 exact)" in printed
    assert "8 done before" in flywheel(*at, "collect", *questions, "--teacher", "--round", 0)
    assert "right" in flywheel(*at, "show")
    tree = flywheel(*at, "show", "r0/train-0001")
    assert "supervisor" in tree and "page_search" in tree
    assert re.search(r"kept \d+ of \d+ calls", flywheel(*at, "select"))
    trained = flywheel(*at, "train", "--all", "--jobs", 2, "--steps", 2)
    assert all(f"{role}@1: " in trained for role in ROLES)
    assert "is there already" in flywheel(*at, "train", "--role", "page_search", "--version", 1, code=2)
    assert "active: supervisor@1, wiki_search@1" in flywheel(*at, "promote", "--force", "--why", "to begin with")
    refused = flywheel(*at, "-o", "team.history=summarised", "collect", *questions, "--new", code=2)
    assert "supervisor@1 was trained with team.history=full, and here it is summarised" in refused
    evaluated = flywheel(*at, "evaluate", "--questions", "embedded", "--limit", 4)
    assert "McNemar" in evaluated and "4 held-out questions" in evaluated
    result = json.loads(next(workspace.reports.glob("*/evaluation.json")).read_text())
    assert [arm["questions"] for arm in result["arms"]] == [4, 4]
    with running(workspace.folder, ["supervisor@1"], []) as url:
        served = ("--engine", f"openai:{url}", "--adapter", "supervisor@1")
        printed = flywheel(*at, "collect", *questions, *served, "--samples", 1, "--round", 1)
    assert "8 rollouts" in printed
    with TraceStore(workspace.traces) as store:
        models = {
            call.model
            for rollout in store.rollouts(RolloutFilter(round=1))
            for run in rollout.runs
            for call in run.calls
        }
    assert models == {"supervisor@1"}


def test_a_changed_setting_is_named_before_a_round_goes_on(make_workspace: Callable[..., Workspace]) -> None:
    workspace = make_workspace()
    collect = ("collect", "--questions", "embedded", "--limit", 2, "--teacher", "--round", 0)
    flywheel("-w", workspace.folder, collect[0], *collect[1:])
    changed = ("-w", workspace.folder, "-o", "source.results=3", *collect)
    assert "other settings (source.results was 5, now 3)" in flywheel(*changed, code=2)
    fresh = [argument for argument in changed if argument not in ("--round", 0)]
    assert "round 1: " in flywheel(*fresh, "--new")
    assert "2 done before" in flywheel(*changed, "--allow-change")
    harmless = ("-o", "source.contact=x", "-o", "source.offline=true", "-o", "collect.concurrency=2")
    assert "2 done before" in flywheel(*changed[:2], *harmless, *changed[2:])


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (("collect", "--questions", "nowhere.jsonl"), 2, "cannot read nowhere.jsonl"),
        (("collect", "--questions", "embedded", "--limit", 1), 2, "no such model"),
        (("collect", "--questions", "embedded", "--engine", "vlm"), 2, "unknown engine 'vlm'"),
        (("collect", "--questions", "embedded", "--adapter", "pilot"), 2, "unknown role"),
        (("collect", "--questions", "embedded", "--adapter", "supervisor"), 2, "supervisor has no adapter yet"),
        (("train",), 2, "either --role page_search or --all"),
        (("train", "--role", "pilot"), 2, "is not one of"),
        (("train", "--role", "supervisor"), 2, "make them with: flywheel select"),
        (("train", "--all"), 3, "flywheel select"),
        (("select",), 3, "flywheel collect"),
        (("show",), 2, "flywheel collect"),
        (("evaluate", "--questions", "embedded"), 2, "there are no adapters"),
        (("serve", "--host", "0.0.0.0"), 2, "lets others in"),
        (("serve", "--engine", "openai:http://x"), 2, "runs here"),
        (("-o", "engine.modle=x", "config"), 2, "did you mean 'model'"),
        (("colect",), 2, "Did you mean 'collect'"),
    ],
)
def test_what_a_user_can_get_wrong(
    make_workspace: Callable[..., Workspace], arguments: tuple[object, ...], code: int, reason: str
) -> None:
    workspace = make_workspace("/nowhere/model")
    printed = flywheel("-w", workspace.folder, *arguments, code=code)
    assert reason in re.sub(r"\s+", " ", printed)
    complaint = [line for line in printed.strip().splitlines() if line.startswith(("flywheel: ", "Error: "))]
    assert len(complaint) == 1


def test_no_workspace_here(tmp_path: Path) -> None:
    assert "make one with: flywheel init" in flywheel("-w", tmp_path, "show", code=2)
    printed = flywheel("init", tmp_path / "new")
    assert "flywheel.toml" in printed
    assert "a workspace already" in flywheel("init", tmp_path / "new", code=2)
    assert 'model = "Qwen/Qwen2.5-7B-Instruct"' in flywheel("-w", tmp_path / "new", "config")


def test_the_demo_goes_on_where_it_was_stopped(qwen2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from flywheel.evaluation import arms as module

    folder = tmp_path / "demo"
    whole = module.run_arm

    def stop(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "run_arm", stop)
    with pytest.raises(KeyboardInterrupt):
        run_demo(TINY, folder, Console(file=StringIO()), str(qwen2))
    monkeypatch.setattr(module, "run_arm", whole)
    made = {path: path.stat().st_mtime_ns for path in folder.rglob("*.safetensors")}
    assert len(made) == 6, "three of the warm start, and the supervisor's of two rounds and of the control"
    output = StringIO()
    run_demo(TINY, folder, Console(file=output, width=200), str(qwen2))
    printed = output.getvalue()
    assert printed.count("not promoted: ") == 6, "a random model learns nothing in a few steps"
    assert "not distinguishable from what is active" in printed
    assert {path: path.stat().st_mtime_ns for path in made} == made, "what was trained is not trained again"
    assert len(list(folder.rglob("*.safetensors"))) == 12
    for seed in (0, 1):
        assert (folder / f"seed-{seed}" / "reports" / "report.html").exists()
    for arm in ("base", "warm start", "self-collected 1", "self-collected 2", "control"):
        assert arm in printed
    _, _, together = printed.partition("all seeds together")
    assert "4 held-out questions" in together, "the seeds have different ones"
    assert "roles of control" in together
    assert "failures of self-collected 2" in together
    assert together.count("McNemar") == 5
    assert "does not beat a control" in together
    evaluation = json.loads((folder / "evaluation.json").read_text(encoding="utf-8"))
    assert len(set(evaluation["questions"])) == 4
    with pytest.raises(InputError, match="another size"):
        run_demo(QUICK, folder, Console(file=StringIO()))
    with pytest.raises(InputError, match="holds a demo with"):
        run_demo(TINY, folder, Console(file=StringIO()))
    (folder / "seed-0" / "demo.json").write_text('{"plan": {}}')
    with pytest.raises(InputError, match="not of a demo"):
        run_demo(TINY, folder, Console(file=StringIO()), str(qwen2))


@pytest.mark.parametrize("plan", [QUICK, STANDARD, FULL])
def test_no_question_of_a_demo_is_used_twice(plan: Plan) -> None:
    tested: list[Question] = []
    for seed in plan.seeds:
        warm, rounds, held_out = choose_questions(plan, seed)
        own = [question for questions in rounds for question in questions]
        assert (len(warm), len(own), len(held_out)) == (plan.warm_questions, plan.own_questions, plan.held_out)
        texts = [normalise(question.question) for question in (*warm, *own, *held_out)]
        assert len(set(texts)) == len(texts)
        assert {question.split for question in (*warm, *own)} == {"train"}
        assert {question.split for question in held_out} == {"test"}
        assert not any(question in HeldOut(held_out) for question in (*warm, *own)), "the gate would refuse the proof"
        tested += held_out
    assert len({question.id for question in tested}) == len(tested), "no two seeds share a held-out question"
    first = {"test-eiffel", "test-plywood", "test-dynasty"}
    assert plan.kinds or first <= {question.id for question in tested}


@pytest.mark.slow
def test_the_quick_demo_teaches_a_real_model(tmp_path: Path) -> None:
    flywheel("demo", "--quick", "--folder", tmp_path / "demo")
    result = json.loads((tmp_path / "demo" / "reports" / "held-out" / "evaluation.json").read_text())
    base, warm, _ = result["arms"]
    assert warm["exact_match"] > base["exact_match"]


def _teach(workspace: Workspace, limit: int = 2) -> None:
    flywheel("-w", workspace.folder, "collect", "--questions", "embedded", "--limit", limit, "--teacher", "--round", 0)


def test_results_of_other_adapters_are_not_shown_as_these(
    qwen2: Path, make_workspace: Callable[..., Workspace]
) -> None:
    workspace = make_workspace(qwen2)
    _teach(workspace)
    flywheel("-w", workspace.folder, "select")
    flywheel("-w", workspace.folder, "train", "--role", "supervisor", "--steps", 1)
    evaluate = ("-w", workspace.folder, "evaluate", "--questions", "embedded", "--limit", 2)
    flywheel(*evaluate, "--name", "mine")
    flywheel("-w", workspace.folder, "train", "--role", "supervisor", "--steps", 1)
    assert "other adapters or settings" in flywheel(*evaluate, "--name", "mine", code=2)
    assert "supervisor@2" in flywheel(*evaluate)
    assert "letters, digits" in flywheel(*evaluate, "--name", "../x", code=2)


def test_what_can_be_damaged_in_a_workspace(make_workspace: Callable[..., Workspace]) -> None:
    workspace = make_workspace("/nowhere")
    at = ("-w", workspace.folder)
    _teach(workspace)
    flywheel(*at, "select")
    (workspace.datasets / "card.json").write_bytes(b"\xff\xfe")
    assert "card.json is damaged" in flywheel(*at, "train", "--role", "supervisor", code=3)
    (workspace.datasets / "card.json").unlink()
    assert "no card.json beside it" in flywheel(*at, "train", "--role", "supervisor", code=2)
    assert "should be a finite number" in flywheel(*at, "-o", "train.epochs=inf", "config", code=2).lower()
    traces = workspace.traces.read_bytes()
    flywheel(*at, "show")
    assert workspace.traces.read_bytes() == traces
    empty = workspace.folder / "empty.sqlite"
    empty.touch()
    assert "format version none" in flywheel(*at, "show", "--store", empty, code=3)
    assert empty.stat().st_size == 0
    assert "there is no round 9" in flywheel(*at, "show", "--round", 9, code=2)
    (workspace.folder / "adapters").rmdir()
    (workspace.folder / "adapters").touch()
    assert "a folder is needed there" in flywheel(*at, "show", code=3)


def test_a_role_without_rows_keeps_none_of_an_earlier_selection(make_workspace: Callable[..., Workspace]) -> None:
    workspace = make_workspace()
    _teach(workspace)
    workspace.dataset("page_search").write_text("stale\n")
    stale = workspace.datasets / "page_search.pairs.jsonl"
    stale.write_text("stale\n")
    flywheel("-w", workspace.folder, "select")
    assert not stale.exists()
    assert "stale" not in workspace.dataset("page_search").read_text()


def test_one_collection_at_a_time(make_workspace: Callable[..., Workspace]) -> None:
    workspace = make_workspace()
    with workspace.lock("collect"):
        printed = flywheel(
            "-w", workspace.folder, "collect", "--questions", "embedded", "--limit", 1, "--teacher", code=2
        )
    assert f"process {os.getpid()} on " in printed
    assert "is at work here (collect," in printed
    _teach(workspace)


def test_ctrl_c_ends_a_collection_in_order(make_workspace: Callable[..., Workspace]) -> None:
    workspace = make_workspace()
    command = [sys.executable, "-m", "flywheel", "-w", str(workspace.folder), "collect", "--questions", "embedded"]
    for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGINT):
        child = subprocess.Popen([*command, "--teacher", "--round", "0"], stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 60
        while not workspace.traces.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(1.5)
        child.send_signal(ending)
        _, printed = child.communicate(timeout=60)
        assert child.returncode in (130, 0), printed
        assert "Traceback" not in printed
    with TraceStore(workspace.traces) as store:
        assert all(rollout.runs for rollout in store.rollouts())


def test_a_contact_may_hold_anything(tmp_path: Path) -> None:
    flywheel("init", tmp_path / "w", "--contact", 'a"b\nc\\d')
    assert Workspace(tmp_path / "w").config.source.contact == 'a"b\nc\\d'
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").touch()
    assert "is not a demo" in flywheel("demo", "--quick", "--folder", tmp_path / "full", code=2)
    assert "no such model" in flywheel("demo", "--quick", "--folder", tmp_path / "d", "--model", "/nope", code=2)
    assert not (tmp_path / "d").exists()
