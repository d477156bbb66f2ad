"""Proves training rows right, or says what is wrong: each check is there because somebody trained on its defect.

A check looks at all rows of a role and gives its findings; a finding that is an error refuses training.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from flywheel.chat import encode, end_of_turn, render, stop_ids
from flywheel.config import SelectConfig
from flywheel.errors import DataError
from flywheel.grading import normalise
from flywheel.records import CODE_TAGS, Call, Example, History, Question, Rollout

from .held_out import HeldOut
from .rows import Row
from .rules import rollout_rule, tags_match


@dataclass(frozen=True)
class Finding:
    """What a check has found."""

    check: str
    severity: Literal["error", "warning"]
    row: int
    """From 1; 0 for the rows as a whole."""
    text: str


@dataclass(frozen=True)
class Subject:
    """The rows of a role, and what they are checked against."""

    role: str
    examples: Sequence[Example]
    rows: Sequence[Row]
    """The tokens that training would take, one for each example."""
    tokenizer: Any
    system_prompt: str
    """What serving sends now in the mode that the dataset's card names."""
    max_tokens: int
    select: SelectConfig
    """What counts as right."""
    held_out: HeldOut
    rollouts: dict[str, Rollout]
    """Where the rows say they come from, by id; those that the store does not have are missing."""
    history: History = "full"
    """What the dataset's card says."""
    changed: bool = False
    """Whether the file is another than the one that its card was written for."""


Check = Callable[[Subject], Iterator[Finding]]


def audit(subject: Subject) -> list[Finding]:
    """All findings of all checks."""
    return [finding for check in CHECKS.values() for finding in check(subject)]


def refuse(role: str, findings: Sequence[Finding]) -> None:
    """Raise for the errors among the findings.

    Raises:
        DataError: names the first error and how many rows each check found wrong.
    """
    errors = [finding for finding in findings if finding.severity == "error"]
    if errors:
        counts = ", ".join(f"{count} {check}" for check, count in Counter(found.check for found in errors).items())
        first = errors[0]
        place = f"row {first.row}: " if first.row else ""
        raise DataError(f"the rows of {role} are not fit to train on ({counts}); {place}{first.text}")


def _each(subject: Subject) -> Iterator[tuple[int, Example, Row]]:
    yield from (
        (number, example, row)
        for number, (example, row) in enumerate(zip(subject.examples, subject.rows, strict=True), start=1)
    )


def _prefix(subject: Subject) -> Iterator[Finding]:
    """The template renders a prompt the same whether its answer follows or not, and leaves the answer's words alone."""
    for number, example, row in _each(subject):
        messages = (*example.prompt, *example.completion)
        whole = encode(subject.tokenizer, render(subject.tokenizer, messages, generate=False))
        answer = subject.tokenizer.decode(whole[len(row.prompt) :])
        kept = answer.strip().startswith(example.completion[0].content.strip())
        if whole[: len(row.prompt)] != row.prompt or not kept:
            text = "the chat template renders the prompt differently once its answer follows, so that training and "
            yield Finding("prefix", "error", number, f"{text}serving would see different tokens")


def _trained(subject: Subject) -> Iterator[Finding]:
    """The tokens that bear loss decode to exactly the stored completion, and there are some."""
    ending = end_of_turn(subject.tokenizer)
    for number, example, row in _each(subject):
        wanted = example.completion[0].content
        if not wanted.strip() or not row.completion:
            yield Finding("zero_loss", "error", number, "nothing in this row bears loss")
        elif subject.tokenizer.decode(row.completion) != wanted + ending:
            yield Finding("labels", "error", number, "the trained tokens do not decode to the stored completion")


def _stop(subject: Subject) -> Iterator[Finding]:
    """The last trained token ends the turn, so that the role learns to stop."""
    stops = stop_ids(subject.tokenizer)
    for number, _, row in _each(subject):
        if not row.completion or row.completion[-1] not in stops:
            yield Finding("stop", "error", number, "the completion does not end in the token that ends a turn")


def _whole(subject: Subject) -> Iterator[Finding]:
    """No completion was cut: every code block that was opened is closed."""
    for number, example, _ in _each(subject):
        if not tags_match(example.completion[0].content):
            yield Finding("truncated", "error", number, f"{CODE_TAGS[0]} and {CODE_TAGS[1]} do not match: cut short?")


def _length(subject: Subject) -> Iterator[Finding]:
    """Rows longer than training takes are left out, and said to be."""
    long = [number for number, _, row in _each(subject) if len(row) > subject.max_tokens]
    if len(long) == len(subject.rows):
        yield Finding(
            "too_long", "error", long[0], f"no row has at most {subject.max_tokens} tokens (train.max_tokens)"
        )
    elif long:
        text = f"{len(long)} rows have more than {subject.max_tokens} tokens (train.max_tokens) and are left out"
        yield Finding("too_long", "warning", 0, text)


def _prompts(subject: Subject) -> Iterator[Finding]:
    """Every row begins with the system prompt that serving will send."""
    for number, example, _ in _each(subject):
        first = example.prompt[0] if example.prompt else None
        if first is None or first.role != "system":
            yield Finding("system_prompt", "error", number, "there is no system message; some chat templates would put "
                          "in one of their own")  # fmt: skip
        elif first.content != subject.system_prompt:
            yield Finding("system_prompt", "error", number, "its system prompt is not the one that serving sends now: "
                          "collect again, or use the version of Flywheel that made it")  # fmt: skip


def _roles(subject: Subject) -> Iterator[Finding]:
    """Every row is of the role that is trained, and ends before an assistant's turn."""
    for number, example, _ in _each(subject):
        if example.role != subject.role:
            yield Finding("role", "error", number, f"this is a row of {example.role}")
        if example.completion[0].role != "assistant" or (example.prompt and example.prompt[-1].role == "assistant"):
            yield Finding("role", "error", number, "the trained turn is not an assistant's answer to somebody else")


def _gold(subject: Subject) -> Iterator[Finding]:
    """The gold answer does not stand in the instructions: the role could read it off."""
    for number, example, _ in _each(subject):
        rollout = subject.rollouts.get(example.rollout)
        gold = normalise(rollout.question.answer) if rollout else ""
        if len(gold) >= 4 and f" {gold} " in f" {normalise(subject.system_prompt)} ":
            yield Finding("gold_leak", "warning", number, f"the gold answer {gold!r} stands in the system prompt")
        task = example.prompt[1].content if len(example.prompt) > 1 else ""
        asked = normalise(rollout.question.question) if rollout else ""
        root = rollout is not None and example.run == rollout.runs[0].id
        if root and len(gold) >= 4 and f" {gold} " in f" {normalise(task)} " and f" {gold} " not in f" {asked} ":
            yield Finding("gold_leak", "error", number, f"the task of the root holds the gold answer {gold!r}")


def _held_out(subject: Subject) -> Iterator[Finding]:
    """No row is of a question that is held out."""
    for number, example, _ in _each(subject):
        rollout = subject.rollouts.get(example.rollout)
        question = rollout.question if rollout else _question(example)
        if question.split != "train" or question in subject.held_out:
            yield Finding("held_out", "error", number, f"the question {example.question} is held out")


def _question(example: Example) -> Question:
    """What a row of an unknown rollout says of its question: its id, and the task that it was given."""
    task = example.prompt[1].content if len(example.prompt) > 1 else example.question
    return Question(id=example.question or "?", question=task.removeprefix("Task: ") or "?", answer="?")


def _correct(subject: Subject) -> Iterator[Finding]:
    """Rows come from rollouts that were right, from calls that went well, word for word."""
    unknown = 0
    for number, example, _ in _each(subject):
        rollout = subject.rollouts.get(example.rollout)
        calls = {call.id: call for run in rollout.runs for call in run.calls} if rollout else {}
        call = calls.get(example.call)
        if rollout is None or call is None:
            unknown += 1
            continue
        yield from (Finding(check, "error", number, text) for check, text in _of_call(example, rollout, call, subject))
        if example.question != rollout.question.id:
            yield Finding("not_recorded", "error", number, f"{rollout.id} is not a rollout of {example.question}")
        if rollout.history != subject.history:
            yield Finding("history", "error", number, f"{rollout.id} had the {rollout.history} history, and the card "
                          f"says {subject.history}")  # fmt: skip
        if (call.messages, call.completion) != (example.prompt, example.completion[0].content):
            yield Finding("not_recorded", "error", number, f"this is not what the call {call.id} saw and wrote")
    if subject.changed:
        yield Finding("changed", "warning", 0, "the file was changed since it was selected")
    if unknown:
        yield Finding("unknown", "warning", 0, f"{unknown} rows are of calls that the trace store does not have")


def _of_call(example: Example, rollout: Rollout, call: Call, subject: Subject) -> Iterator[tuple[str, str]]:
    """What selection would not have kept of a call."""
    root = call in rollout.runs[0].calls
    rule = rollout_rule(rollout, subject.select)
    if rule == "infrastructure" or (rule and (root or not example.salvaged)):
        yield "not_correct", f"the rollout {rollout.id} was not right"
    if call.finish_reason == "length":
        yield "truncated", f"the call {call.id} was cut at the token limit"
    if call.error and "step_failed" not in subject.select.without:
        yield "step_failed", f"the call {call.id} went wrong ({call.error})"


def _weights(subject: Subject) -> Iterator[Finding]:
    """No question makes up most of the rows' weight."""
    shares: Counter[str] = Counter()
    for example in subject.examples:
        shares[example.question] += example.weight  # type: ignore[assignment]  # counters add fractions too
    question, weight = shares.most_common(1)[0]
    if len(shares) > 4 and weight > 0.5 * shares.total():
        yield Finding("weights", "warning", 0, f"the question {question} has more than half of all weight")


def _duplicates(subject: Subject) -> Iterator[Finding]:
    """The same row is there once."""
    seen: dict[str, int] = {}
    for number, example, _ in _each(subject):
        key = example.model_dump_json(include={"prompt", "completion"})
        if key in seen:
            yield Finding("duplicate", "warning", number, f"the same as row {seen[key]}")
        seen.setdefault(key, number)


CHECKS: dict[str, Check] = {
    "prefix": _prefix, "trained": _trained, "stop": _stop, "truncated": _whole, "too_long": _length,
    "system_prompt": _prompts, "role": _roles, "gold_leak": _gold, "held_out": _held_out, "not_correct": _correct,
    "weights": _weights, "duplicate": _duplicates,
}  # fmt: skip
"""All checks by name."""

GIVES = {
    "trained": ("zero_loss", "labels"),
    "not_correct": ("not_recorded", "unknown", "step_failed", "history", "changed"),
}
"""Further names under which a check gives its findings."""
