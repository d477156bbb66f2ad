"""Training on trees of rows against plain TRL on the same rows: python -m benchmarks.training [smollm2 | 7b | tiny]

Rows of the scripted teacher with the long prompts (and with the short ones), one row per call, summarised history:
what a user's rows look like. Both sides train LoRA of the same shape on SmolLM2-135M with the same rows in each step;
plain TRL pads them, ours lays them out as a prefix tree. The losses must be the same.

`7b` takes a random model in the shape of Qwen2.5-7B, made on the spot, in 4 bits (NF4): for a GPU. `tiny` is the same
with two narrow layers, to try the script on a CPU.
"""

import gc
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import datasets
import torch
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from collect.collector import collect
from flywheel.base_model import load_model, load_tokenizer, quiet, resolve_folder
from flywheel.chat import end_of_turn, render
from flywheel.config import SelectConfig, TrainConfig, validate
from flywheel.questions import read_questions
from flywheel.records import Example
from flywheel.store import TraceStore
from flywheel.teacher import teacher_engine
from train.model import with_adapter
from train.optimiser import MasterAdamW
from train.rows import tokenise
from train.select import select
from train.trainer import TreeTrainer, plan_batches
from train.tree import Tree

ROLE, QUESTIONS, RUNS, STEPS = "wiki_search", 12, 2, 5


def make_rows(prompt: str) -> list[Example]:
    """Rows of the teacher, in the order of the runs."""
    settings = {
        "team": {"prompt": prompt, "history": "summarised"},
        "source": {"kind": "corpus", "path": "embedded", "passages": 5},
    }
    questions = read_questions("embedded", "train", limit=QUESTIONS)
    with tempfile.TemporaryDirectory() as name, TraceStore(Path(name) / "traces.sqlite") as store:
        engine = teacher_engine(questions)
        collect(
            questions, validate(settings, "benchmark"), engine, store, Path(name), round=0, samples=1, temperature=0
        )
        return select(store.rollouts(), SelectConfig(weights="equal")).examples[ROLE]


SHAPES = {
    "7b": {"hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
           "num_key_value_heads": 4, "vocab_size": 152064, "tie_word_embeddings": False},
    "tiny": {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
             "num_key_value_heads": 2, "vocab_size": 49152, "tie_word_embeddings": True},
}  # fmt: skip
"""The figures of Qwen2.5-7B's config.json, and a small model of the same family."""


def random_base(shape: str, folder: Path) -> Path:
    """A random Qwen2 of that shape with SmolLM2's tokenizer, saved as a hub model would be."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = Qwen2ForCausalLM(Qwen2Config(**SHAPES[shape], max_position_embeddings=32768)).to(torch.bfloat16)
    model.save_pretrained(folder)
    load_tokenizer(resolve_folder("embedded")).save_pretrained(folder)
    return folder


def adapted(base: Path, quantize: bool) -> Any:
    """The base with a fresh adapter."""
    torch.manual_seed(0)
    settings = TrainConfig(rank=16, alpha=32)
    return with_adapter(load_model(base, "bfloat16", quantize), settings, quantize)


def peak() -> float:
    """The most memory so far, in GB: of the GPU if there is one, else of this process."""
    if torch.cuda.is_available():
        found = torch.cuda.max_memory_allocated() / 1e9
        torch.cuda.reset_peak_memory_stats()
        return found
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def arguments(folder: str, batch: int, steps: int, **more: Any) -> SFTConfig:
    """What both sides share."""
    return SFTConfig(
        output_dir=folder, use_cpu=not torch.cuda.is_available(), per_device_train_batch_size=batch, max_steps=steps,
        learning_rate=1e-4, logging_steps=1, report_to="none", disable_tqdm=True, save_strategy="no", bf16=False,
        gradient_checkpointing=False, train_sampling_strategy="sequential", max_length=None,
        dataloader_pin_memory=False, **more,
    )  # fmt: skip


def plain(base: Path, quantize: bool, tokenizer: Any, batches: list[list[Example]]) -> tuple[float, list[float]]:
    """Seconds and losses of TRL's trainer as it comes."""
    size = len(batches[0])
    ending = end_of_turn(tokenizer)  # as text, since TRL would train the template's line break after the turn as well
    rows = [
        {"prompt": render(tokenizer, row.prompt, generate=True), "completion": row.completion[0].content + ending}
        for batch in batches
        for row in batch
    ]
    model = adapted(base, quantize)
    optimiser = MasterAdamW([w for w in model.parameters() if w.requires_grad], lr=1e-4)
    with tempfile.TemporaryDirectory() as folder:
        trainer = SFTTrainer(
            model, arguments(folder, size, len(batches), completion_only_loss=True),
            train_dataset=datasets.Dataset.from_list(rows), processing_class=tokenizer, optimizers=(optimiser, None),
        )  # fmt: skip
        started = time.perf_counter()
        trainer.train()
        return time.perf_counter() - started, [e["loss"] for e in trainer.state.log_history if "loss" in e]


def trees(base: Path, quantize: bool, tokenizer: Any, batches: list[list[Example]]) -> tuple[float, list[float], float]:
    """Seconds and losses of ours, and how many times the tokens the rows would have alone."""
    planned = [[tokenise(tokenizer, row) for row in batch] for batch in batches]
    found = [Tree.of(rows) for rows in planned]
    model = adapted(base, quantize)
    optimiser = MasterAdamW([w for w in model.parameters() if w.requires_grad], lr=1e-4)
    with tempfile.TemporaryDirectory() as folder:
        config = arguments(
            folder, 1, len(batches), dataset_kwargs={"skip_prepare_dataset": True}, remove_unused_columns=False
        )
        trainer = TreeTrainer(model, config, planned, processing_class=tokenizer, optimizers=(optimiser, None))
        started = time.perf_counter()
        trainer.train()
        seconds = time.perf_counter() - started
    saved = sum(tree.row_tokens for tree in found) / sum(len(tree) for tree in found)
    return seconds, [e["loss"] for e in trainer.state.log_history if "loss" in e], saved


def main() -> None:
    """Print the figures."""
    quiet()
    datasets.disable_progress_bars()
    shape = sys.argv[1] if len(sys.argv) > 1 else "smollm2"
    if shape not in ("smollm2", *SHAPES):
        sys.exit("usage: python -m benchmarks.training [smollm2 | 7b | tiny]")
    with tempfile.TemporaryDirectory() as name:
        base = resolve_folder("embedded") if shape == "smollm2" else random_base(shape, Path(name))
        compare(base, quantize=shape != "smollm2")


def compare(base: Path, quantize: bool) -> None:
    """Train both ways with the long prompts, then with the short ones."""
    tokenizer = load_tokenizer(base)
    for prompt in ("full", "compact"):
        examples = make_rows(prompt)
        by_call = {row.call: row for row in examples}
        # whole runs in every step, and the same number of rows, so that plain TRL can have the very same steps
        runs: dict[str, list[Example]] = {}
        for row in examples:
            runs.setdefault(row.run, []).append(row)
        whole = [rows for rows in runs.values() if len(rows) == 3]
        chosen = [tokenise(tokenizer, row) for rows in whole for row in rows]
        order = plan_batches(chosen, RUNS, seed=0, batches=STEPS)
        names = {
            id(token_row): row.call for token_row, row in zip(chosen, (r for rows in whole for r in rows), strict=True)
        }
        batches = [[by_call[names[id(row)]] for row in batch] for batch in order if len(batch) == 3 * RUNS]
        count = sum(map(len, batches))
        trees_seconds, tree_losses, saved = trees(base, quantize, tokenizer, batches)
        gc.collect()
        tree_peak = peak()
        plain_seconds, plain_losses = plain(base, quantize, tokenizer, batches)
        plain_peak = peak()
        print(
            f"{prompt:8s}: {count / trees_seconds:.2f} rows a second in trees, {count / plain_seconds:.2f} with plain "
            f"TRL: {plain_seconds / trees_seconds:.1f} times as fast; {saved:.1f} times fewer tokens computed; peak "
            f"memory {tree_peak:.1f} GB so far, {plain_peak:.1f} GB after plain TRL"
        )
        print(f"{'':10s}loss of the first step {tree_losses[0]:.4f} and {plain_losses[0]:.4f}, of the last "
              f"{tree_losses[-1]:.4f} and {plain_losses[-1]:.4f}")  # fmt: skip


if __name__ == "__main__":
    main()
