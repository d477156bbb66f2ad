"""`flywheel select`, `flywheel audit` and `flywheel train`."""

import contextlib
import importlib.util
import json
import shlex
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from flywheel.base_model import quiet
from flywheel.config import Config
from flywheel.errors import DataError, InputError
from flywheel.files import sha256
from flywheel.options import open_workspace
from flywheel.records import AdapterCard, Prompt
from flywheel.workspace import ROLES, Workspace, read_card

from .audit import CHECKS, GIVES, Finding, refuse
from .audit import audit as run_audit
from .check import open_preferences, open_subject, show_row, with_prompt
from .dataset import PREFERENCES, preferences_file, write_datasets
from .held_out import NEAR
from .rules import ALL, RULES
from .select import Selection
from .side_by_side import Training, train_side_by_side


class _ListsRules(click.Command):
    """A command whose help ends with the rules."""

    def format_epilog(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Rules, in the order in which they are applied (* cannot be switched off)"):
            formatter.write_dl([(f"{rule.name}{'*' if rule.always else ''}", rule.reason) for rule in ALL])
        formatter.write_paragraph()
        formatter.write_text(
            "A question is held out if its id or its normalised text is, or if a held-out question names the same "
            f"things and shares {NEAR:.0%} of its other words. Held out are all questions of another split than "
            "train, the frozen ones, those that an evaluation in reports/ was made on, and those of --held-out."
        )


@click.command(cls=_ListsRules)
@click.option(
    "--round", "rounds", type=int, multiple=True, help="Only this round; may be repeated. Default: all rounds."
)
@click.option(
    "--without",
    multiple=True,
    metavar="RULE",
    type=click.Choice([rule.name for rule in ALL if not rule.always]),
    help="Switch a rule off; may be repeated [select.without].",
)
@click.option(
    "--salvage",
    is_flag=True,
    help="Keep sub-runs of wrong rollouts whose report holds what a kept run on the same task has found out.",
)
@click.option("--held-out", multiple=True, metavar="FILE", help="Questions never to train on; may be repeated.")
@click.option(
    "--format", "kind", type=click.Choice(["jsonl", "parquet"]), default="jsonl", show_default=True, help="Of the rows."
)
@click.option("--json", "as_json", is_flag=True, help="Print the dataset card as JSON.")
@click.pass_context
def select(
    context: click.Context, rounds: tuple[int, ...], without: tuple[str, ...], salvage: bool,
    held_out: tuple[str, ...], kind: str, as_json: bool,
) -> None:  # fmt: skip
    """Turn correct runs into training rows, one file per role in the workspace's datasets folder.

    A row is TRL's prompt-completion format: what one call was sent, and what it wrote. Beside the rows lie card.json
    and funnel.png, which say where the other calls went.
    """
    workspace = open_workspace(context)
    change = {
        "without": without or workspace.config.select.without,
        "salvage": salvage or workspace.config.select.salvage,
    }
    chosen = workspace.config.select.model_copy(update=change)
    workspace.config = workspace.config.model_copy(update={"select": chosen})
    command = shlex.join(["flywheel", *sys.argv[1:]])
    selection = write_datasets(workspace, rounds, held_out=held_out, kind=kind, command=command)  # type: ignore[arg-type]
    if as_json:
        click.echo((workspace.datasets / "card.json").read_text(encoding="utf-8"), nl=False)
    else:
        print_selection(selection, Console())
        click.echo(f"rows, card.json and funnel.png are in {workspace.datasets}")


def print_selection(selection: Selection, console: Console) -> None:
    """The funnel as a table, without rules that dropped nothing."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("", no_wrap=True)
    for role in selection.calls:
        table.add_column(role, justify="right", no_wrap=True)
    table.add_column("")

    def add(name: str, counts: Mapping[str, float], reason: str = "") -> None:
        table.add_row(name, *(f"{counts.get(role, 0):,.0f}" for role in selection.calls), reason)

    add("calls", selection.calls)
    for rule in RULES.values():
        dropped = {role: selection.dropped[role, rule.name] for role in selection.calls}
        if any(dropped.values()):
            add(rule.name.replace("_", " "), dropped, rule.reason)
    add("rows", selection.kept)
    add("effective", selection.effective, "what as many rows of equal weight would be worth")
    console.print(selection.summary(), highlight=False)
    console.print(table)
    kinds = ", ".join(f"{count} {kind}" for kind, count in selection.kinds.most_common())
    console.print(f"correct rollouts by kind of question: {kinds}", markup=False)
    if salvaged := sum(row.salvaged for rows in selection.examples.values() for row in rows):
        console.print(f"{salvaged} rows are salvaged from wrong rollouts")


@click.command()
@click.option("--role", type=click.Choice(ROLES), help="Only this role. Default: every role that has a dataset.")
@click.option("--dataset", type=click.Path(path_type=Path), help="Rows to check [the role's own]; only with --role.")
@click.option(
    "--show", "shown", type=click.IntRange(min=0), default=1, show_default=True, help="Rows to print, per role."
)
@click.option("--json", "as_json", is_flag=True, help="Print all findings as JSON, and no rows.")
@click.pass_context
def audit(context: click.Context, role: str | None, dataset: Path | None, shown: int, as_json: bool) -> None:
    """Check the training rows: that they are what was recorded, and that training sees what serving sends.

    Prints rows with the trained tokens coloured. Runs before every training as well, which it refuses on any error.
    """
    workspace = open_workspace(context)
    if dataset and not role:
        raise InputError("--dataset needs --role")
    datasets = {role: dataset or workspace.dataset(role)} if role else _datasets(workspace)
    quiet()
    console = Console(quiet=as_json)
    results = {}
    for name, path in datasets.items():
        subject, _ = open_subject(workspace, name, path)
        results[name] = run_audit(subject)
        for example in subject.examples[:shown]:
            console.print(show_row(subject.tokenizer, example), highlight=False)
        _print_findings(name, len(subject.rows), results[name], console)
        if not dataset:
            results |= _audit_preferences(workspace, name, console)
    if as_json:
        plain = {name: [asdict(finding) for finding in findings] for name, findings in results.items()}
        click.echo(json.dumps(plain, indent=2))
    for name, findings in results.items():
        refuse(name, findings)


def _audit_preferences(workspace: Workspace, role: str, console: Console) -> dict[str, list[Finding]]:
    results = {}
    for method, kind in PREFERENCES.items():
        path = preferences_file(workspace, role, method)
        if path.exists():
            rows, _, findings = open_preferences(workspace, role, path, method)
            results[f"{role} {kind}"] = findings
            _print_preferences(role, kind, len(rows), findings, console)
    return results


def _datasets(workspace: Workspace) -> dict[str, Path]:
    found = {name: workspace.dataset(name) for name in ROLES if workspace.dataset(name).exists()}
    if not found:
        raise DataError(f"there are no datasets in {workspace.datasets}; make some with: flywheel select")
    return found


def _print_findings(role: str, rows: int, findings: list[Finding], console: Console) -> None:
    table = Table(title=f"{role}: {rows} rows", box=SIMPLE_HEAD)
    table.add_column("check")
    table.add_column("result")
    for check, function in CHECKS.items():
        mine = [finding for finding in findings if finding.check in (check, *GIVES.get(check, ()))]
        worst = "error" if any(one.severity == "error" for one in mine) else "warning" if mine else "ok"
        first = f"{worst} ({len(mine)}): {mine[0].text}" if mine else "ok"
        style = {"ok": "green", "warning": "yellow", "error": "bold red"}[worst]
        table.add_row((function.__doc__ or check).rstrip("."), Text(first, style=style))
    console.print(table)


def _print_preferences(role: str, kind: str, rows: int, findings: list[Finding], console: Console) -> None:
    worst = next((one for one in findings if one.severity == "error"), findings[0] if findings else None)
    style = {"error": "bold red", "warning": "yellow"}[worst.severity] if worst else "green"
    text = f"{worst.severity} ({len(findings)}): {worst.text}" if worst else "ok"
    console.print(Text.assemble(f"{role}: {rows} {kind}: ", (text, style)))


@click.command()
@click.option("--role", type=click.Choice(ROLES), help="The role to train.")
@click.option("--all", "every", is_flag=True, help="Train every role that has a dataset.")
@click.option("--dataset", type=click.Path(path_type=Path), help="Rows to train on [the role's own]; only with --role.")
@click.option("--steps", type=click.IntRange(min=1), help="Optimiser steps [train.max_steps, else train.epochs].")
@click.option(
    "--method",
    type=click.Choice(["sft", "dpo", "kto"]),
    default="sft",
    show_default=True,
    help="sft learns the good steps; dpo and kto learn to tell them from bad ones in the same situation.",
)
@click.option(
    "--on",
    "parent",
    metavar="ROLE@VERSION",
    help="For dpo and kto: the adapter to go on from, or `base`. Default: the role's newest, else the base.",
)
@click.option(
    "--prompt",
    type=click.Choice(["compact", "full"]),
    help="Train, and later run, the role with this prompt, whatever its rows were collected with.",
)
@click.option(
    "--track", type=click.Choice(["trackio", "wandb", "tensorboard"]), help="Send losses there as well [train.track]."
)
@click.option("--jobs", type=click.IntRange(min=1), help="Roles trained side by side by --all [train.jobs].")
@click.option("--version", type=click.IntRange(min=1), hidden=True, help="The version that the adapter gets.")
@click.pass_context
def train(
    context: click.Context, role: str | None, every: bool, dataset: Path | None, steps: int | None, method: str,
    parent: str | None, prompt: str | None, track: str | None, jobs: int | None, version: int | None,
) -> None:  # fmt: skip
    """Train one LoRA adapter per role, from the base, on the selected rows.

    A training that was killed goes on from its last checkpoint when the same command is run again (sft; dpo and kto are
    short, and begin anew).
    """
    workspace = open_workspace(context)
    if track:
        workspace.overrides = (*workspace.overrides, f"train.track={track}")  # roles side by side need it as well
        changed = workspace.config.train.model_copy(update={"track": track})
        workspace.config = workspace.config.model_copy(update={"train": changed})
    if (package := workspace.config.train.track) != "none" and importlib.util.find_spec(package) is None:
        raise InputError(f"train.track={package} needs the package {package}: pip install {package}")
    _check_options(role, every, dataset, method, parent, prompt, jobs)
    if role and method != "sft":
        _train_preferences(workspace, role, dataset, steps, method, parent)
        return
    if role:
        _train_one(workspace, role, dataset or workspace.dataset(role), steps, prompt, version)
        return
    datasets = _datasets(workspace)
    trainings = [Training(name, path, steps or 0) for name, path in datasets.items()]
    train_side_by_side(workspace, trainings, jobs or workspace.config.train.jobs)


def _check_options(
    role: str | None, every: bool, dataset: Path | None, method: str, parent: str | None, prompt: str | None,
    jobs: int | None,
) -> None:  # fmt: skip
    """Refuse options that do not go together."""
    if bool(role) == every:
        raise InputError("say which roles to train: either --role page_search or --all")
    if prompt and method != "sft":
        raise InputError("--prompt is for --method sft: dpo and kto keep the prompt of the adapter they go on from")
    if parent and method == "sft":
        raise InputError("--on is for --method dpo and kto: sft trains from the base, on all rows")
    if jobs and role:
        raise InputError("--jobs is for --all: it says how many roles are trained side by side")
    if not role and (method != "sft" or prompt):
        raise InputError(f"{'--prompt' if prompt else f'--method {method}'} needs --role")
    if dataset and not role:
        raise InputError("--dataset needs --role")


def _train_preferences(
    workspace: Workspace, role: str, dataset: Path | None, steps: int | None, method: str, parent: str | None
) -> None:
    path = dataset or preferences_file(workspace, role, method)
    fingerprint = _hash(path)
    rows, card, findings = open_preferences(workspace, role, path, method)
    refuse(f"{role} for {method}", findings)
    for finding in findings:
        click.echo(f"audit of {role}: {finding.text}", err=True)
    on = None
    if parent != "base" and (parent or workspace.versions(role)):
        on = next(iter(workspace.adapters([parent or role]).items()))
        if not on[0].startswith(f"{role}@"):
            raise InputError(f"--on {parent} is an adapter of another role")
        made = read_card(on[1])
        for what, theirs, ours in (
            ("prompt", made.prompt, card.prompts[role]),
            ("history", made.history, card.history),
        ):
            if theirs != ours:
                raise DataError(f"{on[0]} was trained with the {theirs} {what}, and these rows have the {ours} one")
    quiet()
    from .preference_training import train_preferences
    from .sft import Task

    config = _with_steps(workspace, steps)
    with workspace.lock(f"train-{role}"):
        # one that a stopped sft training goes on to make is left to it
        number = max(workspace.next_version(role), (workspace.unfinished(role) or 0) + 1)
        task = Task(
            role=role, number=number, dataset=path, dataset_hash=fingerprint, prompt=card.prompts[role],
            history=card.history, target=workspace.adapter(f"{role}@{number}"),
        )  # fmt: skip
        made = train_preferences(rows, task, config, method, on)  # type: ignore[arg-type]  # one of two, by click
    _say(made)


def _hash(dataset: Path) -> str:
    return sha256(dataset) if dataset.is_file() else ""


def _with_steps(workspace: Workspace, steps: int | None) -> Config:
    config = workspace.config
    if steps:
        config = config.model_copy(update={"train": config.train.model_copy(update={"max_steps": steps})})
    return config


def _say(card: AdapterCard) -> None:
    dropped = f", {card.too_long} rows were too long and left out" if card.too_long else ""
    on = f" on {', '.join(card.parents)}" if card.parents else ""
    click.echo(
        f"{card.name}: {card.method}{on}, {card.rows} rows, {card.steps} steps ({card.passes:.1f} passes), "
        f"loss {card.first_loss:.3f} -> {card.last_loss:.3f}, {card.seconds:.0f} s{dropped}"
    )


def _train_one(
    workspace: Workspace, role: str, dataset: Path, steps: int | None, prompt: str | None, version: int | None
) -> None:
    config = _with_steps(workspace, steps)
    quiet()
    fingerprint = _hash(dataset)
    subject, rows_card = open_subject(workspace, role, dataset)
    if fingerprint != _hash(dataset):
        raise DataError(f"{dataset} was changed while it was read: run the same command again")
    findings = run_audit(subject)
    refuse(role, findings)
    for finding in findings:
        click.echo(f"audit of {role}: {finding.text}", err=True)
    mode: Prompt = prompt or rows_card.prompts[role]  # type: ignore[assignment]  # one of two, by click
    examples = with_prompt(subject.examples, role, mode) if mode != rows_card.prompts[role] else subject.examples
    from .adapter import is_main_process
    from .sft import Task, train_role

    lock = f"train-{role}@{version}" if version else f"train-{role}"
    with workspace.lock(lock) if is_main_process() else contextlib.nullcontext():
        number = version or workspace.unfinished(role) or workspace.next_version(role)
        if version and workspace.adapter(f"{role}@{version}").exists():
            raise InputError(f"{role}@{version} is there already, and adapters are not changed")
        task = Task(
            role=role, number=number, dataset=dataset, dataset_hash=fingerprint, prompt=mode, history=rows_card.history,
            target=workspace.adapter(f"{role}@{number}"),
        )  # fmt: skip
        card = train_role(examples, task, config)
    if is_main_process():
        _say(card)
