"""The commands of the core: `init`, `config`, `evaluate` and `demo`."""

import json
import sys
from pathlib import Path

import click
from rich.console import Console

from flywheel.errors import InputError
from flywheel.grading import GraderName, open_grader
from flywheel.grading.pairs import read_pairs
from flywheel.options import (
    open_workspace,
)
from flywheel.workspace import Workspace


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), default=".")
@click.option("--contact", help="E-mail address or URL that Wikipedia is told as the operator's contact.")
def init(folder: Path, contact: str | None) -> None:
    """Make a workspace in FOLDER: settings, traces, datasets, adapters and reports live there."""
    if contact is None:
        question = "Contact for Wikipedia's operators, an e-mail address or URL (empty if you will not use Wikipedia)"
        contact = click.prompt(question, default="", show_default=False) if sys.stdin.isatty() else ""
    workspace = Workspace.create(folder, contact=contact)
    click.echo(f"made a workspace in {workspace.folder}; its settings are in flywheel.toml")


@click.command()
@click.pass_context
def config(context: click.Context) -> None:
    """Print every setting with its value, as TOML."""
    for section, values in open_workspace(context).config.model_dump().items():
        click.echo(f"[{section}]")
        for key, value in values.items():
            click.echo(f"{key} = {json.dumps(value, ensure_ascii=False)}")
        click.echo()


@click.command()
@click.option(
    "--pairs",
    type=click.Path(path_type=Path),
    required=True,
    help="JSON Lines of {question, gold, aliases, prediction}; question and aliases may be missing.",
)
@click.option("--grader", type=click.Choice(["match", "gaia"]), default="match", show_default=True)
def grade(pairs: Path, grader: GraderName) -> None:
    """Grade predictions: one line of JSON for each, with exact match, F1, match and its reason."""
    graded = open_grader(grader)
    verdicts = []
    for row in list(read_pairs(pairs)):
        verdict = graded(row.prediction, (row.gold, *row.aliases), row.question)
        verdicts.append(verdict)
        line = {"em": verdict.exact_match, "f1": verdict.f1, "match": verdict.match, "reason": verdict.reason}
        click.echo(json.dumps(line, ensure_ascii=False))
    size = max(1, len(verdicts))
    click.echo(
        f"{len(verdicts)} pairs: exact match {sum(one.exact_match for one in verdicts) / size:.1%}, "
        f"F1 {sum(one.f1 for one in verdicts) / size:.1%}, match {sum(one.match for one in verdicts) / size:.1%}",
        err=True,
    )


@click.command()
@click.option("--quick", is_flag=True, help="About 4 minutes: few questions, of one kind; shows that everything works.")
@click.option(
    "--full", is_flag=True, help="An hour or more: larger collections, more held-out questions, the control arm."
)
@click.option(
    "--folder", type=click.Path(path_type=Path), help="Workspace of the demo [./flywheel-demo[-quick|-full]]."
)
@click.option("--model", default="embedded", show_default=True, help="Another small base to turn the wheel with.")
def demo(quick: bool, full: bool, folder: Path | None, model: str) -> None:
    """Turn the wheel once, for real, on the embedded model and encyclopedia. Stopped, it goes on when run again."""
    from flywheel.demo import FULL, QUICK, STANDARD, run_demo

    if quick and full:
        raise InputError("--quick and --full exclude each other")
    plan = QUICK if quick else FULL if full else STANDARD
    run_demo(plan, folder or Path(f"flywheel-demo{plan.suffix}"), Console(), model)
