"""The commands of the core: `init`, `config`, `evaluate` and `demo`."""

import json
import re
import sys
from pathlib import Path

import click
from rich.console import Console

from flywheel.engines import open_engine
from flywheel.errors import InputError
from flywheel.evaluate import Arm, arm_store, as_json, compare, print_evaluation, run_arm
from flywheel.files import sha256, write_text
from flywheel.grading import GraderName, open_grader
from flywheel.grading.pairs import read_pairs
from flywheel.options import (
    adapter_options,
    engine_config,
    engine_option,
    open_workspace,
    question_options,
    source_config,
    source_options,
    team_adapters,
    versions_by_role,
)
from flywheel.questions import parse_names, read_questions
from flywheel.records import BASE
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
@question_options(split="test")
@source_options
@engine_option
@adapter_options
@click.option(
    "--name", help="Name of the report; the same name resumes it. Default: one for these adapters and settings."
)
@click.pass_context
def evaluate(
    context: click.Context, questions: str, split: str, limit: int | None, shuffle: int | None,
    names: tuple[str, ...], source: str | None, offline: bool, engine: str | None, adapters: tuple[str, ...],
    no_adapters: bool, name: str | None,
) -> None:  # fmt: skip
    """Compare the base with the adapters on held-out questions: the same questions and seeds for both.

    Prints exact match, F1 and match with 95% bootstrap intervals and McNemar's exact test, and keeps them in reports/.
    """
    workspace = open_workspace(context)
    chosen = read_questions(questions, split, limit or 0, shuffle, parse_names(names))
    trained = sorted({question.id for question in chosen if question.split == "train"})
    if trained:
        click.echo(f"warning: {len(trained)} of these questions are of the training split", err=True)
    active, prompts = team_adapters(workspace, adapters, no_adapters)
    if not active and not no_adapters:
        raise InputError("there are no adapters to compare with the base; make some with: flywheel train --all")
    configured = workspace.config
    settings = configured.model_copy(
        update={
            "engine": engine_config(configured.engine, engine),
            "source": source_config(configured.source, source, offline, questions),
        }
    )
    arms = [Arm(BASE, settings, model=BASE)]
    if active:
        arms.append(Arm("adapters", settings, versions=versions_by_role(active), prompts=prompts))
    name = name or f"evaluation-{sha256(*(arm.digest() for arm in arms))[:8]}"
    if not re.fullmatch(r"[\w.-]*\w", name):
        raise InputError(f"--name {name!r}: use letters, digits, dots and dashes")
    folder = workspace.reports / name
    opened = open_engine(settings.engine, active)
    try:
        results = {arm.name: run_arm(arm, chosen, opened, folder, workspace.cache) for arm in arms}
    finally:
        opened.close()
    evaluation = compare(results, [(arms[0].name, arm.name) for arm in arms[1:]])
    write_text(folder / "evaluation.json", as_json(evaluation))
    print_evaluation(evaluation, Console())
    if active:
        click.echo(f"adapters: {', '.join(active)}")
    click.echo(f"kept in {folder}; see rollouts with: flywheel show --store {arm_store(folder, arms[-1].name)}")


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
