"""The HTTP gateway, with the real `openai` client and with raw HTTP."""

import json
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from safetensors.torch import load_file, save_file

from flywheel.config import EngineConfig
from flywheel.engines import Completion, CompletionRequest, Watch, open_engine
from flywheel.engines.scripted import ScriptedEngine
from flywheel.errors import Cancelled, ContextExceeded, InfrastructureError, InputError, UnknownModel
from flywheel.files import sha256
from flywheel.records import AdapterCard, Message
from flywheel.stages import stage
from flywheel.workspace import read_record
from serve.adapters import sift
from serve.openai_engine import OpenAIEngine
from serve.roster import Roster
from serve.server import bind

from .adapters import make_adapter


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
    assert reply.choices[0].message.content == "base|Hello|7|0.0|5"
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
        ({"model": "base", "messages": [{"role": "user", "content": "down"}]}, 503, "engine_failed"),
        ({"model": "base", "messages": [{"role": "user", "content": "long"}]}, 400, "context_length_exceeded"),
        ({"model": "base", "messages": [{"role": "user", "content": "odd"}]}, 400, "invalid_request"),
        (
            {"model": "\ud800", "messages": [{"role": "user", "content": "x"}], "max_tokens": 10**9},
            404,
            "model_not_found",
        ),
        ({"model": "base", "messages": [{"role": "user", "content": "x"}], "stop": ["\ud800"]}, 400, "invalid_request"),
        ("not json", 400, "invalid_request"),
        ("[" * 200_000, 400, "invalid_request"),
        (b"\xff\xfe", 400, "invalid_request"),
        ("1" * 6000, 400, "invalid_request"),
    ],
)
def test_errors_have_openais_shape(gateway: Callable[..., str], body: Any, status: int, code: str) -> None:
    def fail(request: CompletionRequest) -> str:
        errors = {"odd": InputError("odd"), "down": InfrastructureError("gone"), "long": ContextExceeded("long")}
        raise errors[request.messages[0].content]

    url = gateway(ScriptedEngine(fail))
    content = body if isinstance(body, (str, bytes)) else json.dumps(body)
    reply = httpx.post(f"{url}/chat/completions", content=content, headers={"Content-Type": "application/json"})
    assert reply.status_code == status
    error = reply.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] == code
    assert httpx.get(f"{url}/nothing").json()["error"]["code"] == "not_found"
    assert httpx.get(f"{url}/models/").json()["error"]["code"] == "not_found"
    told = httpx.post(f"{url}/chat/completions", content="{}").json()["error"]["message"]
    assert "Content-Type: application/json" in told
    assert httpx.get(url.removesuffix("/v1") + "/metrics").status_code == 200


def test_a_token_is_asked_for_where_one_is_set(gateway: Callable[..., str]) -> None:
    url = gateway(ScriptedEngine(echo), token="secret")
    assert httpx.get(f"{url}/models").status_code == 401
    assert httpx.get(f"{url}/models", headers={"Authorization": "Bearer wrong"}).status_code == 401
    assert httpx.get(f"{url}/models", headers={"Authorization": "Bearer secret"}).status_code == 200
    assert httpx.get(f"{url}/models", headers={"Authorization": "bearer secret"}).status_code == 200
    assert httpx.get(f"{url}/models", headers={"Authorization": "Basic secret"}).status_code == 401
    assert httpx.get(url.removesuffix("/v1") + "/health").status_code == 200


def test_a_port_in_use_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(InputError, match="choose another with --port"):
            bind("127.0.0.1", taken.getsockname()[1])


def chat(url: str, model: str = "base", **options: Any) -> httpx.Response:
    """A request over raw HTTP."""
    body = {"model": model, "messages": [{"role": "user", "content": "Hi"}], **options}
    return httpx.post(f"{url}/chat/completions", json=body, timeout=30)


def events(reply: httpx.Response) -> list[dict[str, Any]]:
    """The events of a stream, which must end in [DONE]."""
    lines = [line.removeprefix("data: ") for line in reply.text.strip().split("\n\n")]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def test_a_stream_event_by_event(gateway: Callable[..., str]) -> None:
    url = gateway(ScriptedEngine(lambda request: "one two three"))
    found = events(chat(url, "supervisor", stream=True, stream_options={"include_usage": True}))
    *pieces, last, usage = found
    assert {event["object"] for event in found} == {"chat.completion.chunk"}
    assert {event["model"] for event in found} == {"supervisor"}
    assert len({event["id"] for event in found}) == 1
    assert pieces[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert [event["choices"][0]["delta"]["content"] for event in pieces[1:]] == ["one", " two", " three"]
    assert {event["choices"][0]["finish_reason"] for event in pieces} == {None}
    assert (last["choices"][0]["delta"], last["choices"][0]["finish_reason"]) == ({}, "stop")
    assert usage["choices"] == [] and usage["usage"]["completion_tokens"] == 3
    assert "usage" not in events(chat(url, stream=True))[-1]


def test_plain_completions(gateway: Callable[..., str]) -> None:
    engine = ScriptedEngine(lambda request: f"{request.prompt}|{request.messages}|and so on")
    client = openai.OpenAI(base_url=gateway(engine), api_key="none")
    reply = client.completions.create(model="base", prompt="Once", max_tokens=5)
    assert reply.choices[0].text == "Once|()|and so on"
    pieces = list(client.completions.create(model="base", prompt=["Once"], stream=True, stop=" so"))
    assert "".join(piece.choices[0].text for piece in pieces) == "Once|()|and"
    assert pieces[-1].choices[0].finish_reason == "stop"


@pytest.mark.parametrize(
    "change",
    [
        {"n": 2}, {"tools": [{"type": "function"}]}, {"presence_penalty": 0.5}, {"response_format": {"type": "json"}},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": None}]}]}, {"top_k": 5}, {"min_p": 0.1},
        {"messages": [{"role": "assistant", "content": "", "tool_calls": [{"id": "x"}]}]}, {"ignore_eos": True},
        {"tool_choice": "required"}, {"repetition_penalty": 1.1}, {"guided_json": {}},
        {"messages": [{"role": "tool", "content": "x"}]}, {"max_tokens": 0}, {"max_tokens": 10**6}, {"top_p": 0},
        {"top_logprobs": 21}, {"stop": 5}, {"messages": [{"role": "user", "content": "\ud800"}]},
    ],
    ids=str,
)  # fmt: skip
def test_what_would_be_answered_wrongly_is_refused(gateway: Callable[..., str], change: dict[str, Any]) -> None:
    url = gateway(ScriptedEngine(echo))
    body = {"model": "base", "messages": [{"role": "user", "content": "Hi"}], **change}
    reply = httpx.post(f"{url}/chat/completions", content=json.dumps(body).encode("ascii"))
    assert reply.status_code == 400
    assert reply.json()["error"]["type"] == "invalid_request_error"


def test_what_changes_nothing_is_accepted(gateway: Callable[..., str]) -> None:
    harmless = {
        "n": 1, "tools": [], "presence_penalty": 0, "frequency_penalty": 0.0, "logit_bias": {}, "user": "me",
        "response_format": {"type": "text"}, "stop": None, "logprobs": False, "parallel_tool_calls": False,
        "max_completion_tokens": None, "stream_options": None, "stream": None,
        "tool_choice": "auto", "top_k": -1, "temperature": None, "store": False, "unheard_of": 5,
    }  # fmt: skip
    assert chat(gateway(ScriptedEngine(echo)), **harmless).status_code == 200
    assert chat(gateway(ScriptedEngine(echo)), stop=["", "|"]).json()["choices"][0]["message"]["content"] == "base"


def test_requests_have_a_size(gateway: Callable[..., str]) -> None:
    """Announced or not."""
    url = gateway(ScriptedEngine(echo), request_bytes=2000)
    assert chat(url, user="x" * 1000).status_code == 200
    assert chat(url, user="x" * 3000).status_code == 413
    body = json.dumps({"model": "base", "messages": [{"role": "user", "content": "x" * 3000}]}).encode()
    parts = (body[start : start + 500] for start in range(0, len(body), 500))
    reply = httpx.post(f"{url}/chat/completions", content=parts, headers={"Content-Type": "application/json"})
    assert reply.status_code == 413
    assert "more than 2000 bytes" in reply.json()["error"]["message"]
    assert httpx.post(f"{url}/chat/completions", content="no json").status_code == 400
    counted = _metrics(url)
    assert counted['flywheel_requests_total{role="unknown",status="413"}'] == 2
    assert counted['flywheel_requests_total{role="unknown",status="400"}'] == 1


def test_a_token_is_asked_for_before_anything_is_read(gateway: Callable[..., str]) -> None:
    url = gateway(ScriptedEngine(echo), token="secret")
    reply = httpx.post(f"{url}/chat/completions", content="no json")
    assert (reply.status_code, reply.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert httpx.get(url.removesuffix("/v1") + "/metrics").status_code == 401
    assert httpx.post(url.removesuffix("/v1") + "/admin/reload").status_code == 401
    counted = httpx.get(url.removesuffix("/v1") + "/metrics", headers={"Authorization": "Bearer secret"}).text
    assert 'flywheel_requests_total{role="unknown",status="401"} 3.0' in counted


class _Slow(ScriptedEngine):
    """Says a hundred words in ten seconds, and remembers which requests were cancelled."""

    def __init__(self) -> None:
        super().__init__(lambda request: " ".join(["word"] * 100), delay=10.0)
        self.begun = threading.Semaphore(0)
        self.cancelled = threading.Semaphore(0)

    def complete(self, request: CompletionRequest, watch: Watch | None = None) -> Completion:
        self.begun.release()
        try:
            return super().complete(request, watch)
        except Cancelled:
            self.cancelled.release()
            raise


@pytest.mark.parametrize("stream", [False, True])
def test_work_ends_when_its_client_leaves(gateway: Callable[..., str], stream: bool) -> None:
    engine = _Slow()
    url = gateway(engine)
    body = {"model": "base", "messages": [{"role": "user", "content": "Hi"}], "stream": stream}
    with suppress(httpx.ReadTimeout), httpx.stream("POST", f"{url}/chat/completions", json=body, timeout=0.5) as reply:
        next(reply.iter_lines())
    assert engine.cancelled.acquire(timeout=5)
    metrics = _metrics(url)
    assert metrics['flywheel_in_flight{role="base"}'] == 0
    assert metrics['flywheel_requests_total{role="base",status="cancelled"}'] == 1


def test_a_stream_that_waits_is_given_up_as_well(gateway: Callable[..., str]) -> None:
    """Its client leaves before there is any text."""

    class Mute(_Slow):
        def complete(self, request: CompletionRequest, watch: Watch | None = None) -> Completion:
            assert watch
            watch.text = None
            return super().complete(request, watch)

    engine = Mute()
    url = gateway(engine)
    body = {"model": "base", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
    with suppress(httpx.ReadTimeout):
        httpx.post(f"{url}/chat/completions", json=body, timeout=0.5)
    assert engine.cancelled.acquire(timeout=5)


def test_a_full_queue_says_when_to_come_back(gateway: Callable[..., str]) -> None:
    engine = _Slow()
    url = gateway(engine, queue=2)
    with ThreadPoolExecutor(2) as pool:
        for _ in range(2):
            pool.submit(_impatient, url)
        assert engine.begun.acquire(timeout=5) and engine.begun.acquire(timeout=5)
        reply = chat(url)
    assert reply.status_code == 429
    assert float(reply.headers["Retry-After"]) > 0
    assert reply.json()["error"]["code"] == "rate_limit_exceeded"


def _impatient(url: str) -> None:
    """A client that leaves after a moment."""
    body = {"model": "base", "messages": [{"role": "user", "content": "Hi"}]}
    with suppress(httpx.ReadTimeout):
        httpx.post(f"{url}/chat/completions", json=body, timeout=1.5)


def _metrics(url: str) -> dict[str, float]:
    for _ in range(50):  # the last request's count may come a moment after its answer
        text = httpx.get(url.removesuffix("/v1") + "/metrics").text
        found = {
            name: float(value) for line in text.splitlines() if line[0] != "#" for name, value in [line.rsplit(" ", 1)]
        }
        if not any(value for name, value in found.items() if "in_flight" in name):
            break
        time.sleep(0.1)
    return found


def test_what_is_counted(gateway: Callable[..., str]) -> None:
    url = gateway(ScriptedEngine(lambda request: "one two three"))
    chat(url, "page_search")
    chat(url, "page_search@3")
    chat(url, "gpt-4")
    chat(url, "page_search", stream=True)
    chat(url, "page_search", max_tokens=10**9)
    metrics = _metrics(url)
    assert metrics['flywheel_requests_total{role="page_search",status="200"}'] == 2
    assert metrics['flywheel_requests_total{role="page_search",status="400"}'] == 1
    assert metrics['flywheel_requests_total{role="page_search",status="404"}'] == 1
    assert metrics['flywheel_requests_total{role="unknown",status="404"}'] == 1
    assert metrics['flywheel_tokens_total{kind="completion",role="page_search"}'] == 6
    assert metrics['flywheel_request_seconds_count{role="page_search"}'] == 2
    assert metrics['flywheel_first_token_seconds_count{role="page_search"}'] == 1


def test_an_engine_that_fails_in_the_middle_says_so_in_the_stream(gateway: Callable[..., str]) -> None:
    class Failing(ScriptedEngine):
        def complete(self, request: CompletionRequest, watch: Watch | None = None) -> Completion:
            assert watch and watch.text
            watch.text("half ")
            raise InfrastructureError("the GPU fell off the bus")

    url = gateway(Failing(echo))
    text = chat(url, stream=True).text
    assert "half " in text and "fell off" in text and "[DONE]" not in text
    client = OpenAIEngine(url, "", timeout=5, model="base")
    client.refresh_models()
    with pytest.raises(InfrastructureError, match="fell off"):
        client.complete(CompletionRequest(messages=(Message(role="user", content="x"),)), Watch())
    client.close()


@pytest.fixture
def roster(qwen2: Path, tmp_path: Path) -> Iterator[Roster]:
    """An engine whose adapters are whatever lies in a folder: at first page_search@1."""
    make_adapter(tmp_path, qwen2, "page_search", 1, 1)

    def choose() -> dict[str, Path]:
        return {f"{path.parent.parent.name}@{path.parent.name}": path.parent for path in tmp_path.glob("*/*/card.json")}

    config = EngineConfig(model=str(qwen2), context=1024, batch=4, dtype="float32", threads=1)
    roster = Roster.open(lambda good: open_engine(config, good), choose, lambda chosen: sift(chosen, str(qwen2)))
    yield roster
    roster.engine.close()


def test_models_are_listed_with_their_cards(gateway: Callable[..., str], roster: Roster) -> None:
    client = openai.OpenAI(base_url=gateway(roster), api_key="none")
    listed = {model.id: model.model_dump() for model in client.models.list()}
    assert set(listed) == {"base", "page_search", "page_search@1"}
    assert listed["page_search"]["root"] == "page_search@1"
    assert listed["page_search@1"]["parent"] == "base"
    assert listed["page_search@1"]["card"]["prompt"] == "compact"
    assert client.models.retrieve("page_search@1").id == "page_search@1"
    with pytest.raises(openai.NotFoundError, match="no model 'pilot'"):
        client.models.retrieve("pilot")


def test_logprobs_in_both_shapes(gateway: Callable[..., str], roster: Roster) -> None:
    client = openai.OpenAI(base_url=gateway(roster), api_key="none")
    options: dict[str, Any] = {"model": "page_search", "max_tokens": 4, "temperature": 0}
    said = client.chat.completions.create(
        messages=[{"role": "user", "content": "Hi"}], logprobs=True, top_logprobs=2, **options
    ).choices[0]
    assert said.logprobs and said.logprobs.content
    assert len(said.logprobs.content) == 4 and len(said.logprobs.content[0].top_logprobs) == 2
    assert said.logprobs.content[0].logprob == said.logprobs.content[0].top_logprobs[0].logprob < 0
    plain = client.completions.create(prompt="Hi", logprobs=2, **options).choices[0]
    assert plain.logprobs and plain.logprobs.token_logprobs and plain.logprobs.tokens
    assert "".join(plain.logprobs.tokens) == plain.text


def test_a_role_without_an_adapter_is_played_by_the_base_and_that_is_said(
    gateway: Callable[..., str], roster: Roster
) -> None:
    url = gateway(roster)
    assert chat(url, "supervisor").headers["X-Flywheel-Served-By"] == "base"
    assert chat(url, "page_search").headers["X-Flywheel-Served-By"] == "page_search@1"
    assert chat(url, "page_search").json()["model"] == "page_search"
    assert chat(url, "page_search@2").status_code == 404


def test_another_prompt_than_the_trained_one_is_warned_of(gateway: Callable[..., str], roster: Roster) -> None:
    url = gateway(roster)
    role = stage("collect.team").WIKIPEDIA.role("page_search")
    asked = [
        CompletionRequest(
            messages=(Message(role="system", content=role.prompt(mode)), Message(role="user", content="Task")),
            model="page_search", max_tokens=2,
        )
        for mode in ("compact", "full")
    ]  # fmt: skip
    client = OpenAIEngine(url, "", timeout=20, model="base")
    client.refresh_models()
    assert client.complete(asked[0]).model == "page_search@1"
    for watch in (None, Watch()):
        with pytest.raises(InputError, match="trained with the compact prompt and is asked with the full one"):
            client.complete(asked[1], watch)
    client.close()


def test_reloading_while_requests_run(gateway: Callable[..., str], roster: Roster, qwen2: Path, tmp_path: Path) -> None:
    url = gateway(roster)
    with ThreadPoolExecutor(4) as pool:
        running = [pool.submit(chat, url, "page_search", max_tokens=300, temperature=0) for _ in range(3)]
        make_adapter(tmp_path, qwen2, "page_search", 2, 2)
        broken = make_adapter(tmp_path, qwen2, "supervisor", 1, 3)
        (broken / "adapter_model.safetensors").write_bytes(b"torn")
        told = httpx.post(url.removesuffix("/v1") + "/admin/reload", timeout=60).json()
        assert told["loaded"] == ["page_search@2"]
        assert list(told["refused"]) == ["supervisor@1"]
        replies = [one.result() for one in running]
    assert {reply.status_code for reply in replies} == {200}
    assert {reply.headers["X-Flywheel-Served-By"] for reply in replies} <= {"page_search@1", "page_search@2"}
    assert chat(url, "page_search").headers["X-Flywheel-Served-By"] == "page_search@2"
    assert chat(url, "supervisor").headers["X-Flywheel-Served-By"] == "base"
    shutil.rmtree(tmp_path / "page_search" / "1")
    assert httpx.post(url.removesuffix("/v1") + "/admin/reload", timeout=60).json()["dropped"] == ["page_search@1"]
    assert chat(url, "page_search@1").status_code == 404


def _reweighted(folder: Path, change: Callable[[str, Any], Any]) -> Path:
    """An adapter whose tensors are changed, and whose card agrees."""
    path = folder / "adapter_model.safetensors"
    save_file({name: change(name, tensor) for name, tensor in load_file(path).items()}, path)
    card = read_record(folder / "card.json", AdapterCard)
    (folder / "card.json").write_text(card.model_copy(update={"weights_hash": sha256(path)}).model_dump_json())
    return folder


def _first_logprobs(roster: Roster, name: str) -> list[float]:
    asked = CompletionRequest(messages=(Message(role="user", content="Hi"),), model=name, max_tokens=6, logprobs=0)
    return [token.logprob for token in roster.engine.complete(asked).logprobs]


def test_a_role_keeps_its_version_while_the_new_one_is_refused(roster: Roster, qwen2: Path, tmp_path: Path) -> None:
    """Also when only the new one is to be served, and when the old one's files are gone."""
    before = _first_logprobs(roster, "page_search@1")
    torn = make_adapter(tmp_path, qwen2, "page_search", 2, 2)
    (torn / "adapter_model.safetensors").write_bytes(b"torn")
    everything, roster.choose = roster.choose, lambda: {"page_search@2": torn}
    for gone in (False, True):
        if gone:
            shutil.rmtree(tmp_path / "page_search" / "1")
        told = roster.reload()
        assert (told["loaded"], told["dropped"], list(told["refused"])) == ([], [], ["page_search@2"])
        assert roster.answers("page_search") == "page_search@1"
        assert _first_logprobs(roster, "page_search@1") == pytest.approx(before, abs=1e-4)
    shutil.rmtree(torn)
    make_adapter(tmp_path, qwen2, "page_search", 3, 4)
    roster.choose = everything
    assert roster.reload() == {"loaded": ["page_search@3"], "dropped": ["page_search@1"], "refused": {}}
    assert roster.answers("page_search") == "page_search@3"


def test_a_name_is_not_served_with_other_weights(roster: Roster, qwen2: Path, tmp_path: Path) -> None:
    before = _first_logprobs(roster, "page_search@1")
    shutil.rmtree(tmp_path / "page_search" / "1")
    make_adapter(tmp_path, qwen2, "page_search", 1, 77)
    make_adapter(tmp_path, qwen2, "supervisor", 1, 78)
    told = roster.reload()
    assert told["loaded"] == ["supervisor@1"], "the others are taken"
    assert "names are not used twice" in told["refused"]["page_search@1"]
    assert _first_logprobs(roster, "page_search@1") == pytest.approx(before, abs=1e-4)
    (tmp_path / "page_search" / "1" / "card.json").write_text("{}")
    assert "served from memory" in roster.reload()["refused"]["page_search@1"]


def test_an_adapter_that_overflows_is_refused_and_harms_nobody(roster: Roster, qwen2: Path, tmp_path: Path) -> None:
    base, page = _first_logprobs(roster, "base"), _first_logprobs(roster, "page_search@1")
    made = make_adapter(tmp_path, qwen2, "wiki_search", 1, 5)
    _reweighted(made, lambda name, tensor: tensor.fill_(3e38) if "layers.0" in name and "lora_A" in name else tensor)
    assert "the numbers of wiki_search@1 overflow" in roster.reload()["refused"]["wiki_search@1"]
    with ThreadPoolExecutor(8) as pool:  # whatever the broken one has left in a lane reaches nobody
        again = list(pool.map(lambda place: _first_logprobs(roster, ("base", "page_search@1")[place % 2]), range(16)))
    for place, logprobs in enumerate(again):
        assert logprobs == pytest.approx((base, page)[place % 2], abs=1e-3)


def test_what_is_not_yet_proved_cannot_be_asked_for(roster: Roster, qwen2: Path, tmp_path: Path) -> None:
    """A request during a reload is answered by what was served before, and says so."""
    make_adapter(tmp_path, qwen2, "page_search", 2, 2)
    seen: list[tuple[str, str]] = []
    complete = roster.engine.complete

    def spying(request: CompletionRequest, watch: Watch | None = None) -> Completion:
        if request.model == "page_search@2" and not seen:  # the canary of the reload
            with roster.held("page_search") as name:
                seen.append((name, complete(request.model_copy(update={"model": name})).model))
            with pytest.raises(UnknownModel), roster.held("page_search@2"):
                pass
        return complete(request, watch)

    roster.engine.complete = spying  # type: ignore[method-assign]
    with roster.held("page_search") as held:
        roster.choose = lambda: {"page_search@2": tmp_path / "page_search" / "2"}
        assert roster.reload()["dropped"] == ["page_search@1"]
        assert complete(CompletionRequest(prompt="Hi", model=held, max_tokens=1)).model == "page_search@1"
    assert seen == [("page_search@1", "page_search@1")]
    roster.reload()
    assert "page_search@1" not in roster.engine.models()


def test_an_adapter_that_answers_as_the_base_is_refused(roster: Roster, qwen2: Path, tmp_path: Path) -> None:
    """Its weights are there and not zero, but have no effect: too small for the numbers' precision."""
    folder = make_adapter(tmp_path, qwen2, "wiki_search", 1, 5)
    _reweighted(folder, lambda name, tensor: tensor * 1e-20)
    told = roster.reload()
    assert told == {"loaded": [], "dropped": [], "refused": {"wiki_search@1": "it answers exactly as the base does"}}
    assert roster.engine.models() == ("base", "page_search", "page_search@1")
