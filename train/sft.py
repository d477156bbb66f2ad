"""Trains one LoRA adapter on the rows of one role, with the loss on completions only."""

import math
import random
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from torch import Tensor

from flywheel.base_model import base_hash, load_model, load_tokenizer, resolve_folder
from flywheel.config import Config, TrainConfig
from flywheel.errors import DataError, InfrastructureError
from flywheel.files import disk_errors, sha256, write_text
from flywheel.progress import Tracker
from flywheel.records import AdapterCard, Example, History, Prompt
from flywheel.workspace import processors

from .rows import IGNORED, Row, tokenise, usable

_PACKAGES = ("torch", "transformers", "peft")


@dataclass(frozen=True)
class Trained:
    """What training did."""

    steps: int
    rows: int
    too_long: int
    trained_tokens: int
    losses: list[float]
    seconds: float


def train_role(
    examples: Sequence[Example], target: Path, config: Config, *, role: str, version_number: int, dataset: Path,
    prompt: Prompt, history: History,
) -> AdapterCard:  # fmt: skip
    """Train an adapter from the base and write it to `target`, whole or not at all.

    Raises:
        DataError: when no row can be trained, or the loss stops being a number.
        InputError: when the base cannot be loaded.
    """
    folder = resolve_folder(config.engine.model)
    settings = config.train
    if not torch.cuda.is_available():
        torch.set_num_threads(config.engine.threads or processors())
    torch.manual_seed(settings.seed)
    quantize = settings.quantize == "nf4" or (settings.quantize == "auto" and torch.cuda.is_available())
    tokenizer = load_tokenizer(folder)
    rows, too_long = usable([tokenise(tokenizer, example) for example in examples], settings.max_tokens)
    if not rows:
        raise DataError(f"{role} has no row of at most {settings.max_tokens} tokens to train on (train.max_tokens)")
    model = _with_adapter(load_model(folder, config.engine.dtype, quantize), settings, quantize)
    trained = _fit(model, rows, too_long, settings, tokenizer.pad_token_id or 0, role)
    card = AdapterCard(
        role=role, version=version_number, base=config.engine.model, base_hash=base_hash(folder), prompt=prompt,
        history=history, rank=settings.rank, alpha=settings.alpha, learning_rate=settings.learning_rate,
        steps=trained.steps, rows=trained.rows, too_long=trained.too_long, trained_tokens=trained.trained_tokens,
        first_loss=round(trained.losses[0], 4), last_loss=round(_tail_mean(trained.losses), 4),
        seconds=round(trained.seconds, 1), dataset=dataset.name, dataset_hash=sha256(dataset), weights_hash="",
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        versions={package: version(package) for package in _PACKAGES},
    )  # fmt: skip
    return _save(model, card, target)


def _with_adapter(model: Any, settings: TrainConfig, quantized: bool) -> Any:
    if quantized:
        model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=torch.cuda.is_available())
    elif torch.cuda.is_available():
        model.gradient_checkpointing_enable()
        model.enable_input_require_grads()
    lora = LoraConfig(
        r=settings.rank, lora_alpha=settings.alpha, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    # The optimiser keeps float32 copies of the weights, so the adapter itself may have the base's faster type.
    return get_peft_model(model, lora, autocast_adapter_dtype=False)


def _fit(model: Any, rows: list[Row], too_long: int, settings: TrainConfig, padding: int, role: str) -> Trained:
    steps = settings.max_steps or max(1, math.ceil(len(rows) * settings.epochs / settings.batch))
    weights = [parameter for parameter in model.parameters() if parameter.requires_grad]
    masters = [weight.detach().float().clone().requires_grad_(True) for weight in weights]
    optimiser = torch.optim.AdamW(masters, lr=settings.learning_rate, weight_decay=0.0, betas=(0.9, 0.99))
    model.train()
    losses: list[float] = []
    tokens = 0
    started = time.monotonic()
    with Tracker(f"train {role}", steps) as tracker:
        for step, batch in enumerate(_batches(rows, settings.batch, steps, settings.seed)):
            rate = settings.learning_rate * min(1.0, (step + 1) / max(1, settings.warmup_steps)) * (1 - step / steps)
            for group in optimiser.param_groups:
                group["lr"] = rate
            loss = _loss(model, batch, padding)
            loss.backward()  # type: ignore[no-untyped-call]
            losses.append(loss.item())
            if not math.isfinite(losses[-1]):
                raise DataError(f"the loss of {role} is {losses[-1]} at step {step + 1}: lower train.learning_rate")
            _step(weights, masters, optimiser)
            tokens += sum(row.trained for row in batch)
            tracker.advance(note=f"loss {_tail_mean(losses):.3f}")
    if not all(weight.isfinite().all() for weight in weights):
        raise DataError(f"the adapter of {role} is not finite: lower train.learning_rate")
    return Trained(steps, len(rows), too_long, tokens, losses, time.monotonic() - started)


def _batches(rows: list[Row], size: int, steps: int, seed: int) -> Iterator[list[Row]]:
    """So many batches; each pass over the rows is shuffled, and rows of similar length are put together."""
    generator = random.Random(seed)
    given = 0
    while True:
        shuffled = generator.sample(rows, len(rows))
        batches = []
        for start in range(0, len(rows), size * 8):
            chunk = sorted(shuffled[start : start + size * 8], key=lambda row: len(row.ids))
            batches += [chunk[position : position + size] for position in range(0, len(chunk), size)]
        generator.shuffle(batches)
        for batch in batches:
            if given == steps:
                return
            given += 1
            yield batch


def _loss(model: Any, batch: list[Row], padding: int) -> Tensor:
    """Mean cross entropy over trained tokens, each row times its weight. Logits are made for trained tokens only."""
    length = max(len(row.ids) for row in batch)
    device = model.device
    ids = torch.tensor([row.ids + [padding] * (length - len(row.ids)) for row in batch], device=device)
    labels = torch.tensor([row.labels + [IGNORED] * (length - len(row.labels)) for row in batch], device=device)
    attention = torch.tensor([[1] * len(row.ids) + [0] * (length - len(row.ids)) for row in batch], device=device)
    base = model.get_base_model()
    hidden = base.model(input_ids=ids, attention_mask=attention, use_cache=False).last_hidden_state[:, :-1]
    following = labels[:, 1:]
    chosen = following != IGNORED
    logits = base.lm_head(hidden[chosen]).float()
    losses = torch.nn.functional.cross_entropy(logits, following[chosen], reduction="none")
    weights = torch.tensor([[row.weight] for row in batch], device=device).expand(following.shape)[chosen]
    return (losses * weights).sum() / weights.sum()


def _step(weights: list[Any], masters: list[Tensor], optimiser: torch.optim.Optimizer) -> None:
    """Update the float32 masters with the weights' gradients, and copy them back."""
    for weight, master in zip(weights, masters, strict=True):
        master.grad = weight.grad.float()
        weight.grad = None
    torch.nn.utils.clip_grad_norm_(masters, 1.0)
    optimiser.step()
    with torch.no_grad():
        for weight, master in zip(weights, masters, strict=True):
            weight.copy_(master)


def _tail_mean(losses: list[float]) -> float:
    tail = losses[-max(1, len(losses) // 10) :]
    return sum(tail) / len(tail)


def _save(model: Any, card: AdapterCard, target: Path) -> AdapterCard:
    """Write the adapter beside its place, then rename; the card is written last."""
    temporary = target.with_name(f".{target.name}.part")
    shutil.rmtree(temporary, ignore_errors=True)
    with disk_errors(target):
        temporary.mkdir(parents=True)
        try:
            model.save_pretrained(temporary, save_embedding_layers=False)
        except RuntimeError as error:  # how safetensors reports a full disk
            raise InfrastructureError(f"cannot write {temporary}: {error}") from error
        card = card.model_copy(update={"weights_hash": sha256(temporary / "adapter_model.safetensors")})
        write_text(temporary / "README.md", _readme(card))
        write_text(temporary / "card.json", card.model_dump_json(indent=2) + "\n")
        temporary.rename(target)
    return card


def _readme(card: AdapterCard) -> str:
    lines = [
        f"# {card.name}",
        "",
        f"LoRA adapter (rank {card.rank}) of the role `{card.role}` for the base `{card.base}`, trained by Flywheel.",
        f"It expects the role's {card.prompt} system prompt and {card.history} history.",
        "",
        f"{card.rows} rows, {card.steps} steps, loss {card.first_loss} -> {card.last_loss}, {card.created}.",
    ]
    return "\n".join(lines) + "\n"
