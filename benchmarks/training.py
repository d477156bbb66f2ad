"""Training on trees of rows against plain TRL on the same rows: python -m benchmarks.training

Rows of the scripted teacher with the long prompts (and with the short ones), one row per call, summarised history:
what a user's rows look like. Both sides train LoRA of the same shape on SmolLM2-135M with the same rows in each step;
plain TRL pads them, ours lays them out as a prefix tree. The losses must be the same.
"""

import gc
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import datasets
import torch
from peft import LoraConfig, get_peft_model
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from collect.collector import collect
from flywheel.base_model import load_model, load_tokenizer, quiet, resolve_folder
from flywheel.chat import end_of_turn, render
from flywheel.config import SelectConfig, validate
from flywheel.questions import read_questions
from flywheel.records import Example
from flywheel.store import TraceStore
from flywheel.teacher import teacher_engine
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


def adapted(base: Path) -> Any:
    """SmolLM2 with a fresh adapter."""
    torch.manual_seed(0)
    lora = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
    return get_peft_model(load_model(base, "bfloat16"), lora, autocast_adapter_dtype=False)


def arguments(folder: str, batch: int, steps: int, **more: Any) -> SFTConfig:
    """What both sides share."""
    return SFTConfig(
        output_dir=folder, use_cpu=not torch.cuda.is_available(), per_device_train_batch_size=batch, max_steps=steps,
        learning_rate=1e-4, logging_steps=1, report_to="none", disable_tqdm=True, save_strategy="no", bf16=False,
        gradient_checkpointing=False, train_sampling_strategy="sequential", max_length=None,
        dataloader_pin_memory=False, **more,
    )  # fmt: skip


def plain(base: Path, tokenizer: Any, batches: list[list[Example]]) -> tuple[float, list[float]]:
    """Seconds and losses of TRL's trainer as it comes."""
    size = len(batches[0])
    ending = end_of_turn(tokenizer)  # as text, since TRL would train the template's line break after the turn as well
    rows = [
        {"prompt": render(tokenizer, row.prompt, generate=True), "completion": row.completion[0].content + ending}
        for batch in batches
        for row in batch
    ]
    model = adapted(base)
    optimiser = MasterAdamW([w for w in model.parameters() if w.requires_grad], lr=1e-4)
    with tempfile.TemporaryDirectory() as folder:
        trainer = SFTTrainer(
            model, arguments(folder, size, len(batches), completion_only_loss=True),
            train_dataset=datasets.Dataset.from_list(rows), processing_class=tokenizer, optimizers=(optimiser, None),
        )  # fmt: skip
        started = time.perf_counter()
        trainer.train()
        return time.perf_counter() - started, [e["loss"] for e in trainer.state.log_history if "loss" in e]


def trees(base: Path, tokenizer: Any, batches: list[list[Example]]) -> tuple[float, list[float], float]:
    """Seconds and losses of ours, and how many times the tokens the rows would have alone."""
    planned = [[tokenise(tokenizer, row) for row in batch] for batch in batches]
    found = [Tree.of(rows) for rows in planned]
    model = adapted(base)
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
    base = resolve_folder("embedded")
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
        order = plan_batches(chosen, RUNS, STEPS, seed=0)
        names = {
            id(token_row): row.call for token_row, row in zip(chosen, (r for rows in whole for r in rows), strict=True)
        }
        batches = [[by_call[names[id(row)]] for row in batch] for batch in order if len(batch) == 3 * RUNS]
        count = sum(map(len, batches))
        trees_seconds, tree_losses, saved = trees(base, tokenizer, batches)
        gc.collect()
        tree_peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        plain_seconds, plain_losses = plain(base, tokenizer, batches)
        plain_peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        print(
            f"{prompt:8s}: {count / trees_seconds:.2f} rows a second in trees, {count / plain_seconds:.2f} with plain "
            f"TRL: {plain_seconds / trees_seconds:.1f} times as fast; {saved:.1f} times fewer tokens computed; peak "
            f"memory {tree_peak:.1f} GB so far, {plain_peak:.1f} GB after plain TRL"
        )
        print(f"{'':10s}loss of the first step {tree_losses[0]:.4f} and {plain_losses[0]:.4f}, of the last "
              f"{tree_losses[-1]:.4f} and {plain_losses[-1]:.4f}")  # fmt: skip


if __name__ == "__main__":
    main()
