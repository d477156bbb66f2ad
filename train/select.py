"""Traces -> examples: keeps the steps of correct runs, and counts every step it drops by the rule that dropped it."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from flywheel.config import SelectConfig
from flywheel.errors import InputError
from flywheel.records import AgentRun, Call, Example, History, Message, Prompt, Rollout

from .credit import same_finding
from .held_out import HeldOut
from .rules import RULES, call_rule, rollout_rule, run_rule


@dataclass
class Selection:
    """Examples by role, and where the other calls went."""

    examples: dict[str, list[Example]] = field(default_factory=lambda: defaultdict(list))
    calls: Counter[str] = field(default_factory=Counter)
    """Calls seen, by role."""
    dropped: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Calls dropped, by role and rule."""
    rollouts: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    """Kept rollouts by kind of question: what the rows are skewed to."""
    prompts: dict[str, set[Prompt]] = field(default_factory=lambda: defaultdict(set))
    """Which of its prompts the rows of each role have; a mixture would not be what is served."""
    histories: set[History] = field(default_factory=set)

    @property
    def kept(self) -> Counter[str]:
        """Rows by role."""
        return Counter({role: len(rows) for role, rows in self.examples.items()})

    @property
    def effective(self) -> dict[str, float]:
        """Effective number of rows by role (Kish): fewer than there are, where some weigh more than others."""
        weights = {role: [row.weight for row in rows] for role, rows in self.examples.items()}
        return {role: sum(found) ** 2 / sum(weight**2 for weight in found) for role, found in weights.items()}

    def summary(self) -> str:
        """The funnel in one line."""
        rules: Counter[str] = Counter()
        for (_, rule), count in self.dropped.items():
            rules[rule] += count
        drops = ", ".join(f"{count:,} {rule}" for rule, count in rules.most_common()) or "none"
        return f"kept {self.kept.total():,} of {self.calls.total():,} calls; dropped: {drops}"


def select(rollouts: Iterable[Rollout], config: SelectConfig, held_out: HeldOut | None = None) -> Selection:
    """Apply all rules.

    Args:
        held_out: questions that must never be trained on, beside those of another split than `train`.

    Raises:
        InputError: when a rule that is to be switched off does not exist, or cannot be.
    """
    return _Selector(config, held_out or HeldOut()).run(rollouts)


def switched_off(config: SelectConfig) -> frozenset[str]:
    """Names of the rules that are off.

    Raises:
        InputError: for a name that is no rule's, or a rule that always holds.
    """
    for name in config.without:
        if name not in RULES:
            raise InputError(f"there is no rule {name!r}; rules are {', '.join(RULES)}")
        if RULES[name].always:
            raise InputError(f"the rule {name} cannot be switched off: {RULES[name].reason}")
    return frozenset(config.without)


class _Selector:
    """The state of one selection."""

    def __init__(self, config: SelectConfig, held_out: HeldOut) -> None:
        self._config = config
        self._held_out = held_out
        self._off = switched_off(config)
        self._selection = Selection()
        self._per_question: Counter[str] = Counter()
        self._seen: set[str] = set()
        self._good_runs: dict[str, list[AgentRun]] = defaultdict(list)
        """Kept runs by question, for salvage."""
        self._wrong: list[Rollout] = []

    def run(self, rollouts: Iterable[Rollout]) -> Selection:
        selection = self._selection
        for rollout in rollouts:
            selection.rollouts += 1
            for run in rollout.runs:
                selection.calls[run.role] += len(run.calls)
            rule = self._rollout_rule(rollout)
            if rule == "not_correct" and self._config.salvage:
                self._wrong.append(rollout)
            elif rule:
                self._drop(rollout.runs, rule)
            else:
                self._keep(rollout)
        for rollout in self._wrong:
            self._salvage(rollout)
        _weigh(selection, self._config)
        return selection

    def _rollout_rule(self, rollout: Rollout) -> str:
        question = rollout.question
        if question.split != "train" or question in self._held_out:
            return "held_out"
        if rule := rollout_rule(rollout, self._config):
            return rule
        full = self._per_question[question.id] >= self._config.max_per_question
        return "over_quota" if full and "over_quota" not in self._off else ""

    def _keep(self, rollout: Rollout) -> None:
        self._per_question[rollout.question.id] += 1
        self._selection.kinds[rollout.question.kind or "any kind"] += 1
        self._selection.histories.add(rollout.history)
        for run in rollout.runs:
            if rule := run_rule(rollout, run, self._off):
                self._drop([run], rule)
                continue
            self._good_runs[rollout.question.id].append(run)
            self._take(rollout, run, salvaged=False)

    def _salvage(self, rollout: Rollout) -> None:
        """Keep the sub-runs of a wrong rollout whose own report is verified by a kept run on the same task."""
        good = self._good_runs[rollout.question.id]
        for run in rollout.runs:
            known = run.parent_call is not None and any(same_finding(run, other) for other in good)
            if not known or rollout.history not in self._selection.histories:
                self._drop([run], "not_correct")
            elif rule := run_rule(rollout, run, self._off):
                self._drop([run], rule)
            else:
                self._take(rollout, run, salvaged=True)

    def _take(self, rollout: Rollout, run: AgentRun, salvaged: bool) -> None:
        for call in run.calls:
            if rule := call_rule(run, call, self._off):
                self._selection.dropped[run.role, rule] += 1
                continue
            example = _example(rollout, run, call, salvaged)
            key = example.model_dump_json(include={"role", "prompt", "completion"})
            if key in self._seen and "duplicate" not in self._off:
                self._selection.dropped[run.role, "duplicate"] += 1
                continue
            self._seen.add(key)
            self._selection.examples[run.role].append(example)
            self._selection.prompts[run.role].add(run.prompt or rollout.prompt)

    def _drop(self, runs: Iterable[AgentRun], rule: str) -> None:
        for run in runs:
            self._selection.dropped[run.role, rule] += len(run.calls)


def _example(rollout: Rollout, run: AgentRun, call: Call, salvaged: bool) -> Example:
    return Example(
        role=run.role, prompt=call.messages, completion=(Message(role="assistant", content=call.completion),),
        question=rollout.question.id, rollout=rollout.id, run=run.id, call=call.id, salvaged=salvaged,
    )  # fmt: skip


def _weigh(selection: Selection, config: SelectConfig) -> None:
    """Give each question of a role the same weight, and each run of a question; then make the mean 1.

    A question that was solved four times would otherwise count four times one that was solved once, and a run of eight
    steps four times one of two.
    """
    if config.weights == "equal":
        return
    for role, rows in selection.examples.items():
        runs = Counter(row.run for row in rows)
        per_question: dict[str, set[str]] = defaultdict(set)
        for row in rows:
            per_question[row.question].add(row.run)
        weights = [1 / (runs[row.run] * len(per_question[row.question])) for row in rows]
        mean = sum(weights) / len(weights)
        selection.examples[role] = [
            row.model_copy(update={"weight": round(weight / mean, 6)})
            for row, weight in zip(rows, weights, strict=True)
        ]
