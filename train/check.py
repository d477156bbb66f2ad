"""Brings a role's rows together with what they are checked against, runs the audit, and shows rows."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.text import Text
from tokenizers.decoders import DecodeStream

from flywheel.base_model import load_tokenizer, resolve_folder
from flywheel.chat import end_of_turn
from flywheel.files import sha256
from flywheel.records import DatasetCard, Example, Mark, Message, Pair, Prompt, Rollout
from flywheel.stages import stage
from flywheel.store import TraceStore
from flywheel.workspace import Workspace

from .audit import Finding, Subject
from .dataset import gather_held_out, read_examples, read_marks, read_pairs
from .held_out import HeldOut
from .preference_audit import audit_preferences
from .rows import tokenise


def open_subject(workspace: Workspace, role: str, dataset: Path) -> tuple[Subject, DatasetCard]:
    """Read the rows of a role, and what the workspace knows about them.

    Raises:
        InputError: when the rows, or the base's tokenizer, cannot be read.
        DataError: when there are none.
    """
    examples, card = read_examples(dataset, role)
    tokenizer = load_tokenizer(resolve_folder(workspace.config.engine.model, weights=False))
    rollouts: dict[str, Rollout] = {}
    held_out = HeldOut()
    if workspace.traces.exists():
        with TraceStore(workspace.traces, read_only=True) as store:
            held_out = gather_held_out(workspace, store)
            for name in {example.rollout for example in examples}:
                if (rollout := store.get(name)) is not None:
                    rollouts[name] = rollout
    subject = Subject(
        role=role, examples=examples, rows=[tokenise(tokenizer, example) for example in examples], tokenizer=tokenizer,
        system_prompt=stage("collect.team").WIKIPEDIA.role(role).prompt(card.prompts[role]),
        max_tokens=workspace.config.train.max_tokens, select=workspace.config.select, held_out=held_out,
        rollouts=rollouts, history=card.history, changed=_changed(dataset, card),
    )  # fmt: skip
    return subject, card


def _changed(dataset: Path, card: DatasetCard) -> bool:
    """Whether the file is another than the one that its card was written for."""
    return card.files.get(dataset.name, "") not in ("", sha256(dataset))


def with_prompt(examples: Sequence[Example], role: str, mode: Prompt) -> list[Example]:
    """The same rows under another of the role's prompts: what the long one spells out moves into the weights."""
    system = Message(role="system", content=stage("collect.team").WIKIPEDIA.role(role).prompt(mode))
    return [example.model_copy(update={"prompt": (system, *example.prompt[1:])}) for example in examples]


def open_preferences(
    workspace: Workspace, role: str, dataset: Path, method: str
) -> tuple[Sequence[Pair | Mark], DatasetCard, list[Finding]]:
    """Read a role's pairs (dpo) or marks (kto), and audit them against the workspace's traces.

    Raises:
        InputError: when they cannot be read.
        DataError: when there are none.
    """
    rows, card = read_pairs(dataset, role) if method == "dpo" else read_marks(dataset, role)
    names = {name for row in rows for name in ((row.chosen_rollout, row.rejected_rollout) if isinstance(row, Pair)
                                               else (row.rollout,))}  # fmt: skip
    held_out, rollouts = HeldOut(), {}
    if workspace.traces.exists():
        with TraceStore(workspace.traces, read_only=True) as store:
            held_out = gather_held_out(workspace, store)
            rollouts = {name: rollout for name in names if (rollout := store.get(name)) is not None}
    prompt = stage("collect.team").WIKIPEDIA.role(role).prompt(card.prompts[role])
    return rows, card, audit_preferences(rows, prompt, held_out, rollouts, workspace.config.select)


def show_row(tokenizer: Any, example: Example) -> Text:
    """A row decoded token by token: what is trained in green, token by token in two shades, all else dim."""
    row = tokenise(tokenizer, example)
    text = Text(f"{example.call} (weight {example.weight:.2f}, {len(row)} tokens, {len(row.completion)} trained)\n")
    text.append(tokenizer.decode(row.prompt), style="dim")
    stream = DecodeStream(skip_special_tokens=False)  # halves of a character are shown with its last part
    for place, token in enumerate(row.completion):
        piece = stream.step(tokenizer.backend_tokenizer, token) or ""
        text.append(piece, style="black on green" if place % 2 else "black on bright_green")
    if not tokenizer.decode(row.completion).endswith(end_of_turn(tokenizer)):
        text.append(" (does not end a turn)", style="bold red")
    return text
