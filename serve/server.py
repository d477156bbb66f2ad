"""Runs the gateway, and starts it as a child process for those who need one for a while."""

import contextlib
import errno
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flywheel.config import Config
from flywheel.errors import InfrastructureError, InputError

if TYPE_CHECKING:
    from .roster import Roster

_START_TIMEOUT = 600.0
"""Seconds that a server may take to load its model."""


def bind(host: str, port: int) -> socket.socket:
    """A listening socket, taken before a model is loaded.

    Raises:
        InputError: when the port is in use or the host is not ours.
    """
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        hint = "; choose another with --port" if error.errno in (errno.EADDRINUSE, errno.EACCES) else ""
        raise InputError(f"cannot listen on {host}:{port}: {error.strerror}{hint}") from error
    return listener


def run(roster: "Roster", listener: socket.socket, config: Config, token: str) -> None:
    """Serve until interrupted; then no request is taken any more, and those in flight are finished."""
    import uvicorn

    from .app import create_app
    from .gateway import Gateway

    settings = config.serve
    limit = settings.max_tokens or config.engine.context
    gateway = Gateway(roster, min(config.engine.max_tokens, limit), limit, settings.queue)
    app = create_app(gateway, token, int(settings.request_megabytes * (1 << 20)))
    options = uvicorn.Config(
        app, log_level="warning", access_log=False, ws="none", timeout_graceful_shutdown=settings.drain_seconds + 10
    )

    class Server(uvicorn.Server):
        """Ends requests itself, so that their clients are told, when the time is over or at a second Ctrl-C."""

        def handle_exit(self, sig: int, frame: Any) -> None:
            if self.should_exit:
                gateway.end()
                return
            super().handle_exit(sig, frame)
            timer = threading.Timer(settings.drain_seconds, gateway.end)
            timer.daemon = True
            timer.start()

    Server(options).run(sockets=[listener])


@contextlib.contextmanager
def running(workspace: Path, adapters: Sequence[str], overrides: Sequence[str]) -> Iterator[str]:
    """Run `flywheel serve` as a child process; gives its URL, and ends it afterwards.

    Raises:
        InfrastructureError: when the server ends before it answers; holds its last line.
    """
    with tempfile.TemporaryDirectory() as folder:
        ready, log = Path(folder) / "url", Path(folder) / "log"
        command = [sys.executable, "-m", "flywheel", "-w", str(workspace)]
        for override in overrides:
            command += ["-o", override]
        command += ["serve", "--port", "0", "--ready-file", str(ready)]
        for adapter in adapters:
            command += ["--adapter", adapter]
        if not adapters:
            command += ["--no-adapters"]
        with log.open("wb") as output:
            child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=output)
        try:
            yield _wait(child, ready, log)
        finally:
            child.terminate()
            try:
                child.wait(timeout=20)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def _wait(child: subprocess.Popen[bytes], ready: Path, log: Path) -> str:
    deadline = time.monotonic() + _START_TIMEOUT
    while time.monotonic() < deadline:
        if ready.exists():
            return ready.read_text(encoding="utf-8").strip()
        if child.poll() is not None:
            lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            raise InfrastructureError(f"the server did not start: {lines[-1] if lines else 'it ended without a word'}")
        time.sleep(0.1)
    raise InfrastructureError("the server took too long to load its model")
