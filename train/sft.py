"""Trains one LoRA adapter on the rows of one role, with the loss on completions only."""

import contextlib
import math
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from trl.trainer.sft_config import SFTConfig

from flywheel.base_model import base_hash, load_model, load_tokenizer, resolve_folder
from flywheel.config import Config, TrainConfig
from flywheel.errors import DataError, InfrastructureError
from flywheel.files import sha256, write_text
from flywheel.progress import Tracker
from flywheel.records import AdapterCard, Example, History, Prompt
from flywheel.workspace import processors

from .adapter import is_main_process, make_card, save_adapter
from .model import learning_rate, quantized, with_adapter
from .rows import Row, tokenise, usable
from .trainer import TreeTrainer, Watch, plan_batches

_NO_MEMORY = (
    "the memory does not suffice: lower train.tree_tokens, train.batch or train.max_tokens, or use train.quantize=nf4"
)


@dataclass(frozen=True)
class Task:
    """What is to be trained."""

    role: str
    number: int
    """The version that the adapter gets."""
    dataset: Path
    dataset_hash: str
    """Of the file as it was read; it may be another by now."""
    prompt: Prompt
    history: History
    target: Path
    """The adapter's folder; appears whole or not at all."""


def train_role(examples: Sequence[Example], task: Task, config: Config) -> AdapterCard:
    """Train an adapter from the base and write it. A training that was killed goes on from its last checkpoint.

    Raises:
        DataError: when no row can be trained, or the loss stops being a number.
        InputError: when the base cannot be loaded.
        InfrastructureError: when memory or disk run out.
    """
    folder = resolve_folder(config.engine.model)
    settings = config.train
    if not torch.cuda.is_available():
        torch.set_num_threads(config.engine.threads or processors())
    torch.manual_seed(settings.seed)
    quantize = quantized(settings)
    tokenizer = load_tokenizer(folder)
    rows, too_long = usable([tokenise(tokenizer, example) for example in examples], settings.max_tokens)
    if not rows:
        raise DataError(
            f"{task.role} has no row of at most {settings.max_tokens} tokens to train on (train.max_tokens)"
        )
    started = time.monotonic()
    base = base_hash(folder)
    with named_failures(task):
        model = load_model(folder, config.engine.dtype, quantize)
        rate = learning_rate(settings, "sft", model.num_parameters())
        model = with_adapter(model, settings, quantize)
        key = sha256(
            base, config.digest("train"), config.engine.dtype, os.environ.get("WORLD_SIZE", "1"),
            *(str((row.prompt, row.completion, row.weight, row.run)) for row in rows),
        )  # fmt: skip
        losses, weights, passes = _fit(model, tokenizer, rows, task, settings, rate, key)
    card = make_card(
        task, config, losses, base_hash=base, learning_rate=rate, rows=len(rows), too_long=too_long, method="sft",
        passes=passes,
        trained_tokens=sum(len(row.completion) for row in rows), seconds=time.monotonic() - started,
    )  # fmt: skip
    if is_main_process():
        with named_failures(task):
            card = save_adapter(model, card, task.target, losses, weights)
        shutil.rmtree(checkpoints(task), ignore_errors=True)
    return card


@contextlib.contextmanager
def named_failures(task: Task) -> Iterator[None]:
    """Memory and disk that run out, as one line that says what to change.

    Raises:
        InfrastructureError: for either.
    """
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise InfrastructureError(_NO_MEMORY) from error
    except OSError as error:
        raise InfrastructureError(f"cannot write {checkpoints(task)}: {error.strerror or error}") from error
    except Exception as error:  # PyTorch on a CPU and safetensors have no types of their own for these
        if "not enough memory" in str(error) or "can't allocate memory" in str(error):
            raise InfrastructureError(_NO_MEMORY) from error
        if "PytorchStreamReader" in str(error):
            raise DataError(
                f"a checkpoint in {checkpoints(task)} is damaged: remove that folder to begin anew"
            ) from error
        signs = ("No space left", "PytorchStreamWriter", "os error 28")
        if type(error).__name__ == "SafetensorError" or any(sign in str(error) for sign in signs):
            raise InfrastructureError(f"cannot write {checkpoints(task)}: {str(error).splitlines()[0]}") from error
        raise


def _fit(
    model: Any, tokenizer: Any, rows: list[Row], task: Task, settings: TrainConfig, rate: float, key: str
) -> tuple[list[float], dict[str, Any] | None, float]:
    """Train the model in place; gives the loss of every step, the weights if FSDP has divided them, and how often each
    row was seen."""
    arguments = _arguments(task, settings, rate)
    per_step = settings.accumulation * arguments.world_size
    batches = plan_batches(
        rows, settings.batch, settings.seed, batches=settings.max_steps * per_step,
        epochs=0.0 if settings.max_steps else settings.epochs, tree_tokens=settings.tree_tokens,
    )  # fmt: skip
    steps = arguments.max_steps = math.ceil(len(batches) / per_step)
    with arguments.main_process_first():
        checkpoint = _resumable(task, key)
    shown = Tracker(f"train {task.role}", steps) if is_main_process() else contextlib.nullcontext()
    with shown as tracker:
        trainer = TreeTrainer(
            model, arguments, batches, processing_class=tokenizer,
            callbacks=[Watch(task.role, tracker, _tokens_by_step(batches, per_step))],
        )  # fmt: skip
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    if not all(weight.isfinite().all() for weight in model.parameters() if weight.requires_grad):
        raise DataError(f"the adapter of {task.role} is not finite: lower train.learning_rate")
    weights = trainer.accelerator.get_state_dict(trainer.model_wrapped) if trainer.is_fsdp_enabled else None
    losses = [float(entry["loss"]) for entry in trainer.state.log_history if "loss" in entry]
    return losses, weights, sum(map(len, batches)) / len(rows)


def _arguments(task: Task, settings: TrainConfig, rate: float) -> SFTConfig:
    cuda = torch.cuda.is_available()
    several = int(os.environ.get("WORLD_SIZE", "1")) > 1
    return SFTConfig(
        output_dir=str(checkpoints(task)), seed=settings.seed, use_cpu=not cuda, dataloader_pin_memory=cuda,
        ddp_backend="gloo" if several and not cuda else None,
        # one tree of rows per device and step, in the order that was planned
        per_device_train_batch_size=1, gradient_accumulation_steps=settings.accumulation, max_length=None,
        dataset_kwargs={"skip_prepare_dataset": True}, remove_unused_columns=False,
        train_sampling_strategy="sequential",
        # types and checkpointing of activations are settled when the model is loaded
        bf16=False, fp16=False, gradient_checkpointing=False,
        learning_rate=rate, warmup_steps=settings.warmup_steps, max_grad_norm=1.0,
        logging_steps=1, logging_nan_inf_filter=False, report_to=settings.track, disable_tqdm=True,
        save_strategy="steps", save_steps=settings.checkpoint_steps, save_total_limit=1,
    )  # fmt: skip


def _tokens_by_step(batches: list[list[Row]], batches_per_step: int) -> list[int]:
    """Tokens that the rows of each optimiser step have, each row counted for itself."""
    sizes = [sum(map(len, batch)) for batch in batches]
    return [sum(sizes[start : start + batches_per_step]) for start in range(0, len(sizes), batches_per_step)]


def checkpoints(task: Task) -> Path:
    """Where a training keeps what it goes on from."""
    return task.target.with_name(f".{task.target.name}.training")


def _resumable(task: Task, key: str) -> Path | None:
    """The last whole checkpoint of a training on the same base, rows and settings; others are removed."""
    folder = checkpoints(task)
    note = folder / "inputs.sha256"
    if not note.exists() or note.read_text(encoding="utf-8") != key:
        shutil.rmtree(folder, ignore_errors=True)
        write_text(note, key)
        return None
    # the state is written last, so that a checkpoint that has it is whole
    whole = [path.parent for path in folder.glob("checkpoint-*/trainer_state.json")]
    return max(whole, key=lambda path: int(path.name.rpartition("-")[2]), default=None)
