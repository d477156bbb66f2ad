"""Proves pairs and marks right before DPO and KTO, as audit.py does for rows."""

from collections.abc import Iterator, Mapping, Sequence

from flywheel.config import SelectConfig
from flywheel.records import Call, Mark, Message, Pair, Rollout

from .audit import Finding
from .held_out import HeldOut
from .rules import rollout_rule

_Side = tuple[str, str, tuple[Message, ...], bool]
"""Rollout and call that it says it comes from, what was written, and whether that is said to be good."""


def audit_preferences(
    rows: Sequence[Pair | Mark],
    system_prompt: str,
    held_out: HeldOut,
    rollouts: Mapping[str, Rollout],
    select: SelectConfig,
) -> list[Finding]:
    """All findings on the pairs or marks of a role.

    Args:
        rollouts: where the rows say they come from, by id.
        select: what counts as right.
    """
    calls = {name: {call.id: call for run in rollout.runs for call in run.calls} for name, rollout in rollouts.items()}
    findings = []
    for number, row in enumerate(rows, start=1):
        findings += [
            Finding(check, "error", number, text)
            for check, text in (
                *_of_row(row, system_prompt),
                *(found for side in _sides(row) for found in _of_side(row, side, held_out, rollouts, calls, select)),
            )
        ]
    labels = {row.label for row in rows if isinstance(row, Mark)}
    if len(labels) == 1:
        kind = "good" if labels == {True} else "bad"
        findings.append(Finding("one_sided", "warning", 0, f"all marks are {kind}: there is nothing to tell apart"))
    return findings


def _sides(row: Pair | Mark) -> tuple[_Side, ...]:
    if isinstance(row, Mark):
        return ((row.rollout, row.call, row.completion, row.label),)
    return (
        (row.chosen_rollout, row.chosen_call, row.chosen, True),
        (row.rejected_rollout, row.rejected_call, row.rejected, False),
    )


def _of_row(row: Pair | Mark, system_prompt: str) -> Iterator[tuple[str, str]]:
    if isinstance(row, Pair) and row.chosen == row.rejected:
        yield "no_contrast", "the good step and the bad one are the same"
    if row.prompt[0].content != system_prompt:
        yield "system_prompt", "its system prompt is not the one serving sends"


def _of_side(
    row: Pair | Mark, side: _Side, held_out: HeldOut, rollouts: Mapping[str, Rollout],
    calls: Mapping[str, Mapping[str, Call]], select: SelectConfig,
) -> Iterator[tuple[str, str]]:  # fmt: skip
    name, id, completion, good = side
    call = calls.get(name, {}).get(id)
    if call is None or (call.messages, call.completion) != (row.prompt, completion[0].content):
        yield "not_recorded", f"this is not what the call {id} saw and wrote"
        return
    question = rollouts[name].question
    if question.split != "train" or question in held_out:
        yield "held_out", f"the question {row.question} is held out"
    if good and call.finish_reason == "length":
        yield "truncated", f"the call {id} was cut at the token limit"
    run = next(run for run in rollouts[name].runs if call in run.calls)
    wrong = bool(rollout_rule(rollouts[name], select))
    if good and (call.error or run.status != "finished" or (wrong and not (select.salvage and run.parent_call))):
        yield "not_good", f"the call {id} is said to be good, and went wrong or led to a wrong answer"
    if not good and not call.error and not wrong and run.status == "finished":
        yield "not_bad", f"the call {id} is said to be bad, and led to a right answer"
