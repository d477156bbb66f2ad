"""What teams did on held-out questions: scores with intervals, paired tests, and how each role went about it."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from pydantic import Field

from flywheel.files import sha256
from flywheel.records import AgentRun, Prompt, Question, Record, Rollout
from flywheel.stages import stage
from flywheel.statistics import bootstrap_interval, mcnemar_exact
from flywheel.workspace import ROLES

from .origins import Origin, find_origin

Counts = dict[str, tuple[int, int]]
"""By group of questions: exact matches, questions."""


class RoleHealth(Record):
    """How a role went about its work."""

    runs: int
    steps: float
    """Model calls per run."""
    without_code: float
    """Share of steps in which no code could be found."""
    failed: float
    """Share of steps whose code failed."""
    repeated: float
    """Share of steps that repeated an earlier one."""
    used: float
    """Share of runs whose report came back to the caller."""
    tokens: float
    """Completion tokens per question."""
    seconds: float
    """Model time per question."""


class ArmResult(Record):
    """How a team did on the questions."""

    name: str
    versions: dict[str, str] = Field(default_factory=dict)
    """`role@version` by role; the base plays the others."""
    weights: dict[str, str] = Field(default_factory=dict)
    """SHA-256 of each version's weights."""
    prompts: dict[str, Prompt] = Field(default_factory=dict)
    """Which prompt a role got, where not the team's."""
    questions: int
    exact_match: float
    exact_match_interval: tuple[float, float]
    """Bootstrap, 95%."""
    match: float
    match_interval: tuple[float, float]
    f1: float
    f1_interval: tuple[float, float]
    calls: float
    """Model calls per question."""
    failed_steps: float
    """Share of steps without code, with code that failed, or repeated."""
    seconds: float
    """Model time per question, summed over its calls."""
    by_kind: Counts
    by_hops: Counts
    """By number of supporting facts, where they are known."""
    roles: dict[str, RoleHealth]
    origins: dict[str, int]
    """Where wrong rollouts went wrong, as `role: what`; only where supporting facts are known."""
    right: tuple[bool, ...]
    """Exact match of each question, in the evaluation's order."""

    def lost_by(self) -> Counter[str]:
        """How many wrong rollouts each role lost."""
        lost: Counter[str] = Counter()
        for origin, count in self.origins.items():
            lost[origin.partition(":")[0]] += count
        return lost


class Comparison(Record):
    """Two teams on the same questions, by exact match."""

    first: str
    second: str
    only_first: int
    only_second: int
    p: float
    """McNemar's exact test, two-sided."""

    @property
    def shown_p(self) -> str:
        """The p value as it is printed."""
        return "p < 0.0001" if self.p < 0.0001 else f"p = {self.p:.4f}"

    @property
    def better(self) -> str:
        """The one that was right more often; empty if they were so equally often."""
        if self.only_first == self.only_second:
            return ""
        return self.second if self.only_second > self.only_first else self.first


class Evaluation(Record):
    """The results of all teams."""

    questions: tuple[str, ...]
    """Ids, so that it can be repeated on the same ones."""
    questions_hash: str = ""
    """Of ids, texts and golds."""
    created: str = ""
    """UTC, ISO 8601."""
    settings: dict[str, str] = Field(default_factory=dict)
    """Those that the workspace must still have for a promotion by it, as JSON texts."""
    arms: tuple[ArmResult, ...]
    comparisons: tuple[Comparison, ...]

    def as_json(self) -> str:
        """A JSON text."""
        return self.model_dump_json(indent=2) + "\n"


def hash_questions(questions: Iterable[Question]) -> str:
    """Fingerprint of ids, texts and golds, whatever the order."""
    return sha256(json.dumps(sorted((q.id, q.question, q.golds) for q in questions)))[:16]


def compare(
    results: Mapping[str, Sequence[Rollout]], pairs: Iterable[tuple[str, str]], created: str = ""
) -> Evaluation:
    """Summarise each arm and test the pairs.

    Args:
        results: by arm: a rollout for each question, in the same order.
    """
    arms = [summarise(name, rollouts) for name, rollouts in results.items()]
    right = {arm.name: arm.right for arm in arms}
    asked = [rollout.question for rollout in next(iter(results.values()))]
    return Evaluation(
        questions=tuple(question.id for question in asked), questions_hash=hash_questions(asked), created=created,
        arms=tuple(arms), comparisons=tuple(pair_test(first, second, right) for first, second in pairs),
    )  # fmt: skip


def pair_test(first: str, second: str, right: Mapping[str, Sequence[bool]]) -> Comparison:
    """Two arms, given which questions each had right."""
    only_first, only_second, p = mcnemar_exact(right[first], right[second])
    return Comparison(first=first, second=second, only_first=only_first, only_second=only_second, p=p)


def summarise(name: str, rollouts: Sequence[Rollout]) -> ArmResult:
    """The figures of one arm."""
    size = len(rollouts)
    exact = [float(rollout.verdict.exact_match) for rollout in rollouts]
    match = [float(rollout.verdict.match) for rollout in rollouts]
    f1 = [rollout.verdict.f1 for rollout in rollouts]
    calls = [call for rollout in rollouts for run in rollout.runs for call in run.calls]
    return ArmResult(
        name=name, questions=size,
        exact_match=sum(exact) / size, exact_match_interval=bootstrap_interval(exact),
        match=sum(match) / size, match_interval=bootstrap_interval(match),
        f1=sum(f1) / size, f1_interval=bootstrap_interval(f1),
        calls=len(calls) / size, failed_steps=sum(call.error is not None for call in calls) / max(1, len(calls)),
        seconds=sum(call.seconds for call in calls) / size,
        by_kind=_counts(rollouts, lambda question: question.kind or "any kind"),
        by_hops=_counts(rollouts, _hops),
        roles={role: health for role in ROLES if (health := _health(role, rollouts))},
        origins=dict(Counter(str(origin) for origin in _origins(rollouts)).most_common()),
        right=tuple(rollout.verdict.exact_match for rollout in rollouts),
    )  # fmt: skip


def _counts(rollouts: Iterable[Rollout], group: Callable[[Question], str]) -> Counts:
    counts: Counts = {}
    for rollout in rollouts:
        if name := group(rollout.question):
            right, total = counts.get(name, (0, 0))
            counts[name] = right + rollout.verdict.exact_match, total + 1
    return dict(sorted(counts.items()))


def _hops(question: Question) -> str:
    facts = len(question.evidence) or len({support.page for support in question.supporting})
    return str(facts) if facts else ""


def _health(role: str, rollouts: Sequence[Rollout]) -> RoleHealth | None:
    used = stage("train.credit").report_used
    runs: list[tuple[Rollout, AgentRun]] = [
        (rollout, run) for rollout in rollouts for run in rollout.runs if run.role == role
    ]
    calls = [call for _, run in runs for call in run.calls]
    if not calls:
        return None
    errors = Counter(call.error for call in calls)
    return RoleHealth(
        runs=len(runs), steps=len(calls) / len(runs), without_code=errors["parse"] / len(calls),
        failed=errors["execution"] / len(calls), repeated=errors["repeated"] / len(calls),
        used=sum(used(rollout, run) for rollout, run in runs) / len(runs),
        tokens=sum(call.completion_tokens for call in calls) / len(rollouts),
        seconds=sum(call.seconds for call in calls) / len(rollouts),
    )  # fmt: skip


def _origins(rollouts: Iterable[Rollout]) -> Iterable[Origin]:
    for rollout in rollouts:
        if not rollout.verdict.match and (origin := find_origin(rollout)):
            yield origin
