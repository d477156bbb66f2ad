"""The engine `openai`: any server that speaks OpenAI's chat completions, ours included."""

import contextlib
import itertools
import json
import os
import random
import re
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
from pydantic import ValidationError

from flywheel.config import EngineConfig
from flywheel.engines import Completion, CompletionRequest, TokenLogprob, Watch
from flywheel.errors import Cancelled, ContextExceeded, InfrastructureError, InputError, UnknownModel
from flywheel.records import BASE

_CONNECTIONS = 256
WARNING_HEADER = "X-Flywheel-Warning"
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
    key = os.environ.get(config.api_key_env, "").strip()
    engine = OpenAIEngine(config.url, key, config.timeout, model=config.model, names=config.names)
    try:
        engine.refresh_models()
    except BaseException:
        engine.close()
        raise
    return engine


class OpenAIEngine:
    """Sends requests over HTTP.

    Roles that the server does not list are played by the configured model, `base`, or a plain server's only model.

    Args:
        names: the server's name for a role or a version, where it is another.
    """

    def __init__(self, url: str, key: str, timeout: float, model: str, names: Mapping[str, str] | None = None) -> None:
        self._url = url.rstrip("/")
        self._model = model
        self._names = dict(names or {})
        self._timeout = timeout
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        limits = httpx.Limits(max_connections=_CONNECTIONS, max_keepalive_connections=_CONNECTIONS)
        self._client = httpx.Client(headers=headers, timeout=httpx.Timeout(timeout, connect=10.0), limits=limits)
        self._models: tuple[str, ...] = ()
        self.histories: dict[str, str] = {}
        """See KnowsTraining; Flywheel's own gateway tells."""

    def refresh_models(self) -> None:
        """Ask the server what it serves."""
        reply = self._send("GET", "/models")
        try:
            self._models = tuple(str(model["id"]) for model in reply["data"])
            cards = {str(model["id"]): model.get("card") or {} for model in reply["data"]}
            self.histories = {name: card["history"] for name, card in cards.items() if "history" in card}
        except (KeyError, TypeError, AttributeError) as error:
            raise InfrastructureError(f"{self._url}/models does not answer like an OpenAI server") from error
        if not self._models:
            raise InputError(f"{self._url} serves no model")

    def models(self) -> tuple[str, ...]:
        """What the server lists."""
        return self._models

    def complete(self, request: CompletionRequest, watch: Watch | None = None) -> Completion:
        """See Engine."""
        path, body = "/chat/completions" if request.messages else "/completions", self._body(request)
        if watch:
            return self._streamed(path, body, request, watch)
        reply = self._send("POST", path, body)
        try:
            choice, usage = reply["choices"][0], reply.get("usage") or {}
            text = choice["message"].get("content") if request.messages else choice["text"]
            return _completion(request, text or "", choice, usage, reply, _logprobs(choice))
        except (KeyError, IndexError, TypeError, AttributeError, ValidationError) as error:
            raise InfrastructureError(f"{self._url} sent a reply without a completion: {str(reply)[:200]}") from error

    def load(self, adapters: Mapping[str, Path]) -> None:
        """The server holds its own adapters; ask it which."""
        self.refresh_models()

    def _body(self, request: CompletionRequest) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._served_name(request.model),
            "max_tokens": request.max_tokens,
            "temperature": 0.0 if request.greedy else request.temperature,
            "seed": request.seed,
        }
        if request.messages:
            body["messages"] = [message.model_dump() for message in request.messages]
        else:
            body["prompt"] = request.prompt
        if request.top_p < 1:
            body["top_p"] = request.top_p
        if request.stop:
            body["stop"] = list(request.stop)
        if request.session:
            body["prompt_cache_key"] = request.session
        if request.logprobs is not None:
            chat = {"logprobs": True, "top_logprobs": request.logprobs}
            body |= chat if request.messages else {"logprobs": request.logprobs}
        return body

    def _streamed(self, path: str, body: dict[str, Any], request: CompletionRequest, watch: Watch) -> Completion:
        """Take a completion piece by piece; the connection is cut as soon as it is no longer wanted."""
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        text = ""
        logprobs: list[TokenLogprob] = []
        last: dict[str, Any] = {}
        usage: dict[str, Any] = {}
        frame: dict[str, Any] = {}
        try:
            with contextlib.closing(self._patiently("POST", path, body, stream=True)) as reply:
                if not reply.is_success:
                    reply.read()
                    raise self._refusal(reply, "POST", path)
                self._warn(reply)
                watch.on_cancel(lambda: _cut(reply))
                for frame in _events(reply):
                    usage = frame.get("usage") or usage
                    for choice in frame["choices"]:
                        piece = (choice["delta"].get("content") if request.messages else choice["text"]) or ""
                        text, last = text + piece, choice if choice.get("finish_reason") else last
                        logprobs += _logprobs(choice)
                        if piece and watch.text:
                            watch.text(piece)
            if watch.cancelled:
                raise Cancelled("the request was cancelled")
            if not last:
                raise InfrastructureError(f"{self._url} ended a completion without a reason")
            return _completion(request, text, last, usage, frame, logprobs)
        except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
            raise InfrastructureError(f"{self._url} sent an odd event: {str(frame)[:200]}") from error
        except httpx.HTTPError as error:
            if watch.cancelled:
                raise Cancelled("the request was cancelled") from error
            raise InfrastructureError(f"{self._url} broke off: {error or type(error).__name__}") from error
        finally:
            watch.on_cancel(None)

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def _patiently(self, method: str, path: str, body: dict[str, Any] | None, stream: bool = False) -> httpx.Response:
        """Send, and send again while the server says that it is full, for as long as one call may take."""
        deadline = time.monotonic() + self._timeout
        for attempt in itertools.count():
            try:
                request = self._client.build_request(method, self._url + path, json=body)
                reply = self._client.send(request, stream=stream)
            except httpx.HTTPError as error:
                raise InfrastructureError(f"no answer from {self._url}: {error or type(error).__name__}") from error
            wait = _wait(reply, attempt)
            if reply.status_code not in (429, 503) or time.monotonic() + wait > deadline:
                return reply
            reply.close()
            time.sleep(wait)
        raise AssertionError

    def _served_name(self, model: str) -> str:
        if model in self._names:
            return self._names[model]
        if model in self._models:
            return model
        if model != BASE and "@" in model:
            raise UnknownModel(f"{self._url} does not serve {model}; it serves {', '.join(self._models)}")
        if self._model in self._models:
            return self._model
        if BASE in self._models:
            return BASE
        if len(self._models) == 1:
            return self._models[0]
        raise InputError(f"{self._url} serves {', '.join(self._models)}; say which to use with -o engine.model=NAME")

    def _send(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        reply = self._patiently(method, path, body)
        if not reply.is_success:
            raise self._refusal(reply, method, path)
        self._warn(reply)
        try:
            return reply.json()
        except ValueError as error:
            raise InfrastructureError(f"{self._url}{path} did not send JSON") from error

    def _refusal(self, reply: httpx.Response, method: str, path: str) -> Exception:
        detail = _error_detail(reply)
        text = f"{detail.get('code')} {detail.get('type')} {detail.get('message')}"
        if reply.status_code in (400, 413, 422) and _TOO_LONG.search(text):
            return ContextExceeded(_one_line(str(detail.get("message"))))
        message = (
            f"{self._url}{path} answered {reply.status_code}: {_one_line(str(detail.get('message') or reply.text))}"
        )
        if reply.status_code == 404 and path == "/models" and not self._url.endswith("/v1"):
            message += f"; did you mean {self._url}/v1?"
        if reply.status_code in (401, 403) or (method == "GET" and reply.status_code < 500):
            return InputError(message)
        return InfrastructureError(message)

    def _warn(self, reply: httpx.Response) -> None:
        """Flywheel's gateway says so when a role is asked in another way than it was trained for."""
        if warning := reply.headers.get(WARNING_HEADER):
            raise InputError(warning)


def _completion(
    request: CompletionRequest, text: str, choice: Mapping[str, Any], usage: Mapping[str, Any],
    reply: Mapping[str, Any], logprobs: list[TokenLogprob],
) -> Completion:  # fmt: skip
    return Completion(
        text=text, finish_reason=choice.get("finish_reason") or "stop", prompt_tokens=usage.get("prompt_tokens", 0),
        completion_tokens=usage.get("completion_tokens", 0),
        cached_tokens=(usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0,
        stop=_stop_text(dict(choice)), logprobs=tuple(logprobs),
        model=str(reply.get("system_fingerprint") or reply.get("model") or request.model),
    )  # fmt: skip


def _logprobs(choice: Mapping[str, Any]) -> list[TokenLogprob]:
    """Those of a chat completion; the older format of plain completions is read as well."""
    found = choice.get("logprobs") or {}
    if "content" in found:
        return [
            TokenLogprob(
                token=token["token"],
                logprob=token["logprob"],
                top=tuple((other["token"], other["logprob"]) for other in token.get("top_logprobs") or ()),
            )
            for token in found["content"] or ()
        ]
    tops = found.get("top_logprobs") or itertools.repeat({})
    return [
        TokenLogprob(token=token, logprob=logprob, top=tuple(sorted(top.items(), key=lambda pair: -pair[1])))
        for token, logprob, top in zip(found.get("tokens", ()), found.get("token_logprobs", ()), tops, strict=False)
    ]


def _events(reply: httpx.Response) -> Iterator[dict[str, Any]]:
    """The JSON of server-sent events, up to [DONE]."""
    for line in reply.iter_lines():
        data = line.removeprefix("data:").strip()
        if not line.startswith("data:") or not data:
            continue
        if data == "[DONE]":
            return
        event = json.loads(data)
        if "error" in event:
            raise InfrastructureError(f"the server failed in the middle: {_one_line(str(event['error']))}")
        yield event


def _cut(reply: httpx.Response) -> None:
    """End a connection that another thread is reading from."""
    stream = reply.extensions.get("network_stream")
    with contextlib.suppress(OSError, AttributeError):
        stream.get_extra_info("socket").shutdown(socket.SHUT_RDWR)  # type: ignore[union-attr]


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
