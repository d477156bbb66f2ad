"""`flywheel collect` and `flywheel ask`."""

import json

import click
from click.core import ParameterSource
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from flywheel.engines import open_engine
from flywheel.errors import InfrastructureError, InputError
from flywheel.files import valid_text
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
from flywheel.progress import duration
from flywheel.questions import parse_names, read_questions, summarise
from flywheel.records import BASE, Question, Rollout
from flywheel.store import TraceStore
from flywheel.workspace import ROLES

from .collector import Budget, Summary, opened_setup
from .collector import collect as collect_rollouts
from .live import watch
from .rollout import LiveRollout
from .rounds import check_same_questions, check_unchanged, round_settings
from .teaching import SCRIPTED, Teaching
from .tree import run_tree


@click.command()
@question_options(split="train")
@source_options
@engine_option
@adapter_options
@click.option("--samples", type=click.IntRange(min=1), help="Rollouts per question [collect.samples].")
@click.option(
    "--target-correct",
    type=click.IntRange(min=1),
    metavar="M",
    help="Leave a question once M of its rollouts are right, and spend what it saved on the others.",
)
@click.option(
    "--grader",
    type=click.Choice(["match", "gaia", "judge"]),
    help="What decides that an answer is right [collect.grader].",
)
@click.option("--temperature", type=click.FloatRange(min=0), help="Sampling temperature [collect.temperature].")
@click.option("--concurrency", type=click.IntRange(min=1), help="Rollouts at once [collect.concurrency].")
@click.option(
    "--round", "round_number", type=click.IntRange(min=0), default=1, show_default=True, help="Turn of the wheel."
)
@click.option(
    "--teacher",
    is_flag=False,
    flag_value=SCRIPTED,
    default="",
    metavar="[KIND[:MODEL]]",
    help="Let another engine, such as a bigger model's, play instead; its calls are marked. Without a value it is the "
    "scripted teacher, for questions with evidence: the embedded ones, or 2WikiMultihopQA's with its fact triples.",
)
@click.option(
    "--teacher-role",
    "taught",
    type=click.Choice(ROLES),
    multiple=True,
    help="A role that the teacher plays; may be repeated. Default: all.",
)
@click.option(
    "--max-tokens", type=click.IntRange(min=1), help="Begin no more rollouts after so many tokens were written."
)
@click.option("--hours", type=click.FloatRange(min=0, min_open=True), help="Begin no more rollouts after so long.")
@click.option("--allow-change", is_flag=True, help="Go on with a round although its settings have changed.")
@click.option("--new", is_flag=True, help="Begin a round after the last one that has rollouts.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
@click.pass_context
def collect(
    context: click.Context,
    questions: str,
    split: str,
    limit: int | None,
    shuffle: int | None,
    names: tuple[str, ...],
    source: str | None,
    offline: bool,
    engine: str | None,
    adapters: tuple[str, ...],
    no_adapters: bool,
    samples: int | None,
    target_correct: int | None,
    grader: str | None,
    temperature: float | None,
    concurrency: int | None,
    round_number: int,
    teacher: str,
    taught: tuple[str, ...],
    max_tokens: int | None,
    hours: float | None,
    allow_change: bool,
    new: bool,
    as_json: bool,
) -> None:
    """Run the team over questions and record every model call.

    The same command again goes on where the last one stopped: what is done is not done again.
    """
    teaching = Teaching(teacher, taught)
    if teaching.whole and (adapters or no_adapters):
        raise InputError("--teacher plays all roles, and takes no adapters")
    if new and context.get_parameter_source("round_number") is not ParameterSource.DEFAULT:
        raise InputError("--new chooses the round; leave --round away")
    workspace = open_workspace(context)
    asked = read_questions(questions, split, limit or 0, shuffle, parse_names(names))
    chosen = teaching.able(asked)
    if len(chosen) < len(asked):
        click.echo(f"{len(asked) - len(chosen)} questions have no evidence for the teacher and are left out", err=True)
    configured = workspace.config
    change = {"concurrency": concurrency, "grader": grader}
    changed = configured.collect.model_copy(update={name: value for name, value in change.items() if value})
    config = configured.model_copy(
        update={
            "engine": engine_config(configured.engine, engine),
            "collect": changed,
            "source": source_config(configured.source, source, offline, questions),
        }
    )
    temperature = config.collect.temperature if temperature is None else temperature
    active, prompts = ({}, {}) if teaching.whole else team_adapters(workspace, adapters, no_adapters)
    with workspace.lock("collect"), TraceStore(workspace.traces) as store:
        if new:
            round_number = max(store.rounds(), default=0) + 1
        check_same_questions(store, round_number, chosen)
        settings = round_settings(config, temperature, sorted(active), teaching.describe())
        check_unchanged(store, round_number, settings, allow_change)
        click.echo(f"round {round_number}: {summarise(chosen)}", err=True)
        opened = teaching.open(config.engine, active, chosen)
        try:
            summary = collect_rollouts(
                chosen,
                config,
                opened,
                store,
                workspace.cache,
                round=round_number,
                samples=samples or config.collect.samples,
                temperature=temperature,
                target=target_correct or 0,
                model=BASE if no_adapters and not teacher else "",
                versions=versions_by_role(active) | teaching.names(),
                prompts={role: prompt for role, prompt in prompts.items() if role not in teaching.names()},
                budget=Budget(max_tokens or 0, 3600 * (hours or 0)),
            )
        finally:
            opened.close()
    _report(summary, as_json)


@click.command()
@click.argument("question")
@source_options
@engine_option
@adapter_options
@click.option("--temperature", type=click.FloatRange(min=0), default=0.0, show_default=True, help="Of sampling.")
@click.option("--json", "as_json", is_flag=True, help="Print the rollout as JSON, and nothing on the way.")
@click.pass_context
def ask(
    context: click.Context, question: str, source: str | None, offline: bool, engine: str | None,
    adapters: tuple[str, ...], no_adapters: bool, temperature: float, as_json: bool,
) -> None:  # fmt: skip
    """Put one QUESTION to the team and watch it work. Nothing is recorded."""
    question = valid_text(question).strip()
    if not question:
        raise InputError("the question is empty")
    workspace = open_workspace(context)
    config = workspace.config.model_copy(
        update={
            "engine": engine_config(workspace.config.engine, engine),
            "source": source_config(workspace.config.source, source, offline),
        }
    )
    if config.source.kind == "questions" and not config.source.path:
        raise InputError("ask has no file of questions whose paragraphs it could take: --source questions:FILE")
    active, prompts = team_adapters(workspace, adapters, no_adapters)
    opened = open_engine(config.engine, active)
    asked = Question(id="ask", question=question, answer="unknown")  # it is not graded
    try:
        with opened_setup(
            config, opened, workspace.cache, sessions=1, round=0, temperature=temperature,
            model=BASE if no_adapters else "", versions=versions_by_role(active), prompts=prompts,
        ) as setup:  # fmt: skip
            live = LiveRollout(setup, asked, 0)
            rollout = live.run() if as_json else watch(live, Console())
    finally:
        opened.close()
    if as_json:
        shown = rollout.model_dump(include={"status", "answer", "failure", "seconds", "runs", "prompt", "history"})
        click.echo(json.dumps({"question": asked.question} | shown, ensure_ascii=False))
    elif rollout.status == "finished":
        _print_answer(rollout)
    if rollout.status == "infrastructure":
        raise InfrastructureError(rollout.failure)


def _print_answer(rollout: Rollout) -> None:
    console = Console()
    if console.is_terminal:
        console.print(run_tree(Text(rollout.question.question, style="bold"), rollout.runs))
    calls = [call for run in rollout.runs for call in run.calls]
    tokens = sum(call.completion_tokens for call in calls)
    console.print(Text("answer: ", style="bold").append(rollout.answer or "none was found", style="bold green"))
    console.print(f"{len(rollout.runs)} agent runs, {len(calls)} calls, {tokens} tokens, {rollout.seconds:.1f} s")


def _report(summary: Summary, as_json: bool) -> None:
    if as_json:
        counts = {name: value for name, value in vars(summary).items() if name not in ("calls", "errors", "runs")}
        errors = {f"{role}.{kind}": count for (role, kind), count in summary.errors.items()}
        runs = {f"{role}.{status}": count for (role, status), count in summary.runs.items()}
        click.echo(json.dumps(counts | {"calls": dict(summary.calls), "runs": runs, "errors": errors}))
    else:
        _print_summary(summary)
    if summary.interrupted:
        click.echo("what was finished is kept; the same command goes on (without --new)", err=True)
        raise KeyboardInterrupt
    if summary.gave_up:
        raise InfrastructureError(
            f"stopped after {summary.infrastructure} failures ({summary.failure}); the same command goes on "
            "(without --new)"
        )
    if summary.spent:
        click.echo(f"the {summary.spent} are spent; the same command goes on", err=True)
    elif not summary.rollouts and summary.solved < summary.questions:
        click.echo("all samples are made; raise --samples for more", err=True)
    if summary.infrastructure:
        raise InfrastructureError(
            f"{summary.infrastructure} rollouts failed ({summary.failure}); the same command tries them again"
        )


def _print_summary(summary: Summary) -> None:
    table = Table(
        title=f"{summary.rollouts} rollouts, {summary.match} right ({summary.exact} exact), "
        f"{summary.skipped} done before; {summary.solved} of {summary.questions} questions solved",
        box=SIMPLE_HEAD,
    )
    for column in ("role", "runs", "finished", "calls", "without code", "failed code", "repeated"):
        table.add_column(column, justify="left" if column == "role" else "right")
    for role, count in summary.calls.items():
        runs = sum(number for (name, _), number in summary.runs.items() if name == role)
        shares = [
            f"{summary.errors[role, kind]} ({summary.errors[role, kind] / count:.0%})"
            for kind in ("parse", "execution", "repeated")
        ]
        table.add_row(role, str(runs), f"{summary.runs[role, 'finished'] / runs:.0%}", str(count), *shares)
    console = Console()
    console.print(table)
    if summary.seconds:
        rate = summary.tokens / summary.seconds
        console.print(
            f"{duration(summary.seconds)}: {summary.tokens:,} tokens written ({rate:.0f} a second), "
            f"{summary.prompt_tokens:,} read"
        )
