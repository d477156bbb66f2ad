"""OpenAI's shapes: what clients send, and what they are sent."""

import json
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field, field_validator, model_validator

from flywheel.engines import Completion, CompletionRequest, TokenLogprob
from flywheel.records import Message

NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (1,), "best_of": (1,), "frequency_penalty": (0,), "presence_penalty": (0,), "logit_bias": ({},),
    "tools": ([],), "functions": ([],), "response_format": ({"type": "text"},), "echo": (False,), "suffix": ("",),
    "tool_choice": ("none", "auto"), "function_call": ("none", "auto"), "top_k": (-1, 0), "min_p": (0,),
    "typical_p": (1,), "repetition_penalty": (1,), "repeat_penalty": (1,), "length_penalty": (1,), "min_tokens": (0,),
    "ignore_eos": (False,), "stop_token_ids": ([],), "bad_words": ([],), "use_beam_search": (False,),
    "structured_outputs": ({},), "guided_json": (), "guided_regex": (), "guided_choice": (), "guided_grammar": (),
    "grammar": ("",), "continue_final_message": (False,), "add_generation_prompt": (True,), "chat_template": (),
    "chat_template_kwargs": ({},), "documents": ([],), "audio": (), "modalities": (["text"],), "prediction": (),
}  # fmt: skip
"""Fields that would change the answer and are not supported, with the values under which they change nothing."""


class ChatMessage(BaseModel):
    """A message as OpenAI clients send it; a list of text parts is joined."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str

    @field_validator("content", mode="before")
    @classmethod
    def _join_parts(cls, content: Any) -> Any:
        if isinstance(content, list):
            for part in content:
                if (
                    not isinstance(part, dict)
                    or part.get("type", "text") != "text"
                    or not isinstance(part.get("text"), str)
                ):
                    raise ValueError(f"only parts of type text can be read, found {part!r:.80}")
            return "".join(part["text"] for part in content)
        return "" if content is None else content

    @model_validator(mode="before")
    @classmethod
    def _refuse_calls(cls, message: Any) -> Any:
        if isinstance(message, dict):
            for name in ("tool_calls", "function_call"):
                if message.get(name):
                    raise ValueError(f"{name} is not supported")
        return message

    @field_validator("content")
    @classmethod
    def _is_text(cls, content: str) -> str:
        return _text(content)

    def record(self) -> Message:
        """The message in Flywheel's words."""
        return Message(role="system" if self.role == "developer" else self.role, content=self.content)


class _Request(BaseModel):
    """What both kinds of completion have; other fields are ignored, unless they would change the answer."""

    model: str
    max_tokens: int | None = Field(None, ge=1)
    temperature: float | None = Field(None, ge=0, le=10)
    top_p: float | None = Field(None, gt=0, le=1)
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    stop: str | list[str] | None = None
    stream: bool | None = False
    stream_options: dict[str, Any] | None = None
    prompt_cache_key: str | None = None

    @field_validator("stop")
    @classmethod
    def _are_texts(cls, stop: str | list[str] | None) -> list[str]:
        return [_text(text) for text in ([stop] if isinstance(stop, str) else stop or []) if text]

    @model_validator(mode="before")
    @classmethod
    def _refuse_unsupported(cls, body: Any) -> Any:
        if isinstance(body, dict):
            for name, harmless in NEUTRAL.items():
                if body.get(name) is not None and body[name] not in harmless:
                    raise ValueError(f"{name} is not supported")
        return body

    def asks_usage(self) -> bool:
        """Whether a stream ends with the count of tokens."""
        return bool((self.stream_options or {}).get("include_usage"))

    def _record(self, most: int, max_tokens: int | None, logprobs: int | None) -> CompletionRequest:
        return CompletionRequest(
            model=self.model, max_tokens=max_tokens or self.max_tokens or most,
            temperature=1.0 if self.temperature is None else self.temperature, top_p=self.top_p or 1.0,
            seed=uuid.uuid4().int & 0x7FFFFFFF if self.seed is None else self.seed,
            stop=tuple(self.stop or ()), session=self.prompt_cache_key or "", logprobs=logprobs,
        )  # fmt: skip


class ChatRequest(_Request):
    """A chat completion."""

    messages: list[ChatMessage] = Field(min_length=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)

    def record(self, default_max_tokens: int) -> CompletionRequest:
        """The request in Flywheel's words."""
        logprobs = (self.top_logprobs or 0) if self.logprobs else None
        asked = self._record(default_max_tokens, self.max_completion_tokens, logprobs)
        return asked.model_copy(update={"messages": tuple(message.record() for message in self.messages)})


class TextRequest(_Request):
    """A plain completion of a text as it stands."""

    prompt: str
    logprobs: int | None = Field(None, ge=0, le=20)

    @field_validator("prompt", mode="before")
    @classmethod
    def _one_text(cls, prompt: Any) -> Any:
        return prompt[0] if isinstance(prompt, list) and len(prompt) == 1 else prompt

    @field_validator("prompt")
    @classmethod
    def _is_text(cls, prompt: str) -> str:
        return _text(prompt)

    def record(self, default_max_tokens: int) -> CompletionRequest:
        """The request in Flywheel's words."""
        return self._record(default_max_tokens, None, self.logprobs).model_copy(update={"prompt": self.prompt})


def _text(content: str) -> str:
    content.encode()  # half of a surrogate pair is no text; the error is a ValueError
    return content


class Frames:
    """The replies to one request, whole or in pieces.

    Args:
        asked: what the client sent; its model's name is echoed.
    """

    def __init__(self, asked: ChatRequest | TextRequest) -> None:
        self._chat = isinstance(asked, ChatRequest)
        self._usage = asked.asks_usage()
        kind = "chat.completion" if self._chat else "text_completion"
        self._base: dict[str, Any] = {
            "id": f"{'chatcmpl' if self._chat else 'cmpl'}-{uuid.uuid4().hex}",
            "object": f"{kind}.chunk" if self._chat and asked.stream else kind,
            "created": int(time.time()),
            "model": asked.model,
        }

    def whole(self, completion: Completion) -> dict[str, Any]:
        """The reply in one."""
        text = (
            {"message": {"role": "assistant", "content": completion.text}}
            if self._chat
            else {"text": completion.text}
        )  # fmt: skip
        choice = text | self._choice(completion.finish_reason, completion.logprobs)
        choice["stop_reason"] = completion.stop or None
        named = self._base | {"system_fingerprint": completion.model}
        return named | {"choices": [choice], "usage": _usage(completion)}

    def first(self) -> Iterator[str]:
        """What begins a stream."""
        if self._chat:
            yield self._event({"delta": {"role": "assistant", "content": ""}} | self._choice(None))

    def piece(self, text: str) -> str:
        """More of the text."""
        return self._event(({"delta": {"content": text}} if self._chat else {"text": text}) | self._choice(None))

    def last(self, completion: Completion) -> Iterator[str]:
        """The end of a stream: logprobs, why it ended, how many tokens, and that there is nothing more."""
        empty: dict[str, Any] = {"delta": {}} if self._chat else {"text": ""}
        choice = empty | self._choice(completion.finish_reason, completion.logprobs)
        yield self._event(choice | {"stop_reason": completion.stop or None}, completion.model)
        if self._usage:
            named = self._base | {"system_fingerprint": completion.model}
            yield f"data: {json.dumps(named | {'choices': [], 'usage': _usage(completion)})}\n\n"
        yield "data: [DONE]\n\n"

    def _choice(self, reason: str | None, logprobs: Sequence[TokenLogprob] = ()) -> dict[str, Any]:
        listed = (_chat_logprobs if self._chat else _text_logprobs)(logprobs) if logprobs else None
        return {"index": 0, "finish_reason": reason, "logprobs": listed}

    def _event(self, choice: dict[str, Any], model: str = "") -> str:
        named = self._base | ({"system_fingerprint": model} if model else {})
        return f"data: {json.dumps(named | {'choices': [choice]})}\n\n"


def _usage(completion: Completion) -> dict[str, Any]:
    return {
        "prompt_tokens": completion.prompt_tokens,
        "completion_tokens": completion.completion_tokens,
        "total_tokens": completion.prompt_tokens + completion.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": completion.cached_tokens},
    }


def _chat_logprobs(logprobs: Sequence[TokenLogprob]) -> dict[str, Any]:
    def entry(token: str, logprob: float) -> dict[str, Any]:
        return {"token": token, "logprob": logprob, "bytes": list(token.encode())}

    return {
        "content": [
            entry(one.token, one.logprob) | {"top_logprobs": [entry(token, value) for token, value in one.top]}
            for one in logprobs
        ],
        "refusal": None,
    }


def _text_logprobs(logprobs: Sequence[TokenLogprob]) -> dict[str, Any]:
    ends = [sum(len(one.token) for one in logprobs[:place]) for place in range(len(logprobs))]
    return {
        "tokens": [one.token for one in logprobs],
        "token_logprobs": [one.logprob for one in logprobs],
        "top_logprobs": [dict(one.top) for one in logprobs],
        "text_offset": ends,
    }


def error_body(status: int, message: str, code: str, param: str | None = None) -> dict[str, Any]:
    """An error in OpenAI's shape."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def error(
    status: int, message: str, code: str, param: str | None = None, headers: dict[str, str] | None = None
) -> JSONResponse:
    """The same as a reply."""
    return JSONResponse(error_body(status, message, code, param), status, headers)
