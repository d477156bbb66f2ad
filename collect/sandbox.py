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

LIMITS = ResourceLimits(max_feed_duration_secs=5.0, max_memory=256_000_000, max_recursion_depth=200)
MAX_PRINTED_BYTES = 200_000
CHECKOUT_TIMEOUT = 60.0
"""Seconds to wait for a free worker, so that a pool that is too small ends in an error instead of a hang."""


class _Answered(Exception):
    """Raised by `final_answer` to leave the model's code."""


class Sandbox:
    """A pool of worker processes in which sessions of model-written code run.

    Args:
        sessions: how many may be open at once. An agent holds its session while it waits for the agents it called, so
            this must be at least the depth of the team times the rollouts at once.
    """

    def __init__(self, sessions: int) -> None:
        self._pool = Monty(max_processes=sessions, checkout_timeout=CHECKOUT_TIMEOUT)
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
        except MontyError as error:
            if not answers:
                self.state["_print_outputs"] = printed.output
                self._discard_if_broken(error)
                raise
        self.state["_print_outputs"] = printed.output
        if answers:
            return CodeOutput(output=answers[0], logs=printed.output, is_final_answer=True)
        return CodeOutput(output=value, logs=printed.output, is_final_answer=False)

    def _discard_if_broken(self, error: MontyError) -> None:
        """After a crash or a time limit a session's heap cannot be trusted; the next step gets a fresh one."""
        timed_out = isinstance(error, MontyRuntimeError) and isinstance(error.exception(), TimeoutError)
        if timed_out or isinstance(error, MontyCrashedError):
            self._session = None
            with contextlib.suppress(MontyError):
                self._stack.close()
            self._stack = contextlib.ExitStack()


def _plain(tool: Callable[..., Any]) -> Callable[..., Any]:
    """A plain function around a tool object, which is what the sandbox can look up."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return tool(*args, **kwargs)

    return call
