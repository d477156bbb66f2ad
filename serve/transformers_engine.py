"""The in-process engine: one base, all adapters, requests of all roles computed together (continuous batching)."""

import threading
from collections import OrderedDict, deque
from collections.abc import Callable
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
from flywheel.errors import ContextExceeded, DataError, FlywheelError, InfrastructureError, InputError
from flywheel.records import BASE
from flywheel.workspace import processors, read_card

from .lanes import ATTENTION, Feed, Lanes, LaneView, Prefix
from .multi_lora import LoraBank
from .names import resolve_model

_PREFIX_BYTES = 1 << 30
"""Memory for prefixes of conversations that may go on."""
_READ_TOKENS = 512
"""Most prompt tokens that are read in one step, so that sequences being generated do not wait long for it."""
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
    cached: int = 0
    """Tokens whose keys and values lie in the lane."""
    done: threading.Event = field(default_factory=threading.Event)
    completion: Completion | None = None
    error: Exception | None = None

    @property
    def generated(self) -> list[int]:
        return self.ids[self.prompt_tokens :]


def open_engine(config: EngineConfig, adapters: dict[str, Path]) -> "TransformersEngine":
    """Load the base and the adapters.

    Raises:
        InputError: when the base cannot be loaded, or is of a kind that cannot be served.
        DataError: when an adapter belongs to another base or is damaged.
    """
    folder = resolve_folder(config.model)
    fingerprint = base_hash(folder)
    for name, path in adapters.items():
        card = read_card(path)
        if card.base_hash != fingerprint:
            raise DataError(f"{name} was trained on {card.base}, and {config.model} has other weights: train it again")
    return TransformersEngine(lambda: load_model(folder, config.dtype), load_tokenizer(folder), adapters, config)


class TransformersEngine:
    """Completes messages with a transformers model of the Llama or Qwen2 kind.

    One thread does all computing. Each sequence has a lane of the key/value cache; in every step each lane takes either
    the next part of its prompt (after the longest prefix that is known) or the token it generated last.

    Args:
        load: makes the model. It is called on the engine's thread: a second thread that computes would give OpenMP more
            threads than cores, after which it no longer spins between operations and decoding takes twice as long.
    """

    def __init__(
        self, load: Callable[[], Any], tokenizer: Any, adapters: dict[str, Path], config: EngineConfig
    ) -> None:
        self._tokenizer = tokenizer
        self._adapters = tuple(adapters)
        self._prefixes: OrderedDict[tuple[str, str], Prefix] = OrderedDict()
        self._waiting: deque[_Job] = deque()
        self._active: list[_Job] = []
        self._wake = threading.Condition()
        self._closed = False
        loaded = threading.Event()
        failures: list[BaseException] = []

        def run() -> None:
            try:
                self._load(load(), adapters, config)
            except BaseException as error:
                failures.append(error)
            finally:
                loaded.set()
            if not failures:
                self._serve()

        self._thread = threading.Thread(target=run, name="engine", daemon=True)
        self._thread.start()
        loaded.wait()
        if failures:
            raise failures[0]

    def _load(self, model: Any, adapters: dict[str, Path], config: EngineConfig) -> None:
        kinds = set(getattr(model.config, "layer_types", None) or ["full_attention"])
        if kinds != {"full_attention"}:
            raise InputError(f"{config.model} uses {', '.join(sorted(kinds))}; the engine transformers cannot serve it")
        if not torch.cuda.is_available():
            torch.set_num_threads(config.threads or processors())
        model.set_attn_implementation(ATTENTION)
        self._model = model.eval()
        self._bank = LoraBank(model, adapters)
        self._stop_ids = stop_ids(self._tokenizer, model.generation_config)
        self._context = min(config.context, model.config.max_position_embeddings)
        self._lanes = Lanes(model.config, config.batch, self._context, model.dtype, model.device)
        self._batch = config.batch

    def models(self) -> tuple[str, ...]:
        """The base, each role, and each version."""
        roles = dict.fromkeys(name.partition("@")[0] for name in self._adapters)
        return (BASE, *roles, *self._adapters)

    def complete(self, request: CompletionRequest) -> Completion:
        """See Engine."""
        model = resolve_model(request.model, self._adapters)
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
        if isinstance(job.error, FlywheelError):
            raise job.error
        if job.completion is None:
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
                if self._closed:
                    self._fail([*self._active, *self._waiting], InfrastructureError("the engine was closed"))
                    return
                while self._waiting and len(self._active) < self._batch:
                    self._active.append(self._waiting.popleft())
                    self._restore(len(self._active) - 1)
            try:
                with torch.inference_mode():
                    self._step()
            except Exception as error:  # a broken batch must not end the engine; its requests are told
                self._fail(self._active, error)
                self._active.clear()

    def _fail(self, jobs: list[_Job], error: Exception) -> None:
        for job in jobs:
            job.error = error
            job.done.set()

    def _step(self) -> None:
        """Compute the next tokens of every lane, and sample for those whose prompt has been read."""
        feeds = []
        room = _READ_TOKENS
        for lane, job in enumerate(self._active):
            left = len(job.ids) - job.cached
            count = left if left == 1 else min(left, room)
            if count:
                feeds.append(Feed(lane, job.cached, job.ids[job.cached : job.cached + count]))
                room -= count if left > 1 else 0
        view = LaneView(self._lanes, feeds, self._model.device)
        self._bank.choose([self._active[feed.lane].model for feed in feeds for _ in feed.ids])
        hidden = self._model.model(
            input_ids=view.ids, position_ids=view.positions, cache=view, use_cache=True, lane_view=view
        ).last_hidden_state
        for feed in feeds:
            job = self._active[feed.lane]
            job.cached += len(feed.ids)
            if job.cached == job.prompt_tokens:
                self._keep_system_prompt(feed.lane, job)
        ready = [
            row for row, feed in enumerate(feeds) if self._active[feed.lane].cached == len(self._active[feed.lane].ids)
        ]
        if not ready:
            return
        lanes = [feeds[row].lane for row in ready]
        logits = self._model.lm_head(hidden[0, view.last[ready]]).float()
        for lane, token in zip(lanes, _next_tokens(logits, [self._active[lane] for lane in lanes]), strict=True):
            self._active[lane].ids.append(token)
        for lane in reversed(lanes):
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
            self._remember(_session_key(job), self._lanes.save(lane, job.ids[: job.cached]))
        moved = self._active.pop()
        if moved is not job:
            self._lanes.move(len(self._active), lane, moved.cached)
            self._active[lane] = moved
        job.completion = completion
        job.done.set()

    def _restore(self, lane: int) -> None:
        """Load the longest known prefix into a new sequence's lane; at least one token is left to read."""
        job = self._active[lane]
        for key in (_session_key(job), _system_key(job)):
            if prefix := self._prefixes.get(key):
                self._prefixes.move_to_end(key)
                common = min(prefix.common(job.ids), len(job.ids) - 1)
                if common > job.cached:
                    self._lanes.load(lane, prefix, common)
                    job.cached = common

    def _keep_system_prompt(self, lane: int, job: _Job) -> None:
        key = _system_key(job)
        if key in self._prefixes or job.request.messages[0].role != "system":
            return
        system = encode(self._tokenizer, render(self._tokenizer, job.request.messages[:1], generate=False))
        if system == job.ids[: len(system)]:
            self._remember(key, self._lanes.save(lane, system))

    def _remember(self, key: tuple[str, str], prefix: Prefix) -> None:
        self._prefixes[key] = prefix
        self._prefixes.move_to_end(key)
        while sum(kept.bytes for kept in self._prefixes.values()) > _PREFIX_BYTES:
            self._prefixes.popitem(last=False)


# Keys and values depend on the adapter, so every key holds its version.


def _session_key(job: _Job) -> tuple[str, str]:
    return job.model, f"session:{job.request.session}"


def _system_key(job: _Job) -> tuple[str, str]:
    return job.model, f"system:{job.request.messages[0].content}"


def _next_tokens(logits: Tensor, jobs: list[_Job]) -> list[int]:
    """The likeliest token where the temperature is 0, else one drawn with the request's own seed.

    Drawing by inverting the cumulative distribution needs one uniform number per row, so the rows of a batch are drawn
    together and still do not depend on each other.

    Args:
        logits: shape (jobs, vocabulary), float32.
    """
    tokens: list[int] = logits.argmax(-1).tolist()
    drawn = [row for row, job in enumerate(jobs) if job.generator is not None]
    if drawn:
        temperatures = torch.tensor([[jobs[row].request.temperature] for row in drawn], device=logits.device)
        cumulative = (logits[drawn] / temperatures).softmax(-1).cumsum(-1)
        uniform = torch.cat([torch.rand(1, 1, generator=jobs[row].generator) for row in drawn]).to(logits.device)
        found = torch.searchsorted(cumulative, uniform * cumulative[:, -1:], right=True).clamp(max=logits.shape[1] - 1)
        for row, token in zip(drawn, found[:, 0].tolist(), strict=True):
            tokens[row] = token
    return tokens
