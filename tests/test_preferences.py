"""Pairs and marks out of right and wrong rollouts, and DPO and KTO on them."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from flywheel.base_model import load_model, load_tokenizer
from flywheel.chat import encode, end_of_turn, prompt_ids
from flywheel.cli import flywheel
from flywheel.config import SelectConfig
from flywheel.errors import DataError, FlywheelError, InputError
from flywheel.records import Pair, Rollout
from flywheel.store import TraceStore
from flywheel.workspace import Workspace, read_card
from train.dataset import read_marks, read_pairs, write_datasets
from train.held_out import HeldOut
from train.preference_audit import audit_preferences
from train.preference_training import _with_mismatches
from train.preferences import pairs_and_marks
from train.select import select


def _wrong_twin(rollout: Rollout, number: int) -> Rollout:
    """The same question once more: the same first steps, then another last step of the root, and a wrong answer."""
    root, *others = rollout.runs
    *first, last = root.calls
    guess = f"final_answer({number})"
    odd = last.model_copy(
        update={
            "id": f"odd{number}-{rollout.id}",
            "completion": f"Thought: Guess.\n<code>\n{guess}\n</code>",
            "code": guess,
        }
    )
    verdict = rollout.verdict.model_copy(update={"match": False, "exact_match": False})
    runs = [
        run.model_copy(update={"id": f"{run.id}-{number}", "calls": tuple(
            call if call.id == odd.id else call.model_copy(update={"id": f"{call.id}-{number}"}) for call in calls)})
        for run, calls in ((root, (*first, odd)), *((other, other.calls) for other in others))
    ]  # fmt: skip
    return rollout.model_copy(
        update={
            "id": f"wrong{number}/{rollout.id}",
            "sample": number,
            "verdict": verdict,
            "runs": tuple(runs),
            "answer": "no",
        }
    )


@pytest.fixture
def mixed(traces: list[Rollout]) -> list[Rollout]:
    """Each question once right and twice wrong."""
    return [*traces, *(_wrong_twin(rollout, number) for rollout in traces for number in (1, 2))]


def test_pairs_differ_in_the_step_alone(mixed: list[Rollout]) -> None:
    selection = select(mixed, SelectConfig())
    pairs, marks = pairs_and_marks(mixed, selection, SelectConfig(), HeldOut())
    assert set(pairs) == {"supervisor"}  # the sub-agents did the same in all of them
    calls = {call.id: call for rollout in mixed for run in rollout.runs for call in run.calls}
    for pair in pairs["supervisor"]:
        better, worse = calls[pair.chosen_call], calls[pair.rejected_call]
        assert better.messages == worse.messages == pair.prompt
        assert (pair.chosen[0].content, pair.rejected[0].content) == (better.completion, worse.completion)
        assert pair.rejected_call.startswith("odd")
    assert len(pairs["supervisor"]) == 2 * len({rollout.question.question for rollout in mixed})
    good = {mark.completion[0].content for mark in marks["supervisor"] if mark.label}
    bad = {mark.completion[0].content for mark in marks["supervisor"] if not mark.label}
    assert good.isdisjoint(bad)
    assert {text.split("final_answer(")[1][0] for text in bad} == {"1", "2"}
    assert {mark.label for mark in marks["page_search"]} == {True}  # what led to a right answer elsewhere is not bad


def test_held_out_questions_and_failures_of_engines_say_nothing(mixed: list[Rollout]) -> None:
    selection = select(mixed, SelectConfig())
    held_out = HeldOut()
    held_out.add("x", mixed[0].question.question)
    pairs, _ = pairs_and_marks(mixed, selection, SelectConfig(), held_out)
    assert mixed[0].question.id not in {pair.question for pair in pairs["supervisor"]}
    broken = [
        row.model_copy(update={"status": "infrastructure"}) if row.id.startswith("wrong") else row for row in mixed
    ]
    assert pairs_and_marks(broken, selection, SelectConfig(), HeldOut())[0] == {}


@pytest.fixture
def workspace(mixed: list[Rollout], qwen2: Path, make_workspace: Callable[..., Workspace]) -> Workspace:
    """A workspace with rows, pairs and marks."""
    made = make_workspace(qwen2)
    with TraceStore(made.traces) as store:
        for rollout in mixed:
            store.add(rollout)
    write_datasets(made)
    return made


def _train(workspace: Workspace, *arguments: str) -> str:
    command = ["-w", str(workspace.folder), "-o", "train.preference_learning_rate=5e-3", "train", *arguments]
    result = CliRunner().invoke(flywheel, command, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def _margin(base: Path, adapter: Path | None, pair: Pair) -> float:
    """How much likelier the good step is than the bad one, in log probability."""
    from peft import PeftModel

    tokenizer, model = load_tokenizer(base), load_model(base, "float32")
    if adapter:
        model = PeftModel.from_pretrained(model, str(adapter))
    prompt, total = prompt_ids(tokenizer, pair.prompt), []
    for side in (pair.chosen, pair.rejected):
        completion = encode(tokenizer, side[0].content + end_of_turn(tokenizer))
        with torch.no_grad():
            logits = model(torch.tensor([prompt + completion])).logits[0, len(prompt) - 1 : -1]
        total.append(torch.log_softmax(logits, -1)[range(len(completion)), completion].sum().item())
    return total[0] - total[1]


def test_dpo_goes_on_from_sft_and_learns_to_tell_good_from_bad(workspace: Workspace, qwen2: Path) -> None:
    _train(workspace, "--role", "supervisor", "--steps", "4")
    printed = _train(workspace, "--role", "supervisor", "--steps", "12", "--method", "dpo")
    assert "supervisor@2: dpo on supervisor@1" in printed
    card = read_card(workspace.adapter("supervisor@2"))
    assert (card.method, card.parents) == ("dpo", ("supervisor@1",))
    assert card.first_loss == pytest.approx(0.6931, abs=2e-3)  # log 2: it starts where its reference stands
    assert card.last_loss < card.first_loss
    pair = read_pairs(workspace.datasets / "supervisor.pairs.jsonl", "supervisor")[0][0]
    before, after = (_margin(qwen2, workspace.adapter(f"supervisor@{number}"), pair) for number in (1, 2))
    assert after > before
    assert "supervisor@3: dpo," in _train(
        workspace, "--role", "supervisor", "--steps", "1", "--method", "dpo", "--on", "base"
    )


def test_marks_are_mixed(workspace: Workspace) -> None:
    """KTO must see good and bad ones from its first steps on."""
    marks = read_marks(workspace.datasets / "supervisor.marks.jsonl", "supervisor")[0]
    assert [mark.label for mark in marks] == sorted((mark.label for mark in marks), reverse=True)
    rows = [{"label": mark.label, "completion_ids": [number]} for number, mark in enumerate(marks)]
    mixed = _with_mismatches(rows, 2, seed=0)
    assert len({row["label"] for row in mixed[: len(mixed) // 3]}) == 2
    assert all(row["KL_completion_ids"] != row["completion_ids"] for row in mixed)


def test_preferences_go_on_from_an_adapter_of_the_same_base_only(workspace: Workspace, llama: Path) -> None:
    _train(workspace, "--role", "supervisor", "--steps", "1")
    settings = ("-o", f"engine.model={llama}")
    command = [
        "-w",
        str(workspace.folder),
        *settings,
        "train",
        "--role",
        "supervisor",
        "--steps",
        "1",
        "--method",
        "dpo",
    ]
    with pytest.raises(DataError, match="supervisor@1 was trained on"):
        CliRunner().invoke(flywheel, command, catch_exceptions=False)
    command = ["-w", str(workspace.folder), "-o", "train.rank=4", "-o", "train.accumulation=2", *command[4:]]
    CliRunner().invoke(flywheel, command, catch_exceptions=False)
    card = read_card(workspace.adapter("supervisor@2"))
    settings_file = json.loads((workspace.adapter("supervisor@2") / "adapter_config.json").read_text())
    assert (card.rank, card.alpha) == (settings_file["r"], settings_file["lora_alpha"]) == (8, 16)


def test_kto_learns_from_marks(workspace: Workspace, qwen2: Path) -> None:
    printed = _train(workspace, "--role", "supervisor", "--steps", "8", "--method", "kto")
    assert "supervisor@1: kto," in printed
    card = read_card(workspace.adapter("supervisor@1"))
    assert (card.method, card.parents) == ("kto", ())
    assert card.seconds > 0 and card.passes > 0
    assert not list(workspace.adapter("supervisor@1").parent.glob(".*.training"))
    pair = read_pairs(workspace.datasets / "supervisor.pairs.jsonl", "supervisor")[0][0]
    assert _margin(qwen2, workspace.adapter("supervisor@1"), pair) > _margin(qwen2, None, pair)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--all", "--method", "dpo"), "needs --role"),
        (("--role", "supervisor", "--on", "base"), "--on is for --method dpo and kto"),
        (("--role", "page_search", "--method", "dpo"), "page_search has no good and bad steps in the same situation"),
        (("--role", "supervisor", "--method", "kto", "--on", "supervisor@9"), "supervisor has no adapter yet"),
    ],
)
def test_what_preferences_need_is_said(workspace: Workspace, arguments: tuple[str, ...], reason: str) -> None:
    with pytest.raises(FlywheelError, match=reason):
        _train(workspace, *arguments)


def test_the_audit_looks_at_pairs_and_marks_as_well(workspace: Workspace) -> None:
    result = CliRunner().invoke(flywheel, ["-w", str(workspace.folder), "audit", "--show", "0"])
    assert result.exit_code == 0, result.output
    assert "pairs: ok" in result.output and "marks: ok" in result.output
    marks = read_marks(workspace.datasets / "supervisor.marks.jsonl", "supervisor")[0]
    held_out = HeldOut()
    held_out.add(marks[0].question, "")
    with TraceStore(workspace.traces) as store:
        rollouts = {rollout.id: rollout for rollout in store.rollouts()}
        cut = {id: _every_call(rollout, finish_reason="length") for id, rollout in rollouts.items()}
    prompt = marks[0].prompt[0].content
    failed = {id: _every_call(rollout, error="execution") for id, rollout in rollouts.items()}
    flipped = [mark.model_copy(update={"label": not mark.label}) for mark in marks]
    for rows, barred, known, check in (
        (
            [mark for mark in flipped if mark.label] + [mark for mark in marks if not mark.label],
            HeldOut(),
            rollouts,
            "not_good",
        ),
        (marks, HeldOut(), failed, "not_good"),
        (marks, held_out, rollouts, "held_out"),
        (marks, HeldOut(), cut, "truncated"),
        ([mark for mark in marks if mark.label], HeldOut(), rollouts, "one_sided"),
        (marks, HeldOut(), {}, "not_recorded"),
    ):
        assert {finding.check for finding in audit_preferences(rows, prompt, barred, known, SelectConfig())} >= {check}
    assert "not_bad" in {f.check for f in audit_preferences(flipped, prompt, HeldOut(), rollouts, SelectConfig())}


def _every_call(rollout: Rollout, **update: object) -> Rollout:
    """The rollout with all of its calls changed."""
    runs = tuple(
        run.model_copy(update={"calls": tuple(call.model_copy(update=update) for call in run.calls)})
        for run in rollout.runs
    )
    return rollout.model_copy(update={"runs": runs})


def test_spoiled_pairs_are_refused(workspace: Workspace) -> None:
    path = workspace.datasets / "supervisor.pairs.jsonl"
    pairs = read_pairs(path, "supervisor")[0]
    for change, reason in (
        ({"rejected": pairs[0].chosen}, "no_contrast"),
        ({"chosen": pairs[-1].chosen}, "not_recorded"),
        ({"prompt": pairs[0].prompt[1:]}, "system_prompt"),
    ):
        spoiled = [pairs[0].model_copy(update=change), *pairs[1:]]
        path.write_text("".join(pair.model_dump_json() + "\n" for pair in spoiled))
        with pytest.raises(DataError, match=reason):
            _train(workspace, "--role", "supervisor", "--method", "dpo", "--steps", "1")
        printed = CliRunner().invoke(flywheel, ["-w", str(workspace.folder), "audit", "--role", "supervisor"])
        assert isinstance(printed.exception, DataError)
        assert f"supervisor: {len(pairs)} pairs: error" in " ".join(printed.output.split())
    with pytest.raises(InputError, match="not a training row"):
        read_marks(path, "supervisor")
