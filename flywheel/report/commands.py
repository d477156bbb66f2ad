"""`flywheel report` and `flywheel view`."""

import threading
import webbrowser
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import click

from flywheel.errors import FlywheelError, InputError
from flywheel.options import open_workspace
from flywheel.workspace import Workspace

from .page import render


@click.command()
@click.option("--out", type=click.Path(path_type=Path), help="File to write. Default: reports/report.html.")
@click.option("--open", "show", is_flag=True, help="Open it in the browser.")
@click.pass_context
def report(context: click.Context, out: Path | None, show: bool) -> None:
    """Write everything that happened as one HTML file, which needs no network and can be sent to others.

    Scores with intervals, where failures began, the funnel, adapters and their lineage, costs, and every rollout as a
    tree, with what is trained on in green.
    """
    workspace = open_workspace(context)
    path = out or workspace.reports / "report.html"
    if path.is_dir():
        raise InputError(f"{path} is a folder: name a file with --out")
    made = render(workspace, path)
    click.echo(f"{path} ({path.stat().st_size / 1e6:.1f} MB, {made.rollouts} rollouts)")
    if show:
        webbrowser.open(path.resolve().as_uri())


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), default=8765, show_default=True, help="0 takes a free one.")
@click.option("--open", "show", is_flag=True, help="Open it in the browser.")
@click.pass_context
def view(context: click.Context, port: int, show: bool) -> None:
    """Serve the report on this machine; loading it again shows what has happened meanwhile."""
    workspace = open_workspace(context)
    viewer = _Viewer(workspace)
    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), viewer.handler())
    except OSError as error:
        raise InputError(f"cannot listen on port {port}: {error.strerror}; choose another with --port") from error
    url = f"http://127.0.0.1:{server.server_address[1]}"
    click.echo(f"the report is at {url} (Ctrl-C ends it)", err=True)
    if show:
        webbrowser.open(url)
    with server:
        server.serve_forever()


class _Viewer:
    """Makes the report anew when the workspace has changed."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._lock = threading.Lock()
        self._seen: tuple[tuple[str, float, int], ...] = ()
        self._path = workspace.cache / "report.html"

    def page(self) -> bytes:
        """The report as it is now."""
        with self._lock:
            if (now := self._stamp()) != self._seen or not self._path.exists():
                render(self._workspace, self._path)
                self._seen = now
            return self._path.read_bytes()

    def _stamp(self) -> tuple[tuple[str, float, int], ...]:
        folder = self._workspace.folder
        patterns = ("traces.sqlite*", "turns/*.json", "adapters/ledger.jsonl", "adapters/*/*/card.json",
                    "datasets/card.json", "reports/*/*")  # fmt: skip
        files = sorted(path for pattern in patterns for path in folder.glob(pattern))
        found = []
        for path in files:
            with suppress(FileNotFoundError):  # it went meanwhile
                found.append((str(path), path.stat().st_mtime, path.stat().st_size))
        return tuple(found)

    def handler(self) -> type[BaseHTTPRequestHandler]:
        """What answers requests."""
        viewer = self

        class Handler(BaseHTTPRequestHandler):
            """Only the page, and only from this machine: another site's page must not read it through the browser."""

            def do_GET(self) -> None:
                host = (self.headers["Host"] or "").partition(":")[0]
                status, body = 404, b"there is only /\n"
                if self.path.partition("?")[0] == "/" and host in ("127.0.0.1", "localhost"):
                    try:
                        status, body = 200, viewer.page()
                    except (FlywheelError, OSError) as error:  # the next request may find it mended
                        status, body = 500, f"the report cannot be made: {error}\n".encode()
                self.send_response(status)
                self.send_header("Content-Type", f"text/{'html' if status == 200 else 'plain'}; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Cache-Control", "no-store")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Keep quiet."""

        return Handler
