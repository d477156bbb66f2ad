"""The engine `vllm`: starts `vllm serve` with the adapters, keeps it running, and talks to it."""

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import httpx

from flywheel.base_model import base_hash, resolve_folder
from flywheel.config import EngineConfig
from flywheel.engines import Completion, CompletionRequest, Watch
from flywheel.errors import DataError, InfrastructureError, InputError
from flywheel.progress import waiting
from flywheel.records import BASE
from flywheel.workspace import ROLES

from . import guardian
from .adapters import check_base, read_adapter
from .names import listed, resolve_model
from .openai_engine import OpenAIEngine

RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""What --max-lora-rank takes."""
_START_TIMEOUT = 1800.0
"""Seconds that vLLM may take to start; it compiles, and reads the base."""
_RESTARTS = 3
"""How often a vLLM that ended by itself is started again."""


def open_engine(config: EngineConfig, adapters: dict[str, Path]) -> "VllmEngine":
    """Start vLLM.

    Raises:
        InputError: when vLLM is not installed, or the base cannot be found.
        DataError: when an adapter belongs to another base.
        InfrastructureError: when vLLM does not start; holds its last words.
    """
    return VllmEngine(config, adapters)


class VllmEngine:
    """Completes messages with a vLLM of its own, which ends when this process does."""

    def __init__(self, config: EngineConfig, adapters: Mapping[str, Path]) -> None:
        self._config = config
        self._folder = resolve_folder(config.model)
        self._checked(adapters)
        self._adapters = dict(adapters)
        self._starting = threading.Lock()
        self._restarts = 0
        self._log = Path(tempfile.mkdtemp(prefix="flywheel-vllm-")) / "log"
        self._start()

    def models(self) -> tuple[str, ...]:
        """The base, each role, and each version."""
        return listed(tuple(self._adapters))

    def complete(self, request: CompletionRequest, watch: Watch | None = None) -> Completion:
        """See Engine."""
        self._keep_running()
        name = resolve_model(request.model, tuple(self._adapters))
        seed = request.seed & 0x7FFFFFFF  # vLLM takes -1 for none
        try:
            completion = self._client.complete(request.model_copy(update={"model": name, "seed": seed}), watch)
        except InfrastructureError as error:
            if not self._has_ended():
                raise
            raise InfrastructureError(f"vllm has ended: {self._last_words()}") from error
        return completion.model_copy(update={"model": name})

    def load(self, adapters: Mapping[str, Path]) -> None:
        """See Engine. vLLM takes adapters while it runs; names carry versions, so that no cache is another's."""
        self._checked({name: path for name, path in adapters.items() if name not in self._adapters})
        for name, path in adapters.items():
            if name not in self._adapters:
                self._post("load_lora_adapter", {"lora_name": name, "lora_path": str(path.resolve())})
        before, self._adapters = self._adapters, dict(adapters)
        for name in before:
            if name not in adapters:
                self._post("unload_lora_adapter", {"lora_name": name})

    def close(self) -> None:
        """End vLLM."""
        if self._child.stdin:
            self._child.stdin.close()
        self._child.wait()
        self._client.close()
        shutil.rmtree(self._log.parent, ignore_errors=True)

    def _checked(self, adapters: Mapping[str, Path]) -> None:
        if not adapters:
            return
        check_base(adapters, base_hash(self._folder), self._config.model)
        for name, path in adapters.items():
            if read_adapter(path, name).rank > RANKS[-1]:
                raise DataError(f"{name} has a rank above {RANKS[-1]}, which vLLM does not serve")

    def _start(self) -> None:
        executable = shutil.which(self._config.vllm)
        if executable is None:
            raise InputError(
                f"there is no command {self._config.vllm!r}: install vLLM (in an environment of its own, if you like) "
                "and name it with engine.vllm"
            )
        key, port = secrets.token_hex(16), _free_port()
        environment = os.environ | {"VLLM_API_KEY": key, "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True"}
        command = [sys.executable, guardian.__file__, executable, *self._arguments(port)]
        with self._log.open("wb") as log:
            self._child = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, env=environment
            )
        self._headers = {"Authorization": f"Bearer {key}"}
        self._root = f"http://127.0.0.1:{port}"
        try:
            self._wait()
            self._client = OpenAIEngine(f"{self._root}/v1", key, self._config.timeout, model=BASE)
            self._client.refresh_models()
        except BaseException:
            self._child.stdin.close()  # type: ignore[union-attr]  # it is a pipe
            self._child.wait()
            raise

    def _arguments(self, port: int) -> list[str]:
        config, adapters = self._config, self._adapters
        modules = [json.dumps({"name": name, "path": str(path.resolve())}) for name, path in adapters.items()]
        rank = max([16, *(read_adapter(path, name).rank for name, path in adapters.items())])
        # room for the next version of every role beside the present ones
        count = max(len(adapters), len(ROLES)) + len(ROLES)
        return [
            "serve", str(self._folder), "--served-model-name", BASE, "--host", "127.0.0.1", "--port", str(port),
            "--max-model-len", str(config.context), "--max-num-seqs", str(config.batch), "--dtype", config.dtype,
            *(["--quantization", "bitsandbytes"] if config.quantize == "nf4" else []),
            "--enable-lora", "--max-loras", str(count), "--max-lora-rank", str(min(r for r in RANKS if r >= rank)),
            *(["--lora-modules", *modules] if modules else []),
            "--enable-prompt-tokens-details", *config.vllm_arguments,
        ]  # fmt: skip

    def _wait(self) -> None:
        deadline = time.monotonic() + _START_TIMEOUT
        with waiting("vllm is starting") as note:
            while time.monotonic() < deadline:
                if self._child.poll() is not None:
                    raise InfrastructureError(f"vllm did not start: {self._last_words()}")
                try:
                    if httpx.get(f"{self._root}/health", headers=self._headers, timeout=5).is_success:
                        return
                except httpx.HTTPError:
                    pass
                note(_tail(self._log, 1))
                time.sleep(0.2)
        raise InfrastructureError("vllm took too long to start")

    def _keep_running(self) -> None:
        with self._starting:
            if self._child.poll() is None:
                return
            words = self._last_words()
            if self._restarts >= _RESTARTS:
                raise InfrastructureError(f"vllm has ended {self._restarts + 1} times: {words}")
            self._restarts += 1
            self._client.close()
            self._start()

    def _has_ended(self) -> bool:
        """Whether it is gone; its end is known a moment after its last connection broke."""
        try:
            self._child.wait(timeout=2)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _post(self, path: str, body: dict[str, str]) -> None:
        self._keep_running()
        try:
            reply = httpx.post(f"{self._root}/v1/{path}", json=body, headers=self._headers, timeout=120)
        except httpx.HTTPError as error:
            raise InfrastructureError(f"vllm does not answer: {error or type(error).__name__}") from error
        if not reply.is_success:
            raise DataError(f"vllm refuses {body['lora_name']}: {' '.join(reply.text.split())[:300]}")
        self._client.refresh_models()

    def _last_words(self) -> str:
        """The last line of its output that tells something; a traceback ends in it."""
        return _tail(self._log, 40) or "it said nothing"


def _tail(log: Path, lines: int) -> str:
    """The last line with an error in it among so many, else the last one."""
    text = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-lines:]
    errors: Sequence[str] = [line for line in text if "Error" in line]
    return " ".join((errors or text or [""])[-1].split())[:300]


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port
