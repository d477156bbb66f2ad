"""DPO and KTO of one role's adapter, by TRL, on exactly the tokens that serving sends."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import datasets
import torch
from peft import PeftModel
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
from flywheel.workspace import processors

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
        DataError: when there is nothing to train on, or the loss stops being a number.
    """
    settings = config.train
    folder = resolve_folder(config.engine.model)
    if not torch.cuda.is_available():
        torch.set_num_threads(config.engine.threads or processors())
    torch.manual_seed(settings.seed)
    tokenizer = load_tokenizer(folder)
    tokens = [_tokens(tokenizer, row) for row in rows]
    fitting = [row for row in tokens if _length(row) <= settings.max_tokens]
    if not fitting:
        raise DataError(f"{task.role} has no {method} rows of at most {settings.max_tokens} tokens (train.max_tokens)")
    base = load_model(folder, config.engine.dtype, quantized(settings))
    rate = learning_rate(settings, method, base.num_parameters())
    if parent:
        model: Any = PeftModel.from_pretrained(base, str(parent[1]), is_trainable=True, autocast_adapter_dtype=True)
    else:
        model = with_adapter(base, settings, quantized(settings), autocast=True)
    with named_failures(task):
        losses = _fit(model, tokenizer, fitting, task, settings, rate, method)
    card = make_card(
        task, config, losses, base_hash=base_hash(folder), rows=len(fitting), too_long=len(tokens) - len(fitting),
        trained_tokens=sum(_trained(row) for row in fitting), method=method, learning_rate=rate,
        parents=(parent[0],) if parent else (),
    )  # fmt: skip
    return save_adapter(model, card, task.target, losses)


def _fit(
    model: Any,
    tokenizer: Any,
    rows: list[dict[str, Any]],
    task: Task,
    settings: TrainConfig,
    rate: float,
    method: Method,
) -> list[float]:
    batch = min(max(2, settings.batch), len(rows))
    steps = settings.max_steps or max(1, math.ceil(len(rows) * settings.epochs / batch))
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
                model, args=arguments, train_dataset=datasets.Dataset.from_list(_with_mismatches(rows, batch)),
                processing_class=tokenizer, callbacks=callbacks,
            )  # fmt: skip
        trainer.train()
    return [float(entry["loss"]) for entry in trainer.state.log_history if "loss" in entry]


def _tokens(tokenizer: Any, row: Pair | Mark) -> dict[str, Any]:
    ending = end_of_turn(tokenizer)
    prompt = prompt_ids(tokenizer, row.prompt)
    if isinstance(row, Pair):
        chosen, rejected = (encode(tokenizer, text[0].content + ending) for text in (row.chosen, row.rejected))
        return {"prompt_ids": prompt, "chosen_ids": chosen, "rejected_ids": rejected}
    completion = encode(tokenizer, row.completion[0].content + ending)
    return {"prompt_ids": prompt, "completion_ids": completion, "label": row.label}


def _with_mismatches(rows: list[dict[str, Any]], batch: int) -> list[dict[str, Any]]:
    """Give each row the completion of another of its batch, from which KTO estimates how far the model has moved."""
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
