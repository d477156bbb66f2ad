"""The gateway on a free port, for tests."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from flywheel.engines import Engine
from serve.app import create_app
from serve.gateway import Gateway
from serve.roster import Roster
from serve.server import bind


@contextmanager
def running_gateway(
    served: Engine | Roster, token: str = "", request_bytes: int = 8 << 20, **options: Any
) -> Iterator[str]:
    """Its URL. The server runs on a thread of this process."""
    listener = bind("127.0.0.1", 0)
    roster = served if isinstance(served, Roster) else Roster(served)
    app = create_app(Gateway(roster, **options), token, request_bytes)
    server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    server.should_exit = True
    thread.join(10)
