"""The engine `openai`: any server that speaks OpenAI's chat completions, ours included."""

import itertools
import os
import random
import re
import time
from pathlib import Path
from typing import Any

import httpx
from pydantic import ValidationError

from flywheel.config import EngineConfig
from flywheel.engines import Completion, CompletionRequest
from flywheel.errors import ContextExceeded, InfrastructureError, InputError
from flywheel.records import BASE

_CONNECTIONS = 256
_TOO_LONG = re.compile(r"context_length|exceed_context|context (length|size|window)|too many tokens", re.IGNORECASE)
"""How servers say that a conversation has outgrown the context."""


def open_engine(config: EngineConfig, adapters: dict[str, Path]) -> "OpenAIEngine":
    """Connect to a server.

    Args:
        adapters: not used: the server holds its own, and a request for a version that it lacks is refused.

    Raises:
        InfrastructureError: when the server does not answer.
        InputError: when it serves nothing, or refuses the key.
    """
    engine = OpenAIEngine(config.url, os.environ.get(config.api_key_env, ""), config.timeout, model=config.model)
    try:
        engine.refresh_models()
    except BaseException:
        engine.close()
        raise
    return engine


class OpenAIEngine:
    """Sends requests over HTTP.

    Roles that the server does not list are asked for under the configured model name, so that a plain server with one
    model plays all roles.
    """

    def __init__(self, url: str, key: str, timeout: float, model: str) -> None:
        self._url = url.rstrip("/")
        self._model = model
        self._timeout = timeout
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        limits = httpx.Limits(max_connections=_CONNECTIONS, max_keepalive_connections=_CONNECTIONS)
        self._client = httpx.Client(headers=headers, timeout=httpx.Timeout(timeout, connect=10.0), limits=limits)
        self._models: tuple[str, ...] = ()

    def refresh_models(self) -> None:
        """Ask the server what it serves."""
        reply = self._send("GET", "/models")
        try:
            self._models = tuple(str(model["id"]) for model in reply["data"])
        except (KeyError, TypeError) as error:
            raise InfrastructureError(f"{self._url}/models does not answer like an OpenAI server") from error
        if not self._models:
            raise InputError(f"{self._url} serves no model")

    def models(self) -> tuple[str, ...]:
        """What the server lists."""
        return self._models

    def complete(self, request: CompletionRequest) -> Completion:
        """See Engine."""
        body: dict[str, Any] = {
            "model": self._served_name(request.model),
            "messages": [message.model_dump() for message in request.messages],
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "seed": request.seed,
        }
        if request.stop:
            body["stop"] = list(request.stop)
        if request.session:
            body["prompt_cache_key"] = request.session
        reply = self._send("POST", "/chat/completions", body)
        try:
            choice, usage = reply["choices"][0], reply.get("usage") or {}
            served = str(reply.get("model") or request.model)
            return Completion(
                text=choice["message"].get("content") or "", finish_reason=choice.get("finish_reason") or "stop",
                prompt_tokens=usage.get("prompt_tokens", 0), completion_tokens=usage.get("completion_tokens", 0),
                model=str(reply.get("system_fingerprint") or served), stop=_stop_text(choice),
            )  # fmt: skip
        except (KeyError, IndexError, TypeError, AttributeError, ValidationError) as error:
            raise InfrastructureError(f"{self._url} sent a reply without a completion: {str(reply)[:200]}") from error

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def _patiently(self, method: str, path: str, body: dict[str, Any] | None) -> httpx.Response:
        """Send, and send again while the server says that it is full, for as long as one call may take."""
        deadline = time.monotonic() + self._timeout
        for attempt in itertools.count():
            try:
                reply = self._client.request(method, self._url + path, json=body)
            except httpx.HTTPError as error:
                raise InfrastructureError(f"no answer from {self._url}: {error or type(error).__name__}") from error
            wait = _wait(reply, attempt)
            if reply.status_code not in (429, 503) or time.monotonic() + wait > deadline:
                return reply
            time.sleep(wait)
        raise AssertionError

    def _served_name(self, model: str) -> str:
        if model in self._models:
            return model
        if model != BASE and "@" in model:
            raise InputError(f"{self._url} does not serve {model}; it serves {', '.join(self._models)}")
        if self._model in self._models:
            return self._model
        if len(self._models) == 1:
            return self._models[0]
        raise InputError(f"{self._url} serves {', '.join(self._models)}; say which to use with -o engine.model=NAME")

    def _send(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        reply = self._patiently(method, path, body)
        if reply.is_success:
            try:
                return reply.json()
            except ValueError as error:
                raise InfrastructureError(f"{self._url}{path} did not send JSON") from error
        detail = _error_detail(reply)
        text = f"{detail.get('code')} {detail.get('type')} {detail.get('message')}"
        if reply.status_code in (400, 413, 422) and _TOO_LONG.search(text):
            raise ContextExceeded(_one_line(str(detail.get("message"))))
        message = (
            f"{self._url}{path} answered {reply.status_code}: {_one_line(str(detail.get('message') or reply.text))}"
        )
        if reply.status_code in (401, 403) or (method == "GET" and reply.status_code < 500):
            raise InputError(message)
        raise InfrastructureError(message)


def _wait(reply: httpx.Response, attempt: int) -> float:
    """Seconds that a busy server asks to wait, or else longer each time; not the same for all who wait."""
    try:
        asked = float(reply.headers.get("Retry-After", ""))
    except ValueError:
        asked = min(0.5 * 2**attempt, 30.0)
    return max(0.0, asked) * random.uniform(1.0, 1.25)


def _one_line(text: str) -> str:
    """A foreign text, such as a page of HTML, short enough for an error."""
    return " ".join(text.split())[:200]


def _stop_text(choice: dict[str, Any]) -> str:
    """The stop text that ended a completion, where the server tells (vLLM and Flywheel do)."""
    reason = choice.get("stop_reason")
    return reason if isinstance(reason, str) else ""


def _error_detail(reply: httpx.Response) -> dict[str, Any]:
    try:
        error = reply.json()["error"]
    except (ValueError, KeyError, TypeError):
        return {}
    return error if isinstance(error, dict) else {"message": str(error)}
