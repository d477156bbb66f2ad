"""The commands of the core: `init`, `config`, `turn`, `grade` and `demo`."""

import json
import sys
from pathlib import Path

import click
from rich.console import Console

from flywheel.errors import InputError
from flywheel.grading import GraderName, open_grader
from flywheel.grading.pairs import read_pairs
from flywheel.options import engine_config, engine_option, open_workspace, question_options, source_options
from flywheel.questions import parse_names, read_questions
from flywheel.stages import stage
from flywheel.workspace import ROLES, Workspace


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
@question_options(split="train")
@click.option("--rounds", type=click.IntRange(min=1), default=1, show_default=True, help="Turns to make.")
@click.option(
    "--held-out",
    metavar="FILE",
    help="Questions to evaluate on, frozen by the first turn. Default: the split `test` of --questions.",
)
@click.option("--held-out-limit", type=click.IntRange(min=1), help="Take at most so many of them.")
@source_options
@engine_option
@click.option("--samples", type=click.IntRange(min=1), help="Rollouts per question [collect.samples].")
@click.option("--target-correct", type=click.IntRange(min=1), metavar="M", help="As for collect.")
@click.option("--max-tokens", type=click.IntRange(min=1), help="Tokens that the collection of a round may write.")
@click.option("--hours", type=click.FloatRange(min=0, min_open=True), help="Hours that the collection may take.")
@click.option(
    "--teacher",
    is_flag=False,
    flag_value="scripted",
    default="",
    metavar="[KIND[:MODEL]]",
    help="Who plays the first round, for a base that solves nothing yet; as for collect.",
)
@click.option("--teacher-role", "taught", type=click.Choice(ROLES), multiple=True, help="As for collect.")
@click.option("--salvage", is_flag=True, help="As for select.")
@click.option("--steps", type=click.IntRange(min=1), help="Optimiser steps of each role, in place of train.epochs.")
@click.option("--jobs", type=click.IntRange(min=1), help="Roles trained side by side [train.jobs].")
@click.option("--sequential", is_flag=True, help="One role after the other, each proved before the next is trained.")
@click.option("--level", type=click.FloatRange(0, 1), default=0.05, show_default=True, help="Of the gate's test.")
@click.option("--allow-equal", is_flag=True, help="Promote also what cannot be told apart from what is active.")
@click.pass_context
def turn(
    context: click.Context, questions: str, split: str, limit: int | None, shuffle: int | None,
    names: tuple[str, ...], rounds: int, held_out: str | None, held_out_limit: int | None, source: str | None,
    offline: bool, engine: str | None, samples: int | None, target_correct: int | None, max_tokens: int | None,
    hours: float | None, teacher: str, taught: tuple[str, ...], salvage: bool, steps: int | None, jobs: int | None,
    sequential: bool, level: float, allow_equal: bool,
) -> None:  # fmt: skip
    """Turn the wheel: collect, select, audit, train, evaluate, and promote what is better.

    Collection runs with the active adapters; training takes the rows of all rounds. The same command goes on
    wherever it was stopped, and what is done is not done again.
    """
    from flywheel.turn import Plan, freeze_held_out, run_turns

    workspace = open_workspace(context)
    settings = engine_config(workspace.config.engine, engine)
    if settings.kind == "openai":
        raise InputError(
            "turn serves what it trains: it needs an engine that runs here (transformers, llamacpp or vllm)"
        )
    if settings.model != workspace.config.engine.model:
        raise InputError(
            f"turn trains on engine.model, which is {workspace.config.engine.model}: set it to {settings.model}, in "
            "flywheel.toml or by -o engine.model=..."
        )
    stage("collect.teaching").Teaching(teacher, taught)  # it refuses what does not go together
    fields = parse_names(names)
    others = None
    if held_out or not workspace.held_out.exists():
        part = "" if held_out else "test"
        others = read_questions(held_out or questions, part, held_out_limit or 0, shuffle, fields)
    freeze_held_out(workspace, read_questions(questions, split, limit or 0, shuffle, fields), others)
    environment = _flags(source=source, offline=offline, engine=engine)
    mapped = tuple(part for name in names for part in ("--map", name))
    roles = tuple(part for role in taught for part in ("--teacher-role", role))
    plan = Plan(
        questions=(*_flags(questions=questions, split=split, limit=limit, shuffle=shuffle), *mapped, *environment),
        evaluate=environment,
        collect=_flags(samples=samples, target_correct=target_correct, max_tokens=max_tokens, hours=hours),
        teacher=(*_flags(teacher=teacher), *roles),
        select=_flags(salvage=salvage),
        train=_flags(steps=steps),
        jobs=jobs or 0,
        sequential=sequential,
        level=level,
        allow_equal=allow_equal,
    )
    run_turns(workspace, plan, rounds)


def _flags(**values: object) -> tuple[str, ...]:
    """Options as they are typed; those without a value are left out."""
    found: list[str] = []
    for name, value in values.items():
        if value is True:
            found.append(f"--{name.replace('_', '-')}")
        elif value is not None and value is not False and (value != "" or name == "split"):
            found += [f"--{name.replace('_', '-')}", str(value)]
    return tuple(found)


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
@click.option("--full", is_flag=True, help="About 3 hours: two rounds of its own, all of it with two seeds.")
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
