"""`flywheel serve` as a process: how it starts, what it says, how it ends."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from flywheel.cli import flywheel
from flywheel.config import EngineConfig
from flywheel.errors import FlywheelError
from flywheel.registry import Registry
from flywheel.workspace import Workspace
from serve import choice

from .adapters import make_adapter

ROOT = Path(__file__).parent.parent


@contextmanager
def serving(workspace: Workspace, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process, and the URL it serves at."""
    ready = workspace.folder / "ready"
    ready.unlink(missing_ok=True)
    command = [sys.executable, "-m", "flywheel", "-w", str(workspace.folder), "serve", "--port", "0", *arguments]
    child = subprocess.Popen(
        [*command, "--ready-file", str(ready)], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        deadline = time.monotonic() + 120
        while not ready.exists() and child.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        assert ready.exists(), child.communicate()[1]
        yield child, ready.read_text().strip()
    finally:
        child.kill()
        child.wait()


@pytest.fixture
def workspace(qwen2: Path, make_workspace: Callable[..., Workspace]) -> Workspace:
    """With an adapter for page_search, and a torn one for supervisor."""
    made = make_workspace(qwen2)
    make_adapter(made.folder / "adapters", qwen2, "page_search", 1, 1)
    torn = make_adapter(made.folder / "adapters", qwen2, "supervisor", 1, 2)
    Registry(made).force({role: f"{role}@1" for role in ("page_search", "supervisor")}, "for the test")
    (torn / "adapter_model.safetensors").write_bytes(b"torn")
    return made


def test_it_ends_with_its_parent_and_on_a_signal(workspace: Workspace) -> None:
    for ending in ("parent", "signal"):
        with serving(workspace, "--no-adapters") as (child, _):
            assert child.stdin is not None
            if ending == "parent":
                child.stdin.close()
            else:
                child.send_signal(signal.SIGTERM)
            child.wait(timeout=30)


def test_ctrl_c_finishes_what_is_running_and_takes_nothing_more(workspace: Workspace) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    body = {"model": "page_search", "messages": messages, "max_tokens": 600, "temperature": 0}
    with serving(workspace) as (child, url):
        usual = httpx.post(f"{url}/chat/completions", json=body, timeout=60).json()["choices"][0]["message"]["content"]
        with httpx.stream("POST", f"{url}/chat/completions", json=body | {"stream": True}, timeout=60) as running:
            lines = running.iter_lines()
            next(lines)
            child.send_signal(signal.SIGINT)
            *said, last = [line.removeprefix("data: ") for line in lines if line]
        assert last == "[DONE]"
        assert "".join(json.loads(piece)["choices"][0]["delta"].get("content", "") for piece in said) == usual
        assert child.wait(timeout=30) in (0, 130)
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"{url}/models")


def test_a_broken_adapter_is_named_and_the_others_are_served(workspace: Workspace) -> None:
    with serving(workspace) as (child, url):
        listed = {model["id"] for model in httpx.get(f"{url}/models").json()["data"]}
        assert listed == {"base", "page_search", "page_search@1"}
        child.send_signal(signal.SIGTERM)
        assert child.stderr is not None
        said = child.stderr.read()
    assert "supervisor@1 is refused" in said and "not those its card was written for" in said
    assert "supervisor, wiki_search have no adapter: the base plays" in said


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--strict",), "supervisor@1 is refused"),
        (("--strict", "--adapter", "page_search"), "supervisor, wiki_search have no adapter"),
        (("--adapter", "supervisor"), "supervisor@1 is refused"),
        (("--adapter", "wiki_search"), "wiki_search has no adapter yet"),
        (("--engine", "vllm", "--no-adapters"), "install vLLM"),
        (("--engine", "llamacpp", "--no-adapters"), "needs a GGUF file"),
    ],
)
def test_what_keeps_it_from_serving(workspace: Workspace, arguments: tuple[str, ...], reason: str) -> None:
    command = ["-w", str(workspace.folder), "-o", "engine.vllm=no-such-command", "serve", "--port", "0", *arguments]
    result = CliRunner().invoke(flywheel, command)
    assert isinstance(result.exception, FlywheelError), result.output
    assert reason in str(result.exception)


def test_auto_takes_what_suits_and_says_why(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, gguf = EngineConfig(kind="auto", model="owner/name"), EngineConfig(kind="auto", model="x.gguf")
    assert choice.choose_engine(folder) == (
        folder.model_copy(update={"kind": "transformers"}),
        "there is no GPU, and it computes the requests of all roles together",
    )
    shutil.copy(shutil.which("true") or "/bin/true", tmp_path / "vllm")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(choice, "_cuda", lambda: True)
    assert choice.choose_engine(folder)[0].kind == "vllm"
    assert choice.choose_engine(gguf)[0].kind == "transformers"


def test_the_readmes_examples(workspace: Workspace, tmp_path: Path) -> None:
    """The shell's lines, the Python, and the team, against a server as the README starts it."""
    section = (ROOT / "README.md").read_text().partition("### Serving")[2].partition("\n### ")[0]
    shell, team = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    (python,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    start, *curls = shell.replace("\\\n", " ").strip().splitlines()
    assert start == "flywheel serve --port 8000 &"
    (tmp_path / "questions.jsonl").write_text(json.dumps({"id": "q", "question": "Who?", "answer": "Me"}) + "\n")
    torn = workspace.folder / "adapters" / "supervisor"
    shutil.rmtree(torn)
    (workspace.folder / "adapters" / "ledger.jsonl").unlink()
    Registry(workspace).force({"page_search": "page_search@1"}, "for the test")
    with serving(workspace, "--port", "0") as (_, url):

        def run(*command: str) -> str:
            done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment)
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout

        environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "160"}
        here = url.removesuffix("/v1")
        models, completion = (run("bash", "-c", line.replace("http://127.0.0.1:8000", here)) for line in curls)
        assert '"page_search@1"' in models
        assert json.loads(completion)["model"] == "page_search"
        assert run(sys.executable, "-c", python.replace("http://127.0.0.1:8000", here)).strip()
        for line in team.strip().splitlines():
            words = shlex.split(line.replace("http://127.0.0.1:8000", here))[1:]
            printed = run(sys.executable, "-m", "flywheel", "-w", str(workspace.folder), *words)
            assert "page_search" in printed or "supervisor" in printed


@pytest.mark.parametrize("stream", [False, True])
def test_a_second_ctrl_c_ends_requests_and_tells_their_clients(workspace: Workspace, stream: bool) -> None:
    body = {"model": "base", "prompt": "Hi", "max_tokens": 700, "temperature": 1.5, "seed": 5, "stream": stream}
    with serving(workspace) as (child, url), ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(httpx.post, f"{url}/completions", json=body | {"seed": n}, timeout=60) for n in range(8)]
        while 'in_flight{role="base"} 8' not in httpx.get(f"{url.removesuffix('/v1')}/metrics").text:
            assert not all(one.done() for one in asked)
        for _ in range(2):
            child.send_signal(signal.SIGINT)
            time.sleep(0.05)
        replies = [one.result() for one in asked]
        child.wait(timeout=30)
        assert child.stderr is not None
        assert "Traceback" not in child.stderr.read()
    told = [reply.text for reply in replies if "the server is ending" in reply.text]
    assert told and all(json.loads(text.split("data: ")[-1])["error"]["code"] == "engine_failed" for text in told)
    if not stream:
        assert {reply.status_code for reply in replies} <= {200, 503}
