"""`flywheel serve`."""

import ipaddress
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flywheel.engines import open_engine
from flywheel.errors import DataError, InputError
from flywheel.files import write_text
from flywheel.options import (
    adapter_options,
    broken_adapters,
    chosen_adapters,
    engine_config,
    engine_option,
    open_workspace,
)

from .server import bind, run

if TYPE_CHECKING:
    from .roster import Roster


@click.command()
@engine_option
@adapter_options
@click.option("--host", help="Address to listen on [serve.host].")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on; 0 takes a free one [serve.port].")
@click.option("--strict", is_flag=True, help="End with an error if a role has no adapter, or one that is refused.")
@click.option("--ready-file", type=click.Path(path_type=Path), hidden=True)
@click.pass_context
def serve(
    context: click.Context, engine: str | None, adapters: tuple[str, ...], no_adapters: bool, host: str | None,
    port: int | None, strict: bool, ready_file: Path | None,
) -> None:  # fmt: skip
    """Serve the base and the active adapters over OpenAI's API: the model's name is `base`, a role, or role@version.

    Adapters that cannot be right are refused by name, and the others served; a role without one is played by the base.
    Clients must send the token in the environment variable FLYWHEEL_API_KEY, if it is set.
    """
    from .adapters import sift
    from .choice import choose_engine
    from .roster import Roster

    workspace = open_workspace(context)
    config = workspace.config
    settings = engine_config(config.engine, engine)
    if settings.kind == "auto":
        settings, reason = choose_engine(settings)
        click.echo(f"engine {settings.kind}: {reason}", err=True)
    if settings.kind == "openai":
        raise InputError("serve needs an engine that runs here: transformers, llamacpp or vllm")
    token = os.environ.get(settings.api_key_env, "").strip()
    host = host or config.serve.host
    if not _is_loopback(host) and not token:
        raise InputError(f"listening on {host} lets others in: set {settings.api_key_env} to a token first")
    listener = bind(host, config.serve.port if port is None else port)
    roster = Roster.open(
        lambda good: open_engine(settings, good),
        lambda: chosen_adapters(workspace, adapters, no_adapters),
        lambda chosen: sift(chosen, settings.original or settings.model) | broken_adapters(workspace, chosen),
    )
    try:
        _introduce(roster, strict, asked=adapters)
        shown = f"[{host}]" if ":" in host else host
        url = f"http://{shown}:{listener.getsockname()[1]}/v1"
        click.echo(f"serving {', '.join(roster.names())} at {url} (Ctrl-C ends it)", err=True)
        if ready_file:
            write_text(ready_file, url + "\n")
            _end_with_parent()
        run(roster, listener, config.model_copy(update={"engine": settings}), token)
    finally:
        roster.engine.close()


def _introduce(roster: "Roster", strict: bool, asked: tuple[str, ...]) -> None:
    """Say which adapters are refused and which roles the base plays.

    Raises:
        DataError: when an adapter that was asked for is refused; with `strict`, for any such adapter or role.
    """
    for name, reason in roster.refused.items():
        if strict or name in asked or name.partition("@")[0] in asked:
            raise DataError(f"{name} is refused: {reason}")
        click.echo(f"{name} is refused: {reason}", err=True)
    if roles := roster.without_adapter():
        text = f"{', '.join(roles)} {'has' if len(roles) == 1 else 'have'} no adapter"
        if strict:
            raise DataError(f"{text}; leave out --strict to let the base play")
        if roster.cards:
            click.echo(f"{text}: the base plays", err=True)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _end_with_parent() -> None:
    """End as soon as standard input closes: whoever started us for a while is gone."""

    def watch() -> None:
        while os.read(0, 1 << 16):
            pass
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()
