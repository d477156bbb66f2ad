"""`flywheel select` and `flywheel train`."""

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from flywheel.errors import DataError, InfrastructureError, InputError
from flywheel.files import write_jsonl
from flywheel.options import open_workspace
from flywheel.store import TraceStore
from flywheel.workspace import ROLES, Workspace, processors

from .select import RULES, Selection, select as select_examples


@click.command()
@click.option("--round", "rounds", type=int, multiple=True, help="Only this round; may be repeated. Default: all rounds.")
@click.pass_context
def select(context: click.Context, rounds: tuple[int, ...]) -> None:
    """Turn correct runs into training rows, one file per role in the workspace's datasets folder."""
    workspace = open_workspace(context)
    selection = select_dataset(workspace, rounds)
    table = Table(title=selection.summary())
    table.add_column("role")
    for column in ("calls", *RULES, "trained calls", "rows"):
        table.add_column(column.replace("_", " "), justify="right")
    for role in selection.calls:
        drops = [str(selection.dropped[role, rule] or "") for rule in RULES]
        table.add_row(
            role, str(selection.calls[role]), *drops, str(selection.kept[role]), str(len(selection.examples[role]))
        )
    Console().print(table)
    click.echo("correct rollouts by kind of question: " + ", ".join(f"{n} {kind}" for kind, n in selection.kinds.items()))


def select_dataset(workspace: Workspace, rounds: Sequence[int] = ()) -> Selection:
    """Select from the workspace's traces and write one file per role.

    Raises:
        DataError: when nothing is left, or the traces were made with different prompts or histories.
    """
    if not workspace.traces.exists():
        raise DataError(f"there are no traces in {workspace.folder}; make some with: flywheel collect")
    with TraceStore(workspace.traces) as store:
        wanted = rounds or store.rounds()
        rollouts = (rollout for number in wanted for rollout in store.rollouts(number))
        selection = select_examples(rollouts, workspace.config.select)
    if not selection.kept:
        raise DataError(f"nothing is left to train on ({selection.summary()})")
    if len(selection.modes) > 1:
        modes = "; ".join(f"{prompt} prompt with {history} history" for prompt, history in sorted(selection.modes))
        raise DataError(f"the correct rollouts mix {modes}: choose rounds of one kind with --round")
    for role, examples in selection.examples.items():
        write_jsonl(workspace.dataset(role), (example.model_dump_json() for example in examples))
    return selection


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
        raise InputError("say which role to train: --role page_search, or --all")
    if role:
        _train_one(workspace, role, dataset or workspace.dataset(role), steps)
        return
    if dataset:
        raise InputError("--dataset needs --role")
    roles = [name for name in ROLES if workspace.dataset(name).exists()]
    if not roles:
        raise DataError(f"there are no datasets in {workspace.datasets}; make some with: flywheel select")
    train_side_by_side(workspace, {name: workspace.dataset(name) for name in roles}, steps, jobs or workspace.config.train.jobs)


def _train_one(workspace: Workspace, role: str, dataset: Path, steps: int | None) -> None:
    from .dataset import read_examples

    examples, prompt, history = read_examples(dataset, role, workspace)
    config = workspace.config
    if steps:
        config = config.model_copy(update={"train": config.train.model_copy(update={"max_steps": steps})})
    number = workspace.next_version(role)
    from .sft import train_role

    card = train_role(
        examples, workspace.adapter(f"{role}@{number}"), config, role=role, version_number=number, dataset=dataset,
        prompt=prompt, history=history,
    )  # fmt: skip
    click.echo(
        f"{card.name}: {card.rows} rows, {card.steps} steps, loss {card.first_loss:.3f} -> {card.last_loss:.3f}, "
        f"{card.seconds:.0f} s"
    )


def train_side_by_side(workspace: Workspace, datasets: dict[str, Path], steps: int | None, jobs: int) -> None:
    """Train roles in processes of their own, `jobs` at a time, each with its share of the CPUs.

    Raises:
        InfrastructureError: when a training fails; names the role, after its own words.
    """
    jobs = min(jobs, len(datasets))
    threads = max(1, processors() // jobs)
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "FLYWHEEL_PLAIN": "1" if jobs > 1 else ""}
    printing = threading.Lock()

    def run(role: str) -> int:
        command = [sys.executable, "-m", "flywheel", "-w", str(workspace.folder)]
        for override in (*workspace.overrides, f"engine.threads={threads}"):
            command += ["-o", override]
        command += ["train", "--role", role, "--dataset", str(datasets[role])]
        if steps:
            command += ["--steps", str(steps)]
        child = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert child.stdout is not None
        children.append(child)
        for line in child.stdout:
            with printing:
                click.echo(line.rstrip(), err=True)
        return child.wait()

    children: list[subprocess.Popen[str]] = []
    try:
        with ThreadPoolExecutor(jobs) as pool:
            codes = dict(zip(datasets, pool.map(run, datasets), strict=True))
    except BaseException:
        for child in children:
            child.terminate()
        raise
    if failed := [role for role, code in codes.items() if code]:
        raise InfrastructureError(f"training failed for {', '.join(failed)}; the reason stands above")
