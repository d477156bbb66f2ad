"""The engine `llamacpp`: llama.cpp's server in this process (xllamacpp), for GGUF models on a CPU.

llama.cpp keeps keys and values by slot, and would hand one adapter's to another: here every model, the base and each
adapter, has its own slots, and the cache that moves prompts between slots is off. A request names its adapter's scale
and a zero for all others, since a request that names none has all of them on. Prompts are rendered and tokenised by us,
so that they are, token by token, what training saw.
"""

import os
import secrets
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flywheel.base_model import base_hash, load_tokenizer, resolve_folder, resolve_gguf, resolve_tokenizer
from flywheel.chat import request_ids
from flywheel.config import EngineConfig
from flywheel.engines import Completion, CompletionRequest, TokenLogprob, Watch
from flywheel.errors import Cancelled, ContextExceeded, DataError, InfrastructureError, InputError
from flywheel.records import BASE
from flywheel.workspace import processors

from .adapters import check_base, check_fit, read_adapter, shapes_of
from .gguf_lora import gguf_lora
from .names import listed, resolve_model

_POLL = 0.1
"""Seconds between two looks at whether a waiting request was cancelled."""


def open_engine(config: EngineConfig, adapters: dict[str, Path]) -> "LlamaCppEngine":
    """Load a GGUF model and adapters.

    Raises:
        InputError: when the model is no GGUF file, or xllamacpp is not installed.
        DataError: when an adapter belongs to another base or is damaged.
        InfrastructureError: when llama.cpp cannot load it.
    """
    return LlamaCppEngine(resolve_gguf(config.model), config, adapters)


class LlamaCppEngine:
    """Completes messages with llama.cpp: one copy of the base, and for each model some slots of its own."""

    def __init__(self, model: Path, config: EngineConfig, adapters: Mapping[str, Path]) -> None:
        # OpenMP's busy waiting starves decoding as soon as another process wants a core; it is read at import.
        os.environ.setdefault("GOMP_SPINCOUNT", "2000")
        self._gguf = model
        self._config = config
        original = config.original or str(model)
        self._tokenizer = load_tokenizer(resolve_tokenizer(original))
        self._original = original
        self._files: dict[str, Path] = {}
        """GGUF files of the adapters that are loaded, by name."""
        self._server: _Server | None = _Server(model, config, self._checked(adapters), self._tokenizer)

    def models(self) -> tuple[str, ...]:
        """The base, each role, and each version."""
        return listed(self._server.adapters) if self._server else ()

    def complete(self, request: CompletionRequest, watch: Watch | None = None) -> Completion:
        """See Engine."""
        server, watch = self._server, watch or Watch()
        if server is None:
            raise InfrastructureError("the engine is closed")
        model = resolve_model(request.model, server.adapters)
        ids = request_ids(self._tokenizer, request.messages, request.prompt, self._config.context)
        with server.slot(model, request.session, ids, watch) as slot:
            return server.complete(request, ids, model, slot, watch)

    def load(self, adapters: Mapping[str, Path]) -> None:
        """See Engine. llama.cpp loads adapters with the model only: a second server takes over, on the same weights."""
        if self._server is None:
            raise InfrastructureError("the engine is closed")
        self._server = _Server(self._gguf, self._config, self._checked(adapters), self._tokenizer)

    def close(self) -> None:
        """Free the model, once the requests that it is answering are done."""
        self._server = None

    def _checked(self, adapters: Mapping[str, Path]) -> dict[str, Path]:
        """GGUF files of adapters that fit the base; those that are loaded already are not looked at again."""
        files = {name: self._files[name] for name in adapters if name in self._files}
        if new := {name: path for name, path in adapters.items() if name not in files}:
            folder = resolve_folder(self._original)
            check_base(new, base_hash(folder), self._original)
            shapes = shapes_of(folder)
            for name, path in new.items():
                weights = read_adapter(path, name)
                check_fit(weights, shapes)
                files[name] = gguf_lora(weights, path / "adapter_model.safetensors", self._gguf)
        self._files = files
        return files


class _Server:
    """A server of llama.cpp with the adapters that it was started with."""

    def __init__(self, model: Path, config: EngineConfig, adapters: Mapping[str, Path], tokenizer: Any) -> None:
        try:
            import xllamacpp
        except ImportError as error:
            raise InputError("the engine llamacpp needs xllamacpp: pip install 'flywheel-lora[llamacpp]'") from error

        self.adapters = tuple(adapters)
        self._tokenizer = tokenizer
        self._timeout = config.timeout
        names = (BASE, *adapters)
        slots = max(1, config.batch // len(names))
        threads = config.threads or processors()
        parameters = xllamacpp.CommonParams()
        parameters.model.path = str(model)
        parameters.n_ctx = config.context * slots * len(names)
        parameters.n_parallel = slots * len(names)
        parameters.cpuparams.n_threads = threads
        parameters.cpuparams_batch.n_threads = threads
        parameters.lora_adapters = [xllamacpp.CommonAdapterLoraInfo(str(file), 1.0) for file in adapters.values()]
        parameters.cache_ram_mib = 0  # it would hand one adapter's keys and values to another
        parameters.slot_prompt_similarity = 0.0
        parameters.verbosity = 0
        parameters.port = 0
        parameters.api_keys = [secrets.token_hex(16)]  # it listens on the loopback device as well, which nobody needs
        try:
            self._server: Any = xllamacpp.Server(parameters)
        except RuntimeError as error:
            raise InfrastructureError(f"llama.cpp cannot load {model.name}: {error}") from error
        self._free = {name: list(range(place * slots, (place + 1) * slots)) for place, name in enumerate(names)}
        self._read: dict[int, tuple[str, Sequence[int]]] = {}
        """Session and prompt that a slot has read last; the keys and values of its beginning can be used again."""
        self._freed = threading.Condition()

    @contextmanager
    def slot(self, model: str, session: str, ids: Sequence[int], watch: Watch) -> Iterator[int]:
        """A slot of the model's own; waits for one as long as a call may take.

        A session goes on in the slot that it had, or takes the one that has rested longest. A request without one takes
        the slot that has read most of its prompt.
        """
        deadline = time.monotonic() + self._timeout
        with self._freed:
            while not (free := self._free[model]):
                if watch.cancelled:
                    raise Cancelled("the request was cancelled")
                if time.monotonic() > deadline:
                    raise InfrastructureError(f"no slot of {model} was free within {self._timeout:.0f} s")
                self._freed.wait(_POLL)
            chosen = max(free, key=lambda slot: self._suits(slot, session, ids))  # of equal ones the longest idle
            free.remove(chosen)
            self._read[chosen] = session, ids
        try:
            yield chosen
        finally:
            with self._freed:
                free.append(chosen)
                self._freed.notify_all()

    def _suits(self, slot: int, session: str, ids: Sequence[int]) -> int:
        """How much of a request a slot has read already, as far as it is meant to go on with it."""
        before, read = self._read.get(slot, ("", ()))
        return _common(read, ids) if before == session else 0

    def complete(
        self, request: CompletionRequest, ids: Sequence[int], model: str, slot: int, watch: Watch
    ) -> Completion:
        """Answer a request on a slot. It is streamed in any case, since only between two pieces can it be ended."""
        temperature = 0.0 if request.greedy else request.temperature
        body = {
            "prompt": list(ids), "max_tokens": request.max_tokens, "temperature": temperature,
            "top_k": 0, "top_p": request.top_p, "min_p": 0.0, "repeat_penalty": 1.0,
            "seed": request.seed & 0x7FFFFFFF,  # all 32 ones would mean a random one
            "stop": list(request.stop), "cache_prompt": True, "stream": True, "id_slot": slot,
            "stream_options": {"include_usage": True},
            "lora": [{"id": id, "scale": float(name == model)} for id, name in enumerate(self.adapters)],
        }  # fmt: skip
        if request.logprobs is not None:
            body["logprobs"] = max(1, request.logprobs)
        reply = _Reply(request, watch, self._tokenizer)
        try:
            self._server.handle_completions(body, reply.take)
        except (RuntimeError, ValueError) as error:  # some errors are raised, others returned
            raise _failure(str(error)) from error
        if watch.cancelled:
            raise Cancelled("the request was cancelled")
        return reply.completion(model)


def _common(first: Sequence[int], second: Sequence[int]) -> int:
    """How many tokens two prompts have in common from the start."""
    return next((place for place, (a, b) in enumerate(zip(first, second, strict=False)) if a != b),
                min(len(first), len(second)))  # fmt: skip


class _Reply:
    """Gathers a streamed reply."""

    def __init__(self, request: CompletionRequest, watch: Watch, tokenizer: Any) -> None:
        self._request = request
        self._tokenizer = tokenizer
        self._watch = watch
        self._text = ""
        self._reason = ""
        self._usage: dict[str, Any] = {}
        self._logprobs: list[TokenLogprob] = []
        self._error = ""

    def take(self, chunk: dict[str, Any]) -> bool:
        """One event; true ends the request."""
        if "error" in chunk or "choices" not in chunk:
            self._error = str(chunk.get("error", chunk))
            return True
        self._usage = chunk.get("usage") or self._usage
        for choice in chunk["choices"]:
            self._reason = choice.get("finish_reason") or self._reason
            text = choice.get("text") or ""
            self._text += text
            if text and self._watch.text:
                self._watch.text(text)
            for token in (choice.get("logprobs") or {}).get("content", ()):
                self._logprobs.append(_logprob(token, self._request.logprobs or 0, self._tokenizer))
        return self._watch.cancelled

    def completion(self, model: str) -> Completion:
        """The whole of it."""
        if self._error:
            raise _failure(self._error)
        if not self._reason:
            raise InfrastructureError("llama.cpp ended a reply without a reason")
        return Completion(
            text=self._text, finish_reason=self._reason, prompt_tokens=self._usage.get("prompt_tokens", 0),
            completion_tokens=self._usage.get("completion_tokens", 0), model=model,
            cached_tokens=(self._usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0,
            logprobs=tuple(self._logprobs) if self._request.logprobs is not None else (),
        )  # fmt: skip


def _logprob(token: Mapping[str, Any], top: int, tokenizer: Any) -> TokenLogprob:
    """As llama.cpp gives it, but with the tokens' texts as the tokenizer has them."""
    best = token.get("top_logprobs", ())[:top]
    return TokenLogprob(
        token=tokenizer.decode([token["id"]]),
        logprob=token["logprob"],
        top=tuple((tokenizer.decode([other["id"]]), other["logprob"]) for other in best),
    )


def _failure(message: str) -> Exception:
    if "exceed" in message and "context" in message:
        return ContextExceeded(message)
    if "lora" in message.lower():
        return DataError(f"llama.cpp refuses an adapter: {message[:300]}")
    return InfrastructureError(f"llama.cpp failed: {message[:300]}")
