"""Collection against the plain way, and against the engine alone: python -m benchmarks.collection DEMO_WORKSPACE

The workspace of `flywheel demo` brings adapters that solve questions, so that both sides do real work. The plain way is
one question at a time, each call a `generate` of its own with the role's PEFT adapter, the passages of a page embedded
anew for every retrieval. Then the recorded requests are sent to the engine once more without agents, tools or store, as
many at once, to see how much of the engine's speed collection reaches.
"""

import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

import collect.collector
from collect.passages import PassageFinder
from flywheel.base_model import load_model, load_tokenizer, quiet, resolve_folder
from flywheel.chat import prompt_ids
from flywheel.config import Config
from flywheel.engines import Completion, CompletionRequest, Engine, Watch, open_engine
from flywheel.engines.text import cut_at_stop
from flywheel.options import versions_by_role
from flywheel.questions import read_questions
from flywheel.records import Question, Rollout
from flywheel.store import TraceStore
from flywheel.workspace import Workspace

PLAIN_QUESTIONS, QUESTIONS = 6, 48


class PlainEngine:
    """One `generate` at a time."""

    def __init__(self, model: str, adapters: dict[str, Path]) -> None:
        from peft import PeftModel

        base = resolve_folder(model)
        self._tokenizer = load_tokenizer(base)
        names = list(adapters)
        self._model: Any = PeftModel.from_pretrained(
            load_model(base), str(adapters[names[0]]), adapter_name=_safe(names[0])
        )
        for name in names[1:]:
            self._model.load_adapter(str(adapters[name]), adapter_name=_safe(name))
        self._names = versions_by_role(names)
        self._model.eval()

    def complete(self, request: CompletionRequest, watch: Watch | None = None) -> Completion:
        """Complete one conversation from its first token."""
        name = self._names[request.model.partition("@")[0]]
        self._model.set_adapter(_safe(name))
        ids = prompt_ids(self._tokenizer, request.messages)
        with torch.inference_mode():
            out = self._model.generate(
                input_ids=torch.tensor([ids]), max_new_tokens=request.max_tokens, do_sample=False,
                stop_strings=list(request.stop), tokenizer=self._tokenizer,
            )[0, len(ids):]  # fmt: skip
        text, stop = cut_at_stop(self._tokenizer.decode(out, skip_special_tokens=True), request.stop)
        reason = "length" if len(out) >= request.max_tokens and not stop else "stop"
        return Completion(
            text=text, finish_reason=reason, prompt_tokens=len(ids), completion_tokens=len(out), model=name, stop=stop
        )

    def models(self) -> tuple[str, ...]:
        """What it serves."""
        return tuple(self._names.values())

    def load(self, adapters: Mapping[str, Path]) -> None:
        """It keeps those it began with."""

    def close(self) -> None:
        """Nothing to free."""


def _safe(name: str) -> str:
    return name.replace("@", "_v")


class ForgetfulFinder(PassageFinder):
    """Embeds a page's passages for every query."""

    def find(self, text: str, query: str) -> list[str]:
        """As the parent, with nothing remembered."""
        self._pages.clear()
        self._queries.clear()
        return super().find(text, query)


def gather(
    config: Config, engine: Engine, questions: Sequence[Question], folder: Path, versions: dict[str, str]
) -> tuple[list[Rollout], float]:
    """Rollouts, and the seconds they took."""
    started = time.perf_counter()
    with TraceStore(folder / f"{time.monotonic_ns()}.sqlite") as store:
        collect.collector.collect(
            questions, config, engine, store, folder, round=1, samples=1, temperature=0.0, versions=versions
        )
        return list(store.rollouts()), time.perf_counter() - started


def replay(engine: Engine, rollouts: Sequence[Rollout], config: Config, at_once: int) -> float:
    """Tokens a second when the same requests come without agents: each rollout's in order, rollouts side by side."""

    def send(rollout: Rollout) -> int:
        tokens = 0
        for run in rollout.runs:
            for call in run.calls:
                request = CompletionRequest(
                    messages=call.messages, model=call.model, max_tokens=config.engine.max_tokens,
                    temperature=0.0, seed=call.seed, stop=("</code>",), session=f"again {run.id}",
                )  # fmt: skip
                tokens += engine.complete(request).completion_tokens
        return tokens

    started = time.perf_counter()
    with ThreadPoolExecutor(at_once) as pool:
        tokens = sum(pool.map(send, rollouts))
    return tokens / (time.perf_counter() - started)


def main() -> None:
    """Print the figures."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m benchmarks.collection DEMO_WORKSPACE (make one with: flywheel demo --quick)")
    quiet()
    workspace = Workspace(Path(sys.argv[1]))
    config, adapters = workspace.config, workspace.adapters()
    versions = versions_by_role(adapters)
    questions = read_questions("embedded", "test", limit=QUESTIONS, shuffle_seed=5)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        engine = open_engine(config.engine, adapters)
        gather(config, engine, questions[:4], folder, versions)  # indexes, and first calls
        rollouts, seconds = gather(config, engine, questions, folder, versions)
        tokens = sum(call.completion_tokens for row in rollouts for run in row.runs for call in run.calls)
        alone = replay(engine, rollouts, config, config.collect.concurrency)
        engine.close()
        once = config.model_copy(update={"collect": config.collect.model_copy(update={"concurrency": 1})})
        collect.collector.PassageFinder = ForgetfulFinder  # type: ignore[attr-defined]
        plain, plain_seconds = gather(
            once, PlainEngine(config.engine.model, adapters), questions[:PLAIN_QUESTIONS], folder, versions
        )
    ours, theirs = len(rollouts) / seconds, len(plain) / plain_seconds
    right = sum(row.verdict.match for row in rollouts)
    print(f"collection: {60 * ours:.1f} questions a minute, {right} of {len(rollouts)} right")
    print(f"plain way:  {60 * theirs:.1f} questions a minute; collection is {ours / theirs:.1f} times as fast")
    print(
        f"engine: {tokens / seconds:.0f} tokens a second in collection, {alone:.0f} when replayed without agents "
        f"({tokens / seconds / alone:.0%})"
    )


if __name__ == "__main__":
    main()
