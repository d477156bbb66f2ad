"""What is refused before it is served, sampling, and the packaged model in two engines."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from flywheel.config import EngineConfig
from flywheel.engines import open_engine
from flywheel.errors import ContextExceeded, DataError, InfrastructureError, InputError
from flywheel.files import sha256
from flywheel.records import AdapterCard
from serve.sampling import Draw, next_tokens

from .adapters import make_adapter, request


def _damage(folder: Path, to: Any = None, each: Any = None) -> None:
    """Change the tensors of an adapter, or leave some out, and let its card agree."""
    path = folder / "adapter_model.safetensors"
    change = each or (lambda name, tensor: to(tensor))
    changed = {name: change(name, tensor) for name, tensor in load_file(path).items()}
    save_file({name: tensor for name, tensor in changed.items() if tensor is not None}, path)
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
    _damage(folder, to=lambda t: torch.ones(t.shape[0], t.shape[1] + 1) if t.shape[0] == 8 else t)
    refused(folder, "another size")
    folder = make_adapter(tmp_path / "changed", qwen2, "supervisor", 1, 0)
    save_file(load_file(folder / "adapter_model.safetensors"), folder / "adapter_model.safetensors", {"a": "b"})
    refused(folder, "not those its card was written for")
    for number, (key, value, reason) in enumerate((
        ("r", 0, "rank and alpha"), ("lora_alpha", 3200, "rank and alpha"), ("lora_alpha", 10**400, "cannot read"),
        ("use_rslora", True, "use_rslora"), ("peft_type", "IA3", "peft_type"), ("fan_in_fan_out", True, "fan_in"),
        ("bias", "all", "bias"),
    )):  # fmt: skip
        folder = make_adapter(tmp_path / str(number), qwen2, "supervisor", 1, 0)
        config_file = folder / "adapter_config.json"
        config_file.write_text(json.dumps(json.loads(config_file.read_text()) | {key: value}))
        refused(folder, reason)
    for name, change, reason in (
        ("half", lambda name, tensor: None if "layers.0" in name and "lora_A" in name else tensor, "damaged at"),
        ("int8", lambda name, tensor: tensor.to(torch.int8), "quantised"),
    ):
        folder = make_adapter(tmp_path / name, qwen2, "supervisor", 1, 0)
        _damage(folder, each=change)
        refused(folder, reason)
    refused(tmp_path / "nowhere", "cannot read .*card.json")


def test_models_that_cannot_be_served_are_refused() -> None:
    with pytest.raises(InputError, match="needs a GGUF file"):
        open_engine(EngineConfig(kind="llamacpp", model="/nowhere.gguf"))
    with pytest.raises(InfrastructureError, match="no answer from"):
        open_engine(EngineConfig(kind="openai", url="http://127.0.0.1:9/v1"))


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
