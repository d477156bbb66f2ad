"""The client of OpenAI-compatible servers, ours and odd ones."""

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from flywheel.cli import flywheel as group
from flywheel.engines import Completion, CompletionRequest, Watch
from flywheel.engines.scripted import ScriptedEngine
from flywheel.errors import ContextExceeded, InfrastructureError, InputError
from flywheel.workspace import Workspace, read_card
from serve.openai_engine import OpenAIEngine
from serve.roster import Roster

from .adapters import make_adapter, request


class _Listing(ScriptedEngine):
    """A scripted engine that lists models as a server with adapters does, and answers with the newest version."""

    def models(self) -> tuple[str, ...]:
        return ("base", "supervisor", "supervisor@3")

    def complete(self, request: CompletionRequest, watch: Watch | None = None) -> Completion:
        completion = super().complete(request, watch)
        return completion.model_copy(
            update={"model": "supervisor@3" if request.model == "supervisor" else request.model}
        )


def test_our_client_and_our_gateway_lose_nothing(gateway: Callable[..., str]) -> None:
    engine = _Listing(lambda request: "Thought: x\n<code>\nprint(1)\n</code> and more")
    client = OpenAIEngine(gateway(engine), "", timeout=10, model="a hub id that no server lists")
    client.refresh_models()
    completion = client.complete(request("Go", "supervisor", stop=("</code>",)))
    assert completion.text == "Thought: x\n<code>\nprint(1)\n"
    assert (completion.stop, completion.finish_reason, completion.model) == ("</code>", "stop", "supervisor@3")
    assert client.complete(request("Go", "wiki_search")).model == "base"
    with pytest.raises(InputError, match="does not serve supervisor@9"):
        client.complete(request("Go", "supervisor@9"))
    client.close()


def test_a_server_tells_how_its_adapters_were_trained(
    gateway: Callable[..., str], qwen2: Path, tmp_path: Path, make_workspace: Callable[..., Workspace]
) -> None:
    """A team with another history must not ask them: it would get wrong answers, and not notice."""
    card = read_card(make_adapter(tmp_path, qwen2, "page_search", 1, 1))
    roster = Roster(ScriptedEngine(lambda request: "x"), cards={card.name: card})
    workspace = make_workspace()
    command = ["-w", str(workspace.folder), "-o", "team.history=summarised", "ask", "Who?", "--engine"]
    result = CliRunner().invoke(group, [*command, f"openai:{gateway(roster)}"])
    assert "page_search is served by an adapter that was trained with team.history=full" in str(result.exception)
    result = CliRunner().invoke(group, [*command, f"openai:{gateway(roster)}", "--no-adapters"])
    assert result.exception is None, result.output


def test_many_clients_wait_at_the_same_time(gateway: Callable[..., str]) -> None:
    together = threading.Barrier(24, timeout=20)

    def meet(request: CompletionRequest) -> str:
        together.wait()
        return "met"

    client = OpenAIEngine(gateway(ScriptedEngine(meet)), "", timeout=30, model="base")
    client.refresh_models()
    with ThreadPoolExecutor(24) as pool:
        texts = [completion.text for completion in pool.map(client.complete, [request(str(n)) for n in range(24)])]
    assert texts == ["met"] * 24
    client.close()


class _Full(BaseHTTPRequestHandler):
    """A server that is full for some requests, then answers."""

    refusals: list[tuple[int, dict[str, str]]] = []
    bodies: list[dict[str, Any]] = []
    asked = 0

    def do_POST(self) -> None:
        type(self).asked += 1
        self.rfile.read(int(self.headers["Content-Length"]))
        status, headers = self.refusals.pop(0) if self.refusals else (200, {})
        choice = {"message": {"role": "assistant", "content": "done"}, "finish_reason": "stop"}
        usual = {"choices": [choice]} if status == 200 else {"error": {"message": "full"}}
        body = json.dumps(self.bodies.pop(0) if self.bodies else usual).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Keep quiet."""


@pytest.fixture
def full_server() -> Iterator[str]:
    """The URL of a server that is full."""
    _Full.asked = 0
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Full)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    _Full.refusals.clear()


def test_a_full_server_is_waited_for(full_server: str) -> None:
    client = OpenAIEngine(full_server, "", timeout=20, model="m")
    client._models = ("m",)
    _Full.refusals.extend([(429, {"Retry-After": "0.01"}), (503, {}), (429, {"Retry-After": "soon"})])
    assert client.complete(request("Go", "m")).text == "done"
    assert _Full.asked == 4
    client.close()


def test_a_server_that_stays_full_is_an_infrastructure_failure(full_server: str) -> None:
    client = OpenAIEngine(full_server, "", timeout=1, model="m")
    client._models = ("m",)
    _Full.refusals.extend([(429, {"Retry-After": "3600"})] * 2)
    with pytest.raises(InfrastructureError, match="answered 429: full"):
        client.complete(request("Go", "m"))
    assert _Full.asked == 1  # an hour is longer than a call may take
    client.close()


@pytest.mark.parametrize(
    "error",
    [
        {"message": "This model's maximum context length is 2048 tokens", "type": "BadRequestError", "code": 400},
        {"message": "the request exceeds the available context size", "type": "exceed_context_size_error", "code": 400},
        {"message": "too long", "code": "context_length_exceeded"},
    ],
    ids=["vllm", "llama.cpp", "openai"],
)
def test_every_server_says_in_its_way_that_the_context_is_full(full_server: str, error: dict[str, Any]) -> None:
    client = OpenAIEngine(full_server, "", timeout=1, model="m")
    client._models = ("m",)
    _Full.refusals.append((400, {}))
    _Full.bodies.append({"error": error})
    with pytest.raises(ContextExceeded):
        client.complete(request("Go", "m"))
    client.close()


@pytest.mark.parametrize(
    "body",
    [
        {"choices": [{"message": {"content": "x"}, "finish_reason": 5}]},
        {"choices": [{"message": {"content": ["x"]}}]},
        {"choices": [{"message": {"content": "x"}}], "usage": {"prompt_tokens": None, "completion_tokens": 1.5}},
        {"choices": []},
        {"error": {"message": "a stray refusal"}},
    ],
)
def test_odd_replies_are_failures_of_the_server(full_server: str, body: dict[str, Any]) -> None:
    client = OpenAIEngine(full_server, "", timeout=1, model="m")
    client._models = ("m",)
    _Full.refusals.append((404 if "error" in body else 200, {}))
    _Full.bodies.append(body)
    with pytest.raises(InfrastructureError):
        client.complete(request("Go", "m"))
    client.close()
