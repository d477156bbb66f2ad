"""Good against bad steps in the same situation, out of right and wrong rollouts of the same question.

A pair needs two calls that were sent the very same messages: samples of one question share the first step of each role,
and every later step up to which they went the same way. Good is what selection keeps; bad is a step that failed, or one
of a run that was not kept, if it did something else.
"""

from collections import defaultdict
from collections.abc import Iterable

from flywheel.config import SelectConfig
from flywheel.records import AgentRun, Call, Mark, Message, Pair, Rollout

from .held_out import HeldOut
from .rules import rollout_rule
from .select import Selection

_PAIRS_PER_PROMPT = 4


def pairs_and_marks(
    rollouts: Iterable[Rollout], selection: Selection, config: SelectConfig, held_out: HeldOut
) -> tuple[dict[str, list[Pair]], dict[str, list[Mark]]]:
    """Pairs for DPO, marks for KTO, by role. A step is good if selection made a row of it.

    Rollouts that met an infrastructure failure, and held-out questions, say nothing.
    """
    kept = {row.call for rows in selection.examples.values() for row in rows}
    good: dict[tuple[str, tuple[Message, ...]], list[tuple[Rollout, Call]]] = defaultdict(list)
    bad: dict[tuple[str, tuple[Message, ...]], list[tuple[Rollout, Call]]] = defaultdict(list)
    for rollout in rollouts:
        rule = rollout_rule(rollout, config)
        if rule == "infrastructure" or rollout.question.split != "train" or rollout.question in held_out:
            continue
        for run in rollout.runs:
            for call in run.calls:
                key = run.role, call.messages
                if call.id in kept:
                    good[key].append((rollout, call))
                elif _is_bad(rollout, run, call, wrong=rule == "not_correct"):
                    bad[key].append((rollout, call))
    return _pairs(good, bad), _marks(good, bad)


_Calls = dict[tuple[str, tuple[Message, ...]], list[tuple[Rollout, Call]]]


def _is_bad(rollout: Rollout, run: AgentRun, call: Call, wrong: bool) -> bool:
    """A step that failed, whatever became of the rollout; or a step of a run that went wrong and nobody vouches for."""
    return bool(call.error) or wrong or run.status != "finished"


def _pairs(good: _Calls, bad: _Calls) -> dict[str, list[Pair]]:
    found: dict[str, list[Pair]] = defaultdict(list)
    for (role, messages), chosen in good.items():
        seen: set[tuple[str, str]] = set()
        for rollout, better in chosen:
            for other, worse in bad.get((role, messages), ()):
                contrast = (better.completion, worse.completion)
                if _action(better) == _action(worse) or contrast in seen or len(seen) >= _PAIRS_PER_PROMPT:
                    continue
                seen.add(contrast)
                found[role].append(
                    Pair(
                        role=role, prompt=messages, chosen=_message(better), rejected=_message(worse),
                        question=rollout.question.id, chosen_call=better.id, rejected_call=worse.id,
                        rejected_rollout=other.id, chosen_rollout=rollout.id,
                    )
                )  # fmt: skip
    return dict(found)


def _marks(good: _Calls, bad: _Calls) -> dict[str, list[Mark]]:
    found: dict[str, list[Mark]] = defaultdict(list)
    for label, calls in ((True, good), (False, bad)):
        for (role, messages), marked in calls.items():
            actions = {_action(call) for _, call in good.get((role, messages), ())} if not label else set()
            for completion, (rollout, call) in {call.completion: (rollout, call) for rollout, call in marked}.items():
                if not completion.strip() or _action(call) in actions:  # the same step led to a right answer elsewhere
                    continue
                found[role].append(
                    Mark(
                        role=role, prompt=messages, completion=_message(call), label=label,
                        question=rollout.question.id, rollout=rollout.id, call=call.id,
                    )
                )  # fmt: skip
    return dict(found)


def _action(call: Call) -> str:
    return call.code or call.completion


def _message(call: Call) -> tuple[Message, ...]:
    return (Message(role="assistant", content=call.completion),)
