"""Records an agent run at the model call, the one place that every call passes, and never from the agent's memory."""

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from smolagents.models import ChatMessage, MessageRole, Model
from smolagents.monitoring import TokenUsage
from smolagents.utils import parse_code_blobs

from flywheel.engines import Completion, CompletionRequest, Engine
from flywheel.files import sha256, valid_text
from flywheel.records import CODE_TAGS, AgentRun, Call, Message, Prompt, RunStatus, StepError


class RepeatedAction(Exception):
    """The same action was taken for the third time, so the run is stopped."""


@dataclass
class RunRecorder:
    """Gathers one agent run while it happens."""

    id: str
    role: str
    parent_call: str | None
    task: str
    prompt: Prompt | None = None
    calls: list[Call] = field(default_factory=list)
    status: RunStatus = "failed"
    report: str = ""
    tool_calls: int = 0
    """How often the code of this run has called a tool."""
    lasting: list[str] = field(default_factory=list)
    """Observations without errors and hints, by call."""
    actions: Counter[str] = field(default_factory=Counter)
    """How often each action was taken."""

    @property
    def last_call(self) -> str | None:
        """Id of the call whose code is running now."""
        return self.calls[-1].id if self.calls else None

    def observe(self, observation: str | None, error: StepError | None, lasting: str = "") -> None:
        """Add to the last call what came of it.

        Args:
            lasting: the observation as it is shown once its error lies behind: solved errors only distract.
        """
        self.lasting.append(lasting)
        update = {"observation": observation, "error": error}
        if error == "parse":  # what looked like code stood outside the tags, and did not run
            update["code"] = None
        self.calls[-1] = self.calls[-1].model_copy(update=update)

    def repetitions(self) -> int:
        """How often the last action was taken before."""
        return self.actions[_action(self.calls[-1])] - 1 if self.calls else 0

    def record(self) -> AgentRun:
        """The run as a frozen record."""
        return AgentRun(
            id=self.id, role=self.role, parent_call=self.parent_call, task=self.task, status=self.status,
            report=self.report, calls=tuple(self.calls), prompt=self.prompt,
        )  # fmt: skip


class RecordingModel(Model):  # type: ignore[misc]  # smolagents is untyped here
    """The model that an agent talks to: an engine in one role's name, with every call written down."""

    def __init__(
        self, engine: Engine, run: RunRecorder, *, model: str, temperature: float, seed: int, max_tokens: int
    ) -> None:
        super().__init__(model_id=model)
        self._engine = engine
        self._run = run
        self._model = model
        self._temperature = temperature
        self._seed = seed
        self._max_tokens = max_tokens

    def generate(self, messages: list[Any], stop_sequences: list[str] | None = None, **_: Any) -> ChatMessage:
        """Complete the conversation, record the call, and return its text.

        Raises:
            RepeatedAction: when the action was taken twice before.
            InfrastructureError: when the engine fails.
        """
        sent = tuple(Message(role=message.role.value, content=message.content) for message in messages)
        index = len(self._run.calls)
        seed = derived_seed(self._seed, self._run.id, index)
        request = CompletionRequest(
            messages=sent, model=self._model, max_tokens=self._max_tokens, temperature=self._temperature, seed=seed,
            stop=tuple(stop_sequences or ()), session=self._run.id,
        )  # fmt: skip
        started = time.perf_counter()
        completion = self._engine.complete(request)
        text = valid_text(_with_closing_tag(completion))
        call = Call(
            id=f"{self._run.id}.{index}", index=index, messages=sent, completion=text, code=_code(text),
            finish_reason=completion.finish_reason, prompt_tokens=completion.prompt_tokens,
            completion_tokens=completion.completion_tokens, seed=seed, temperature=self._temperature,
            model=completion.model, seconds=round(time.perf_counter() - started, 4),
        )  # fmt: skip
        self._run.calls.append(call)
        self._run.actions[_action(call)] += 1
        if self._run.repetitions() >= 2:
            self._run.observe(None, "repeated")
            raise RepeatedAction
        usage = TokenUsage(completion.prompt_tokens, completion.completion_tokens)
        return ChatMessage(role=MessageRole.ASSISTANT, content=text, token_usage=usage)


def derived_seed(*parts: int | str) -> int:
    """A seed that depends on nothing but its parts, such as the collection's seed, the question and the sample."""
    return int(sha256(":".join(map(str, parts)))[:8], 16) & 0x7FFFFFFF


def _with_closing_tag(completion: Completion) -> str:
    """Put back the closing tag that ended the completion: it was generated, and training has to see it."""
    opening, closing = CODE_TAGS
    unclosed = completion.text.count(opening) > completion.text.count(closing)
    ended_by_tag = completion.stop == closing or (not completion.stop and unclosed)
    return completion.text + closing if completion.finish_reason == "stop" and ended_by_tag else completion.text


def _code(text: str) -> str | None:
    """The code that smolagents finds, which closes a block that was left open."""
    opening, closing = CODE_TAGS
    unclosed = text.count(opening) > text.count(closing)
    try:
        code: str = parse_code_blobs(text + closing if unclosed else text, CODE_TAGS)
    except ValueError:
        return None
    return code if code.strip() else None


def _action(call: Call) -> str:
    return call.completion if call.code is None else call.code
