"""Runs the code that models write, outside this process: pydantic-monty behind smolagents' executor interface."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from pydantic_monty import (
    CollectString,
    Monty,
    MontyCrashedError,
    MontyError,
    MontyRuntimeError,
    MontySession,
    ResourceLimits,
)
from smolagents.local_python_executor import CodeOutput, PythonExecutor

from flywheel.errors import InfrastructureError

SECONDS = 5.0
"""Time that one step may compute; what its tools take is not counted."""
MEMORY = 256_000_000
"""Bytes."""
LIMITS = ResourceLimits(
    max_feed_duration_secs=SECONDS, max_memory=MEMORY, max_recursion_depth=200, max_suspensions=1_000_000
)  # how often tools may be called is limited by themselves
MAX_PRINTED_BYTES = 200_000
CHECKOUT_TIMEOUT = 60.0
"""Seconds to wait for a free worker, so that a pool that is too small ends in an error instead of a hang."""

_CHECKOUTS = 10_000
"""Agent runs after which a worker is replaced, so that nothing can pile up in it."""


class _Answered(Exception):
    """Raised by `final_answer` to leave the model's code."""


class CodeStopped(Exception):
    """A step was ended by a limit; the text tells the model which one, and what it can do."""


class Sandbox:
    """A pool of worker processes in which sessions of model-written code run.

    Args:
        sessions: how many may be open at once. An agent holds its session while it waits for the agents it called, so
            this must be at least the depth of the team times the rollouts at once.
    """

    def __init__(self, sessions: int) -> None:
        self._pool = Monty(
            max_processes=sessions, checkout_timeout=CHECKOUT_TIMEOUT, max_checkouts_per_worker=_CHECKOUTS
        )
        self._stack = contextlib.ExitStack()
        self._stack.enter_context(self._pool)

    def close(self) -> None:
        """End all workers."""
        self._stack.close()

    @contextlib.contextmanager
    def executor(self) -> Iterator["MontyExecutor"]:
        """A fresh session for one agent run; its variables live until the run ends.

        Raises:
            InfrastructureError: when no worker is free in time.
        """
        executor = MontyExecutor(self._pool)
        try:
            yield executor
        finally:
            executor.close()


class MontyExecutor(PythonExecutor):  # type: ignore[misc]  # smolagents is untyped here
    """One sandboxed session behind the interface that smolagents' CodeAgent calls."""

    def __init__(self, pool: Monty) -> None:
        self._pool = pool
        self._tools: dict[str, Callable[..., Any]] = {}
        self._stack = contextlib.ExitStack()
        self._session: MontySession | None = None
        self.state: dict[str, str] = {"_print_outputs": ""}
        """smolagents reads from here what was printed before an error."""

    def send_tools(self, tools: dict[str, Callable[..., Any]]) -> None:
        """Name the functions that the code may call; they run in our process."""
        self._tools = dict(tools)

    def send_variables(self, variables: dict[str, Any]) -> None:
        """Part of the interface; our agents pass nothing but text."""

    def close(self) -> None:
        """Give the worker back."""
        self._session = None
        self._stack.close()

    def _open(self) -> MontySession:
        if self._session is None:
            try:
                checkout = self._pool.checkout(limits=LIMITS, os_policy={"sleep": "zero"})
                self._session = self._stack.enter_context(checkout)
            except (TimeoutError, MontyError, OSError) as error:
                raise InfrastructureError(f"no sandbox worker is free: {error}") from error
        return self._session

    def __call__(self, code_action: str) -> CodeOutput:
        """Run one piece of code; what it prints, its last value, and whether it gave a final answer.

        Raises:
            MontyError: what went wrong in the code, for the model to read.
            CodeStopped: when a limit ended it.
            InfrastructureError: when no worker is free.
        """
        printed = CollectString(max_bytes=MAX_PRINTED_BYTES)
        answers: list[Any] = []

        def final_answer(answer: Any = None, **named: Any) -> None:
            answers.append(next(iter(named.values())) if answer is None and named else answer)
            raise _Answered

        functions = {name: _plain(tool) for name, tool in self._tools.items()} | {"final_answer": final_answer}
        self.state["_print_outputs"] = ""
        value = None
        try:
            value = self._open().feed_run(code_action, external_lookup=functions, print_callback=printed)
        except (MontyError, RuntimeError) as error:
            if not answers:
                self.state["_print_outputs"] = printed.output
                if (stopped := self._stopped(error, printed.output)) is not None:
                    raise stopped from error
                raise
        self.state["_print_outputs"] = printed.output
        if answers:
            return CodeOutput(output=_presentable(answers[0]), logs=printed.output, is_final_answer=True)
        return CodeOutput(output=_presentable(value), logs=printed.output, is_final_answer=False)

    def _stopped(self, error: Exception, printed: str) -> CodeStopped | None:
        """What to tell the model if a limit ended its code. A session that is lost is replaced by the next step."""
        inner = error.exception() if isinstance(error, MontyRuntimeError) else None
        if isinstance(inner, MemoryError) and len(printed) >= MAX_PRINTED_BYTES // 2:
            return CodeStopped(f"MemoryError: more than {MAX_PRINTED_BYTES:,} characters were printed. Print less.")
        crashed = isinstance(error, MontyCrashedError) and not error.timed_out
        if isinstance(error, MontyCrashedError) or isinstance(inner, TimeoutError):
            self._discard()
            if crashed:
                return CodeStopped("RuntimeError: the interpreter crashed; all variables are lost. Write simpler code.")
            return CodeStopped(
                f"TimeoutError: the code computed for more than {SECONDS:g} s and was stopped; all variables are lost. "
                "Do less in one step."
            )
        if isinstance(inner, MemoryError):
            lost = "terminated" in str(inner)
            if lost:
                self._discard()
            return CodeStopped(
                f"MemoryError: the code needed more than {MEMORY // 1_000_000} MB and was stopped"
                f"{'; all variables are lost' if lost else ''}. Work with less data."
            )
        if not isinstance(error, MontyError):  # a session that has ended in a way of its own
            self._discard()
            return CodeStopped(f"RuntimeError: {error}; all variables are lost")
        return None

    def _discard(self) -> None:
        """Leave a session whose heap cannot be trusted."""
        self._session = None
        with contextlib.suppress(MontyError, RuntimeError):
            self._stack.close()
        self._stack = contextlib.ExitStack()


def _presentable(value: Any) -> Any:
    """The value of the last line, which smolagents will write out: Python refuses to write very long integers."""
    try:
        str(value)
    except ValueError:
        return "a number too long to be written"
    return value


def _plain(tool: Callable[..., Any]) -> Callable[..., Any]:
    """A plain function around a tool object, which is what the sandbox can look up."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return tool(*args, **kwargs)

    return call
