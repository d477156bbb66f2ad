"""`flywheel serve`."""

import os
import sys
import threading
from pathlib import Path

import click

from flywheel.engines import open_engine
from flywheel.errors import InputError
from flywheel.files import write_text
from flywheel.options import adapter_options, chosen_adapters, engine_config, engine_option, open_workspace

from .server import bind, run


@click.command()
@engine_option
@adapter_options
@click.option("--host", help="Address to listen on [serve.host].")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on; 0 takes a free one [serve.port].")
@click.option("--ready-file", type=click.Path(path_type=Path), hidden=True)
@click.pass_context
def serve(
    context: click.Context, engine: str | None, adapters: tuple[str, ...], no_adapters: bool, host: str | None,
    port: int | None, ready_file: Path | None,
) -> None:  # fmt: skip
    """Serve the base and all adapters over OpenAI's API: the model's name is `base`, a role, or role@version.

    Clients must send the token in the environment variable FLYWHEEL_API_KEY, if it is set.
    """
    workspace = open_workspace(context)
    config = workspace.config
    settings = engine_config(config.engine, engine)
    if settings.kind == "openai":
        raise InputError("serve needs an engine that runs here: transformers or llamacpp")
    active = {} if settings.kind == "llamacpp" and not adapters else chosen_adapters(workspace, adapters, no_adapters)
    token = os.environ.get(settings.api_key_env, "")
    host = host or config.serve.host
    if host not in ("127.0.0.1", "localhost", "::1") and not token:
        raise InputError(f"listening on {host} lets others in: set {settings.api_key_env} to a token first")
    listener = bind(host, config.serve.port if port is None else port)
    opened = open_engine(settings, active)
    url = f"http://{host}:{listener.getsockname()[1]}/v1"
    click.echo(f"serving {', '.join(opened.models())} at {url} (Ctrl-C ends it)", err=True)
    if ready_file:
        write_text(ready_file, url + "\n")
        _end_with_parent()
    try:
        run(opened, listener, settings.max_tokens, token, concurrency=max(256, 4 * settings.batch))
    finally:
        opened.close()


def _end_with_parent() -> None:
    """End as soon as standard input closes: whoever started us for a while is gone."""

    def watch() -> None:
        sys.stdin.buffer.read()
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()
