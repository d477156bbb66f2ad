"""`flywheel evaluate`, `promote`, `rollback` and `adapters`."""

import json
import re
from collections.abc import Sequence
from typing import Any

import click
from click.core import ParameterSource
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from flywheel.config import Config
from flywheel.engines import open_engine
from flywheel.errors import DataError, InputError
from flywheel.files import sha256
from flywheel.ledger import Entry
from flywheel.options import (
    engine_config,
    engine_option,
    open_workspace,
    question_options,
    source_config,
    source_options,
    team_cards,
    versions_by_role,
)
from flywheel.questions import parse_names, read_questions
from flywheel.records import BASE, AdapterCard, Question
from flywheel.registry import Registry, evaluations
from flywheel.statistics import detectable_difference
from flywheel.workspace import Workspace, read_card

from .arms import Arm, arm_store, evaluate_arms
from .held_out import freeze, frozen_questions, trained_on
from .results import Evaluation, hash_questions
from .tables import percent, print_evaluation, print_roles
from .teams import ACTIVE, CANDIDATE, parse_teams, swaps


@click.command()
@question_options(split="test", required=False)
@click.option("--freeze", "refreeze", is_flag=True, help="Make these the workspace's held-out questions from now on.")
@click.option(
    "--team", "teams", multiple=True, metavar="TEAM",
    help="A team to evaluate: base, active, candidate, or changes to active, such as page_search@3,supervisor=base. "
    "NAME:TEAM names it. May be repeated. Default: base, active and candidate, as far as they exist.",
)  # fmt: skip
@click.option("--matrix", is_flag=True, help="Also the last team with each role in turn as in active, and as the base.")
@source_options
@engine_option
@click.option("--name", help="Name of the report; the same name resumes it. Default: one for these teams and settings.")
@click.option("--fresh", is_flag=True, help="Ask also what an earlier report has the same team's answers to.")
@click.pass_context
def evaluate(
    context: click.Context, questions: str | None, split: str, limit: int | None, shuffle: int | None,
    names: tuple[str, ...], refreeze: bool, teams: tuple[str, ...], matrix: bool, source: str | None, offline: bool,
    engine: str | None, name: str | None, fresh: bool,
) -> None:  # fmt: skip
    """Compare teams on held-out questions: the same questions and seeds for all.

    The first evaluation freezes its questions in the workspace; without --questions they are taken again. Prints exact
    match, F1 and match with 95% bootstrap intervals, McNemar's exact test, and where failures began, and keeps all in
    reports/. The same command goes on where it was stopped; what the same team, with the same weights and settings, has
    answered for an earlier report is not asked again.
    """
    workspace = open_workspace(context)
    if questions is None and context.get_parameter_source("split") is not ParameterSource.DEFAULT:
        raise InputError("--split goes with --questions")
    chosen = _questions(workspace, questions, split, limit, shuffle, names, refreeze)
    configured = workspace.config
    config = configured.model_copy(
        update={
            "engine": engine_config(configured.engine, engine),
            "source": source_config(configured.source, source, offline, questions or str(workspace.held_out)),
        }
    )
    arms = [arm.weighed(workspace) for arm in choose_arms(workspace, config, teams, matrix)]
    name = name or f"evaluation-{sha256(hash_questions(chosen), *(arm.digest() for arm in arms))[:8]}"
    if not re.fullmatch(r"[\w.-]{0,99}\w", name) or (workspace.reports / name).is_file():
        raise InputError(f"--name {name!r}: use at most 100 letters, digits, dots and dashes, and no file's name")
    click.echo(_power(len(chosen)), err=True)
    needed = dict.fromkeys(version for arm in arms for version in arm.versions.values())
    opened = open_engine(config.engine, workspace.adapters(tuple(needed)) if needed else {})
    try:
        evaluation, _ = evaluate_arms(workspace, arms, chosen, opened, name, _pairs(arms, matrix), fresh)
    finally:
        opened.close()
    console = Console()
    print_evaluation(evaluation, console)
    print_roles(evaluation.arms[-1], console)
    for arm in evaluation.arms[1:]:
        click.echo(f"{arm.name}: {', '.join(arm.versions.values()) or 'the base plays every role'}")
    folder = workspace.reports / name
    click.echo(f"kept in {folder}; see rollouts with: flywheel show --store {arm_store(folder, arms[-1].name)}")


def _questions(
    workspace: Workspace, path: str | None, split: str, limit: int | None, shuffle: int | None,
    names: tuple[str, ...], refreeze: bool,
) -> list[Question]:  # fmt: skip
    """The questions asked for, or the frozen ones; the first ones are frozen."""
    frozen = frozen_questions(workspace)
    if path is None:
        if refreeze or shuffle is not None or names:
            raise InputError("--freeze, --shuffle and --map go with --questions")
        if not frozen:
            raise InputError("no held-out questions are frozen here yet: name them with --questions FILE")
        if limit and limit < len(frozen):
            click.echo("warning: a part of the held-out questions shows, but does not promote", err=True)
        return frozen[:limit] if limit else frozen
    chosen = read_questions(path, split, limit or 0, shuffle, parse_names(names))
    if trained := [question for question in chosen if question.split == "train"]:
        click.echo(f"warning: {len(trained)} of these questions are of the training split", err=True)
    if not frozen or refreeze:
        freeze(workspace, chosen)
        click.echo(f"{len(chosen)} questions are frozen as the held-out ones of this workspace", err=True)
    elif hash_questions(chosen) != hash_questions(frozen):
        click.echo("warning: these are not the frozen held-out questions; they show, but do not promote", err=True)
    if leaked := trained_on(workspace, workspace.adapters()):
        click.echo(
            f"warning: {len(leaked)} questions that were trained on are held out or near to one that is, such as "
            f"{leaked[0]}: this is no proof",
            err=True,
        )
    return chosen


def choose_arms(workspace: Workspace, config: Config, teams: Sequence[str], matrix: bool) -> list[Arm]:
    """The teams to evaluate, no two of them the same.

    Raises:
        InputError: for unknown teams or versions, or if only the base is there.
    """
    registry = Registry(workspace)
    active, candidate = registry.active(), registry.candidates()
    if not teams:
        teams = (BASE, *([ACTIVE] if active else []), *([CANDIDATE] if candidate else []))
        if len(teams) == 1:
            raise InputError("there are no adapters to compare with the base; make some with: flywheel train --all")
    named = parse_teams(teams, active, candidate)
    if matrix:
        last = list(named.values())[-1]
        named |= swaps(active, last)
    arms: dict[tuple[str, ...], Arm] = {}
    registry.refuse_broken([name for versions in named.values() for name in versions.values()])
    for team, versions in named.items():
        cards = team_cards(config, workspace.adapters(tuple(versions.values())) if versions else {})
        prompts = {card.role: card.prompt for card in cards}
        arm = Arm(team, config, model="" if versions else BASE, versions=versions, prompts=prompts)
        arms.setdefault(tuple(sorted(versions.values())), arm)
    return list(arms.values())


def _pairs(arms: Sequence[Arm], matrix: bool) -> list[tuple[str, str]]:
    """What is tested: the first team against each, the active one against the candidate, swaps against their team."""
    names = [arm.name for arm in arms]
    pairs = [(names[0], name) for name in names[1:]]
    if ACTIVE in names[1:] and CANDIDATE in names:
        pairs.append((ACTIVE, CANDIDATE))
    if matrix:
        swapped = [name for name in names if name.endswith((" old", " base"))]
        whole = [name for name in names if name not in swapped][-1]
        pairs += [(name, whole) for name in swapped]
    return list(dict.fromkeys(pairs))


def _power(size: int) -> str:
    """What difference so many questions can show."""
    found = detectable_difference(size)
    if found is None:
        return f"{size} questions are too few to tell two teams apart reliably, whatever the difference"
    return (
        f"with {size} questions, a difference of {100 * found:.0f} points in exact match is found 8 times of 10 "
        "(if the teams disagree on a quarter of them)"
    )


@click.command()
@click.argument("adapters", nargs=-1, metavar="[ROLE[@VERSION]]...")
@click.option("--level", type=click.FloatRange(0, 1), default=0.05, show_default=True, help="Of McNemar's exact test.")
@click.option("--allow-equal", is_flag=True, help="Promote also what cannot be told apart from what is active.")
@click.option("--force", is_flag=True, help="Promote without proof; needs --why.")
@click.option("--why", default="", help="The reason, for the ledger.")
@click.pass_context
def promote(
    context: click.Context, adapters: tuple[str, ...], level: float, allow_equal: bool, force: bool, why: str
) -> None:
    """Make candidates active: the ADAPTERS, or the candidates of all roles.

    It takes an evaluation on the frozen held-out questions in which the team with them is better than the active one.
    """
    if force and not why:
        raise InputError("--force needs --why: the reason is kept in the ledger")
    workspace = open_workspace(context)
    with workspace.lock("adapters"):
        registry = Registry(workspace)
        registry.refuse_broken(adapters)
        chosen = workspace.adapters(adapters) if adapters else {}
        names = versions_by_role(chosen) if adapters else registry.candidates()
        if len(names) < len(chosen):
            raise InputError(f"{', '.join(chosen)}: one version of a role can be active")
        if not names:
            raise InputError("there are no candidates; make some with: flywheel train --all")
        entry = registry.force(names, why) if force else registry.promote(names, level, allow_equal, why)
    _tell(entry)


@click.command()
@click.option("--why", default="rolled back by hand", help="The reason, for the ledger.")
@click.pass_context
def rollback(context: click.Context, why: str) -> None:
    """Make active again what was so before the last promotion."""
    workspace = open_workspace(context)
    with workspace.lock("adapters"):
        entry = Registry(workspace).rollback(why)
    _tell(entry)


def _tell(entry: Entry) -> None:
    forced = "without proof: " if entry.forced else ""
    active = ", ".join(entry.active.values()) or "nothing, the base plays every role"
    click.echo(f"active: {active} ({forced}{entry.why})")


@click.command()
@click.option("--prune", type=click.IntRange(min=1), metavar="N",
              help="Delete all but the N newest versions of a role; those that were ever active stay.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def adapters(context: click.Context, prune: int | None, as_json: bool) -> None:
    """List adapter versions with their lineage and figures, and the ledger of promotions."""
    workspace = open_workspace(context)
    if prune:
        with workspace.lock("adapters"):
            registry = Registry(workspace)
            if gone := registry.prunable(prune):
                registry.prune(gone)
        click.echo(f"pruned: {', '.join(gone) or 'nothing'}", err=True)
    registry = Registry(workspace)
    found = list(evaluations(workspace))
    broken = registry.broken()
    rows = [_row(workspace, name, state, found, broken) for name, state in registry.states().items()]
    if as_json:
        ledger = [entry.model_dump() for entry in registry.entries]
        click.echo(json.dumps({"active": registry.active(), "adapters": rows, "ledger": ledger}, indent=2))
        return
    if not rows:
        raise InputError("there are no adapters; make some with: flywheel train --all")
    table = Table(box=SIMPLE_HEAD)
    for column in ("adapter", "state", "made", "from", "rows", "loss", "exact match of its team"):
        table.add_column(column, no_wrap=column in ("adapter", "state"))
    for row in rows:
        table.add_row(
            row["name"], row["state"], row["created"][:16].replace("T", " "), row["from"], str(row["rows"]),
            f"{row['last_loss']:.3f}", row["figures"],
        )  # fmt: skip
    console = Console()
    console.print(table)
    for entry in registry.entries:
        click.echo(f"{entry.time[:16].replace('T', ' ')} {entry.who} {entry.action}: ", nl=False)
        _tell(entry)


def _row(
    workspace: Workspace, name: str, state: str, found: Sequence[tuple[str, Evaluation]], broken: dict[str, str]
) -> dict[str, Any]:
    """What the table says of an adapter, or that it cannot be used."""
    try:
        if name in broken:
            raise DataError(broken[name])
        card = read_card(workspace.adapter(name))
    except DataError as error:
        blank = dict.fromkeys(("created", "from", "method", "prompt"), "") | {"rows": 0, "last_loss": 0.0}
        return {"name": name, "state": f"{state}, unusable", **blank, "figures": str(error)}
    return {
        "name": card.name, "state": state, "created": card.created, "from": ", ".join(card.parents) or card.base,
        "method": card.method, "prompt": card.prompt, "rows": card.rows, "last_loss": card.last_loss,
        "figures": _figures(card, found),
    }  # fmt: skip


def _figures(card: AdapterCard, found: Sequence[tuple[str, Evaluation]]) -> str:
    """The best exact match, in the newest report, of a team in which it played."""
    for name, evaluation in found:
        for arm in sorted(evaluation.arms, key=lambda arm: -arm.exact_match):
            if arm.weights.get(card.name) == card.weights_hash:
                return f"{percent(arm.exact_match, arm.exact_match_interval)} in {name}"
    return ""
