"""Selection: every rule, credit, salvage, weights, and questions that are held out."""

import json
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from click.testing import CliRunner
from datasets import load_dataset

from flywheel.cli import flywheel
from flywheel.config import SelectConfig
from flywheel.errors import DataError, InfrastructureError, InputError
from flywheel.records import AgentRun, Call, Message, Question, Rollout
from flywheel.store import TraceStore
from flywheel.workspace import Workspace
from train.credit import facts, grounded, same_finding
from train.dataset import read_examples, write_datasets
from train.held_out import HeldOut
from train.rules import RULES
from train.select import Selection, select


def changed(rollout: Rollout, **update: object) -> Rollout:
    """A rollout with some fields replaced."""
    return rollout.model_copy(update=update)


def with_call(rollout: Rollout, position: int, **update: object) -> Rollout:
    """A rollout whose root run has one call changed."""
    root = rollout.runs[0]
    calls: list[Call] = list(root.calls)
    calls[position] = calls[position].model_copy(update=update)
    return changed(rollout, runs=(root.model_copy(update={"calls": tuple(calls)}), *rollout.runs[1:]))


def with_runs(rollout: Rollout, roots: bool = False, **update: object) -> Rollout:
    """A rollout whose sub-runs (or all runs) have fields replaced."""
    runs = (run.model_copy(update=update) if run.parent_call or roots else run for run in rollout.runs)
    return changed(rollout, runs=tuple(runs))


def trained(selection: Selection) -> set[str]:
    """Ids of the calls that became rows."""
    return {row.call for rows in selection.examples.values() for row in rows}


def test_correct_calls_become_rows_as_they_were_recorded(traces: list[Rollout]) -> None:
    selection = select(traces, SelectConfig())
    total = sum(len(run.calls) for rollout in traces for run in rollout.runs)
    assert selection.calls.total() == total == selection.kept.total() + selection.dropped.total()
    assert {rule for _, rule in selection.dropped} <= {"duplicate"}
    calls = {call.id: call for rollout in traces for run in rollout.runs for call in run.calls}
    for row in [row for rows in selection.examples.values() for row in rows]:
        call = calls[row.call]
        assert (row.prompt, row.completion[0].content) == (call.messages, call.completion)
        assert row.call.startswith(row.run) and row.run.startswith(row.rollout)


def test_equal_rows_are_kept_once(traces: list[Rollout]) -> None:
    once = select(traces[:1], SelectConfig())
    again = [traces[0], changed(traces[0], id="again", sample=1)]
    assert select(again, SelectConfig()).kept == once.kept
    assert select(again, SelectConfig(without=("duplicate",))).kept.total() == 2 * once.kept.total()


SPOILED: dict[str, Callable[[Rollout], Rollout]] = {
    "held_out": lambda r: changed(r, question=r.question.model_copy(update={"split": "test"})),
    "infrastructure": lambda r: changed(r, status="infrastructure"),
    "not_correct": lambda r: changed(r, verdict=r.verdict.model_copy(update={"match": False})),
    "run_not_finished": lambda r: with_runs(r, roots=True, status="max_steps"),
    "report_unused": lambda r: changed(
        r, runs=(r.runs[0], *(run.model_copy(update={"report": f"Not {run.task}"}) for run in r.runs[1:]))
    ),
    "ungrounded": lambda r: changed(r, runs=(r.runs[0].model_copy(update={"report": "Atlantis 9999"}), *r.runs[1:])),
    "run_unparsed": lambda r: with_call(r, 0, error="parse"),
    "step_failed": lambda r: with_call(r, 0, error="execution"),
    "step_repeated": lambda r: with_call(r, 1, code=r.runs[0].calls[0].code),
    "step_cut": lambda r: with_call(r, 0, finish_reason="length"),
}


@pytest.mark.parametrize("rule", SPOILED)
def test_each_rule_drops_what_it_is_for(traces: list[Rollout], rule: str) -> None:
    spoiled = SPOILED[rule](traces[0])
    selection = select([spoiled], SelectConfig())
    assert {name for _, name in selection.dropped} == {rule}
    assert selection.dropped.total() + selection.kept.total() == selection.calls.total()
    if RULES[rule].always:
        with pytest.raises(InputError, match="cannot be switched off"):
            select([spoiled], SelectConfig(without=(rule,)))
    else:
        assert select([spoiled], SelectConfig(without=(rule,))).kept.total() > selection.kept.total()


def test_a_step_that_the_audit_would_refuse_is_not_selected(traces: list[Rollout]) -> None:
    """A model has once written a tag into a text: training stopped at its row, and the wheel with it."""
    written = traces[0].runs[0].calls[0].completion.replace("<code>\n", '<code>\nx = "<code>"\n')
    selection = select([with_call(traces[0], 0, completion=written)], SelectConfig())
    assert selection.dropped == {("supervisor", "step_cut"): 1}


def test_every_rule_is_tested_here_or_below() -> None:
    assert {*SPOILED, "over_quota", "duplicate"} == set(RULES)
    with pytest.raises(InputError, match="there is no rule 'nonsense'"):
        select([], SelectConfig(without=("nonsense",)))


def test_only_the_bad_step_is_dropped_and_stays_as_context(traces: list[Rollout]) -> None:
    rollout = with_call(traces[0], 0, error="execution")
    rows = select([rollout], SelectConfig()).examples["supervisor"]
    assert [row.call for row in rows] == [call.id for call in rollout.runs[0].calls[1:]]
    assert rollout.runs[0].calls[0].completion in [message.content for message in rows[0].prompt]


def test_a_question_has_its_quota(traces: list[Rollout]) -> None:
    again = [changed(traces[0], id=f"r{n}", sample=n) for n in range(3)]
    selection = select(again, SelectConfig(max_per_question=2))
    assert selection.dropped["supervisor", "over_quota"] == len(traces[0].runs[0].calls)


def _run(
    report: str, observations: Iterable[str], code: str = "", task: str = "task", role: str = "page_search"
) -> AgentRun:
    calls = [
        Call(
            id=f"c{n}", index=n, messages=(Message(role="user", content="x"),), completion="x", finish_reason="stop",
            prompt_tokens=1, completion_tokens=1, seed=0, temperature=0, model="base", seconds=0, code=code or "y",
            observation=text,
        )
        for n, text in enumerate(observations)
    ]  # fmt: skip
    return AgentRun(id="r", role=role, parent_call="p", task=task, status="finished", report=report, calls=tuple(calls))


@pytest.mark.parametrize(
    ("report", "seen", "code", "right"),
    [
        ("The tower was built in 1889.", ["... completed in 1889 ..."], "", True),
        ("The tower was built in 1890.", ["... completed in 1889 ..."], "", False),
        ("According to the page, it was Gustave Eiffel.", ["by Gustave Eiffel"], "", True),
        ("It was Gustave Eiffel.", ["by an engineer"], "", False),
        ("42", ["in 1889", "in 1931"], "final_answer(abs(1889 - 1931))", True),
        ("42", ["in 1889"], "final_answer(abs(1889 - 1931))", False),
        ("42", ["in 1889"], "final_answer(42)", False),
        ("yes", ["anything"], "", True),
        ("yes", ["in 1889", "in 1931"], 'final_answer("yes" if 1889 < 1931 else "no")', True),
        ("yes", ["in 1889", "no page"], 'final_answer("yes" if 1889 < 1931 else "no")', False),
        ("no", ["Austria", "Germany"], 'final_answer("yes" if "Austria" == "Germany" else "no")', True),
        ("no", ["Austria", "no page"], 'final_answer("yes" if "Austria" == "Germany" else "no")', False),
        ("Not found.", ["anything"], 'if "Berlin" in page or count > 12: final_answer("Not found.")', True),
        ("Not found.", ["anything"], "", True),
        ("He died of dysentery", ["died from dysentery"], "", True),
        ("He died of plague", ["lived long"], "", False),
    ],
)
def test_an_answer_from_memory_is_not_grounded(report: str, seen: list[str], code: str, right: bool) -> None:
    assert grounded(_run(report, seen, code)) == right


def test_findings_are_what_a_report_adds_to_its_task() -> None:
    first = _run("The height of Everest is 8849 m.", [], task="height of Everest")
    assert facts(first) == {"8849"}
    assert same_finding(_run("Everest: 8849 metres", [], task="height of Everest"), first)
    assert not same_finding(_run("Everest: 8848 metres", [], task="height of Everest"), first)
    assert not same_finding(_run("Everest: 8849 metres", [], task="height of K2"), first)
    assert not same_finding(_run("8849", [], task="height of Everest", role="wiki_search"), first)


def test_salvage_keeps_what_a_right_run_confirms(traces: list[Rollout]) -> None:
    good = next(rollout for rollout in traces if rollout.question.kind == "one_hop")
    wrong = changed(
        good, id="wrong", sample=1, verdict=good.verdict.model_copy(update={"match": False}),
        runs=tuple(run.model_copy(update={"id": f"wrong{n}", "calls": tuple(
            call.model_copy(update={"completion": call.completion.replace("Thought:", "Thought: well,")})
            for call in run.calls)}) for n, run in enumerate(good.runs)),
    )  # fmt: skip
    assert select([good, wrong], SelectConfig()).kept == select([good], SelectConfig()).kept
    selection = select([wrong, good], SelectConfig(salvage=True))
    salvaged = [row for rows in selection.examples.values() for row in rows if row.salvaged]
    assert {row.role for row in salvaged} == {"wiki_search", "page_search"}
    assert selection.dropped["supervisor", "not_correct"] == len(wrong.runs[0].calls)
    liar = with_runs(wrong, report="The value is 123456.")
    assert not [row for rows in select([liar, good], SelectConfig(salvage=True)).examples.values() for row in rows
                if row.salvaged]  # fmt: skip


def test_each_question_and_each_run_of_it_weighs_the_same(traces: list[Rollout]) -> None:
    other = changed(traces[0], id="again", sample=1, runs=tuple(
        run.model_copy(update={"id": f"again{n}", "calls": tuple(
            call.model_copy(update={"completion": call.completion.replace("Thought:", "Thought: so,")})
            for call in run.calls)}) for n, run in enumerate(traces[0].runs)))  # fmt: skip
    selection = select([traces[0], other, *traces[1:]], SelectConfig())
    for role, rows in selection.examples.items():
        assert sum(row.weight for row in rows) == pytest.approx(len(rows), rel=1e-3)
        totals: dict[str, float] = {}
        for row in rows:
            totals[row.question] = totals.get(row.question, 0) + row.weight
        assert max(totals.values()) == pytest.approx(min(totals.values()), rel=1e-3)
        assert selection.effective[role] < len(rows)
    equal = select(traces, SelectConfig(weights="equal"))
    assert {row.weight for rows in equal.examples.values() for row in rows} == {1.0}
    assert equal.effective["supervisor"] == len(equal.examples["supervisor"])


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("The Eiffel Tower is how tall?", True),
        ("Please tell me: how tall is the Eiffel Tower?", True),
        ("Q: how tall is the eiffel tower? A:", True),
        ("How tall is the Eiffel Tower?", True),
        ("how tall IS eiffel tower", True),
        ("How tall is the tower named Eiffel Tower?", True),
        ("How tall is the Tokyo Tower?", False),
        ("When was the Eiffel Tower built?", False),
        ("How tall is the Eiffel Tower in 1889?", False),
    ],
)
def test_questions_near_to_held_out_ones_are_held_out(text: str, held: bool) -> None:
    held_out = HeldOut()
    held_out.add("a", "How tall is the Eiffel Tower?")
    assert (Question(id="x", question=text, answer="!") in held_out) == held
    assert Question(id="a", question="Something else?", answer="!") in held_out


def test_names_in_first_place_and_questions_without_names() -> None:
    for first, second, near in (
        ("On what continent is India?", "India is on which continent?", True),
        ("Hungary's capital lies on which river?", "On which river does the capital of Hungary lie?", True),
        ("what is the tallest mountain in the world?", "what is the tallest mountain of the world?", True),
        ("who is the tallest man in the world?", "what is the tallest mountain in the world?", False),
        ("What is the capital of France?", "What is the currency of France?", False),
    ):
        for one, other in ((first, second), (second, first)):
            held_out = HeldOut()
            held_out.add("a", one)
            assert (Question(id="x", question=other, answer="!") in held_out) == near, (one, other)


def test_a_selection_replaces_another_whole(
    traces: list[Rollout], make_workspace: Callable[..., Workspace], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other people's files are left alone, and a disk that fails leaves what was there."""
    workspace = make_workspace()
    _store(workspace, traces)
    write_datasets(workspace, rounds=[0, 0])
    assert read_examples(workspace.dataset("supervisor"), "supervisor")[1].rounds == (0,)
    (workspace.datasets / "mine.jsonl").write_text("{}\n")
    stale = workspace.datasets / "page_search.pairs.jsonl"
    stale.write_text("{}\n")
    write_datasets(workspace)
    assert (workspace.datasets / "mine.jsonl").exists() and not stale.exists()
    before = {path.name: path.read_bytes() for path in workspace.datasets.iterdir()}

    def full(*_: object) -> None:
        raise InfrastructureError("cannot write: No space left on device")

    monkeypatch.setattr("train.dataset.funnel", full)
    with pytest.raises(InfrastructureError):
        write_datasets(workspace)
    assert {path.name: path.read_bytes() for path in workspace.datasets.iterdir()} == before


def test_a_folder_of_rows_is_a_dataset(traces: list[Rollout], make_workspace: Callable[..., Workspace]) -> None:
    workspace = make_workspace()
    _store(workspace, traces)
    write_datasets(workspace)
    for role in ("supervisor", "page_search"):
        rows = load_dataset(str(workspace.datasets), role, split="train")
        assert rows.num_rows == len(read_examples(workspace.dataset(role), role)[0])


def test_of_two_files_the_newer_one_is_taken(traces: list[Rollout], make_workspace: Callable[..., Workspace]) -> None:
    workspace = make_workspace()
    _store(workspace, traces)
    write_datasets(workspace, kind="parquet")
    newer = workspace.datasets / "supervisor.jsonl"
    newer.write_text("{}\n")
    os.utime(newer, (2e9, 2e9))
    assert workspace.dataset("supervisor") == newer
    assert workspace.dataset("page_search").suffix == ".parquet"


def test_a_selection_by_f1_passes_the_audit(
    traces: list[Rollout], make_workspace: Callable[..., Workspace], qwen2: Path
) -> None:
    workspace = make_workspace(qwen2)
    verdict = traces[0].verdict.model_copy(update={"match": False, "exact_match": False, "f1": 0.9})
    _store(workspace, [rollout.model_copy(update={"verdict": verdict}) for rollout in traces])
    options = ["-w", str(workspace.folder), "-o", "select.accept=f1"]
    for command in ("select", "audit"):
        result = CliRunner().invoke(flywheel, [*options, command], catch_exceptions=False)
        assert result.exit_code == 0, result.output
    with pytest.raises(DataError, match="not_correct"):
        CliRunner().invoke(flywheel, ["-w", str(workspace.folder), "audit"], catch_exceptions=False)


def _store(workspace: Workspace, traces: list[Rollout]) -> None:
    with TraceStore(workspace.traces) as store:
        for rollout in traces:
            store.add(rollout)


def test_held_out_questions_come_from_everywhere(
    traces: list[Rollout], make_workspace: Callable[..., Workspace], write_rows: Callable[..., Path]
) -> None:
    """From other splits in the traces, from evaluations, and from files; under whatever id they come back."""
    workspace = make_workspace()
    _store(workspace, traces)
    everything = write_datasets(workspace).kept.total()
    asked = [rollout.question for rollout in traces]
    test = changed(traces[0], id="t", round=7, question=asked[0].model_copy(update={"split": "test", "id": "other"}))
    _store(workspace, [test])
    one = write_datasets(workspace, rounds=[0]).kept.total()
    assert one < everything
    (workspace.reports / "e").mkdir()
    with TraceStore(workspace.reports / "e" / "base.sqlite") as store:
        store.add(changed(traces[1], question=asked[1].model_copy(update={"id": "yet-another"})))
    two = write_datasets(workspace, rounds=[0]).kept.total()
    assert two < one
    file = write_rows("mine.jsonl", [{"id": "m", "question": asked[2].question.upper(), "answer": "!"}])
    selection = write_datasets(workspace, rounds=[0], held_out=[str(file)])
    assert selection.kept.total() < two
    assert {asked[n].id for n in range(3)}.isdisjoint(
        row.question for rows in selection.examples.values() for row in rows
    )


def test_mixed_prompts_are_not_trained_together(
    traces: list[Rollout], make_workspace: Callable[..., Workspace]
) -> None:
    workspace = make_workspace()
    with pytest.raises(DataError, match="no traces"):
        write_datasets(workspace)
    again = traces[0].model_dump_json().replace('"r0/', '"r1/').replace('"round":0', '"round":1')
    again = again.replace("Thought: ", "Thought: so, ")
    other = changed(Rollout.model_validate_json(again), prompt="full")
    _store(workspace, [*traces, other])
    with pytest.raises(DataError, match=r"mix prompts of supervisor \(compact and full\)"):
        write_datasets(workspace)
    write_datasets(workspace, rounds=[0])
    examples, card = read_examples(workspace.dataset("supervisor"), "supervisor")
    assert (card.prompts["supervisor"], card.history, card.rounds) == ("compact", "full", (0,))
    assert len(examples) == card.rows["supervisor"]


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_datasets_open_with_the_datasets_package(
    traces: list[Rollout], make_workspace: Callable[..., Workspace], kind: str
) -> None:
    workspace = make_workspace()
    _store(workspace, traces)
    result = CliRunner().invoke(
        flywheel, ["-w", str(workspace.folder), "select", "--format", kind], catch_exceptions=False
    )
    assert "funnel.png" in result.output
    path = workspace.dataset("supervisor")
    assert path.suffix == f".{kind}"
    rows = load_dataset("json" if kind == "jsonl" else kind, data_files=str(path), split="train")
    assert rows[0]["prompt"][0]["role"] == "system"
    assert rows[0]["completion"][0]["role"] == "assistant"
    examples, card = read_examples(path, "supervisor")
    assert len(examples) == rows.num_rows == card.rows["supervisor"]
    assert sorted(file.name for file in workspace.datasets.iterdir()) == sorted(
        ["README.md", "card.json", "funnel.png", *(f"{role}.{kind}" for role in card.rows)]
    )


def test_select_prints_its_funnel_and_lists_its_rules(
    traces: list[Rollout], make_workspace: Callable[..., Workspace]
) -> None:
    workspace = make_workspace()
    _store(workspace, [*traces[:4], SPOILED["not_correct"](traces[5])])
    at = ["-w", str(workspace.folder), "select"]
    printed = CliRunner(env={"COLUMNS": "160"}).invoke(flywheel, at, catch_exceptions=False).output
    assert re.search(r"not correct +\d+ +\d+ +\d+ +the final answer was wrong", printed)
    card = json.loads(CliRunner().invoke(flywheel, [*at, "--json"], catch_exceptions=False).output)
    assert card["dropped"]["supervisor.not_correct"] == len(traces[5].runs[0].calls)
    shown = CliRunner().invoke(flywheel, ["select", "--help"], terminal_width=200).output
    assert all(rule.reason in shown for rule in RULES.values())


def test_a_broken_dataset_is_named(make_workspace: Callable[..., Workspace], traces: list[Rollout]) -> None:
    workspace = make_workspace()
    with pytest.raises(InputError, match="flywheel select"):
        read_examples(workspace.dataset("supervisor"), "supervisor")
    _store(workspace, traces)
    write_datasets(workspace)
    path = workspace.dataset("supervisor")
    path.write_text(path.read_text() + json.dumps({"role": "supervisor"}) + "\n")
    with pytest.raises(InputError, match=r"supervisor.jsonl:\d+: not a training row"):
        read_examples(path, "supervisor")
    with pytest.raises(InputError, match="not of page_search"):
        read_examples(path, "page_search")
