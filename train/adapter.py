"""An adapter on disk: written whole or not at all, with a card that says where it came from."""

import shutil
from importlib.metadata import version
from pathlib import Path
from typing import Any

from flywheel.errors import InfrastructureError
from flywheel.files import disk_errors, sha256, write_text
from flywheel.records import AdapterCard

PACKAGES = ("torch", "transformers", "peft", "trl")


def package_versions() -> dict[str, str]:
    """Versions of what makes adapters."""
    return {package: version(package) for package in PACKAGES}


def save_adapter(model: Any, card: AdapterCard, target: Path, losses: list[float]) -> AdapterCard:
    """Write the adapter beside its place, then rename; its card is written last.

    Raises:
        InfrastructureError: when the disk refuses; nothing is left at `target`.
    """
    from flywheel.pictures import loss_curve

    temporary = target.with_name(f".{target.name}.part")
    shutil.rmtree(temporary, ignore_errors=True)
    with disk_errors(target):
        temporary.mkdir(parents=True)
        try:
            model.save_pretrained(temporary, save_embedding_layers=False)
        except RuntimeError as error:  # how safetensors reports a full disk
            raise InfrastructureError(f"cannot write {temporary}: {error}") from error
        card = card.model_copy(update={"weights_hash": sha256(temporary / "adapter_model.safetensors")})
        loss_curve(losses, f"{card.name}: loss per optimiser step", temporary / "loss.png")
        write_text(temporary / "README.md", _readme(card))
        write_text(temporary / "card.json", card.model_dump_json(indent=2) + "\n")
        temporary.rename(target)
    return card


def _readme(card: AdapterCard) -> str:
    lines = [
        f"# {card.name}",
        "",
        f"LoRA adapter (rank {card.rank}, alpha {card.alpha}) of the role `{card.role}` for the base `{card.base}`, "
        "trained by Flywheel.",
        f"It expects the role's {card.prompt} system prompt and {card.history} history.",
        "",
        f"- method: {card.method}, {card.rows} rows, {card.steps} steps, learning rate {card.learning_rate}",
        f"- loss: {card.first_loss} at first, {card.last_loss} at last (`loss.png`)",
        f"- data: `{card.dataset}`, SHA-256 {card.dataset_hash}",
        f"- parents: {', '.join(card.parents) or 'none, trained from the base'}",
        f"- made: {card.created} with " + ", ".join(f"{name} {number}" for name, number in card.versions.items()),
        "",
        "Load it with PEFT: `PeftModel.from_pretrained(base, folder)`.",
    ]
    return "\n".join(lines) + "\n"
