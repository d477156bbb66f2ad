"""Options that several commands share."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click

from flywheel.config import EngineConfig
from flywheel.errors import InputError
from flywheel.workspace import Workspace

Command = Callable[..., Any]


def open_workspace(context: click.Context) -> Workspace:
    """The workspace that `-w` names, with `-o` on top of its settings."""
    settings = context.find_root().obj
    return Workspace(Path(settings["workspace"]), settings["overrides"])


def engine_option(command: Command) -> Command:
    """`--engine KIND[:MODEL or URL]`."""
    text = "Engine in place of the configured one, such as transformers:embedded, llamacpp:model.gguf or openai:URL."
    return click.option("--engine", metavar="KIND[:MODEL]", help=text)(command)


def question_options(split: str) -> Callable[[Command], Command]:
    """Which questions to take."""

    def add(command: Command) -> Command:
        for option in (
            click.option("--shuffle", type=int, metavar="SEED", help="Shuffle before --limit."),
            click.option("--limit", type=click.IntRange(min=1), help="Take at most so many questions."),
            click.option("--split", default=split, show_default=True, help="Take this split; '' takes all."),
            click.option("--questions", required=True, metavar="FILE", help="JSON Lines file, or `embedded`."),
        ):
            command = option(command)
        return command

    return add


def adapter_options(command: Command) -> Command:
    """Which adapters to use."""
    command = click.option("--no-adapters", is_flag=True, help="Use the base for every role.")(command)
    text = "Adapter to use, `role` or `role@version`; may be repeated. Default: the newest of every role."
    return click.option("--adapter", "adapters", multiple=True, metavar="ROLE[@VERSION]", help=text)(command)


def chosen_adapters(workspace: Workspace, adapters: tuple[str, ...], no_adapters: bool) -> dict[str, Path]:
    """Adapter folders by `role@version`.

    Raises:
        InputError: for contradictory options or unknown adapters.
    """
    if no_adapters and adapters:
        raise InputError("--adapter and --no-adapters exclude each other")
    return {} if no_adapters else workspace.adapters(adapters or None)


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
    if kind not in ("transformers", "llamacpp", "openai"):
        raise InputError(f"unknown engine {kind!r}; engines are transformers, llamacpp and openai")
    change = {"kind": kind}
    if target:
        change["url" if kind == "openai" else "model"] = target
    return configured.model_copy(update=change)
