"""DPO and KTO of one role's adapter, by TRL, on exactly the tokens that serving sends."""

import math
import random
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import datasets
import torch
from peft import PeftModel
from transformers import PrinterCallback
from trl.trainer.dpo_config import DPOConfig
from trl.trainer.dpo_trainer import DPOTrainer
from trl.trainer.kto_config import KTOConfig
from trl.trainer.kto_trainer import KTOTrainer

from flywheel.base_model import base_hash, load_model, load_tokenizer, resolve_folder
from flywheel.chat import encode, end_of_turn, prompt_ids
from flywheel.config import Config, TrainConfig
from flywheel.errors import DataError
from flywheel.progress import Tracker
from flywheel.records import AdapterCard, Mark, Pair
from flywheel.workspace import processors, read_card

from .adapter import make_card, save_adapter
from .model import learning_rate, quantized, with_adapter
from .sft import Task, checkpoints, named_failures
from .trainer import Watch

Method = Literal["dpo", "kto"]


class _PairTrainer(DPOTrainer):  # type: ignore[misc]  # trl is untyped here
    """Takes rows that are tokens already."""

    def _prepare_dataset(self, dataset: Any, *_: Any) -> Any:
        return dataset


class _MarkTrainer(KTOTrainer):  # type: ignore[misc]  # trl is untyped here
    """Takes rows that are tokens already."""

    def _prepare_dataset(self, dataset: Any, *_: Any) -> Any:
        return dataset


def train_preferences(
    rows: Sequence[Pair | Mark], task: Task, config: Config, method: Method, parent: tuple[str, Path] | None
) -> AdapterCard:
    """Train on pairs (dpo) or marks (kto), on top of an adapter, or of the base if `parent` is None.

    Raises:
        DataError: when there is nothing to train on, the parent is of another base, or the loss stops being a number.
    """
    settings, started = config.train, time.monotonic()
    folder = resolve_folder(config.engine.model)
    if not torch.cuda.is_available():
        torch.set_num_threads(config.engine.threads or processors())
    torch.manual_seed(settings.seed)
    tokenizer = load_tokenizer(folder)
    tokens = [_tokens(tokenizer, row) for row in rows]
    fitting = [row for row in tokens if _length(row) <= settings.max_tokens]
    least = 2 if method == "kto" else 1  # KTO compares a row with another one's answer
    if len(fitting) < least:
        raise DataError(
            f"{task.role} has {len(fitting)} {method} rows of at most {settings.max_tokens} tokens (train.max_tokens), "
            f"and training takes {least} or more"
        )
    fingerprint, made = base_hash(folder), read_card(parent[1]) if parent else None
    if made and made.base_hash != fingerprint:
        raise DataError(
            f"{made.name} was trained on {made.base}, not on {config.engine.model}: it cannot be gone on from"
        )
    base = load_model(folder, config.engine.dtype, quantized(settings))
    rate = learning_rate(settings, method, base.num_parameters())
    if parent:
        model: Any = PeftModel.from_pretrained(base, str(parent[1]), is_trainable=True, autocast_adapter_dtype=True)
    else:
        model = with_adapter(base, settings, quantized(settings), autocast=True)
    with named_failures(task):
        losses, passes = _fit(model, tokenizer, fitting, task, settings, rate, method)
        card = make_card(
            task, config, losses, base_hash=fingerprint, rows=len(fitting), too_long=len(tokens) - len(fitting),
            trained_tokens=sum(_trained(row) for row in fitting), method=method, learning_rate=rate,
            parents=(parent[0],) if parent else (), seconds=time.monotonic() - started, passes=passes,
            rank=made.rank if made else 0, alpha=made.alpha if made else 0,
        )  # fmt: skip
        card = save_adapter(model, card, task.target, losses)
    shutil.rmtree(checkpoints(task), ignore_errors=True)
    return card


def _fit(
    model: Any,
    tokenizer: Any,
    rows: list[dict[str, Any]],
    task: Task,
    settings: TrainConfig,
    rate: float,
    method: Method,
) -> tuple[list[float], float]:
    """Train the model in place; gives the loss of every step, and how often each row was seen."""
    batch = min(max(2, settings.batch), len(rows))
    per_step = batch * settings.accumulation
    steps = settings.max_steps or max(1, math.ceil(len(rows) * settings.epochs / per_step))
    cuda = torch.cuda.is_available()
    common: dict[str, Any] = {
        "output_dir": str(checkpoints(task)), "seed": settings.seed, "use_cpu": not cuda, "dataloader_pin_memory": cuda,
        "per_device_train_batch_size": batch, "gradient_accumulation_steps": settings.accumulation, "max_steps": steps,
        "learning_rate": rate, "beta": settings.preference_beta, "max_length": None,
        "bf16": False, "fp16": False, "gradient_checkpointing": False, "logging_steps": 1, "report_to": settings.track,
        "disable_tqdm": True, "save_strategy": "no", "logging_nan_inf_filter": False,
    }  # fmt: skip
    with Tracker(f"train {task.role} ({method})", steps) as tracker:
        callbacks = [Watch(task.role, tracker)]
        if method == "dpo":
            trainer: Any = _PairTrainer(
                model, args=DPOConfig(**common), train_dataset=datasets.Dataset.from_list(rows),
                processing_class=tokenizer, callbacks=callbacks,
            )  # fmt: skip
        else:
            arguments = KTOConfig(**common, train_sampling_strategy="sequential")
            trainer = _MarkTrainer(
                model, args=arguments,
                train_dataset=datasets.Dataset.from_list(_with_mismatches(rows, batch, settings.seed)),
                processing_class=tokenizer, callbacks=callbacks,
            )  # fmt: skip
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    losses = [float(entry["loss"]) for entry in trainer.state.log_history if "loss" in entry]
    return losses, steps * per_step / len(rows)


def _tokens(tokenizer: Any, row: Pair | Mark) -> dict[str, Any]:
    ending = end_of_turn(tokenizer)
    prompt = prompt_ids(tokenizer, row.prompt)
    if isinstance(row, Pair):
        chosen, rejected = (encode(tokenizer, text[0].content + ending) for text in (row.chosen, row.rejected))
        return {"prompt_ids": prompt, "chosen_ids": chosen, "rejected_ids": rejected}
    completion = encode(tokenizer, row.completion[0].content + ending)
    return {"prompt_ids": prompt, "completion_ids": completion, "label": row.label}


def _with_mismatches(rows: list[dict[str, Any]], batch: int, seed: int) -> list[dict[str, Any]]:
    """Shuffle good among bad, and give each row the completion of another of its batch, from which KTO estimates how
    far the model has moved."""
    rows = random.Random(seed).sample(rows, len(rows))
    if len(rows) % batch == 1:  # a row alone in its batch would be compared with itself
        rows = rows[:-1]
    found = []
    for start in range(0, len(rows), batch):
        part = rows[start : start + batch]
        found += [{**row, "KL_completion_ids": part[place - 1]["completion_ids"]} for place, row in enumerate(part)]
    return found


def _length(row: dict[str, Any]) -> int:
    completions = [len(row[name]) for name in ("chosen_ids", "rejected_ids", "completion_ids") if name in row]
    return len(row["prompt_ids"]) + max(completions)


def _trained(row: dict[str, Any]) -> int:
    return sum(len(row[name]) for name in ("chosen_ids", "rejected_ids", "completion_ids") if name in row)
