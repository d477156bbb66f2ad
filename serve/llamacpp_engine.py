"""The engine `llamacpp`: llama.cpp's server in this process (xllamacpp), for GGUF models on a CPU."""

import os
from pathlib import Path
from typing import Any

from flywheel.base_model import resolve_gguf
from flywheel.config import EngineConfig
from flywheel.engines import Completion, CompletionRequest
from flywheel.errors import ContextExceeded, InfrastructureError, InputError
from flywheel.records import BASE
from flywheel.workspace import ROLES, processors

_PROMPT_CACHE_MIB = 2048


def open_engine(config: EngineConfig, adapters: dict[str, Path]) -> "LlamaCppEngine":
    """Load a GGUF model.

    Raises:
        InputError: when the model is no GGUF file, or adapters are asked for.
        InfrastructureError: when llama.cpp cannot load it.
    """
    if adapters:
        raise InputError("the engine llamacpp serves no adapters yet; use -o engine.kind=transformers for them")
    return LlamaCppEngine(resolve_gguf(config.model), config)


class LlamaCppEngine:
    """Completes messages with llama.cpp. It renders messages itself, by the chat template in the GGUF file."""

    def __init__(self, model: Path, config: EngineConfig) -> None:
        # OpenMP's busy waiting starves decoding as soon as another process wants a core; it is read at import.
        os.environ.setdefault("GOMP_SPINCOUNT", "2000")
        import xllamacpp

        threads = config.threads or processors()
        parameters = xllamacpp.CommonParams()
        parameters.model.path = str(model)
        parameters.n_ctx = config.context * config.batch
        parameters.n_parallel = config.batch
        parameters.cpuparams.n_threads = threads
        parameters.cpuparams_batch.n_threads = threads
        # Prompts of agents that wait for others are kept in memory. Safe while there are no adapters: this cache would
        # hand one adapter's keys and values to another.
        parameters.cache_ram_mib = _PROMPT_CACHE_MIB
        parameters.verbosity = 0
        parameters.port = 0
        try:
            self._server: Any = xllamacpp.Server(parameters)
        except RuntimeError as error:
            raise InfrastructureError(f"llama.cpp cannot load {model.name}: {error}") from error
        self._context = config.context

    def models(self) -> tuple[str, ...]:
        """The base only."""
        return (BASE,)

    def complete(self, request: CompletionRequest) -> Completion:
        """See Engine."""
        if request.model not in (BASE, *ROLES):
            raise InputError(f"there is no model {request.model!r}; there is {BASE}")
        body = {
            "messages": [message.model_dump() for message in request.messages],
            "max_tokens": request.max_tokens, "temperature": request.temperature, "seed": request.seed,
            "stop": list(request.stop), "cache_prompt": True,
        }  # fmt: skip
        try:
            reply = self._server.handle_chat_completions(body)
        except (RuntimeError, ValueError) as error:  # some errors are raised, others returned
            raise _failure(str(error)) from error
        if "error" in reply or "choices" not in reply:
            raise _failure(str(reply.get("error", reply)))
        choice, usage = reply["choices"][0], reply["usage"]
        return Completion(
            text=choice["message"].get("content") or "", finish_reason=choice["finish_reason"],
            prompt_tokens=usage["prompt_tokens"], completion_tokens=usage["completion_tokens"], model=BASE,
        )  # fmt: skip

    def close(self) -> None:
        """Free the model."""
        self._server = None


def _failure(message: str) -> Exception:
    if "exceed" in message and "context" in message:
        return ContextExceeded(message)
    return InfrastructureError(f"llama.cpp failed: {message[:300]}")
