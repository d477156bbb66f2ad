"""Options that several commands share."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, get_args

import click

from flywheel.config import Config, EngineConfig, SourceConfig
from flywheel.errors import DataError, InputError
from flywheel.records import AdapterCard, Prompt
from flywheel.workspace import Workspace, read_card

Command = Callable[..., Any]


def open_workspace(context: click.Context) -> Workspace:
    """The workspace that `-w` names, with `-o` on top of its settings."""
    settings = context.find_root().obj
    return Workspace(Path(settings["workspace"]), settings["overrides"])


def engine_option(command: Command) -> Command:
    """`--engine KIND[:MODEL or URL]`."""
    text = "Engine in place of the configured one, such as transformers:embedded, llamacpp:model.gguf or openai:URL."
    return click.option("--engine", metavar="KIND[:MODEL]", help=text)(command)


def source_options(command: Command) -> Command:
    """`--source KIND[:PATH]` and `--offline`."""
    text = "Answer from what earlier runs have fetched, without the network [source.offline]."
    command = click.option("--offline", is_flag=True, help=text)(command)
    text = (
        "Pages in place of the configured ones: wikipedia, zim:FILE, corpus:FILE, or questions, the paragraphs that "
        "come with the questions."
    )
    return click.option("--source", metavar="KIND[:PATH]", help=text)(command)


def question_options(split: str, required: bool = True) -> Callable[[Command], Command]:
    """Which questions to take."""

    def add(command: Command) -> Command:
        for option in (
            click.option(
                "--map",
                "names",
                multiple=True,
                metavar="FIELD=NAME",
                help="The file's name for a field: id, question, answer, aliases, kind or split. May be repeated.",
            ),
            click.option("--shuffle", type=int, metavar="SEED", help="Shuffle before --limit."),
            click.option("--limit", type=click.IntRange(min=1), help="Take at most so many questions."),
            click.option("--split", default=split, show_default=True, help="Take this split; '' takes all."),
            click.option(
                "--questions",
                required=required,
                metavar="FILE",
                help="JSON Lines, JSON, CSV or Parquet, `hf:dataset[/config][:split]`, or `embedded`.",
            ),
        ):
            command = option(command)
        return command

    return add


def adapter_options(command: Command) -> Command:
    """Which adapters to use."""
    command = click.option("--no-adapters", is_flag=True, help="Use the base for every role.")(command)
    text = "Adapter to use, `role` or `role@version`; may be repeated. Default: the active ones."
    return click.option("--adapter", "adapters", multiple=True, metavar="ROLE[@VERSION]", help=text)(command)


def chosen_adapters(workspace: Workspace, adapters: tuple[str, ...], no_adapters: bool) -> dict[str, Path]:
    """Adapter folders by `role@version`: the named ones, or those that are active.

    Raises:
        InputError: for contradictory options or unknown adapters.
    """
    from flywheel.registry import Registry

    if no_adapters and adapters:
        raise InputError("--adapter and --no-adapters exclude each other")
    if no_adapters or adapters:
        return workspace.adapters(adapters) if adapters else {}
    registry = Registry(workspace)
    active, candidates = registry.folders(), registry.candidates()
    if not active and candidates:
        click.echo(
            f"the base plays all roles: {', '.join(candidates.values())} are candidates. Prove them with flywheel "
            "evaluate and flywheel promote, or name them with --adapter ROLE",
            err=True,
        )
    return active


def team_adapters(
    workspace: Workspace, adapters: tuple[str, ...], no_adapters: bool
) -> tuple[dict[str, Path], dict[str, Prompt]]:
    """As `chosen_adapters`, for a team that runs here; and the prompt of each role that an adapter was trained with.

    Raises:
        InputError: when the adapters were trained with another history than the team has.
        DataError: when an active adapter is not what was promoted.
    """
    chosen = chosen_adapters(workspace, adapters, no_adapters)
    for reason in broken_adapters(workspace, chosen).values():
        raise DataError(reason)
    return chosen, {card.role: card.prompt for card in team_cards(workspace.config, chosen)}


def broken_adapters(workspace: Workspace, chosen: Iterable[str]) -> dict[str, str]:
    """Those of the chosen adapters that are active and not what was promoted, each with the reason."""
    from flywheel.registry import Registry

    return {name: reason for name, reason in Registry(workspace).broken().items() if name in chosen}


def team_cards(config: Config, adapters: Mapping[str, Path]) -> list[AdapterCard]:
    """The cards of adapters for a team that runs here.

    Raises:
        InputError: when one was trained with another history than the team has.
    """
    cards = [read_card(folder) for folder in adapters.values()]
    for card in cards:
        if card.history != config.team.history:
            raise InputError(
                f"{card.name} was trained with team.history={card.history}, and here it is "
                f"{config.team.history}: add -o team.history={card.history}, or leave the adapters with "
                "--no-adapters"
            )
    return cards


def versions_by_role(adapters: Iterable[str]) -> dict[str, str]:
    """`role@version` by role."""
    return {adapter.partition("@")[0]: adapter for adapter in adapters}


def engine_config(configured: EngineConfig, text: str | None) -> EngineConfig:
    """The engine's settings, changed by `--engine`.

    Raises:
        InputError: for an unknown kind.
    """
    if not text:
        return configured
    kind, _, target = text.partition(":")
    kinds = get_args(EngineConfig.model_fields["kind"].annotation)
    if kind not in kinds:
        raise InputError(f"unknown engine {kind!r}; engines are {', '.join(kinds)}")
    change = {"kind": kind}
    if target:
        change["url" if kind == "openai" else "model"] = target
    return configured.model_copy(update=change)


def source_config(
    configured: SourceConfig, text: str | None, offline: bool = False, questions: str = ""
) -> SourceConfig:
    """The source's settings, changed by `--source` and `--offline`.

    Args:
        questions: the file of questions, whose paragraphs `questions` takes.

    Raises:
        InputError: for an unknown kind.
    """
    change: dict[str, Any] = {"offline": True} if offline else {}
    if text:
        kind, _, path = text.partition(":")
        if kind not in ("wikipedia", "zim", "corpus", "questions"):
            raise InputError(f"unknown source {kind!r}; sources are wikipedia, zim, corpus and questions")
        change |= {"kind": kind, "path": path}
    changed = configured.model_copy(update=change)
    if changed.kind == "questions" and not changed.path:
        changed = changed.model_copy(update={"path": questions})
    return changed
