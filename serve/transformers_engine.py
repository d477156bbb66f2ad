"""The in-process engine: one base, all adapters, requests of all roles computed together (continuous batching)."""

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from tokenizers.decoders import DecodeStream
from torch import Tensor

from flywheel.base_model import base_hash, load_model, load_tokenizer, resolve_folder
from flywheel.chat import encode, render, request_ids, stop_ids
from flywheel.config import EngineConfig
from flywheel.engines import Completion, CompletionRequest, TokenLogprob, Watch
from flywheel.engines.text import Pieces, cut_at_stop
from flywheel.errors import Cancelled, FlywheelError, InfrastructureError, InputError
from flywheel.records import BASE
from flywheel.workspace import processors

from .adapters import AdapterWeights, check_base, read_adapter
from .lanes import ATTENTION, Feed, Lanes, LaneView, Prefix
from .multi_lora import LoraBank
from .names import listed, resolve_model
from .sampling import Draw, next_tokens, token_logprob

_PREFIX_BYTES = 1 << 30
"""Memory for prefixes of conversations that may go on."""
_READ_TOKENS = 512
"""Most prompt tokens that are read in one step, so that sequences being generated do not wait long for it."""


@dataclass
class _Job:
    """A request on its way through the engine."""

    request: CompletionRequest
    model: str
    ids: list[int]
    """Prompt, then what was generated."""
    prompt_tokens: int
    draw: Draw
    watch: Watch
    pieces: Pieces | None = None
    """Hands the text on, if anybody watches it."""
    decoder: DecodeStream = field(default_factory=lambda: DecodeStream(skip_special_tokens=False))
    tail: str = ""
    """The end of what was generated, as long as the longest stop text."""
    cached: int = 0
    """Tokens whose keys and values lie in the lane."""
    reused: int = 0
    """Those of them that were there from the start."""
    logprobs: list[TokenLogprob] = field(default_factory=list)
    done: threading.Event = field(default_factory=threading.Event)
    completion: Completion | None = None
    error: Exception | None = None

    @property
    def generated(self) -> list[int]:
        return self.ids[self.prompt_tokens :]

    def stopped_by(self, text: str) -> bool:
        """Whether a stop text ends in a new piece of text."""
        stops = self.request.stop
        if not stops:
            return False
        seen = self.tail + text
        self.tail = seen[-max(map(len, stops)) :]
        return any(stop in seen for stop in stops)


class _Loading:
    """Adapters that are to be served from now on."""

    def __init__(self, adapters: dict[str, Path]) -> None:
        self._adapters = adapters
        self.error: Exception | None = None
        self.done = threading.Event()

    def run(self, take: Callable[[dict[str, Path]], None]) -> None:
        try:
            take(self._adapters)
        except Exception as error:  # told to the caller of load
            self.error = error
        self.done.set()


def open_engine(config: EngineConfig, adapters: dict[str, Path]) -> "TransformersEngine":
    """Load the base and the adapters.

    Raises:
        InputError: when the base cannot be loaded, or is of a kind that cannot be served.
        DataError: when an adapter belongs to another base or is damaged.
    """
    folder = resolve_folder(config.model)
    check_base(adapters, base_hash(folder), config.model)
    quantize = config.quantize == "nf4"
    return TransformersEngine(
        lambda: load_model(folder, config.dtype, quantize), load_tokenizer(folder), adapters, config
    )


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
        self._adapters: tuple[str, ...] = ()
        self._weights: dict[str, AdapterWeights] = {}
        """Of the adapters that are served, and of those that running requests began with."""
        self._loads = threading.Lock()
        """One at a time."""
        self._loading: _Loading | None = None
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
        self._bank = LoraBank(model)
        self._take(adapters)
        self._stop_ids = stop_ids(self._tokenizer, model.generation_config)
        self._context = min(config.context, model.config.max_position_embeddings)
        try:
            self._lanes = Lanes(model.config, config.batch, self._context, model.dtype, model.device)
        except RuntimeError as error:  # on a GPU and on a CPU alike
            raise InputError(
                f"there is not memory enough for engine.batch={config.batch} sequences of {self._context} tokens "
                "(engine.context): make one of them smaller"
            ) from error
        self._batch = config.batch

    def models(self) -> tuple[str, ...]:
        """The base, each role, and each version."""
        return listed(self._adapters)

    def complete(self, request: CompletionRequest, watch: Watch | None = None) -> Completion:
        """See Engine."""
        ids = request_ids(self._tokenizer, request.messages, request.prompt, self._context)
        watch = watch or Watch()
        pieces = Pieces(watch.text, request.stop) if watch.text else None
        with self._wake:
            if self._closed:
                raise InfrastructureError("the engine is closed")
            model = resolve_model(request.model, self._adapters)
            job = _Job(request, model, ids, len(ids), Draw.of(request), watch, pieces)
            self._waiting.append(job)
            self._wake.notify()
        job.done.wait()
        if isinstance(job.error, FlywheelError):
            raise job.error
        if job.completion is None:
            raise InfrastructureError(f"the engine failed: {job.error}") from job.error
        return job.completion

    def load(self, adapters: Mapping[str, Path]) -> None:
        """See Engine. Done on the engine's thread, between two steps."""
        loading = _Loading(dict(adapters))
        with self._loads:
            with self._wake:
                if self._closed:
                    raise InfrastructureError("the engine is closed")
                self._loading = loading
                self._wake.notify()
            loading.done.wait()
        if loading.error:
            raise loading.error

    def _take(self, adapters: dict[str, Path]) -> None:
        """Hold these adapters, and those that running requests began with."""
        weights = {name: self._weights.get(name) or read_adapter(folder, name) for name, folder in adapters.items()}
        used = {job.model for job in (*self._active, *self._waiting)} & set(self._weights)
        weights |= {name: self._weights[name] for name in used}
        self._bank.load(list(weights.values()))
        self._adapters, self._weights = tuple(adapters), weights
        for key in [key for key in self._prefixes if key[0] not in (BASE, *weights)]:
            del self._prefixes[key]

    def close(self) -> None:
        """Stop the engine's thread; waiting requests fail."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join(timeout=30)

    def _serve(self) -> None:
        while True:
            with self._wake:
                while not (self._waiting or self._active or self._closed or self._loading):
                    self._wake.wait()
                if self._closed:
                    closed = InfrastructureError("the engine was closed")
                    self._fail([*self._active, *self._waiting, *([self._loading] if self._loading else [])], closed)
                    return
                if self._loading:
                    self._loading.run(self._take)
                    self._loading = None
                self._drop_cancelled()
                while self._waiting and len(self._active) < self._batch:
                    self._active.append(self._waiting.popleft())
                    self._restore(len(self._active) - 1)
            if not self._active:
                continue
            try:
                with torch.inference_mode():
                    self._step()
            except Exception as error:  # a broken batch must not end the engine; its requests are told
                self._fail(self._active, error)
                self._active.clear()

    def _drop_cancelled(self) -> None:
        gone = [job for job in (*self._active, *self._waiting) if job.watch.cancelled]
        for job in gone:
            if job in self._waiting:
                self._waiting.remove(job)
            else:
                self._leave(self._active.index(job))
        self._fail(gone, Cancelled("the request was cancelled"))

    def _fail(self, jobs: Sequence["_Job | _Loading"], error: Exception) -> None:
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
        if ready:
            self._sample(feeds, hidden, view, ready)

    def _sample(self, feeds: list[Feed], hidden: Tensor, view: LaneView, ready: list[int]) -> None:
        """Choose the next token of those whose prompt has been read, and finish those that have ended.

        Args:
            hidden: shape (1, tokens, width).
            ready: their places among the feeds.
        """
        jobs = [self._active[feeds[row].lane] for row in ready]
        logits = self._model.lm_head(hidden[0, view.last[ready]]).float()
        self._drop_broken([job for job, sane in zip(jobs, logits.isfinite().all(-1).tolist(), strict=True) if not sane])
        for row, (job, token) in enumerate(zip(jobs, next_tokens(logits, [job.draw for job in jobs]), strict=True)):
            job.ids.append(token)
            if job.request.logprobs is not None and token not in self._stop_ids:
                job.logprobs.append(token_logprob(logits[row], token, job.request.logprobs, self._tokenizer))
        for job in jobs:
            if job.error:
                continue
            text = job.decoder.step(self._tokenizer.backend_tokenizer, job.ids[-1]) or ""
            if completion := self._completion(job, text):
                self._finish(job, completion)
            elif job.pieces and text:
                job.pieces.add(text)

    def _drop_broken(self, jobs: Sequence[_Job]) -> None:
        """Give up sequences whose numbers have overflowed."""
        for job in jobs:
            self._leave(self._active.index(job))
            name = job.model
            self._fail(
                [job], InfrastructureError(f"the numbers of {name} overflow: its adapter is broken, or the dtype")
            )

    def _completion(self, job: _Job, text: str) -> Completion | None:
        """The completion, if it has ended.

        Args:
            text: what the newest token has added.
        """
        ended = job.ids[-1] in self._stop_ids
        count = len(job.generated) - ended
        stopped = not ended and job.stopped_by(text)
        if not ended and not stopped and count < job.request.max_tokens and len(job.ids) < self._context:
            return None
        text, stop = cut_at_stop(self._tokenizer.decode(job.generated[:count]), job.request.stop)
        return Completion(
            text=text, finish_reason="stop" if ended or stopped else "length", prompt_tokens=job.prompt_tokens,
            completion_tokens=len(job.generated), cached_tokens=job.reused, model=job.model, stop=stop,
            logprobs=tuple(job.logprobs),
        )  # fmt: skip

    def _finish(self, job: _Job, completion: Completion) -> None:
        """Answer a request, and keep its sequence for the session's next one."""
        lane = self._active.index(job)
        if job.request.session:
            self._remember(_session_key(job), self._lanes.save(lane, job.ids[: job.cached]))
        self._leave(lane)
        if job.pieces:
            job.pieces.end(completion.text)
        job.completion = completion
        job.done.set()

    def _leave(self, lane: int) -> None:
        """Close the gap that a sequence leaves in the lanes."""
        last = self._active.pop()
        if lane < len(self._active):
            self._lanes.move(len(self._active), lane, last.cached)
            self._active[lane] = last

    def _restore(self, lane: int) -> None:
        """Load the longest known prefix into a new sequence's lane; at least one token is left to read."""
        job = self._active[lane]
        self._lanes.clear(lane)
        for key in (_session_key(job), _system_key(job)):
            if prefix := self._prefixes.get(key):
                self._prefixes.move_to_end(key)
                common = min(prefix.common(job.ids), len(job.ids) - 1)
                if common > job.cached:
                    self._lanes.load(lane, prefix, common)
                    job.cached = job.reused = common

    def _keep_system_prompt(self, lane: int, job: _Job) -> None:
        key = _system_key(job)
        if key in self._prefixes or not job.request.messages or job.request.messages[0].role != "system":
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
    return job.model, f"system:{job.request.messages[0].content if job.request.messages else ''}"
