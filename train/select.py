"""Traces -> examples: keeps the steps of correct runs, and counts every step it drops by the rule that dropped it."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from flywheel.config import SelectConfig
from flywheel.grading import normalise
from flywheel.records import AgentRun, Call, Example, History, Message, Prompt, Rollout

RULES = {
    "held_out": "the question belongs to a held-out split",
    "infrastructure": "an engine or the network failed during the rollout",
    "not_correct": "the final answer was wrong",
    "over_quota": "the question has enough correct rollouts already",
    "run_not_finished": "the agent run was cut at its step limit, stopped for repetition, or outgrew the context",
    "report_unused": "the caller never saw the report of this agent run",
    "step_failed": "the step had no code, its code failed, or it repeated an earlier one",
    "step_cut": "the step was cut at the token limit",
    "duplicate": "the same row is there already",
}
"""Every rule by name, in the order in which they are applied."""


@dataclass
class Selection:
    """Examples by role, and where the other calls went."""

    examples: dict[str, list[Example]] = field(default_factory=lambda: defaultdict(list))
    calls: Counter[str] = field(default_factory=Counter)
    """Calls seen, by role."""
    dropped: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Calls dropped, by role and rule."""
    kept: Counter[str] = field(default_factory=Counter)
    """Calls that are trained, by role."""
    rollouts: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    """Kept rollouts by kind of question: what the rows are skewed to."""
    modes: set[tuple[Prompt, History]] = field(default_factory=set)
    """(prompt, history) of kept rollouts; training on a mixture would not be what is served."""

    def summary(self) -> str:
        """The funnel in one line."""
        rules: Counter[str] = Counter()
        for (_, rule), count in self.dropped.items():
            rules[rule] += count
        drops = ", ".join(f"{count} {rule}" for rule, count in rules.most_common()) or "none"
        return f"kept {self.kept.total():,} of {self.calls.total():,} calls; dropped: {drops}"


def select(rollouts: Iterable[Rollout], config: SelectConfig, held_out: Collection[str] = ()) -> Selection:
    """Apply all rules.

    Args:
        held_out: ids and texts of further questions that must never be trained on.
    """
    selection = Selection()
    barred = {normalise(text) for text in held_out} | set(held_out)
    per_question: Counter[str] = Counter()
    seen: set[str] = set()
    for rollout in rollouts:
        selection.rollouts += 1
        for run in rollout.runs:
            selection.calls[run.role] += len(run.calls)
        if rule := _rollout_rule(rollout, config, barred, per_question):
            for run in rollout.runs:
                selection.dropped[run.role, rule] += len(run.calls)
            continue
        per_question[rollout.question.id] += 1
        selection.kinds[rollout.question.kind or "any kind"] += 1
        selection.modes.add((rollout.prompt, rollout.history))
        for run in rollout.runs:
            _select_run(rollout, run, config, selection, seen)
    return selection


def _rollout_rule(rollout: Rollout, config: SelectConfig, barred: set[str], taken: Counter[str]) -> str:
    """The first rule that drops a whole rollout, or an empty string."""
    question, verdict = rollout.question, rollout.verdict
    if question.split != "train" or question.id in barred or normalise(question.question) in barred:
        return "held_out"
    if rollout.status == "infrastructure":
        return "infrastructure"
    correct = verdict.f1 >= config.f1_threshold if config.accept == "f1" else getattr(verdict, config.accept)
    if not correct:
        return "not_correct"
    return "over_quota" if taken[question.id] >= config.max_per_question else ""


def _select_run(rollout: Rollout, run: AgentRun, config: SelectConfig, selection: Selection, seen: set[str]) -> None:
    rule = ""
    if run.status != "finished":
        rule = "run_not_finished"
    elif run.parent_call and not _report_used(rollout, run):
        rule = "report_unused"
    if rule:
        selection.dropped[run.role, rule] += len(run.calls)
        return
    good = []
    for call in run.calls:
        if rule := _call_rule(call):
            selection.dropped[run.role, rule] += 1
        else:
            good.append(call)
    for example in _examples(rollout, run, good, config):
        key = example.model_dump_json(include={"prompt", "completion", "targets", "role"})
        if key in seen:
            selection.dropped[run.role, "duplicate"] += len(example.calls)
            continue
        seen.add(key)
        selection.kept[run.role] += len(example.calls)
        selection.examples[run.role].append(example)


def _report_used(rollout: Rollout, run: AgentRun) -> bool:
    """Whether the report came back to the caller as an observation (in whole, or its start where that was cut)."""
    for parent in rollout.runs:
        for call in parent.calls:
            if call.id == run.parent_call:
                return not run.report or run.report[:200] in (call.observation or run.report)
    return False


def _call_rule(call: Call) -> str:
    if call.error:
        return "step_failed"
    return "step_cut" if call.finish_reason == "length" else ""


def _examples(rollout: Rollout, run: AgentRun, good: list[Call], config: SelectConfig) -> Iterator[Example]:
    """One row for the whole run where its history only grows, else one row per call."""
    if not good:
        return
    whole = config.rows == "run" or (config.rows == "auto" and rollout.history == "full")
    groups = [good] if whole and _append_only(run) else [[call] for call in good]
    for calls in groups:
        last = calls[-1]
        messages = (*last.messages, _completion(last))
        start = len(calls[0].messages)
        targets = tuple(len(call.messages) - start for call in calls)
        yield Example(
            role=run.role, prompt=messages[:start], completion=messages[start:], targets=targets,
            rollout=rollout.id, run=run.id, calls=tuple(call.id for call in calls),
        )  # fmt: skip


def _append_only(run: AgentRun) -> bool:
    """Whether each call was sent the one before, what it wrote, and one observation more."""
    for before, after in zip(run.calls, run.calls[1:], strict=False):
        if after.messages[:-1] != (*before.messages, _completion(before)):
            return False
    return True


def _completion(call: Call) -> Message:
    return Message(role="assistant", content=call.completion)
