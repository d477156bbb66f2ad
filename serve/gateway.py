"""Takes completion requests to the engine: the queue, streams, clients that leave, and what is counted."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

from fastapi import Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from flywheel.engines import Completion, CompletionRequest, Engine, Watch
from flywheel.errors import Cancelled, ContextExceeded, FlywheelError, InfrastructureError, InputError, UnknownModel

from .metrics import Metrics, Running
from .openai_engine import WARNING_HEADER
from .protocol import ChatRequest, Frames, TextRequest, error, error_body
from .roster import Roster

_LOOK = 0.25
"""Seconds between two looks at whether a client is still there."""


class Gateway:
    """Puts requests to the engine, each on a thread of its own, and gives up those whose clients have left.

    Args:
        max_tokens: what a request gets that does not say.
        limit: most tokens that a request may ask for.
        queue: requests that may run or wait; more are told to come back later.
    """

    def __init__(self, roster: Roster, max_tokens: int = 512, limit: int = 32_768, queue: int = 256) -> None:
        self.roster = roster
        self.metrics = Metrics()
        self._max_tokens = max_tokens
        self._limit = limit
        self._queue = queue
        self._calls: set[_Call] = set()
        self._ending = False
        self._pool = ThreadPoolExecutor(queue, thread_name_prefix="request")

    async def answer(self, asked: ChatRequest | TextRequest, client: Request) -> Response:
        """The reply to a completion request, whole or as a stream."""
        request = asked.record(self._max_tokens)
        stack = contextlib.ExitStack()
        try:
            name = stack.enter_context(self.roster.held(asked.model))
        except UnknownModel as problem:
            return self._refuse(asked.model, 404, str(problem), "model_not_found", "model")
        with stack:
            if refusal := self._beyond_limits(asked.model, request):
                return refusal
            running = stack.enter_context(self.metrics.running(asked.model))
            headers = self._headers(name, request)
            call = _Call(self.roster.engine, request.model_copy(update={"model": name}), self._pool)
            self._calls.add(call)
            stack.callback(self._calls.discard, call)
            frames = Frames(asked)
            if not asked.stream:
                return await self._whole(call, frames, client, running, headers)
            try:
                if not await self._begun(call, client):
                    return Response(status_code=499)  # nobody reads it
                first = await call.next_piece()
            except Exception as problem:  # before anything is sent there can still be an error
                return self._failure(problem, running)
            stack = stack.pop_all()  # the stream goes on after this
        return StreamingResponse(
            self._stream(call, first, frames, running, stack), media_type="text/event-stream", headers=headers
        )

    def end(self) -> None:
        """Give up the requests that are under way; their clients are told. May be called from any thread."""
        self._ending = True
        for call in tuple(self._calls):
            call.watch.cancel()

    def _failure(self, problem: Exception, running: Running) -> JSONResponse:
        if self._ending and isinstance(problem, Cancelled):
            problem = InfrastructureError("the server is ending")
        return failure(problem, running)

    def _beyond_limits(self, model: str, request: CompletionRequest) -> JSONResponse | None:
        if request.max_tokens > self._limit:
            text = f"max_tokens may be {self._limit} at most"
            return self._refuse(model, 400, text, "invalid_request", "max_tokens")
        if len(self._calls) >= self._queue:
            again = {"Retry-After": "1"}
            return self._refuse(model, 429, "the queue is full", "rate_limit_exceeded", headers=again)
        return None

    def _refuse(
        self, model: str, status: int, message: str, code: str, param: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> JSONResponse:  # fmt: skip
        self.metrics.refused(model, status)
        return error(status, message, code, param, headers)

    def _headers(self, name: str, request: CompletionRequest) -> dict[str, str]:
        headers = {"X-Flywheel-Served-By": name}
        if warning := self.roster.warning(name, request.messages):
            headers[WARNING_HEADER] = warning
        return headers

    async def _whole(
        self, call: "_Call", frames: Frames, client: Request, running: Running, headers: dict[str, str]
    ) -> Response:
        while not call.done:
            await call.wait(_LOOK)
            if not call.done and await client.is_disconnected():
                call.watch.cancel()
                return Response(status_code=499)  # nobody reads it
        try:
            completion = call.result()
        except Exception as problem:  # a client must not be shown a broken connection
            return self._failure(problem, running)
        running.status, running.completion = "200", completion
        return JSONResponse(frames.whole(completion), headers=headers)

    async def _begun(self, call: "_Call", client: Request) -> bool:
        """Wait until there is something to send; false if the client has left before."""
        while not await call.wait_for_piece(_LOOK):
            if await client.is_disconnected():
                call.watch.cancel()
                return False
        return True

    async def _stream(
        self, call: "_Call", piece: str | None, frames: Frames, running: Running, stack: contextlib.ExitStack
    ) -> AsyncIterator[str]:
        with stack:
            try:
                for event in frames.first():
                    yield event
                while piece is not None:
                    running.first = running.first or time.monotonic()
                    yield frames.piece(piece)
                    piece = await call.next_piece()
                completion = call.result()
                running.status, running.completion = "200", completion
                for event in frames.last(completion):
                    yield event
            except Exception as problem:  # too late for a status: the error is an event
                reply = self._failure(problem, running)
                yield f"data: {bytes(reply.body).decode()}\n\n"
            finally:
                call.watch.cancel()  # if the client has left; of a finished request it changes nothing


class _Call:
    """A request on a thread, whose pieces come out on the event loop."""

    def __init__(self, engine: Engine, request: CompletionRequest, pool: ThreadPoolExecutor) -> None:
        loop = asyncio.get_running_loop()
        self._pieces: asyncio.Queue[str | None] = asyncio.Queue()
        self._begun = asyncio.Event()

        def take(piece: str | None) -> None:
            self._pieces.put_nowait(piece)
            self._begun.set()

        def hand_over(piece: str | None) -> None:
            loop.call_soon_threadsafe(take, piece)

        def run() -> Completion:
            try:
                return engine.complete(request, self.watch)
            finally:
                with contextlib.suppress(RuntimeError):  # the server was stopped meanwhile
                    hand_over(None)

        self.watch = Watch(text=hand_over)
        self._future = loop.run_in_executor(pool, run)
        self._future.add_done_callback(lambda future: future.cancelled() or future.exception())

    @property
    def done(self) -> bool:
        return self._future.done()

    async def wait(self, seconds: float) -> None:
        """Until the completion is there, or the seconds are over."""
        await asyncio.wait([self._future], timeout=seconds)

    async def wait_for_piece(self, seconds: float) -> bool:
        """Whether there is a piece, or the end, within the seconds."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._begun.wait(), seconds)
        return self._begun.is_set()

    async def next_piece(self) -> str | None:
        """The next piece of text, or None at the end.

        Raises:
            Exception: what the engine raised.
        """
        piece = await self._pieces.get()
        if piece is None:
            await self._future
        return piece

    def result(self) -> Completion:
        """The whole completion."""
        return self._future.result()


def failure(problem: Exception, running: Running | None = None) -> JSONResponse:
    """The reply to a request that the engine could not answer."""
    if not isinstance(problem, FlywheelError):
        status, body = 500, error_body(500, f"unexpected {type(problem).__name__}: {problem}", "engine_failed")
    elif isinstance(problem, ContextExceeded):
        status, body = 400, error_body(400, str(problem), "context_length_exceeded", "messages")
    elif isinstance(problem, UnknownModel):
        status, body = 404, error_body(404, str(problem), "model_not_found", "model")
    elif isinstance(problem, InputError):
        status, body = 400, error_body(400, str(problem), "invalid_request")
    elif isinstance(problem, Cancelled):
        status, body = 499, error_body(499, str(problem), "cancelled")
    else:
        status = 503 if isinstance(problem, InfrastructureError) else 500
        body = error_body(status, str(problem), "engine_failed")
    if running:
        running.status = str(status)
    return JSONResponse(body, status)
