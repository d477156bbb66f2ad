"""`flywheel select` and `flywheel train`."""

from pathlib import Path

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from flywheel.base_model import quiet
from flywheel.errors import DataError, InputError
from flywheel.options import open_workspace
from flywheel.workspace import ROLES, Workspace

from .dataset import read_examples, write_datasets
from .select import RULES, Selection
from .side_by_side import train_side_by_side


@click.command()
@click.option(
    "--round", "rounds", type=int, multiple=True, help="Only this round; may be repeated. Default: all rounds."
)
@click.pass_context
def select(context: click.Context, rounds: tuple[int, ...]) -> None:
    """Turn correct runs into training rows, one file per role in the workspace's datasets folder."""
    workspace = open_workspace(context)
    print_selection(write_datasets(workspace, rounds), Console())


def print_selection(selection: Selection, console: Console) -> None:
    """The funnel as a table, without rules that dropped nothing."""
    table = Table(title=selection.summary(), box=SIMPLE_HEAD)
    table.add_column("role", no_wrap=True)
    rules = [rule for rule in RULES if any(selection.dropped[role, rule] for role in selection.calls)]
    for column in ("calls", *rules, "trained", "rows"):
        table.add_column(column.replace("_", " "), justify="right")
    for role, calls in selection.calls.items():
        drops = [str(selection.dropped[role, rule]) for rule in rules]
        table.add_row(role, str(calls), *drops, str(selection.kept[role]), str(len(selection.examples[role])))
    console.print(table)
    for rule in rules:
        console.print(f"  {rule.replace('_', ' ')}: {RULES[rule]}")
    kinds = ", ".join(f"{count} {kind}" for kind, count in selection.kinds.most_common())
    console.print(f"correct rollouts by kind of question: {kinds}")


@click.command()
@click.option("--role", type=click.Choice(ROLES), help="The role to train.")
@click.option("--all", "every", is_flag=True, help="Train every role that has a dataset.")
@click.option("--dataset", type=click.Path(path_type=Path), help="Rows to train on [the role's own]; only with --role.")
@click.option("--steps", type=click.IntRange(min=1), help="Optimiser steps [train.max_steps, else train.epochs].")
@click.option("--jobs", type=click.IntRange(min=1), help="Roles trained side by side by --all [train.jobs].")
@click.pass_context
def train(
    context: click.Context, role: str | None, every: bool, dataset: Path | None, steps: int | None, jobs: int | None
) -> None:
    """Train one LoRA adapter per role, from the base, on the selected rows."""
    workspace = open_workspace(context)
    if bool(role) == every:
        raise InputError("say which roles to train: either --role page_search or --all")
    if role:
        _train_one(workspace, role, dataset or workspace.dataset(role), steps)
        return
    if dataset:
        raise InputError("--dataset needs --role")
    datasets = {name: workspace.dataset(name) for name in ROLES if workspace.dataset(name).exists()}
    if not datasets:
        raise DataError(f"there are no datasets in {workspace.datasets}; make some with: flywheel select")
    chosen_steps = dict.fromkeys(datasets, steps) if steps else {}
    train_side_by_side(workspace, datasets, chosen_steps, jobs or workspace.config.train.jobs)


def _train_one(workspace: Workspace, role: str, dataset: Path, steps: int | None) -> None:
    examples, rows_card = read_examples(dataset, role)
    config = workspace.config
    if steps:
        config = config.model_copy(update={"train": config.train.model_copy(update={"max_steps": steps})})
    quiet()
    from .sft import train_role

    with workspace.lock(f"train-{role}"):
        number = workspace.next_version(role)
        card = train_role(
            examples, workspace.adapter(f"{role}@{number}"), config, role=role, version_number=number, dataset=dataset,
            prompt=rows_card.prompt, history=rows_card.history,
        )  # fmt: skip
    dropped = f", {card.too_long} rows were too long and left out" if card.too_long else ""
    click.echo(
        f"{card.name}: {card.rows} rows, {card.steps} steps, loss {card.first_loss:.3f} -> {card.last_loss:.3f}, "
        f"{card.seconds:.0f} s{dropped}"
    )
