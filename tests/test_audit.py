"""The audit: each check catches the defect that it is there for, planted in rows that were right."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from collect.team import WIKIPEDIA
from flywheel.base_model import load_tokenizer
from flywheel.cli import flywheel
from flywheel.config import SelectConfig
from flywheel.errors import DataError
from flywheel.records import Example, Message, Rollout
from flywheel.store import TraceStore
from flywheel.workspace import Workspace
from train.audit import CHECKS, GIVES, Finding, Subject, audit, refuse
from train.dataset import write_datasets
from train.held_out import HeldOut
from train.rows import tokenise
from train.select import select


@pytest.fixture
def subject(traces: list[Rollout], qwen2: Path) -> Subject:
    """The supervisor's rows of the teacher, in order."""
    examples = select(traces, SelectConfig()).examples["supervisor"]
    tokenizer = load_tokenizer(qwen2)
    return Subject(
        role="supervisor", examples=examples, rows=[tokenise(tokenizer, example) for example in examples],
        tokenizer=tokenizer, system_prompt=WIKIPEDIA.root.prompt("compact"), max_tokens=4096, select=SelectConfig(),
        held_out=HeldOut(), rollouts={rollout.id: rollout for rollout in traces},
    )  # fmt: skip


def with_row(subject: Subject, number: int = 2, retokenise: bool = True, **update: Any) -> Subject:
    """The same rows, one of them changed."""
    examples = list(subject.examples)
    examples[number - 1] = examples[number - 1].model_copy(update=update)
    rows = [tokenise(subject.tokenizer, example) for example in examples] if retokenise else subject.rows
    return replace(subject, examples=examples, rows=rows)


def with_tokens(subject: Subject, completion: Callable[[list[int]], list[int]]) -> Subject:
    """The same rows, the trained tokens of the second one changed."""
    rows = list(subject.rows)
    rows[1] = replace(rows[1], completion=completion(rows[1].completion))
    return replace(subject, rows=rows)


def with_completion(subject: Subject, text: Callable[[str], str]) -> Subject:
    """The same rows, the second one's completion changed."""
    old = subject.examples[1].completion[0]
    return with_row(subject, completion=(Message(role=old.role, content=text(old.content)),))


def with_rollout(subject: Subject, change: Callable[[Rollout], Rollout]) -> Subject:
    """The same rows, the trace of the second one changed."""
    rollout = subject.rollouts[subject.examples[1].rollout]
    return replace(subject, rollouts={**subject.rollouts, rollout.id: change(rollout)})


def _first_prompt(subject: Subject, position: int, message: Message | None) -> Subject:
    prompt = list(subject.examples[1].prompt)
    prompt[position : position + 1] = [message] if message else []
    return with_row(subject, prompt=tuple(prompt))


def _gold(subject: Subject) -> str:
    return subject.rollouts[subject.examples[1].rollout].question.answer


def _held_out(subject: Subject) -> Subject:
    held_out = HeldOut()
    held_out.add("elsewhere", subject.rollouts[subject.examples[1].rollout].question.question.upper())
    return replace(subject, held_out=held_out)


class _Rewriting:
    """A tokenizer whose template changes a prompt once its answer is there (Qwen3 takes thoughts away, for example)."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self._tokenizer(*arguments, **options)

    def apply_chat_template(self, messages: list[dict[str, str]], **options: Any) -> Any:
        if messages[-1]["role"] == "assistant" and len(messages) > 2:
            messages = [{**message, "content": message["content"].replace("Task", "Job")} for message in messages]
        return self._tokenizer.apply_chat_template(messages, **options)


DEFECTS: dict[str, tuple[str, Callable[[Subject], Subject]]] = {
    "a mask that is all zero": ("zero_loss", lambda s: with_tokens(s, lambda tokens: [])),
    "an empty completion": ("zero_loss", lambda s: with_completion(s, lambda text: " ")),
    "labels of the observation too": ("labels", lambda s: with_tokens(
        s, lambda tokens: s.rows[1].prompt[-4:] + tokens)),
    "labels shifted by one": ("labels", lambda s: with_tokens(s, lambda tokens: tokens[1:])),
    "no end of turn": ("stop", lambda s: with_tokens(s, lambda tokens: tokens[:-1])),
    "a completion cut at its end": ("labels", lambda s: with_tokens(s, lambda tokens: tokens[: len(tokens) // 2])),
    "a closing tag that the server stripped": ("truncated", lambda s: with_completion(
        s, lambda text: text.removesuffix("</code>"))),
    "a call cut at the token limit": ("truncated", lambda s: with_rollout(
        s, lambda r: _call(r, s.examples[1].call, finish_reason="length"))),
    "rows that are all too long": ("too_long", lambda s: replace(s, max_tokens=8)),
    "another system prompt than serving's": ("system_prompt", lambda s: replace(s, system_prompt="Another prompt.")),
    "no system prompt": ("system_prompt", lambda s: _first_prompt(s, 0, None)),
    "a row of another role": ("role", lambda s: with_row(s, role="wiki_search")),
    "a user's text as the target": ("role", lambda s: with_row(s, completion=(Message(role="user", content="x"),))),
    "a question that is held out": ("held_out", _held_out),
    "a question of the test split": ("held_out", lambda s: with_rollout(s, lambda r: _question(r, split="test"))),
    "a failed run as gold": ("not_correct", lambda s: with_rollout(s, _wrong)),
    "an infrastructure failure as gold": ("not_correct", lambda s: with_rollout(
        s, lambda r: r.model_copy(update={"status": "infrastructure"}))),
    "a row rebuilt from text": ("not_recorded", lambda s: with_completion(
        s, lambda text: text.replace("Thought:", "Thinking:"))),
    "an observation that was edited": ("not_recorded", lambda s: _first_prompt(
        s, 1, Message(role="user", content="Task: another"))),
    "the gold in the task": ("gold_leak", lambda s: _first_prompt(
        _long_gold(s), 1, Message(role="user", content="Task: say a long answer here"))),
    "a failed step as gold": ("step_failed", lambda s: with_rollout(
        s, lambda r: _call(r, s.examples[1].call, error="execution"))),
    "a root's step of a wrong rollout, said to be salvaged": ("not_correct", lambda s: with_row(
        with_rollout(s, _wrong), salvaged=True)),
    "another history than the card says": ("history", lambda s: replace(s, history="summarised")),
    "a row under another question's name": ("not_recorded", lambda s: with_row(s, question="train-none")),
    "a held-out question of an unknown rollout": ("held_out", lambda s: replace(_held_out(s), rollouts={})),
    "a template that rewrites prompts": ("prefix", lambda s: replace(s, tokenizer=_Rewriting(s.tokenizer))),
}  # fmt: skip


def _call(rollout: Rollout, id: str, **update: object) -> Rollout:
    """The rollout with one of its calls changed."""
    runs = tuple(
        run.model_copy(
            update={"calls": tuple(call.model_copy(update=update) if call.id == id else call for call in run.calls)}
        )
        for run in rollout.runs
    )
    return rollout.model_copy(update={"runs": runs})


def _question(rollout: Rollout, **update: Any) -> Rollout:
    return rollout.model_copy(update={"question": rollout.question.model_copy(update=update)})


def _wrong(rollout: Rollout) -> Rollout:
    verdict = rollout.verdict.model_copy(update={"match": False, "exact_match": False})
    return rollout.model_copy(update={"verdict": verdict})


def _long_gold(subject: Subject) -> Subject:
    return with_rollout(subject, lambda rollout: _question(rollout, answer="a long answer"))


def test_rows_as_selected_pass_every_check(subject: Subject) -> None:
    assert audit(subject) == []
    refuse("supervisor", [])


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_planted_defect_is_caught_and_refused(subject: Subject, defect: str) -> None:
    name, plant = DEFECTS[defect]
    findings = audit(plant(subject))
    caught = [finding for finding in findings if finding.check == name and finding.severity == "error"]
    assert caught, findings
    with pytest.raises(DataError, match="the rows of supervisor are not fit to train on"):
        refuse("supervisor", findings)


def test_what_is_odd_but_no_error_is_a_warning(subject: Subject) -> None:
    found = audit(replace(subject, rollouts={}))
    assert [(finding.check, finding.severity) for finding in found] == [("unknown", "warning")]
    longest = max(map(len, subject.rows))
    assert [f.check for f in audit(replace(subject, max_tokens=longest - 1))] == ["too_long"]
    twice = replace(subject, examples=[*subject.examples, subject.examples[0]], rows=[*subject.rows, subject.rows[0]])
    assert [(f.check, f.row, f.severity) for f in audit(twice)] == [("duplicate", len(twice.rows), "warning")]
    assert [f.check for f in audit(with_row(subject, weight=1e6))] == ["weights"]
    assert [(f.check, f.severity) for f in audit(replace(subject, changed=True))] == [("changed", "warning")]
    leaking = replace(
        with_rollout(subject, lambda rollout: _question(rollout, answer="Python steps")),
    )
    assert ("gold_leak", "warning") in [(f.check, f.severity) for f in audit(leaking)]
    refuse("supervisor", [Finding("x", "warning", 0, "odd")])


def test_every_check_has_a_defect(subject: Subject) -> None:
    caught = {name for name, _ in DEFECTS.values()} | {"weights", "duplicate", "unknown", "changed"}
    names = {name for check in CHECKS for name in GIVES.get(check, (check,))} | set(CHECKS)
    assert caught | {"trained"} >= names


def _workspace(traces: list[Rollout], make_workspace: Callable[..., Workspace], model: Path) -> Workspace:
    workspace = make_workspace(model)
    with TraceStore(workspace.traces) as store:
        for rollout in traces:
            store.add(rollout)
    write_datasets(workspace)
    return workspace


def test_audit_shows_rows_and_training_refuses_spoiled_ones(
    traces: list[Rollout], make_workspace: Callable[..., Workspace], qwen2: Path
) -> None:
    workspace = _workspace(traces, make_workspace, qwen2)
    at = ["-w", str(workspace.folder)]
    runner = CliRunner(env={"COLUMNS": "140"})
    shown = runner.invoke(flywheel, [*at, "audit", "--show", "2"], catch_exceptions=False).output
    assert "<|im_start|>assistant\nThought:" in shown
    assert shown.count(" trained)") == 6
    assert "error" not in shown
    found = json.loads(runner.invoke(flywheel, [*at, "audit", "--json"], catch_exceptions=False).output)
    assert found == {"supervisor": [], "wiki_search": [], "page_search": []}
    path = workspace.dataset("supervisor")
    rows = [Example.model_validate_json(line) for line in path.read_text().splitlines()]
    rows[3] = rows[3].model_copy(update={"completion": (Message(role="assistant", content="something else"),)})
    path.write_text("".join(row.model_dump_json() + "\n" for row in rows))
    for command in (["audit", "--role", "supervisor"], ["train", "--role", "supervisor", "--steps", "1"]):
        with pytest.raises(DataError, match=r"1 not_recorded\); row 4"):
            runner.invoke(flywheel, [*at, *command], catch_exceptions=False)
    assert workspace.versions("supervisor") == []
