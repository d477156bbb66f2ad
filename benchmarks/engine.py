"""The in-process engine against plain transformers, on SmolLM2-135M: python -m benchmarks.engine

The same requests of three roles, each a few turns long: one at a time with generate, then through the engine, with the
base alone and with three adapters (random ones: their effect does not matter here).
"""

import os
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from flywheel.base_model import load_model, load_tokenizer, quiet, resolve_folder
from flywheel.chat import prompt_ids
from flywheel.config import EngineConfig
from flywheel.engines import CompletionRequest
from flywheel.records import Message
from flywheel.workspace import ROLES
from serve.transformers_engine import TransformersEngine

CONVERSATIONS, TURNS, TOKENS = 24, 3, 32


def conversation(number: int, turn: int) -> tuple[Message, ...]:
    """What an agent is sent at its n-th step: a system prompt, a task, and the steps so far."""
    messages = [
        Message(role="system", content="Find a fact in Python steps: a thought, then code. " * 6),
        Message(role="user", content=f"Task: population of the town number {number}"),
    ]
    for step in range(turn):
        messages.append(
            Message(role="assistant", content=f"Thought: I search.\n<code>\nprint(search({step}))\n</code>")
        )
        messages.append(Message(role="user", content="Observation:\n" + "A town with a long history. " * 6))
    return tuple(messages)


def plain(model: Any, tokenizer: Any, count: int) -> float:
    """Tokens a second of generate, one request after the other."""
    started, tokens = time.perf_counter(), 0
    with torch.inference_mode():
        for number in range(count):
            for turn in range(TURNS):
                ids = torch.tensor([prompt_ids(tokenizer, conversation(number, turn))])
                out = model.generate(input_ids=ids, max_new_tokens=TOKENS, min_new_tokens=TOKENS, do_sample=False)
                tokens += out.shape[1] - ids.shape[1]
    return tokens / (time.perf_counter() - started)


def engine(model: Any, tokenizer: Any, adapters: dict[str, Path], names: Sequence[str], clients: int) -> float:
    """Tokens a second of the engine, with so many conversations at once."""
    config = EngineConfig(model="embedded", context=1024, batch=clients)
    opened = TransformersEngine(lambda: model, tokenizer, adapters, config)

    def talk(number: int) -> int:
        name = names[number % len(names)]
        return sum(
            opened.complete(
                CompletionRequest(
                    messages=conversation(number, turn), model=name, max_tokens=TOKENS, session=f"{name} {number}"
                )
            ).completion_tokens
            for turn in range(TURNS)
        )

    started = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        tokens = sum(pool.map(talk, range(CONVERSATIONS)))
    opened.close()
    return tokens / (time.perf_counter() - started)


def random_adapters(folder: Path, model: Any) -> dict[str, Path]:
    """Three adapters of rank 16."""
    from peft import LoraConfig, get_peft_model

    lora = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", init_lora_weights=False, task_type="CAUSAL_LM")
    adapted = get_peft_model(model, lora)
    adapters = {}
    for role in ROLES:
        adapters[f"{role}@1"] = folder / role
        adapted.save_pretrained(folder / role)
    return adapters


def main() -> None:
    """Print the figures. Each part runs on a thread of its own, since OpenMP keeps a pool of threads for each."""
    quiet()
    base = resolve_folder("embedded")
    tokenizer = load_tokenizer(base)
    figures: dict[str, float] = {}

    def measure(name: str, part: Any) -> None:
        thread = threading.Thread(target=lambda: figures.__setitem__(name, part()))
        thread.start()
        thread.join()

    with tempfile.TemporaryDirectory() as folder:
        adapters = random_adapters(Path(folder), load_model(base))
        measure("generate, one at a time", lambda: plain(load_model(base), tokenizer, 3))
        for clients in (1, 8, 24):
            measure(
                f"engine, base, {clients} at once",
                lambda n=clients: engine(load_model(base), tokenizer, {}, ["base"], n),
            )
        measure(
            "engine, 3 adapters, 24 at once", lambda: engine(load_model(base), tokenizer, adapters, list(adapters), 24)
        )
    reference = figures["generate, one at a time"]
    for name, speed in figures.items():
        print(f"{name:32s} {speed:6.0f} tokens/s  {speed / reference:5.1f} x")


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main()
