"""Fixtures: real objects, small enough to be quick."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from collect.collector import collect
from flywheel.config import validate
from flywheel.questions import read_questions
from flywheel.records import Question, Rollout
from flywheel.store import TraceStore
from flywheel.teacher import teacher_engine
from flywheel.workspace import Workspace

ROOT = Path(__file__).parent.parent
CHATML = (
    "{% if messages[0]['role'] != 'system' %}<|im_start|>system\nYou help.<|im_end|>\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAMA3 = (
    "{% for message in messages %}<|start_header_id|>{{ message['role'] }}<|end_header_id|>\n\n"
    "{{ message['content'] }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)

SETTINGS = """
[team]
prompt = "compact"
history = "full"
supervisor_steps = 4
wiki_search_steps = 4

[engine]
kind = "transformers"
model = "{model}"
context = 768
batch = 4
max_tokens = 12
threads = 1
dtype = "float32"

[source]
kind = "corpus"
path = "embedded"
passages = 8

[collect]
concurrency = 4

[train]
learning_rate = 1e-2
rank = 8
alpha = 16
"""


def _tokenizer(template: str) -> Any:
    """A byte-level BPE tokenizer, trained on the spot on the texts that the team works with."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>"]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=specials, initial_alphabet=alphabet)
    tokenizer.train_from_iterator([path.read_text() for path in (ROOT / "collect/prompts").glob("*.md")], trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<|im_start|>", eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    fast.chat_template = template
    return fast


def _make_model(folder: Path, family: str) -> Path:
    """A random model with two narrow layers, saved as a hub model would be."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    tokenizer = _tokenizer(CHATML if family == "qwen2" else LLAMA3)
    shape = {
        "vocab_size": len(tokenizer), "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 1024,
        "bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id, "tie_word_embeddings": family == "llama", "initializer_range": 0.2,
    }  # fmt: skip
    model = Qwen2ForCausalLM(Qwen2Config(**shape)) if family == "qwen2" else LlamaForCausalLM(LlamaConfig(**shape))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def qwen2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random Qwen2 model."""
    return _make_model(tmp_path_factory.mktemp("qwen2"), "qwen2")


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random Llama model with another chat template."""
    return _make_model(tmp_path_factory.mktemp("llama"), "llama")


@pytest.fixture
def gateway() -> Iterator[Callable[..., str]]:
    """Starts the gateway over an engine; gives its URL. It takes what `running_gateway` takes."""
    from .servers import running_gateway

    with ExitStack() as stack:
        yield lambda *arguments, **options: stack.enter_context(running_gateway(*arguments, **options))


@pytest.fixture
def make_workspace(tmp_path: Path) -> Callable[..., Workspace]:
    """Makes a workspace for a model."""

    def make(model: Path | str = "none", name: str = "workspace") -> Workspace:
        return Workspace.create(tmp_path / name, SETTINGS.format(model=model))

    return make


@pytest.fixture(scope="session")
def training_questions() -> list[Question]:
    """The embedded training questions."""
    return read_questions("embedded", "train")


@pytest.fixture(scope="session")
def traces(tmp_path_factory: pytest.TempPathFactory, training_questions: list[Question]) -> list[Rollout]:
    """A teacher's rollouts."""
    folder = tmp_path_factory.mktemp("traces")
    settings = {
        "team": {"prompt": "compact", "history": "full"},
        "source": {"kind": "corpus", "path": "embedded", "passages": 8},
    }
    chosen = training_questions[:16]
    with TraceStore(folder / "traces.sqlite") as store:
        collect(
            chosen, validate(settings, "test"), teacher_engine(chosen), store, folder, round=0, samples=1, temperature=0
        )
        return list(store.rollouts())


@pytest.fixture
def write_rows(tmp_path: Path) -> Callable[[str, list[Any]], Path]:
    """Writes a JSON Lines file."""

    def write(name: str, rows: list[Any]) -> Path:
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    return write


@pytest.fixture(autouse=True)
def _stay_in_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests run from the root of the checkout, whatever folder pytest was started in."""
    monkeypatch.chdir(ROOT)
