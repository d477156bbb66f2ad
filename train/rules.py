"""The rules by which a call becomes a training row, or does not: each has a name, a reason, and can be counted."""

from dataclasses import dataclass

from flywheel.config import SelectConfig
from flywheel.records import CODE_TAGS, AgentRun, Call, Rollout

from .credit import grounded, report_used


@dataclass(frozen=True)
class Rule:
    """Why a call is dropped."""

    name: str
    reason: str
    """On one line, for `--help`."""
    always: bool = False
    """Cannot be switched off."""


ALL = (
    Rule("held_out", "the question, or one near to it, belongs to a held-out split", always=True),
    Rule("infrastructure", "an engine or the network failed during the rollout", always=True),
    Rule("not_correct", "the final answer was wrong (see select.accept)", always=True),
    Rule("over_quota", "the question has select.max_per_question correct rollouts already"),
    Rule("run_not_finished", "the agent run was cut at its step limit, stopped for repetition, or outgrew the context"),
    Rule("report_unused", "the caller never saw the report of this agent run"),
    Rule(
        "ungrounded", "the report, or a comparison in the code, has something that stood in no observation: from memory"
    ),
    Rule("run_unparsed", "the agent run has a step without code"),
    Rule("step_failed", "the code of the step failed, or the run was stopped for it; later steps may mend it"),
    Rule("step_repeated", "the step repeats an earlier one of its run"),
    Rule("step_cut", "the step was cut at the token limit, or its code tags do not match", always=True),
    Rule("duplicate", "the same row is there already"),
)
"""In the order in which they are applied."""

RULES = {rule.name: rule for rule in ALL}


def rollout_rule(rollout: Rollout, config: SelectConfig) -> str:
    """The first rule, of those that look at a whole rollout by itself, that drops it; or an empty string."""
    if rollout.status == "infrastructure":
        return "infrastructure"
    verdict = rollout.verdict
    correct = verdict.f1 >= config.f1_threshold if config.accept == "f1" else getattr(verdict, config.accept)
    return "" if correct else "not_correct"


def run_rule(rollout: Rollout, run: AgentRun, off: frozenset[str]) -> str:
    """The first rule that drops a whole agent run, or an empty string."""
    if run.status != "finished" and "run_not_finished" not in off:
        return "run_not_finished"
    if "report_unused" not in off and not report_used(rollout, run):
        return "report_unused"
    if "run_unparsed" not in off and any(call.error == "parse" for call in run.calls):
        return "run_unparsed"
    if "ungrounded" not in off and not grounded(run):
        return "ungrounded"
    return ""


def tags_match(completion: str) -> bool:
    """Whether every code block that a step opens is closed."""
    opened, closed = (completion.count(tag) for tag in CODE_TAGS)
    return opened == closed


def call_rule(run: AgentRun, call: Call, off: frozenset[str]) -> str:
    """The first rule that drops a single step, or an empty string."""
    if call.finish_reason == "length" or not tags_match(call.completion):
        return "step_cut"
    if call.error and "step_failed" not in off:
        return "step_failed"
    earlier = {other.code or other.completion for other in run.calls[: call.index]}
    if (call.code or call.completion) in earlier and "step_repeated" not in off:
        return "step_repeated"
    return ""
