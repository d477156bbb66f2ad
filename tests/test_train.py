"""Selection, token rows, and training on a tiny model."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from collect.collector import collect
from flywheel.base_model import load_model, load_tokenizer, resolve_folder
from flywheel.chat import encode, end_of_turn, prompt_ids
from flywheel.cli import flywheel
from flywheel.config import SelectConfig
from flywheel.errors import DataError, InputError
from flywheel.records import Call, Example, Message, Question, Rollout
from flywheel.store import TraceStore
from flywheel.teacher import teacher_engine
from flywheel.workspace import Workspace, read_card
from train.dataset import read_examples, write_datasets
from train.rows import IGNORED, tokenise, usable
from train.select import select


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory, training_questions: list[Question]) -> list[Rollout]:
    """A teacher's rollouts."""
    from flywheel.config import validate

    folder = tmp_path_factory.mktemp("traces")
    settings = {
        "team": {"prompt": "compact", "history": "full"},
        "source": {"kind": "corpus", "path": "embedded", "passages": 8},
    }
    chosen = training_questions[:16]
    with TraceStore(folder / "traces.sqlite") as store:
        collect(
            chosen, validate(settings, "test"), teacher_engine(chosen), store, folder, round=0, samples=1, temperature=0
        )
        return list(store.rollouts())


def changed(rollout: Rollout, **update: object) -> Rollout:
    """A rollout with some fields replaced."""
    return rollout.model_copy(update=update)


def with_call(rollout: Rollout, position: int, **update: object) -> Rollout:
    """A rollout whose root run has one call changed."""
    root = rollout.runs[0]
    calls: list[Call] = list(root.calls)
    calls[position] = calls[position].model_copy(update=update)
    return changed(rollout, runs=(root.model_copy(update={"calls": tuple(calls)}), *rollout.runs[1:]))


def test_correct_runs_become_one_row_each(traces: list[Rollout]) -> None:
    selection = select(traces, SelectConfig())
    total = sum(len(run.calls) for rollout in traces for run in rollout.runs)
    assert selection.calls.total() == total == selection.kept.total() + selection.dropped.total()
    assert {rule for _, rule in selection.dropped} <= {"duplicate"}
    row = selection.examples["supervisor"][0]
    run = traces[0].runs[0]
    assert row.messages == (*run.calls[-1].messages, Message(role="assistant", content=run.calls[-1].completion))
    assert [row.completion[target].content for target in row.targets] == [call.completion for call in run.calls]
    assert row.calls == tuple(call.id for call in run.calls)


def test_equal_rows_are_kept_once(traces: list[Rollout]) -> None:
    once = select(traces[:1], SelectConfig())
    twice = select([traces[0], changed(traces[0], id="again", sample=1)], SelectConfig())
    assert twice.kept == once.kept
    assert sum(count for (_, rule), count in twice.dropped.items() if rule == "duplicate") >= once.kept.total()


def test_one_row_per_call_holds_what_the_call_was_sent(traces: list[Rollout]) -> None:
    selection = select(traces[:1], SelectConfig(rows="call"))
    call = traces[0].runs[0].calls[1]
    row = selection.examples["supervisor"][1]
    assert (row.prompt, row.completion[0].content, row.targets) == (call.messages, call.completion, (0,))


@pytest.mark.parametrize(
    ("rule", "spoil"),
    [
        ("held_out", lambda r: changed(r, question=r.question.model_copy(update={"split": "test"}))),
        ("infrastructure", lambda r: changed(r, status="infrastructure")),
        ("not_correct", lambda r: changed(r, verdict=r.verdict.model_copy(update={"match": False}))),
        (
            "run_not_finished",
            lambda r: changed(r, runs=tuple(run.model_copy(update={"status": "max_steps"}) for run in r.runs)),
        ),
        (
            "report_unused",
            lambda r: changed(r, runs=(r.runs[0], *(x.model_copy(update={"report": "other"}) for x in r.runs[1:]))),
        ),
        ("step_failed", lambda r: with_call(r, 0, error="execution")),
        ("step_cut", lambda r: with_call(r, 0, finish_reason="length")),
    ],
)
def test_each_rule_drops_what_it_is_for(traces: list[Rollout], rule: str, spoil: Callable[[Rollout], Rollout]) -> None:
    selection = select([spoil(traces[0])], SelectConfig())
    assert {name for _, name in selection.dropped} == {rule}
    trained = {call for examples in selection.examples.values() for example in examples for call in example.calls}
    assert trained.isdisjoint({traces[0].runs[0].calls[0].id}) or rule == "report_unused"


def test_a_question_held_out_by_text_or_beyond_its_quota_is_dropped(traces: list[Rollout]) -> None:
    question = traces[0].question
    assert not select(traces[:1], SelectConfig(), held_out=[f"The {question.question.upper()}"]).kept
    again = [changed(traces[0], id=f"r{n}", sample=n) for n in range(3)]
    selection = select(again, SelectConfig(max_per_question=2))
    assert selection.dropped["supervisor", "over_quota"] == len(traces[0].runs[0].calls)


@pytest.mark.parametrize("family", ["qwen2", "llama"])
@pytest.mark.parametrize("rows", ["run", "call"])
def test_rows_hold_exactly_the_served_tokens(
    traces: list[Rollout], family: str, rows: str, request: pytest.FixtureRequest
) -> None:
    tokenizer = load_tokenizer(request.getfixturevalue(family))
    ending = end_of_turn(tokenizer)
    assert ending == "<|im_end|>"
    selection = select(traces, SelectConfig(rows=rows))  # type: ignore[arg-type]
    calls = {call.id: call for rollout in traces for run in rollout.runs for call in run.calls}
    for example in [example for examples in selection.examples.values() for example in examples]:
        row = tokenise(tokenizer, example)
        assert len(row.ids) == len(row.labels)
        assert all(label in (IGNORED, token) for token, label in zip(row.ids, row.labels, strict=True))
        trained = tokenizer.decode([label for label in row.labels if label != IGNORED])
        assert trained == "".join(calls[call].completion + ending for call in example.calls)
        for call in example.calls:
            served = prompt_ids(tokenizer, calls[call].messages)
            completion = encode(tokenizer, calls[call].completion + ending)
            assert row.ids[: len(served) + len(completion)] == served + completion


def test_long_rows_are_left_out_and_never_cut(traces: list[Rollout], qwen2: Path) -> None:
    tokenizer = load_tokenizer(qwen2)
    rows = [tokenise(tokenizer, example) for example in select(traces, SelectConfig()).examples["supervisor"]]
    longest = max(len(row.ids) for row in rows)
    fitting, too_long = usable(rows, longest - 1)
    assert too_long >= 1
    assert len(fitting) + too_long == len(rows)
    assert all(row in rows for row in fitting)


def _store(workspace: Workspace, traces: list[Rollout]) -> None:
    with TraceStore(workspace.traces) as store:
        for rollout in traces:
            store.add(rollout)


def test_mixed_prompts_are_not_trained_together(
    traces: list[Rollout], make_workspace: Callable[..., Workspace]
) -> None:
    workspace = make_workspace()
    with pytest.raises(DataError, match="no traces"):
        write_datasets(workspace)
    again = traces[0].model_dump_json().replace('"r0/', '"r1/').replace('"round":0', '"round":1')
    other = changed(Rollout.model_validate_json(again), prompt="full")
    _store(workspace, [*traces, other])
    with pytest.raises(DataError, match="compact prompt with full history; full prompt"):
        write_datasets(workspace)
    write_datasets(workspace, rounds=[0])
    examples, card = read_examples(workspace.dataset("supervisor"), "supervisor")
    assert (card.prompt, card.history, card.rounds) == ("compact", "full", (0,))
    assert len(examples) == card.rows["supervisor"]


def test_datasets_open_with_the_datasets_package(
    traces: list[Rollout], make_workspace: Callable[..., Workspace]
) -> None:
    from datasets import load_dataset

    workspace = make_workspace()
    _store(workspace, traces)
    write_datasets(workspace)
    rows = load_dataset("json", data_files=str(workspace.dataset("supervisor")), split="train")
    assert rows[0]["prompt"][0]["role"] == "system"


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


@pytest.mark.parametrize("family", ["qwen2", "llama"])
def test_an_adapter_learns_and_loads_in_plain_peft(
    family: str, request: pytest.FixtureRequest, traces: list[Rollout], make_workspace: Callable[..., Workspace]
) -> None:
    from peft import PeftModel

    folder = request.getfixturevalue(family)
    workspace = make_workspace(folder)
    _store(workspace, traces)
    write_datasets(workspace)
    runner = CliRunner()
    arguments = ["-w", str(workspace.folder), "train", "--role", "page_search", "--steps", "30"]
    result = runner.invoke(flywheel, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    target = workspace.adapter("page_search@1")
    card = read_card(target)
    assert card.last_loss < 0.7 * card.first_loss
    assert sorted(path.name for path in target.iterdir()) == [
        "README.md", "adapter_config.json", "adapter_model.safetensors", "card.json",
    ]  # fmt: skip
    base = load_model(folder, "float32")
    example = read_examples(workspace.dataset("page_search"), "page_search")[0][0]
    row = tokenise(load_tokenizer(folder), example)
    with torch.no_grad():
        before = base(torch.tensor([row.ids])).logits
        adapted = PeftModel.from_pretrained(base, target)
        after = adapted(torch.tensor([row.ids])).logits
    assert not torch.allclose(before, after, atol=1e-3)
    labels = torch.tensor(row.labels[1:])
    loss = torch.nn.functional.cross_entropy(after[0, :-1], labels, ignore_index=IGNORED)
    assert loss.item() < 0.8 * card.first_loss


def test_padding_and_batching_do_not_change_the_loss(qwen2: Path, traces: list[Rollout]) -> None:
    from train.sft import _loss, _with_adapter

    tokenizer = load_tokenizer(qwen2)
    rows = [tokenise(tokenizer, example) for example in select(traces, SelectConfig()).examples["wiki_search"]][:3]
    from flywheel.config import TrainConfig

    model = _with_adapter(load_model(qwen2, "float32"), TrainConfig(), quantized=False)
    together = _loss(model, rows, padding=0).item()
    alone = [_loss(model, [row], padding=0).item() for row in rows]
    counts = [row.trained for row in rows]
    expected = sum(loss * count for loss, count in zip(alone, counts, strict=True)) / sum(counts)
    assert together == pytest.approx(expected, rel=1e-4)
    ids = torch.tensor([rows[0].ids])
    plain = model(input_ids=ids, labels=torch.tensor([rows[0].labels])).loss.item()
    assert alone[0] == pytest.approx(plain, rel=1e-4)


def test_an_exploding_training_leaves_no_adapter(
    qwen2: Path, traces: list[Rollout], make_workspace: Callable[..., Workspace]
) -> None:
    workspace = make_workspace(qwen2)
    _store(workspace, traces)
    write_datasets(workspace)
    settings = ["-o", "train.learning_rate=1e30", "-o", "train.warmup_steps=0"]
    arguments = ["-w", str(workspace.folder), *settings, "train", "--role", "supervisor", "--steps", "4"]
    with pytest.raises(DataError, match=r"lower train\.learning_rate"):
        CliRunner().invoke(flywheel, arguments, catch_exceptions=False)
    assert workspace.versions("supervisor") == []


def test_rows_that_are_all_too_long_are_refused(
    qwen2: Path, traces: list[Rollout], make_workspace: Callable[..., Workspace]
) -> None:
    workspace = make_workspace(qwen2)
    _store(workspace, traces)
    write_datasets(workspace)
    arguments = ["-w", str(workspace.folder), "-o", "train.max_tokens=64", "train", "--role", "supervisor"]
    with pytest.raises(DataError, match="no row of at most 64 tokens"):
        CliRunner().invoke(flywheel, arguments, catch_exceptions=False)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("/nowhere/model", "no such model"),
        ("missing.gguf", "no such GGUF"),
        ("plain-name", "no such model"),
        ("owner/not-there", "cannot get owner/not-there from the hub"),
    ],
)
def test_a_model_that_is_not_there_is_named(model: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        resolve_folder(model)


def test_nf4_trains_on_a_cpu(qwen2: Path, traces: list[Rollout], make_workspace: Callable[..., Workspace]) -> None:
    workspace = make_workspace(qwen2)
    _store(workspace, traces)
    write_datasets(workspace)
    settings = ["-o", "train.quantize=nf4"]
    arguments = ["-w", str(workspace.folder), *settings, "train", "--role", "page_search", "--steps", "6"]
    result = CliRunner().invoke(flywheel, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert read_card(workspace.adapter("page_search@1")).last_loss > 0


def test_examples_name_their_targets() -> None:
    message = Message(role="assistant", content="x")
    example = Example(role="r", prompt=(), completion=(message,), targets=(0,), rollout="a", run="b", calls=("c",))
    assert example.messages == (message,)
