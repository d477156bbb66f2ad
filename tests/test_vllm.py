"""The engine `vllm` on a stand-in for its command; and, marked slow, on vLLM itself."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from flywheel.config import EngineConfig
from flywheel.engines import Engine, open_engine
from flywheel.errors import DataError, InfrastructureError, InputError
from serve import guardian

from .adapters import ROLES, make_adapter, request

FAKE = Path(__file__).parent / "fake_vllm.py"


@pytest.fixture
def command(tmp_path: Path) -> str:
    """The stand-in, as something that can be run."""
    path = tmp_path / "vllm"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {FAKE} "$@"\n')
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def adapters(qwen2: Path, tmp_path: Path) -> dict[str, Path]:
    """One for each role."""
    return {f"{role}@1": make_adapter(tmp_path, qwen2, role, 1, seed) for seed, role in enumerate(ROLES)}


@pytest.fixture
def engine(qwen2: Path, command: str, adapters: dict[str, Path]) -> Iterator[Engine]:
    """The engine, with all adapters."""
    opened = open_engine(EngineConfig(kind="vllm", model=str(qwen2), vllm=command), adapters)
    yield opened
    opened.close()


def _descendants() -> list[psutil.Process]:
    return [child for child in psutil.Process().children(recursive=True) if "fake_vllm" in " ".join(child.cmdline())]


def test_versions_are_served_by_name(engine: Engine, qwen2: Path, adapters: dict[str, Path]) -> None:
    assert engine.models() == ("base", *ROLES, *adapters)
    assert engine.complete(request("Hi", "supervisor")).text == f"supervisor@1|{adapters['supervisor@1']}"
    assert engine.complete(request("Hi")).text == f"base|{qwen2}"
    assert engine.complete(request("Hi", "page_search@1")).model == "page_search@1"
    with pytest.raises(InputError, match="supervisor@7"):
        engine.complete(request("Hi", "supervisor@7"))


def test_a_new_version_is_taken_while_it_runs(
    engine: Engine, qwen2: Path, adapters: dict[str, Path], tmp_path: Path
) -> None:
    before = _descendants()
    newer = make_adapter(tmp_path, qwen2, "supervisor", 2, 8)
    engine.load({**adapters, "supervisor@2": newer})
    assert engine.complete(request("Hi", "supervisor")).text == f"supervisor@2|{newer}"
    engine.load({"supervisor@2": newer})
    assert engine.complete(request("Hi", "page_search")).model == "base"
    assert _descendants() == before


def test_it_is_started_again_when_it_ends_by_itself(engine: Engine) -> None:
    for _ in range(3):
        with pytest.raises(InfrastructureError, match=r"vllm has ended: torch\.OutOfMemoryError"):
            engine.complete(request("die"))
        assert engine.complete(request("Hi", "supervisor")).model == "supervisor@1"
    with pytest.raises(InfrastructureError):
        engine.complete(request("die"))
    with pytest.raises(InfrastructureError, match="ended 4 times"):
        engine.complete(request("Hi"))


def test_closing_ends_it(engine: Engine) -> None:
    assert _descendants()
    engine.close()
    assert not _descendants()


@pytest.mark.parametrize("kind", [signal.SIGKILL, signal.SIGTERM])
def test_it_dies_with_its_parent(qwen2: Path, command: str, kind: signal.Signals) -> None:
    script = f"""
import time
from flywheel.config import EngineConfig
from flywheel.engines import open_engine
engine = open_engine(EngineConfig(kind="vllm", model={str(qwen2)!r}, vllm={command!r}))
print("up", flush=True)
time.sleep(600)
"""
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout and parent.stdout.readline() == "up\n"
    children = psutil.Process(parent.pid).children(recursive=True)
    assert any("fake_vllm" in " ".join(child.cmdline()) for child in children)
    parent.send_signal(kind)
    parent.wait(20)
    assert psutil.wait_procs(children, timeout=20)[1] == []


def test_what_keeps_it_from_starting_is_named(
    qwen2: Path, command: str, llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = EngineConfig(kind="vllm", model=str(qwen2), vllm="/nowhere/vllm")
    with pytest.raises(InputError, match="install vLLM"):
        open_engine(settings)
    settings = settings.model_copy(update={"vllm": command})
    with pytest.raises(DataError, match="was trained on"):
        open_engine(settings, {"supervisor@1": make_adapter(tmp_path / "other", llama, "supervisor", 1, 0)})
    monkeypatch.setenv("FAKE_VLLM", "dies")
    with pytest.raises(InfrastructureError, match="vllm did not start: ValueError: No available memory"):
        open_engine(settings)
    assert not _descendants()


@pytest.mark.parametrize(("command", "code"), [("false", 1), ("true", 0)])
def test_a_command_that_ends_by_itself_is_told_as_it_ended(command: str, code: int) -> None:
    child = subprocess.Popen(
        [sys.executable, guardian.__file__, command], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.wait(timeout=30) == code
    assert child.stderr is not None and child.stderr.read() == ""
