"""`flywheel collect` and `flywheel show`."""

import json
from pathlib import Path

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from flywheel.engines import Engine, open_engine
from flywheel.errors import InfrastructureError, InputError
from flywheel.options import (
    adapter_options,
    chosen_adapters,
    engine_config,
    engine_option,
    open_workspace,
    question_options,
    versions_by_role,
)
from flywheel.records import BASE, Question
from flywheel.store import TraceStore
from flywheel.teacher import teacher_engine

from .collector import Summary
from .collector import collect as collect_rollouts
from .questions import read_questions, summarise
from .tree import print_rollout


@click.command()
@question_options(split="train")
@engine_option
@adapter_options
@click.option("--samples", type=click.IntRange(min=1), help="Rollouts per question [collect.samples].")
@click.option("--temperature", type=click.FloatRange(min=0), help="Sampling temperature [collect.temperature].")
@click.option(
    "--round", "round_number", type=click.IntRange(min=0), default=1, show_default=True, help="Turn of the wheel."
)
@click.option(
    "--teacher", is_flag=True, help="Let the scripted teacher play all roles (questions that carry evidence)."
)
@click.option("--allow-change", is_flag=True, help="Go on with a round although its settings have changed.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
@click.pass_context
def collect(
    context: click.Context, questions: str, split: str, limit: int | None, shuffle: int | None, engine: str | None,
    adapters: tuple[str, ...], no_adapters: bool, samples: int | None, temperature: float | None, round_number: int,
    teacher: bool, allow_change: bool, as_json: bool,
) -> None:  # fmt: skip
    """Run the team over questions and record every model call.

    The same command again goes on where the last one stopped.
    """
    workspace = open_workspace(context)
    chosen = read_questions(questions, split, limit or 0, shuffle)
    config = workspace.config.model_copy(update={"engine": engine_config(workspace.config.engine, engine)})
    temperature = config.collect.temperature if temperature is None else temperature
    active = {} if teacher else chosen_adapters(workspace, adapters, no_adapters)
    with workspace.lock("collect"), TraceStore(workspace.traces) as store:
        settings = {
            **{f"team.{key}": value for key, value in config.team.model_dump().items()},
            **{f"source.{key}": value for key, value in config.source.model_dump().items()},
            "engine.model": "teacher" if teacher else config.engine.model,
            "engine.max_tokens": config.engine.max_tokens, "collect.seed": config.collect.seed,
            "temperature": temperature, "adapters": sorted(active),
        }  # fmt: skip
        _check_unchanged(store, round_number, settings, allow_change)
        click.echo(f"round {round_number}: {summarise(chosen)}", err=True)
        opened: Engine = teacher_engine(_with_evidence(chosen)) if teacher else open_engine(config.engine, active)
        try:
            summary = collect_rollouts(
                chosen, config, opened, store, workspace.cache, round=round_number,
                samples=samples or config.collect.samples, temperature=temperature,
                model=BASE if no_adapters and not teacher else "",
                versions=versions_by_role(active),
            )  # fmt: skip
        finally:
            opened.close()
    _report(summary, as_json)


def _with_evidence(questions: list[Question]) -> list[Question]:
    if bare := next((question for question in questions if not question.evidence), None):
        raise InputError(f"--teacher needs questions with evidence, and {bare.id} has none")
    return questions


def _check_unchanged(store: TraceStore, number: int, settings: dict[str, object], allow_change: bool) -> None:
    """Refuse to go on with a round under other settings: its rollouts would not be comparable."""
    key, text = f"settings of round {number}", json.dumps(settings, sort_keys=True)
    before = store.meta(key)
    if before and before != text and not allow_change and store.finished(number):
        old = json.loads(before)
        changed = ", ".join(name for name in settings if settings[name] != old.get(name))
        raise InputError(
            f"round {number} was collected with other settings ({changed}); use --round, or --allow-change"
        )
    store.set_meta(key, text)


def _report(summary: Summary, as_json: bool) -> None:
    if as_json:
        counts = {name: value for name, value in vars(summary).items() if name not in ("calls", "errors")}
        errors = {f"{role}.{kind}": count for (role, kind), count in summary.errors.items()}
        click.echo(json.dumps(counts | {"calls": dict(summary.calls), "errors": errors}))
    else:
        table = Table(
            title=f"{summary.rollouts} rollouts, {summary.match} right ({summary.exact} exact), "
            f"{summary.skipped} done before",
            box=SIMPLE_HEAD,
        )
        for column in ("role", "calls", "without code", "failed code", "repeated"):
            table.add_column(column, justify="left" if column == "role" else "right")
        for role, count in summary.calls.items():
            shares = [
                f"{summary.errors[role, kind]} ({summary.errors[role, kind] / count:.0%})"
                for kind in ("parse", "execution", "repeated")
            ]
            table.add_row(role, str(count), *shares)
        Console().print(table)
    if summary.interrupted:
        raise KeyboardInterrupt
    if summary.infrastructure:
        raise InfrastructureError(
            f"{summary.infrastructure} rollouts failed ({summary.failure}); the same command tries them again"
        )


@click.command()
@click.argument("rollout", required=False)
@click.option("--round", "round_number", type=int, help="Only this round.")
@click.option("--right/--wrong", "right", default=None, help="Only rollouts that are right, or wrong.")
@click.option("--store", "file", type=click.Path(path_type=Path), help="Another trace store than the workspace's own.")
@click.option("--limit", type=click.IntRange(min=1), default=30, show_default=True, help="Rows of the list.")
@click.pass_context
def show(
    context: click.Context,
    rollout: str | None,
    round_number: int | None,
    right: bool | None,
    file: Path | None,
    limit: int,
) -> None:
    """List rollouts, or print the one named ROLLOUT (the start of its id is enough) as a tree."""
    path = file or open_workspace(context).traces
    if not path.exists():
        raise InputError(f"there are no traces in {path} yet; make some with: flywheel collect")
    console = Console()
    with TraceStore(path, read_only=True) as store:
        if rollout:
            found = list(store.rollouts(id=rollout))
            exact = [one for one in found if one.id == rollout]
            if not found:
                raise InputError(f"no rollout's id begins with {rollout!r}")
            if len(found) > 1 and not exact:
                raise InputError(
                    f"{len(found)} rollouts' ids begin with {rollout!r}: {found[0].id}, {found[1].id}, ..."
                )
            print_rollout((exact or found)[0], console)
            return
        table = Table(box=SIMPLE_HEAD)
        for column in ("rollout", "question", "gold", "answer", "verdict"):
            table.add_column(column, overflow="fold")
        if round_number is not None and round_number not in store.rounds():
            raise InputError(f"there is no round {round_number}; there are {store.rounds()}")
        rows = [found for found in store.rollouts(round_number) if right is None or found.verdict.match == right]
        for row in rows[:limit]:
            verdict = "failed" if row.status == "infrastructure" else "right" if row.verdict.match else "wrong"
            table.add_row(row.id, row.question.question, row.question.answer, row.answer, verdict)
        console.print(table)
        if len(rows) > limit:
            console.print(f"{len(rows) - limit} more; see them with --limit")
