"""Random adapters with a strong effect, and what transformers and PEFT make of them: what engines are held against."""

from pathlib import Path

import torch

from flywheel.base_model import base_hash, load_model, load_tokenizer
from flywheel.chat import prompt_ids
from flywheel.engines import CompletionRequest
from flywheel.files import sha256
from flywheel.records import AdapterCard, Message

ROLES = ("supervisor", "wiki_search", "page_search")
SYSTEM = Message(role="system", content="Answer in Python steps.")


def request(text: str, model: str = "base", **options: object) -> CompletionRequest:
    """A request for a short completion."""
    messages = (SYSTEM, Message(role="user", content=text))
    return CompletionRequest.model_validate({"messages": messages, "model": model, "max_tokens": 12} | options)


def make_adapter(folder: Path, base: Path, role: str, version: int, seed: int) -> Path:
    """An adapter, saved by PEFT, with the card that training would write."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(seed)
    lora = LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", init_lora_weights=False, task_type="CAUSAL_LM")
    model = get_peft_model(load_model(base, "float32"), lora)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            parameter.data.mul_(0.3)
    target = folder / role / str(version)
    model.save_pretrained(target)
    card = AdapterCard(
        role=role, version=version, base=str(base), base_hash=base_hash(base), prompt="compact", history="full", rank=8,
        alpha=16, learning_rate=1e-3, steps=1, rows=1, trained_tokens=1, first_loss=1, last_loss=1, seconds=1,
        dataset="none", dataset_hash="", weights_hash=sha256(target / "adapter_model.safetensors"), created="",
        versions={},
    )  # fmt: skip
    (target / "card.json").write_text(card.model_dump_json())
    return target


def reference_text(base: Path, adapter: Path | None, asked: CompletionRequest) -> str:
    """What transformers' own generate, with PEFT, makes of a request at temperature 0."""
    model, ids, tokenizer = _prepared(base, adapter, asked)
    with torch.no_grad():
        out = model.generate(input_ids=ids, max_new_tokens=asked.max_tokens, do_sample=False)
    text: str = tokenizer.decode(out[0, ids.shape[1] :])
    return text.partition("<|im_end|>")[0]


def reference_logprobs(base: Path, adapter: Path | None, asked: CompletionRequest) -> dict[str, list[float]]:
    """How likely PEFT takes each token to be the first of the completion; halves of characters share a text."""
    model, ids, tokenizer = _prepared(base, adapter, asked)
    with torch.no_grad():
        logprobs = model(ids).logits[0, -1].log_softmax(-1).tolist()
    found: dict[str, list[float]] = {}
    for number, value in enumerate(logprobs):
        found.setdefault(tokenizer.decode([number]), []).append(value)
    return found


def _prepared(base: Path, adapter: Path | None, asked: CompletionRequest):  # type: ignore[no-untyped-def]
    from peft import PeftModel

    tokenizer, model = load_tokenizer(base), load_model(base, "float32")
    if adapter:
        model = PeftModel.from_pretrained(model, adapter)
    return model, torch.tensor([prompt_ids(tokenizer, asked.messages)]), tokenizer
