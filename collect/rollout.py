"""One rollout: a fresh team on one question, from the question to a graded answer, as a record whatever happens."""

import contextlib
import time
from dataclasses import dataclass, field

from smolagents.local_python_executor import LocalPythonExecutor, PythonExecutor

from flywheel.config import Config
from flywheel.engines import Engine
from flywheel.errors import FlywheelError, InfrastructureError, InputError
from flywheel.grading import Grader, grade
from flywheel.records import UNGRADED, Prompt, Question, Rollout, RolloutStatus, Verdict

from .agent import RoleAgent
from .passages import PassageFinder
from .recording import RecordingModel, RunRecorder, derived_seed
from .sandbox import Sandbox
from .sources import Source
from .team import Team
from .tools import make_tools


@dataclass(frozen=True)
class Setup:
    """What all rollouts of a collection share."""

    config: Config
    team: Team
    engine: Engine
    source: Source
    passages: PassageFinder
    sandbox: Sandbox
    round: int
    temperature: float
    grader: Grader = grade
    model: str = ""
    """Asked for in every role's name; empty asks for the role itself."""
    versions: dict[str, str] = field(default_factory=dict)
    """`role@version` to ask for, by role, where not the newest."""
    prompts: dict[str, Prompt] = field(default_factory=dict)
    """Which prompt a role gets, where not the team's: the one that its adapter was trained with."""


def run_rollout(setup: Setup, question: Question, sample: int) -> Rollout:
    """Run the team once. A failing engine or network becomes a rollout of status `infrastructure`, no exception."""
    return LiveRollout(setup, question, sample).run()


class LiveRollout:
    """A rollout while it runs: its runs so far, and the first infrastructure failure.

    `record` may be called from another thread at any time, to look on.
    """

    def __init__(self, setup: Setup, question: Question, sample: int) -> None:
        self.setup = setup
        self.question = question
        self.sample = sample
        self.id = f"r{setup.round}/{question.id}/{sample}"
        self.seed = derived_seed(setup.config.collect.seed, question.id, sample)
        self.runs: list[RunRecorder] = []
        self.failure: FlywheelError | None = None
        self.started = time.perf_counter()

    def run(self) -> Rollout:
        """Run the team to its end."""
        status: RolloutStatus = "finished"
        answer = failure = ""
        try:
            answer = self.call_role(self.setup.team.root.name, self.question.question, parent=None)
            if self.failure:  # a model's own `except` must not hide that the evidence was incomplete
                raise self.failure
            if self.runs[0].status != "finished":  # the last observation of a root that gave up is no answer
                answer = ""
        except InfrastructureError as error:
            status, failure = "infrastructure", str(error)
        except InputError:
            raise  # a model name that is not served would fail every rollout
        except Exception as error:  # one odd rollout must not end a week of collection
            status, failure = "infrastructure", f"unexpected {type(error).__name__}: {error}"
        try:
            verdict = self.setup.grader(answer, self.question.golds, self.question.question)
        except InfrastructureError as error:  # of a judge
            status, failure = "infrastructure", failure or str(error)
            verdict = UNGRADED
        return self.record(answer, status, failure, verdict)

    def record(
        self, answer: str = "", status: RolloutStatus = "finished", failure: str = "", verdict: Verdict = UNGRADED
    ) -> Rollout:
        """What there is of the rollout, as a frozen record."""
        return Rollout(
            id=self.id, question=self.question, sample=self.sample, seed=self.seed, round=self.setup.round,
            status=status, answer=answer, verdict=verdict,
            runs=tuple(run.record() for run in list(self.runs)), seconds=round(time.perf_counter() - self.started, 3),
            failure=failure, prompt=self.setup.config.team.prompt, history=self.setup.config.team.history,
        )  # fmt: skip

    def call_role(self, name: str, task: str, parent: RunRecorder | None, page: str = "") -> str:
        """Run a fresh agent of a role and return its report."""
        setup, team = self.setup, self.setup.config.team
        role = setup.team.role(name)
        if len(self.runs) >= team.runs_per_question:
            return "No further agent can be called for this question. Finish with final_answer and what you have."
        task = f"{task}\nPage: {page}" if page else task
        prompt = setup.prompts.get(name, team.prompt)
        run = RunRecorder(
            id=f"{self.id}.{len(self.runs)}",
            role=name,
            parent_call=parent.last_call if parent else None,
            task=task,
            prompt=prompt if prompt != team.prompt else None,
        )
        self.runs.append(run)
        model = RecordingModel(
            setup.engine, run, model=setup.model or setup.versions.get(name, name), temperature=setup.temperature,
            seed=self.seed, max_tokens=setup.config.engine.max_tokens,
        )  # fmt: skip
        with self._executor() as executor:
            agent = RoleAgent(
                run=run, model=model, tools=make_tools(role.tools, self, run, page), executor=executor,
                system_prompt=role.prompt(prompt), max_steps=team.max_steps(name), history=team.history,
                observation_characters=team.observation_characters,
            )  # fmt: skip
            return agent.solve(task)

    def guard(self, error: FlywheelError) -> FlywheelError:
        """Remember a failure, since the model's code may catch the exception."""
        self.failure = self.failure or error
        return error

    def _executor(self) -> contextlib.AbstractContextManager[PythonExecutor]:
        if self.setup.config.collect.executor == "monty":
            return self.setup.sandbox.executor()
        # The default limit of 30 s counts the time that sub-agents take, so a supervisor would fail.
        return contextlib.nullcontext(LocalPythonExecutor([], timeout_seconds=None))
