"""The in-process engine: one base, all adapters, requests of all roles decoded together (continuous batching)."""

import threading
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from flywheel.base_model import base_hash, load_model, load_tokenizer, resolve_folder
from flywheel.chat import encode, prompt_ids, render, stop_ids
from flywheel.config import EngineConfig
from flywheel.engines import Completion, CompletionRequest
from flywheel.engines.scripted import cut_at_stop
from flywheel.errors import ContextExceeded, DataError, InfrastructureError, InputError
from flywheel.records import BASE
from flywheel.workspace import processors, read_card

from .lanes import ATTENTION, Lanes, LaneView, Prefix
from .multi_lora import LoraBank
from .names import resolve_model

_PREFIX_BYTES = 2 << 30
"""Memory for prefixes of conversations that may go on."""
_PREFILL_CHUNK = 512
"""Most new tokens of one sequence in one forward pass."""
_STOP_WINDOW = 24
"""Tokens at the end of a completion in which a stop text is looked for."""


@dataclass
class _Job:
    """A request on its way through the engine."""

    request: CompletionRequest
    model: str
    ids: list[int]
    """Prompt, then what was generated."""
    prompt_tokens: int
    generator: torch.Generator | None
    done: threading.Event = field(default_factory=threading.Event)
    completion: Completion | None = None
    error: Exception | None = None

    @property
    def generated(self) -> list[int]:
        return self.ids[self.prompt_tokens :]


def open_engine(config: EngineConfig, adapters: dict[str, Path]) -> "TransformersEngine":
    """Load the base and the adapters.

    Raises:
        InputError: when the base cannot be loaded.
        DataError: when an adapter belongs to another base or is damaged.
    """
    folder = resolve_folder(config.model)
    fingerprint = base_hash(folder)
    for name, path in adapters.items():
        card = read_card(path)
        if card.base_hash != fingerprint:
            raise DataError(f"{name} was trained on {card.base}, not on {config.model}: serve that base, or train it again")
    return TransformersEngine(load_model(folder, config.dtype), load_tokenizer(folder), adapters, config)


class TransformersEngine:
    """Completes messages with a transformers model of the Llama or Qwen2 kind.

    Each sequence has a lane of the key/value cache. One thread serves all lanes: it fills free lanes with waiting
    requests (starting from the longest prefix it knows) and then generates one token for every lane at once.
    """

    def __init__(self, model: Any, tokenizer: Any, adapters: dict[str, Path], config: EngineConfig) -> None:
        windows = set(getattr(model.config, "layer_types", None) or ["full_attention"])
        if windows != {"full_attention"}:
            raise InputError(f"{config.model} uses {', '.join(sorted(windows))}; the engine transformers cannot serve it")
        if not torch.cuda.is_available():
            torch.set_num_threads(config.threads or processors())
        model.set_attn_implementation(ATTENTION)
        self._model = model.eval()
        self._tokenizer = tokenizer
        self._bank = LoraBank(model, adapters)
        self._stop_ids = stop_ids(tokenizer, model.generation_config)
        self._context = min(config.context, model.config.max_position_embeddings)
        self._device = model.device
        self._lanes = Lanes(model.config, config.batch, self._context, model.dtype, self._device)
        self._batch = config.batch
        self._prefixes: OrderedDict[tuple[str, str], Prefix] = OrderedDict()
        self._waiting: deque[_Job] = deque()
        self._active: list[_Job] = []
        self._wake = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name="engine", daemon=True)
        self._thread.start()

    def models(self) -> tuple[str, ...]:
        """The base, each role, and each version."""
        roles = dict.fromkeys(name.partition("@")[0] for name in self._bank.names)
        return (BASE, *roles, *self._bank.names)

    def complete(self, request: CompletionRequest) -> Completion:
        """See Engine."""
        model = resolve_model(request.model, self._bank.names)
        ids = prompt_ids(self._tokenizer, request.messages)
        if len(ids) >= self._context:
            raise ContextExceeded(f"the prompt has {len(ids)} tokens, the context is {self._context} (engine.context)")
        generator = torch.Generator().manual_seed(request.seed) if request.temperature > 0 else None
        job = _Job(request, model, ids, len(ids), generator)
        with self._wake:
            if self._closed:
                raise InfrastructureError("the engine is closed")
            self._waiting.append(job)
            self._wake.notify()
        job.done.wait()
        if job.error or job.completion is None:
            raise InfrastructureError(f"the engine failed: {job.error}") from job.error
        return job.completion

    def close(self) -> None:
        """Stop the engine's thread; waiting requests fail."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join(timeout=30)

    def _serve(self) -> None:
        while True:
            with self._wake:
                while not self._waiting and not self._active and not self._closed:
                    self._wake.wait()
                jobs = [*self._active, *self._waiting]
                if self._closed:
                    self._fail(jobs, InfrastructureError("the engine was closed"))
                    return
                admitted = [self._waiting.popleft() for _ in range(min(len(self._waiting), self._batch - len(self._active)))]
            try:
                with torch.inference_mode():
                    if admitted:
                        self._prefill(admitted)
                    if self._active:
                        self._decode()
            except Exception as error:  # a broken batch must not end the engine; its requests are told
                self._fail([*self._active, *admitted], error)
                self._active.clear()

    def _fail(self, jobs: list[_Job], error: Exception) -> None:
        for job in jobs:
            job.error = error
            job.done.set()

    def _prefill(self, jobs: list[_Job]) -> None:
        """Read prompts into lanes, several of similar length at a time, and sample each one's first token."""
        first = len(self._active)
        self._active.extend(jobs)
        known: dict[int, int] = {}
        for lane, job in enumerate(jobs, start=first):
            known[lane] = self._restore(lane, job)
        logits: dict[int, Tensor] = {}
        lanes = sorted(known, key=lambda lane: len(self._active[lane].ids) - known[lane])
        while lanes:
            shortest = len(self._active[lanes[0]].ids) - known[lanes[0]]
            count = sum(len(self._active[lane].ids) - known[lane] <= 1.3 * shortest + 16 for lane in lanes)
            group, lanes = lanes[:count], lanes[count:]
            logits.update(self._read(group, known))
        for lane, job in enumerate(jobs, start=first):
            self._keep_system_prompt(lane, job)
        self._append(torch.stack([logits[lane] for lane in sorted(logits)]), first)

    def _restore(self, lane: int, job: _Job) -> int:
        """Load the longest known prefix; at least one token is always left to read."""
        candidates = [(job.model, f"session:{job.request.session}"), (job.model, f"system:{job.request.messages[0].content}")]
        best, length = None, 0
        for key in candidates:
            if prefix := self._prefixes.get(key):
                self._prefixes.move_to_end(key)
                common = min(prefix.common(job.ids), len(job.ids) - 1)
                if common > length:
                    best, length = prefix, common
        if best:
            self._lanes.load(lane, best, length)
        return length

    def _read(self, lanes: list[int], known: dict[int, int]) -> dict[int, Tensor]:
        """Forward the unknown part of prompts; returns each lane's logits after its last token."""
        self._bank.choose([self._active[lane].model for lane in lanes])
        rows = torch.tensor(lanes, device=self._device)
        starts = torch.tensor([known[lane] for lane in lanes], device=self._device)
        new = [self._active[lane].ids[known[lane] :] for lane in lanes]
        logits: dict[int, Tensor] = {}
        for offset in range(0, max(map(len, new)), _PREFILL_CHUNK):
            chunk = [ids[offset : offset + _PREFILL_CHUNK] for ids in new]
            length = max(map(len, chunk))
            ids = torch.tensor([part + [0] * (length - len(part)) for part in chunk], device=self._device)
            positions = (starts[:, None] + offset + torch.arange(length, device=self._device)).clamp(max=self._context - 1)
            width = int(positions.max()) + 1
            mask = torch.arange(width, device=self._device) <= positions[:, None, :, None]
            view = LaneView(self._lanes, rows, positions, width)
            hidden = self._model.model(
                input_ids=ids, position_ids=positions, attention_mask=mask, cache=view, use_cache=True
            ).last_hidden_state
            last = torch.tensor([max(len(part) - 1, 0) for part in chunk], device=self._device)
            scores = self._model.lm_head(hidden[torch.arange(len(lanes), device=self._device), last]).float()
            for row, (lane, part, ids_left) in enumerate(zip(lanes, chunk, new, strict=True)):
                if part and offset + len(part) == len(ids_left):
                    logits[lane] = scores[row]
        return logits

    def _decode(self) -> None:
        """Generate one token for every lane."""
        jobs = self._active
        self._bank.choose([job.model for job in jobs])
        positions = torch.tensor([[len(job.ids) - 1] for job in jobs], device=self._device)
        width = int(positions.max()) + 1
        mask = torch.arange(width, device=self._device) <= positions[:, None, :, None]
        view = LaneView(self._lanes, None, positions, width)
        ids = torch.tensor([[job.ids[-1]] for job in jobs], device=self._device)
        hidden = self._model.model(
            input_ids=ids, position_ids=positions, attention_mask=mask, cache=view, use_cache=True
        ).last_hidden_state
        self._append(self._model.lm_head(hidden[:, -1]).float(), 0)

    def _append(self, logits: Tensor, first: int) -> None:
        """Sample a token for each lane from `first` on, and finish the lanes that have ended."""
        greedy = logits.argmax(-1).tolist()
        for row, job in enumerate(self._active[first:]):
            job.ids.append(greedy[row] if job.generator is None else _sample(logits[row], job))
        for lane in range(len(self._active) - 1, first - 1, -1):
            if completion := self._completion(self._active[lane]):
                self._finish(lane, completion)

    def _completion(self, job: _Job) -> Completion | None:
        """The completion, if it has ended."""
        ended = job.ids[-1] in self._stop_ids
        count = len(job.generated) - ended
        tail = self._tokenizer.decode(job.generated[:count][-_STOP_WINDOW:])
        stopped = not ended and any(stop in tail for stop in job.request.stop)
        if not ended and not stopped and count < job.request.max_tokens and len(job.ids) < self._context:
            return None
        text, stop = cut_at_stop(self._tokenizer.decode(job.generated[:count]), job.request.stop)
        return Completion(
            text=text, finish_reason="stop" if ended or stopped else "length", prompt_tokens=job.prompt_tokens,
            completion_tokens=len(job.generated), model=job.model, stop=stop,
        )  # fmt: skip

    def _finish(self, lane: int, completion: Completion) -> None:
        """Answer a request, keep its sequence for the session's next one, and close the gap in the lanes."""
        job = self._active[lane]
        if job.request.session:
            # The last token was sampled but never read, so the lane does not hold it.
            prefix = self._lanes.save(lane, job.model, job.ids[:-1])
            self._remember((job.model, f"session:{job.request.session}"), prefix)
        last = len(self._active) - 1
        if lane != last:
            self._lanes.move(last, lane, len(self._active[last].ids))
            self._active[lane] = self._active[last]
        self._active.pop()
        job.completion = completion
        job.done.set()

    def _keep_system_prompt(self, lane: int, job: _Job) -> None:
        key = (job.model, f"system:{job.request.messages[0].content}")
        if key in self._prefixes or job.request.messages[0].role != "system":
            return
        system = encode(self._tokenizer, render(self._tokenizer, job.request.messages[:1], generate=False))
        if system == job.ids[: len(system)]:
            self._remember(key, self._lanes.save(lane, job.model, system))

    def _remember(self, key: tuple[str, str], prefix: Prefix) -> None:
        self._prefixes[key] = prefix
        self._prefixes.move_to_end(key)
        while sum(kept.bytes for kept in self._prefixes.values()) > _PREFIX_BYTES:
            self._prefixes.popitem(last=False)


def _sample(logits: Tensor, job: _Job) -> int:
    """Draw a token with the request's own seed, so that a batch's other rows do not matter."""
    probabilities = (logits / job.request.temperature).softmax(-1).cpu()
    return int(torch.multinomial(probabilities, 1, generator=job.generator))
