"""TRL's SFT trainer, fed with trees of rows instead of padded batches."""

import math
import random
import time
from collections.abc import Sequence
from typing import Any

import datasets
import torch
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR
from transformers import PrinterCallback, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from flywheel.errors import DataError
from flywheel.progress import Tracker

from .optimiser import MasterAdamW
from .rows import Row
from .tree import Tree


class TreeTrainer(SFTTrainer):  # type: ignore[misc]  # trl is untyped here
    """Trains on one tree of rows per device and step, with each token's loss weighted by its rows.

    The loss that is shown is the mean over the step's own weights. Its gradient is multiplied by the mean weight of the
    step's tokens, compared with that of all: else weights would act only within a batch, and a row of little weight
    would count for much among its like.

    Everything else is the trainer's: gradient accumulation, `accelerate launch`, checkpoints, trackers.

    Args:
        batches: the rows of every step and device, in their order.
    """

    optimizer: Any
    lr_scheduler: Any

    def __init__(self, model: Any, args: SFTConfig, batches: Sequence[Sequence[Row]], **options: Any) -> None:
        numbers = datasets.Dataset.from_dict({"number": list(range(len(batches)))})

        def collate(features: list[dict[str, int]]) -> dict[str, Tensor]:
            return Tree.of([row for feature in features for row in batches[feature["number"]]]).inputs()

        rows = [row for batch in batches for row in batch]
        self._mean_weight = sum(row.weight * len(row.completion) for row in rows) / sum(len(r.completion) for r in rows)
        self._heaviness: Tensor | float = 1.0
        """Mean weight of the step's tokens, compared with that of all."""
        super().__init__(model, args, train_dataset=numbers, data_collator=collate, **options)
        self.remove_callback(PrinterCallback)
        self.model_accepts_loss_kwargs = True  # the loss is divided by the weight of the whole step, not of a part

    def create_optimizer(self, model: Any = None) -> Any:
        """AdamW with float32 copies; under FSDP this is called for the model that was divided already."""
        if self.optimizer is None:
            trained = [weight for weight in (model or self.model).parameters() if weight.requires_grad]
            self.optimizer = MasterAdamW(trained, lr=self.args.learning_rate)
        return self.optimizer

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """Linear warm-up that begins above zero, so that no step is wasted, and linear decay."""
        if self.lr_scheduler is None:
            warmup = max(1, self.args.get_warmup_steps(num_training_steps))
            self.lr_scheduler = LambdaLR(
                optimizer or self.optimizer,
                lambda step: min(1.0, (step + 1) / warmup) * max(0.0, 1 - step / num_training_steps),
            )
            self._created_lr_scheduler = True
        return self.lr_scheduler

    def _get_num_items_in_batch(self, batch_samples: list[Any], device: torch.device) -> Tensor | None:
        """The weight of all tokens of an optimiser step, over accumulation and devices."""
        if not batch_samples:
            return None
        sums = torch.tensor([[batch["weights"].sum(), batch["row_targets"]] for batch in batch_samples], device=device)
        sums = sums.sum(dim=0, keepdim=True)
        if self.args.world_size > 1:
            sums = self.accelerator.gather(sums)
        weight: Tensor
        weight, targets = sums.sum(dim=0)
        self._heaviness = weight / (targets * self._mean_weight)
        return weight

    def compute_loss(
        self, model: Any, inputs: dict[str, Tensor], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Mean cross entropy over the trained tokens of the step, by weight. Logits are made for them alone."""
        predictors, logit, labels, weights = (inputs.pop(name) for name in ("predictors", "logit", "labels", "weights"))
        del inputs["row_targets"]
        logits = model(**inputs, use_cache=False, logits_to_keep=predictors).logits[0].float()
        losses = torch.nn.functional.cross_entropy(logits[logit], labels, reduction="none")
        total = weights.sum() if num_items_in_batch is None else num_items_in_batch
        loss = (losses * weights).sum() / total
        if num_items_in_batch is not None:  # gradients are averaged over devices, and the total is of all of them
            loss = loss * self.args.world_size
        return loss + (self._heaviness - 1) * (loss - loss.detach())  # changes the gradient alone


def plan_batches(
    rows: Sequence[Row], runs_per_batch: int, seed: int, *, batches: int = 0, epochs: float = 0.0,
    tree_tokens: int = 1 << 20,
) -> list[list[Row]]:  # fmt: skip
    """Batches of whole agent runs: so many of them, or as many as so many passes over the runs take.

    Each pass is shuffled anew. The rows of a run stay together, since they share most of their tokens, unless their
    tree alone would be too large.

    Args:
        tree_tokens: most nodes of a batch's tree; a larger batch is divided.
    """
    runs: dict[str, list[Row]] = {}
    for row in rows:
        runs.setdefault(row.run, []).append(row)
    generator = random.Random(seed)
    planned: list[list[Row]] = []
    left = math.ceil(len(runs) * epochs)
    while left > 0 or len(planned) < batches:
        shuffled = generator.sample(list(runs.values()), len(runs))[: None if batches else left]
        left -= len(shuffled)
        for start in range(0, len(shuffled), runs_per_batch):
            planned += _divided([row for run in shuffled[start : start + runs_per_batch] for row in run], tree_tokens)
    return planned[:batches] if batches else planned


def _divided(rows: list[Row], tree_tokens: int) -> list[list[Row]]:
    if len(rows) == 1 or len(Tree.of(rows)) <= tree_tokens:
        return [rows]
    middle = len(rows) // 2
    return _divided(rows[:middle], tree_tokens) + _divided(rows[middle:], tree_tokens)


class Watch(TrainerCallback):  # type: ignore[misc]  # transformers is untyped here
    """Shows each step's loss and speed, and stops a training whose loss is no number.

    Raises:
        DataError: from inside the training.
    """

    def __init__(self, role: str, tracker: Tracker | None, tokens: Sequence[int] = ()) -> None:
        self._role = role
        self._tracker = tracker
        self._tokens = tokens
        """Of each step, for the speed."""
        self._done = 0
        self._started = time.monotonic()
        self._losses: list[float] = []

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """What a resumed training has behind it."""
        self._started = time.monotonic()
        if state.global_step and self._tracker:
            self._tracker.advance(state.global_step, note="resumed from a checkpoint")

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: dict[str, float], **_: Any
    ) -> None:
        """Every step is logged."""
        if "loss" not in logs:
            return
        loss = logs["loss"]
        if not math.isfinite(loss):
            raise DataError(
                f"the loss of {self._role} is {loss} at step {state.global_step}: lower train.learning_rate"
            )
        self._losses.append(loss)
        recent = self._losses[-max(1, len(self._losses) // 10) :]
        self._done += self._tokens[state.global_step - 1] if self._tokens else 0
        speed = f", {self._done / (time.monotonic() - self._started):.0f} tokens/s" if self._done else ""
        if self._tracker:
            self._tracker.advance(note=f"loss {sum(recent) / len(recent):.3f}{speed}")
