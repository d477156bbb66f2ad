"""`flywheel show`, `flywheel export` and `flywheel import`."""

from pathlib import Path
from typing import get_args

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from flywheel.errors import FlywheelError, InputError
from flywheel.exchange import FORMATS, export_rollouts, read_rollouts
from flywheel.options import open_workspace
from flywheel.records import Rollout, RunStatus
from flywheel.store import RolloutFilter, TraceStore
from flywheel.workspace import ROLES

from .tree import graded_tree

_STATUSES = (*get_args(RunStatus), "infrastructure")


@click.command()
@click.argument("rollout", required=False)
@click.option("--round", "round_number", type=int, help="Only this round.")
@click.option("--right/--wrong", "right", default=None, help="Only rollouts that are right, or wrong.")
@click.option("--role", type=click.Choice(ROLES), help="Only rollouts in which this role ran; with --status, ended so.")
@click.option("--status", type=click.Choice(_STATUSES), help="Only rollouts with an agent run that ended so.")
@click.option("--question", metavar="TEXT", help="Only questions whose text or id has this in it.")
@click.option("--store", "file", type=click.Path(path_type=Path), help="Another trace store than the workspace's own.")
@click.option("--limit", type=click.IntRange(min=1), default=30, show_default=True, help="Rows of the list.")
@click.pass_context
def show(
    context: click.Context, rollout: str | None, round_number: int | None, right: bool | None, role: str | None,
    status: str | None, question: str | None, file: Path | None, limit: int,
) -> None:  # fmt: skip
    """List rollouts, or print the one named ROLLOUT (the start of its id is enough) as a tree."""
    path = file or open_workspace(context).traces
    if not path.exists():
        raise InputError(f"there are no traces in {path} yet; make some with: flywheel collect")
    console = Console()
    with TraceStore(path, read_only=True) as store:
        if rollout:
            console.print(graded_tree(_by_id(store, rollout)))
            return
        if round_number is not None and round_number not in store.rounds():
            raise InputError(f"there is no round {round_number}; there are {store.rounds()}")
        chosen = RolloutFilter(round=round_number, right=right, role=role, status=status, question=question)
        table = Table(box=SIMPLE_HEAD)
        table.add_column("rollout", no_wrap=True)  # to be copied
        for column in ("question", "gold", "answer", "verdict"):
            table.add_column(column, overflow="fold")
        for row in store.rollouts(chosen, limit=limit):
            verdict = "failed" if row.status == "infrastructure" else "right" if row.verdict.match else "wrong"
            cells = (row.id, row.question.question, row.question.answer, row.answer, verdict)
            table.add_row(*(Text(cell) for cell in cells))  # texts are not markup
        console.print(table)
        if (more := store.count(chosen) - limit) > 0:
            console.print(f"{more} more; see them with --limit")


def _by_id(store: TraceStore, id: str) -> Rollout:
    found = list(store.rollouts(RolloutFilter(id=id), limit=1000))
    exact = [one for one in found if one.id == id]
    if not found:
        raise InputError(f"no rollout's id begins with {id!r}")
    if len(found) > 1 and not exact:
        raise InputError(f"{len(found)} rollouts' ids begin with {id!r}: {found[0].id}, {found[1].id}, ...")
    return (exact or found)[0]


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--format", "kind", type=click.Choice(FORMATS), help="Default: by the ending of PATH; a folder is a dataset."
)
@click.option("--round", "round_number", type=int, help="Only this round.")
@click.option("--right/--wrong", "right", default=None, help="Only rollouts that are right, or wrong.")
@click.pass_context
def export(context: click.Context, path: Path, kind: str | None, round_number: int | None, right: bool | None) -> None:
    """Write rollouts to PATH: one row each, with all its agent runs, calls and messages."""
    traces = open_workspace(context).traces
    if not traces.exists():
        raise InputError("there are no traces to export yet; make some with: flywheel collect")
    with TraceStore(traces, read_only=True) as store:
        chosen = RolloutFilter(round=round_number, right=right)
        total = store.count(chosen)
        if not total:
            raise InputError("no rollouts to export")
        export_rollouts(store.rollouts(chosen), total, path, kind)
    click.echo(f"wrote {total} rollouts to {path}")


@click.command("import")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.pass_context
def import_(context: click.Context, paths: tuple[Path, ...]) -> None:
    """Read rollouts from PATHS: exported files or datasets, or other workspaces and their trace stores.

    What is here already is left as it is, so the same import twice changes nothing. Only a rollout that failed for want
    of an engine or a network gives way to one that finished. A bad row ends the import; the rollouts before it stay.
    """
    workspace = open_workspace(context)
    with workspace.lock("collect"), TraceStore(workspace.traces) as store:
        for path in paths:
            before = store.count()
            try:
                counts = store.merge(read_rollouts(path))
            except FlywheelError as error:
                if new := store.count() - before:
                    raise type(error)(f"{error}; {new} before it were imported") from error
                raise
            click.echo(
                f"{path}: {counts['new']} new, {counts['known']} known already, {counts['replaced']} replaced a failed "
                f"one, {counts['differs']} differ from what is here and were left out"
            )
