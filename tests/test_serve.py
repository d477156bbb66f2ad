"""The in-process engine against transformers and PEFT, and the HTTP gateway against real clients."""

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import torch
import uvicorn
from safetensors.torch import load_file, save_file

from flywheel.base_model import base_hash, load_model, load_tokenizer
from flywheel.chat import prompt_ids
from flywheel.config import EngineConfig
from flywheel.engines import Completion, CompletionRequest, Engine, Watch, open_engine
from flywheel.engines.scripted import ScriptedEngine
from flywheel.errors import ContextExceeded, DataError, InfrastructureError, InputError
from flywheel.files import sha256
from flywheel.records import AdapterCard, Message
from serve.app import create_app
from serve.gateway import Gateway
from serve.names import resolve_model
from serve.openai_engine import OpenAIEngine
from serve.roster import Roster
from serve.sampling import Draw, next_tokens
from serve.server import bind

ROLES = ("supervisor", "wiki_search", "page_search")
SYSTEM = Message(role="system", content="Answer in Python steps.")


def request(text: str, model: str = "base", **options: Any) -> CompletionRequest:
    """A request for a short completion."""
    messages = (SYSTEM, Message(role="user", content=text))
    return CompletionRequest(messages=messages, model=model, **{"max_tokens": 12, **options})


def make_adapter(folder: Path, base: Path, role: str, version: int, seed: int) -> Path:
    """A random adapter with a strong effect, saved by PEFT, with the card that training would write."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(seed)
    lora = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", init_lora_weights=False, task_type="CAUSAL_LM")
    model = get_peft_model(load_model(base, "float32"), lora)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            parameter.data.mul_(0.3)
    target = folder / role / str(version)
    model.save_pretrained(target)
    card = AdapterCard(
        role=role, version=version, base=str(base), base_hash=base_hash(base), prompt="compact", history="full", rank=4,
        alpha=8, learning_rate=1e-3, steps=1, rows=1, trained_tokens=1, first_loss=1, last_loss=1, seconds=1,
        dataset="none", dataset_hash="", weights_hash=sha256(target / "adapter_model.safetensors"), created="",
        versions={},
    )  # fmt: skip
    (target / "card.json").write_text(card.model_dump_json())
    return target


@pytest.fixture(scope="module", params=["qwen2", "llama"])
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Engine, Path, dict[str, Path]]]:
    """An engine with three adapters, its base, and the adapters' folders."""
    base = request.getfixturevalue(request.param)
    folder = tmp_path_factory.mktemp("adapters")
    adapters = {f"{role}@1": make_adapter(folder, base, role, 1, seed) for seed, role in enumerate(ROLES)}
    config = EngineConfig(model=str(base), context=256, batch=4, dtype="float32", threads=1)
    engine = open_engine(config, adapters)
    yield engine, base, adapters
    engine.close()


def reference(base: Path, adapter: Path | None, asked: CompletionRequest) -> str:
    """What transformers' own generate, with PEFT, makes of a request at temperature 0."""
    from peft import PeftModel

    tokenizer = load_tokenizer(base)
    model = load_model(base, "float32")
    if adapter:
        model = PeftModel.from_pretrained(model, adapter)
    ids = torch.tensor([prompt_ids(tokenizer, asked.messages)])
    with torch.no_grad():
        out = model.generate(input_ids=ids, max_new_tokens=asked.max_tokens, do_sample=False)
    text: str = tokenizer.decode(out[0, ids.shape[1] :])
    return text.partition("<|im_end|>")[0]


def test_each_adapter_answers_as_in_peft_and_the_base_stays_the_base(
    served: tuple[Engine, Path, dict[str, Path]],
) -> None:
    engine, base, adapters = served
    texts = set()
    for name, folder in [("base", None), *adapters.items(), ("base", None)]:
        asked = request("Where is the Eiffel Tower?", name)
        completion = engine.complete(asked)
        assert completion.text == reference(base, folder, asked)
        assert completion.model == name
        texts.add(completion.text)
    assert len(texts) == 4


def test_many_roles_at_once_give_what_each_gives_alone(served: tuple[Engine, Path, dict[str, Path]]) -> None:
    engine, _, adapters = served
    asked = [
        request(f"Question {number} " + "about rivers " * (number % 7), name, session=f"run {number}")
        for number in range(12)
        for name in ("base", *adapters)
    ]
    alone = [engine.complete(one.model_copy(update={"session": ""})).text for one in asked]
    with ThreadPoolExecutor(16) as pool:
        together = [completion.text for completion in pool.map(engine.complete, asked)]
    assert together == alone


def test_a_cached_prefix_never_crosses_adapters(served: tuple[Engine, Path, dict[str, Path]]) -> None:
    engine, base, adapters = served
    first = request("Tell me about the river Thames.", "supervisor@1", session="same")
    engine.complete(first)
    for name, folder in [("wiki_search@1", adapters["wiki_search@1"]), ("base", None)]:
        other = first.model_copy(update={"model": name})
        assert engine.complete(other).text == reference(base, folder, other)


def test_a_conversation_goes_on_from_its_cache(served: tuple[Engine, Path, dict[str, Path]]) -> None:
    engine, base, _ = served
    first = request("Tell me about the river Rhine.", session="talk")
    said = engine.complete(first).text
    more = (*first.messages, Message(role="assistant", content=said), Message(role="user", content="And then?"))
    second = first.model_copy(update={"messages": more})
    assert engine.complete(second).text == reference(base, None, second)


def test_stop_texts_end_a_completion_and_are_told(served: tuple[Engine, Path, dict[str, Path]]) -> None:
    engine, _, _ = served
    whole = engine.complete(request("Say something.", max_tokens=12)).text
    stop = whole[4:7]
    completion = engine.complete(request("Say something.", stop=(stop,)))
    assert completion.text == whole[: whole.find(stop)]
    assert (completion.finish_reason, completion.stop) == ("stop", stop)


def test_sampling_depends_on_the_seed_alone(served: tuple[Engine, Path, dict[str, Path]]) -> None:
    engine, _, _ = served
    asked = [request("Dice?", temperature=1.0, seed=seed) for seed in (1, 2, 1)]
    with ThreadPoolExecutor(3) as pool:
        first, second, third = (completion.text for completion in pool.map(engine.complete, asked))
    assert first == third != second


def test_lengths_and_counts(served: tuple[Engine, Path, dict[str, Path]]) -> None:
    engine, base, _ = served
    asked = request("Count.", max_tokens=3)
    completion = engine.complete(asked)
    assert completion.finish_reason == "length"
    assert completion.completion_tokens == 3
    assert completion.prompt_tokens == len(prompt_ids(load_tokenizer(base), asked.messages))
    with pytest.raises(ContextExceeded, match="context is 256"):
        engine.complete(request("long " * 400))


def test_roles_and_versions_are_names(served: tuple[Engine, Path, dict[str, Path]]) -> None:
    engine, _, _ = served
    assert engine.models() == ("base", *ROLES, *(f"{role}@1" for role in ROLES))
    assert engine.complete(request("Hello", "supervisor")).model == "supervisor@1"
    with pytest.raises(InputError, match="no model 'supervisor@9'"):
        engine.complete(request("Hello", "supervisor@9"))
    assert resolve_model("page_search", ["page_search@2", "page_search@10"]) == "page_search@10"
    assert resolve_model("wiki_search", ["page_search@2"]) == "base"


def _damage(folder: Path, **change: Any) -> None:
    """Change the tensors of an adapter, and let its card agree."""
    path = folder / "adapter_model.safetensors"
    tensors = load_file(path)
    save_file({name: change["to"](tensor) for name, tensor in tensors.items()}, path)
    card = AdapterCard.model_validate_json((folder / "card.json").read_text())
    card = card.model_copy(update={"weights_hash": sha256(path)})
    (folder / "card.json").write_text(card.model_dump_json())


def test_adapters_that_cannot_be_right_are_refused(qwen2: Path, llama: Path, tmp_path: Path) -> None:
    config = EngineConfig(model=str(qwen2), context=128, batch=1, dtype="float32", threads=1)

    def refused(folder: Path, reason: str) -> None:
        with pytest.raises(DataError, match=reason):
            open_engine(config, {"supervisor@1": folder})

    refused(make_adapter(tmp_path / "other", llama, "supervisor", 1, 0), "was trained on")
    folder = make_adapter(tmp_path / "zero", qwen2, "supervisor", 1, 0)
    _damage(folder, to=torch.zeros_like)
    refused(folder, "changes nothing")
    folder = make_adapter(tmp_path / "nan", qwen2, "supervisor", 1, 0)
    _damage(folder, to=lambda tensor: tensor * float("nan"))
    refused(folder, "not finite")
    folder = make_adapter(tmp_path / "shape", qwen2, "supervisor", 1, 0)
    _damage(folder, to=lambda t: torch.ones(t.shape[0], t.shape[1] + 1) if t.shape[0] == 4 else t)
    refused(folder, "another size")
    folder = make_adapter(tmp_path / "changed", qwen2, "supervisor", 1, 0)
    save_file(load_file(folder / "adapter_model.safetensors"), folder / "adapter_model.safetensors", {"a": "b"})
    refused(folder, "not those its card was written for")
    refused(tmp_path / "nowhere", "cannot read .*card.json")


def test_models_that_cannot_be_served_are_refused() -> None:
    with pytest.raises(InputError, match="needs a GGUF file"):
        open_engine(EngineConfig(kind="llamacpp", model="/nowhere.gguf"))
    with pytest.raises(InfrastructureError, match="no answer from"):
        open_engine(EngineConfig(kind="openai", url="http://127.0.0.1:9/v1"))


@pytest.fixture
def gateway() -> Iterator[Callable[..., str]]:
    """Starts the gateway over an engine on a free port; gives its URL."""
    servers: list[tuple[uvicorn.Server, threading.Thread]] = []

    def start(engine: Engine | Roster, token: str = "", request_bytes: int = 8 << 20, **options: Any) -> str:
        listener = bind("127.0.0.1", 0)
        roster = engine if isinstance(engine, Roster) else Roster(engine)
        app = create_app(Gateway(roster, **options), token, request_bytes)
        server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{listener.getsockname()[1]}/v1"

    yield start
    for server, thread in servers:
        server.should_exit = True
        thread.join(10)


def echo(request: CompletionRequest) -> str:
    """Repeats what it was sent, so that a test sees what arrived."""
    return f"{request.model}|{request.messages[-1].content}|{request.max_tokens}|{request.temperature}|{request.seed}"


def test_the_openai_client_talks_to_roles(gateway: Callable[..., str]) -> None:
    client = openai.OpenAI(base_url=gateway(ScriptedEngine(echo)), api_key="none")
    parts: Any = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]
    reply = client.chat.completions.create(
        model="page_search",
        messages=[{"role": "user", "content": parts}],
        max_completion_tokens=7,
        temperature=0,
        seed=5,
    )
    assert reply.choices[0].message.content == "page_search|Hello|7|0.0|5"
    assert reply.choices[0].finish_reason == "stop"
    assert reply.model == "page_search"
    assert reply.usage is not None and reply.usage.total_tokens > 0
    assert [model.id for model in client.models.list()] == ["base"]


def test_streaming_follows_the_protocol(gateway: Callable[..., str]) -> None:
    client = openai.OpenAI(base_url=gateway(ScriptedEngine(echo)), api_key="none")
    chunks = list(
        client.chat.completions.create(
            model="base",
            messages=[{"role": "user", "content": "Hi"}],
            stream=True,
            stream_options={"include_usage": True},
            stop="|1",
        )
    )
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices).startswith("base|Hi")
    reasons = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices]
    assert set(reasons[:-1]) == {None} and reasons[-1] == "stop"
    assert chunks[-1].choices == [] and chunks[-1].usage is not None
    raw = httpx.post(
        str(client.base_url) + "chat/completions",
        json={"model": "base", "messages": [{"role": "user", "content": "Hi"}], "stream": True},
    )
    assert raw.text.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"model": "base"}, 400, "invalid_request"),
        ({"model": "base", "messages": []}, 400, "invalid_request"),
        ({"model": "base", "messages": [{"role": "user", "content": "x"}], "temperature": -1}, 400, "invalid_request"),
        ({"model": "nobody", "messages": [{"role": "user", "content": "x"}]}, 404, "model_not_found"),
        ({"model": "down", "messages": [{"role": "user", "content": "x"}]}, 503, "engine_failed"),
        ({"model": "long", "messages": [{"role": "user", "content": "x"}]}, 400, "context_length_exceeded"),
        ("not json", 400, "invalid_request"),
    ],
)
def test_errors_have_openais_shape(gateway: Callable[..., str], body: Any, status: int, code: str) -> None:
    def fail(request: CompletionRequest) -> str:
        errors = {"nobody": InputError("no such"), "down": InfrastructureError("gone"), "long": ContextExceeded("long")}
        raise errors[request.model]

    url = gateway(ScriptedEngine(fail))
    content = body if isinstance(body, str) else json.dumps(body)
    reply = httpx.post(f"{url}/chat/completions", content=content, headers={"Content-Type": "application/json"})
    assert reply.status_code == status
    error = reply.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] == code
    assert httpx.get(f"{url}/nothing").json()["error"]["code"] == "not_found"


def test_a_token_is_asked_for_where_one_is_set(gateway: Callable[..., str]) -> None:
    url = gateway(ScriptedEngine(echo), token="secret")
    assert httpx.get(f"{url}/models").status_code == 401
    assert httpx.get(f"{url}/models", headers={"Authorization": "Bearer wrong"}).status_code == 401
    assert httpx.get(f"{url}/models", headers={"Authorization": "Bearer secret"}).status_code == 200
    assert httpx.get(url.removesuffix("/v1") + "/health").status_code == 200


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
    client = OpenAIEngine(gateway(engine), "", timeout=10, model="base")
    client.refresh_models()
    completion = client.complete(request("Go", "supervisor", stop=("</code>",)))
    assert completion.text == "Thought: x\n<code>\nprint(1)\n"
    assert (completion.stop, completion.finish_reason, completion.model) == ("</code>", "stop", "supervisor@3")
    assert client.complete(request("Go", "wiki_search")).model == "base"
    with pytest.raises(InputError, match="does not serve supervisor@9"):
        client.complete(request("Go", "supervisor@9"))
    client.close()


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


def test_a_port_in_use_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(InputError, match="choose another with --port"):
            bind("127.0.0.1", taken.getsockname()[1])


def test_tokens_are_drawn_as_often_as_they_are_likely() -> None:
    likely = torch.tensor([0.5, 0.3, 0.15, 0.05])
    draws = [Draw.of(request("x", temperature=0.5, seed=seed)) for seed in range(3)]
    greedy, nucleus = Draw.of(request("x")), Draw.of(request("x", temperature=0.5, top_p=0.7))
    logits = (likely.log() * 0.5).repeat(5, 1)
    drawn = [next_tokens(logits, [*draws, greedy, nucleus]) for _ in range(1500)]
    counts = torch.bincount(torch.tensor([token for row in drawn for token in row[:3]]), minlength=4) / 4500
    assert torch.allclose(counts, likely, atol=0.03)
    assert {row[3] for row in drawn} == {0}
    kept = torch.bincount(torch.tensor([row[4] for row in drawn]), minlength=4) / 1500
    assert torch.allclose(kept, torch.tensor([0.625, 0.375, 0, 0]), atol=0.05)  # 0.5 and 0.3 reach 0.7


@pytest.fixture(scope="module")
def packaged() -> Path:
    """The packaged language model; where it is not installed these tests are skipped, except on CI."""
    from flywheel.packaged_models import packaged_language_model

    try:
        return packaged_language_model()
    except InputError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


def test_llamacpp_answers_with_the_packaged_model(packaged: Path) -> None:
    engine = open_engine(EngineConfig(kind="llamacpp", model="embedded", context=512, batch=2, threads=1))
    asked = request("What is the capital of France?", "supervisor", max_tokens=24)
    first = engine.complete(asked)
    assert "Paris" in first.text
    assert first.model == "base"
    assert first.prompt_tokens > 10
    assert engine.complete(asked).text == first.text
    assert engine.complete(asked.model_copy(update={"stop": ("Paris",)})).text == first.text.partition("Paris")[0]
    assert engine.complete(asked.model_copy(update={"max_tokens": 2})).finish_reason == "length"
    with pytest.raises(ContextExceeded):
        engine.complete(request("long " * 900))
    with pytest.raises(InputError, match="no model 'supervisor@1'"):
        engine.complete(request("Hello", "supervisor@1"))
    engine.close()


def test_transformers_reads_the_same_gguf(packaged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from flywheel.base_model import resolve_folder

    monkeypatch.setenv("FLYWHEEL_CACHE", str(tmp_path))
    folder = resolve_folder(str(packaged))
    assert resolve_folder("embedded") == folder
    engine = open_engine(EngineConfig(model="embedded", context=256, batch=1, threads=1))
    assert "Paris" in engine.complete(request("What is the capital of France?", max_tokens=24)).text
    engine.close()
