"""An adapter on disk: written whole or not at all, with a card that says where it came from."""

import os
import shutil
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from flywheel.config import Config
from flywheel.errors import InfrastructureError
from flywheel.files import disk_errors, now, sha256, write_text
from flywheel.records import AdapterCard

if TYPE_CHECKING:
    from .sft import Task

PACKAGES = ("torch", "transformers", "peft", "trl")


def package_versions() -> dict[str, str]:
    """Versions of what makes adapters."""
    return {package: version(package) for package in PACKAGES}


def is_main_process() -> bool:
    """Whether this is the process that writes, of those that `accelerate launch` has started."""
    return os.environ.get("RANK", "0") == "0"


def make_card(
    task: "Task", config: Config, losses: list[float], *, base_hash: str, rows: int, too_long: int, trained_tokens: int,
    learning_rate: float, method: str, parents: tuple[str, ...] = (), seconds: float = 0.0, passes: float = 0.0,
    rank: int = 0, alpha: int = 0,
) -> AdapterCard:  # fmt: skip
    """The card of an adapter that was just trained; its weights are hashed when they are written.

    Args:
        rank: of the adapter, where it has another than the settings say, as `alpha`.
    """
    settings = config.train
    return AdapterCard(
        role=task.role, version=task.number, base=config.engine.model, base_hash=base_hash, prompt=task.prompt,
        history=task.history, rank=rank or settings.rank, alpha=alpha or settings.alpha, learning_rate=learning_rate,
        method=method, parents=parents, passes=round(passes, 2), steps=len(losses), rows=rows, too_long=too_long,
        trained_tokens=trained_tokens,
        first_loss=round(losses[0], 4), last_loss=round(tail_mean(losses), 4), seconds=round(seconds, 1),
        dataset=task.dataset.name, dataset_hash=task.dataset_hash, weights_hash="",
        created=now(), versions=package_versions(),
    )  # fmt: skip


def tail_mean(losses: list[float]) -> float:
    """Mean of the last tenth."""
    tail = losses[-max(1, len(losses) // 10) :]
    return sum(tail) / len(tail)


def save_adapter(
    model: Any, card: AdapterCard, target: Path, losses: list[float], weights: dict[str, Any] | None = None
) -> AdapterCard:
    """Write the adapter beside its place, then rename; its card is written last.

    Args:
        weights: those of the model, where the model itself has only a part of them.

    Raises:
        InfrastructureError: when the disk refuses; nothing is left at `target`.
    """
    temporary = target.with_name(f".{target.name}.part")
    shutil.rmtree(temporary, ignore_errors=True)
    with disk_errors(target):
        temporary.mkdir(parents=True)
    try:
        card = _write(model, card, temporary, losses, weights)
        with disk_errors(target):
            # the number is taken for good, even if the adapter is deleted
            target.with_name(f".{target.name}").touch()
            temporary.rename(target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return card


def _write(
    model: Any, card: AdapterCard, temporary: Path, losses: list[float], weights: dict[str, Any] | None
) -> AdapterCard:
    from flywheel.pictures import loss_curve

    with disk_errors(temporary):
        try:
            model.save_pretrained(
                temporary, save_embedding_layers=False, selected_adapters=["default"], state_dict=weights
            )
        except (RuntimeError, SafetensorError) as error:  # how safetensors reports a full disk
            raise InfrastructureError(f"cannot write {temporary}: {error}") from error
        card = card.model_copy(update={"weights_hash": sha256(temporary / "adapter_model.safetensors")})
        loss_curve(losses, f"{card.name}: loss per optimiser step", temporary / "loss.png")
        write_text(temporary / "README.md", _readme(card))
        write_text(temporary / "card.json", card.model_dump_json(indent=2) + "\n")
    return card


def _readme(card: AdapterCard) -> str:
    lines = [
        f"# {card.name}",
        "",
        f"LoRA adapter (rank {card.rank}, alpha {card.alpha}) of the role `{card.role}` for the base `{card.base}`, "
        "trained by Flywheel.",
        f"It expects the role's {card.prompt} system prompt and {card.history} history.",
        "",
        f"- method: {card.method}, {card.rows} rows, {card.steps} steps ({card.passes:g} passes), learning rate "
        f"{card.learning_rate}",
        f"- loss: {card.first_loss} at first, {card.last_loss} at last (`loss.png`)",
        f"- data: `{card.dataset}`, SHA-256 {card.dataset_hash}",
        f"- parents: {', '.join(card.parents) or 'none, trained from the base'}",
        f"- made: {card.created} with " + ", ".join(f"{name} {number}" for name, number in card.versions.items()),
        "",
        "Load it with PEFT: `PeftModel.from_pretrained(base, folder)`.",
    ]
    return "\n".join(lines) + "\n"
