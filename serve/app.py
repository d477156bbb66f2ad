"""The HTTP gateway: OpenAI's chat completions over an engine, where the model's name is a role."""

import asyncio
import hmac
import json
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, Field, field_validator

from flywheel.engines import Completion, CompletionRequest, Engine
from flywheel.errors import ContextExceeded, FlywheelError, InfrastructureError, InputError
from flywheel.records import Message


class ChatMessage(BaseModel):
    """A message as OpenAI clients send it; a list of text parts is joined."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str

    @field_validator("content", mode="before")
    @classmethod
    def _join_parts(cls, content: Any) -> Any:
        if isinstance(content, list):
            return "".join(part.get("text", "") for part in content if isinstance(part, dict))
        return content

    @field_validator("content")
    @classmethod
    def _is_text(cls, content: str) -> str:
        content.encode()  # half of a surrogate pair is no text; the error is a ValueError
        return content

    def record(self) -> Message:
        """The message in Flywheel's words."""
        return Message(role="system" if self.role == "developer" else self.role, content=self.content)


class ChatRequest(BaseModel):
    """The fields of a chat completion request that are honoured; others are accepted and ignored."""

    model: str
    messages: list[ChatMessage] = Field(min_length=1)
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    temperature: float | None = Field(None, ge=0, le=10)
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    stop: str | list[str] | None = None
    stream: bool = False
    stream_options: dict[str, Any] | None = None
    n: Literal[1] | None = None
    prompt_cache_key: str | None = None

    def record(self, default_max_tokens: int) -> CompletionRequest:
        """The request in Flywheel's words."""
        stop = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return CompletionRequest(
            messages=tuple(message.record() for message in self.messages), model=self.model,
            max_tokens=self.max_completion_tokens or self.max_tokens or default_max_tokens,
            temperature=1.0 if self.temperature is None else self.temperature,
            seed=uuid.uuid4().int & 0x7FFFFFFF if self.seed is None else self.seed,
            stop=tuple(text for text in stop if text), session=self.prompt_cache_key or "",
        )  # fmt: skip


def create_app(engine: Engine, default_max_tokens: int = 512, token: str = "", threads: int = 256) -> FastAPI:
    """The gateway over an engine.

    Args:
        token: clients must send it as a bearer token, if not empty.
        threads: requests that may wait for the engine at once.
    """
    app = FastAPI(title="Flywheel", docs_url=None, redoc_url=None, openapi_url=None)
    created = int(time.time())
    pool = ThreadPoolExecutor(threads, thread_name_prefix="request")

    @app.middleware("http")
    async def authorise(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        if not _may_enter(request, token):
            return _error(401, "the bearer token is missing or wrong", "invalid_api_key")
        return await call_next(request)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        return _invalid(error)

    @app.exception_handler(404)
    async def unknown_path(request: Request, error: Exception) -> Response:
        return _error(404, f"there is no {request.method} {request.url.path}", "not_found")

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        listed = [
            {"id": name, "object": "model", "created": created, "owned_by": "flywheel"} for name in engine.models()
        ]
        return {"object": "list", "data": listed}

    @app.post("/v1/chat/completions")
    async def chat(body: ChatRequest) -> Response:
        request = body.record(default_max_tokens)
        try:
            completion = await asyncio.get_running_loop().run_in_executor(pool, engine.complete, request)
        except Exception as error:  # a client must not be shown a broken connection
            return _failure(error)
        identity = f"chatcmpl-{uuid.uuid4().hex}"
        if body.stream:
            usage = bool((body.stream_options or {}).get("include_usage"))
            return StreamingResponse(_stream(completion, body.model, identity, usage), media_type="text/event-stream")
        return JSONResponse(_whole(completion, body.model, identity))

    return app


def _may_enter(request: Request, token: str) -> bool:
    """Whether no token is asked for, or the right one was sent; compared in constant time."""
    sent = request.headers.get("Authorization", "")
    return not token or request.url.path == "/health" or hmac.compare_digest(sent.encode(), f"Bearer {token}".encode())


def _invalid(error: RequestValidationError) -> Response:
    detail = error.errors()[0]
    if detail["type"] == "json_invalid":
        return _error(400, "the body is not JSON", "invalid_request")
    field = ".".join(str(part) for part in detail["loc"] if part != "body")
    message = f"{field}: {detail['msg']}" if field else str(detail["msg"])
    return _error(400, message, "invalid_request", field or None)


def _failure(error: Exception) -> Response:
    if not isinstance(error, FlywheelError):
        return _error(500, f"unexpected {type(error).__name__}: {error}", "engine_failed")
    if isinstance(error, ContextExceeded):
        return _error(400, str(error), "context_length_exceeded", "messages")
    if isinstance(error, InputError):
        return _error(404, str(error), "model_not_found", "model")
    return _error(503 if isinstance(error, InfrastructureError) else 500, str(error), "engine_failed")


def _error(status: int, message: str, code: str, param: str | None = None) -> JSONResponse:
    kind = "invalid_request_error" if status < 500 else "server_error"
    return JSONResponse({"error": {"message": message, "type": kind, "param": param, "code": code}}, status)


def _usage(completion: Completion) -> dict[str, int]:
    return {
        "prompt_tokens": completion.prompt_tokens,
        "completion_tokens": completion.completion_tokens,
        "total_tokens": completion.prompt_tokens + completion.completion_tokens,
    }


def _whole(completion: Completion, model: str, identity: str) -> dict[str, Any]:
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": completion.text},
        "finish_reason": completion.finish_reason,
        "stop_reason": completion.stop or None,
        "logprobs": None,
    }
    return {
        "id": identity, "object": "chat.completion", "created": int(time.time()), "model": model,
        "system_fingerprint": completion.model, "choices": [choice], "usage": _usage(completion),
    }  # fmt: skip


async def _stream(completion: Completion, model: str, identity: str, usage: bool) -> AsyncIterator[str]:
    """The completion as server-sent events. The engine answers whole completions, so the text comes in one piece."""
    frame: dict[str, Any] = {
        "id": identity, "object": "chat.completion.chunk", "created": int(time.time()), "model": model,
        "system_fingerprint": completion.model,
    }  # fmt: skip
    deltas: list[tuple[dict[str, str], str | None]] = [
        ({"role": "assistant", "content": ""}, None),
        ({"content": completion.text}, None),
        ({}, completion.finish_reason),
    ]
    for delta, reason in deltas:
        choice = {"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}
        yield f"data: {json.dumps({**frame, 'choices': [choice]})}\n\n"
    if usage:
        yield f"data: {json.dumps({**frame, 'choices': [], 'usage': _usage(completion)})}\n\n"
    yield "data: [DONE]\n\n"
