"""One role's agent: a smolagents CodeAgent that sees exactly the history its team prescribes."""

import time
from typing import Any

from smolagents import CodeAgent, LogLevel, Tool
from smolagents.agents import EMPTY_PROMPT_TEMPLATES
from smolagents.local_python_executor import PythonExecutor
from smolagents.memory import ActionStep, MemoryStep
from smolagents.models import ChatMessage, MessageRole
from smolagents.monitoring import AgentLogger
from smolagents.utils import AgentExecutionError, AgentGenerationError, AgentMaxStepsError

from flywheel.errors import ContextExceeded
from flywheel.files import valid_text
from flywheel.records import CODE_TAGS, History, StepError

from .answers import format_answer
from .recording import RecordingModel, RepeatedAction, RunRecorder

NOTHING_FOUND = "No information was found."
NO_CODE = f"Error: no code was found. Write {CODE_TAGS[0]}, the code, and {CODE_TAGS[1]}, each on lines of their own."
REPEATED = "You have done exactly this before. Try something else, or finish with final_answer."


class _Silent(AgentLogger):  # type: ignore[misc]  # smolagents is untyped here
    """Says nothing, and prepares nothing to be said: rendering what nobody sees takes a fifth of a step's time."""

    def _nothing(self, *_: Any, **__: Any) -> None: ...

    log = log_error = log_markdown = log_code = log_rule = log_task = log_messages = _nothing


_SILENT = _Silent(LogLevel.OFF)


class RoleAgent(CodeAgent):  # type: ignore[misc]  # smolagents is untyped here
    """A code agent for one agent run of one role. Make a new one for every run: state must not leak between questions.

    Args:
        run: where the run is recorded.
        history: `summarised` shows the system prompt, the task, the last action and all observations so far, an error
            only if it happened in the last step; `full` shows every step.
        observation_characters: longer observations are cut.
    """

    def __init__(
        self,
        *,
        run: RunRecorder,
        model: RecordingModel,
        tools: list[Tool],
        executor: PythonExecutor,
        system_prompt: str,
        max_steps: int,
        history: History,
        observation_characters: int,
    ) -> None:
        self._prompt = system_prompt
        self._recorder = run
        self._history = history
        self._observation_characters = observation_characters
        super().__init__(
            tools=tools,
            model=model,
            prompt_templates=EMPTY_PROMPT_TEMPLATES,
            executor=executor,
            max_steps=max_steps,
            code_block_tags=CODE_TAGS,
            logger=_SILENT,
        )

    def initialize_system_prompt(self) -> str:
        """The role's prompt as it is; it names its tools itself."""
        return self._prompt

    def solve(self, task: str) -> str:
        """Run until a report is given or a limit ends it; the recorder then holds status and report.

        Raises:
            InfrastructureError: when the engine fails.
        """
        run = self._recorder
        try:
            answer = self.run(task)
        except AgentGenerationError as error:
            if not isinstance(error.__cause__, RepeatedAction | ContextExceeded):
                raise (error.__cause__ or error) from None
            run.status = "repeated" if isinstance(error.__cause__, RepeatedAction) else "failed"
            run.report = self._last_observation()
        else:
            reached_limit = isinstance(getattr(self.memory.steps[-1], "error", None), AgentMaxStepsError)
            run.status, run.report = "max_steps" if reached_limit else "finished", format_answer(answer)
        return run.report

    def provide_final_answer(self, task: str) -> ChatMessage:
        """At the step limit report the last observation, without another model call."""
        return ChatMessage(role=MessageRole.ASSISTANT, content=self._last_observation())

    def write_memory_to_messages(self, summary_mode: bool = False) -> list[ChatMessage]:
        """What the model is sent next, as plain texts."""
        messages = [
            ChatMessage(role=MessageRole.SYSTEM, content=self._prompt),
            ChatMessage(role=MessageRole.USER, content=f"Task: {self.task}"),
        ]
        calls = self._recorder.calls
        if self._history == "full":
            for call in calls:
                messages.append(ChatMessage(role=MessageRole.ASSISTANT, content=call.completion))
                messages.append(ChatMessage(role=MessageRole.USER, content=f"Observation:\n{call.observation}"))
        elif calls:
            observations = [*self._recorder.lasting[:-1], calls[-1].observation]
            text = "\n\n".join(f"Observation:\n{observation}" for observation in observations if observation)
            messages.append(ChatMessage(role=MessageRole.ASSISTANT, content=calls[-1].completion))
            messages.append(ChatMessage(role=MessageRole.USER, content=text))
        return messages

    def _finalize_step(self, memory_step: MemoryStep) -> None:
        """The one place that every step passes at its end. Callbacks would be called from here, at a higher price."""
        if isinstance(memory_step, ActionStep):
            memory_step.timing.end_time = time.time()
            self._after_step(memory_step)

    def _after_step(self, step: ActionStep) -> None:
        """Record what the model will be shown in return for its last action."""
        if step.model_output is None:  # the call failed, or the step limit was reached: there is nothing to add
            return
        if step.is_final_answer:
            self._recorder.observe(None, None)
            return
        seen = [_printed(step.observations)]
        remarks: list[str] = []
        error: StepError | None = None
        if step.error is None and self._recorder.calls[-1].code is None:  # an empty text runs, and does nothing
            error = "parse"
            remarks.append(NO_CODE)
        elif isinstance(step.error, AgentExecutionError):
            error = "execution"
            remarks.append(f"Error: {_last_line(str(step.error))}")
        elif step.error is not None:
            error = "parse"
            remarks.append(NO_CODE)
        elif step.action_output is not None:
            seen.append(f"Value of the last line: {step.action_output}")
        if self._recorder.repetitions():
            remarks.append(REPEATED)
        lasting = self._cut("\n".join(part for part in seen if part))
        observation = "\n".join(part for part in (lasting, *remarks) if part) or "(nothing was printed)"
        self._recorder.observe(observation, error, lasting if remarks else observation)

    def _cut(self, text: str) -> str:
        limit = self._observation_characters
        return text if len(text) <= limit else f"{text[:limit]}\n(cut after {limit} of {len(text)} characters)"

    def _last_observation(self) -> str:
        return next((text for text in reversed(self._recorder.lasting) if text), NOTHING_FOUND)


def _printed(observations: str | None) -> str:
    """What the code printed, out of smolagents' wrapping."""
    text = (observations or "").removeprefix("Execution logs:\n")
    printed, marker, _ = text.rpartition("Last output from code snippet:\n")
    return valid_text(printed if marker else text).strip()


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "unknown"
