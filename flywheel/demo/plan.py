"""How much a demo does, and on which questions."""

from dataclasses import dataclass

from flywheel.questions import read_questions
from flywheel.records import Question
from flywheel.stages import stage
from flywheel.workspace import ROLES

SETTINGS = """\
# The demo: a small model with short prompts on a CPU.

[team]
prompt = "compact"
history = "full"
supervisor_steps = 4
wiki_search_steps = 4
page_search_steps = 3

[engine]
kind = "transformers"
model = "{model}"
context = 1024
batch = 64
max_tokens = 80

[source]
kind = "corpus"
path = "embedded"
passages = 8

[collect]
concurrency = 64
temperature = {temperature}
seed = {seed}

[train]
learning_rate = 8e-4
batch = 2
seed = {seed}
"""

WARM, CONTROL = "warm start", "control"


@dataclass(frozen=True)
class Plan:
    """How much of everything a demo does."""

    suffix: str
    warm_questions: int
    """Questions that the teacher plays, all in the plainest wording."""
    own_questions: int
    """New training questions, in other wordings, that the team answers itself, in all rounds together."""
    samples: int
    """Rollouts per new question and round; those that a solved question does not need go to the others."""
    warm_steps: dict[str, int]
    """Optimiser steps of the warm start, by role."""
    round_steps: dict[str, int]
    """Optimiser steps of a self-collected round, and of the control, by role; from the base again.

    A role that is not in it keeps its warm start.
    """
    held_out: int
    """Held-out questions per seed; no two seeds share one."""
    control: bool
    minutes: int
    """Expected on two cores, per seed."""
    temperature: float = 0.7
    """Of the team's own rollouts. Of several samples, a higher one finds ways that the team does not take by itself."""
    rounds: int = 1
    """Rounds that the team collects itself: each brings new questions, and tries again those that are unsolved."""
    seeds: tuple[int, ...] = (0,)
    """The wheel is turned once with each."""
    kinds: tuple[str, ...] = ()
    """Kinds of questions; all if empty."""

    @property
    def own_arms(self) -> list[str]:
        """What the teams are called that were trained on their own runs, round by round."""
        return [f"self-collected {number}" if self.rounds > 1 else "self-collected" for number in self.own_rounds]

    @property
    def own_rounds(self) -> range:
        """Their numbers; the teacher's is 0."""
        return range(1, self.rounds + 1)

    @property
    def arms(self) -> list[str]:
        """All teams with adapters, in the order of their training."""
        return [WARM, *self.own_arms, *([CONTROL] if self.control else [])]

    def adapters(self, arm: str) -> dict[str, str]:
        """The team of an arm: `role@version` by role."""
        version = self.arms.index(arm) + 1
        return {role: f"{role}@{version if arm == WARM or role in self.round_steps else 1}" for role in ROLES}


QUICK = Plan(
    suffix="-quick", warm_questions=80, own_questions=16, samples=1,
    warm_steps={"supervisor": 26, "wiki_search": 16, "page_search": 22},
    round_steps={"supervisor": 26, "wiki_search": 16, "page_search": 22}, held_out=20, control=False, minutes=4,
    kinds=("one_hop",),
)  # fmt: skip
STANDARD = Plan(
    suffix="", warm_questions=240, own_questions=120, samples=1,
    warm_steps={"supervisor": 120, "wiki_search": 36, "page_search": 52}, round_steps={"supervisor": 140},
    held_out=100, control=True, minutes=18,
)  # fmt: skip
FULL = Plan(
    suffix="-full", warm_questions=320, own_questions=640, samples=3, temperature=1.0, rounds=2, seeds=(0, 1),
    warm_steps={"supervisor": 240, "wiki_search": 200, "page_search": 250}, round_steps={"supervisor": 640},
    held_out=150, control=True, minutes=90,
)  # fmt: skip


def choose_questions(plan: Plan, seed: int) -> tuple[list[Question], list[list[Question]], list[Question]]:
    """Questions for the teacher, those that each of the team's own rounds brings, and held-out ones; all different,
    and none for training so near to a held-out one that the gate would not take it for proof.

    The teacher's are worded plainly. The team's own are worded otherwise, and the held-out ones in every way, as real
    questions are, so that there is something left to learn.
    """
    tested: list[Question] = _of_kinds(plan, read_questions("embedded", "test", 0, plan.seeds[0]))
    tested.sort(key=lambda question: question.id.rpartition("-")[2].isdigit())  # those with names come first
    first = plan.held_out * plan.seeds.index(seed)
    held_out = tested[first : first + plan.held_out]
    barred = stage("train.held_out").HeldOut(held_out)
    training = _of_kinds(plan, read_questions("embedded", "train", 0, seed))
    training = [question for question in training if question not in barred]
    plain = [question for question in training if question.wording == 0]
    varied = [question for question in training if question.wording != 0]
    share = plan.own_questions // plan.rounds
    rounds = [varied[share * number : share * (number + 1)] for number in range(plan.rounds)]
    return plain[: plan.warm_questions], rounds, held_out


def _of_kinds(plan: Plan, questions: list[Question]) -> list[Question]:
    return [question for question in questions if not plan.kinds or question.kind in plan.kinds]
