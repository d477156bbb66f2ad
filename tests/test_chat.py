"""Chat templates as the families of models have them: what training and serving must find in each."""

from pathlib import Path
from typing import Any

import pytest

from flywheel.base_model import load_tokenizer
from flywheel.chat import encode, end_of_turn, prompt_ids, render, stop_ids
from flywheel.errors import InputError
from flywheel.records import Example, Message
from train.rows import tokenise

_CHATML = (
    "{% if messages[0].role != 'system' %}<|im_start|>system\nDEFAULT<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""Qwen2.5 and SmolLM2: a system prompt of their own where none is given, and a line break behind each turn."""
_LLAMA3 = (
    "{% for m in messages %}{% if loop.first %}<bos>{% endif %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
    "{{ m.content | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
"""Llama 3: a token before the first turn, and trimmed texts."""
_GEMMA3 = (
    "<bos>{% set given = messages[0].role == 'system' %}{% set rest = messages[1:] if given else messages %}"
    "{% set first = messages[0].content + '\n\n' if given else '' %}"
    "{% for m in rest %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}"
    "<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n{{ first if loop.first else '' }}"
    "{{ m.content | trim }}<end_of_turn>\n{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
"""Gemma 3: no system turn, its text goes into the first user's; strict turns; `model` speaks."""
_MISTRAL = (
    "{% set system = messages[0].content + '\n\n' if messages[0].role == 'system' else '' %}"
    "{% set rest = messages[1:] if messages[0].role == 'system' else messages %}<bos>"
    "{% for m in rest %}{% if m.role == 'user' %}[INST] {{ system if loop.first else '' }}{{ m.content }}[/INST]"
    "{% else %} {{ m.content | trim }}</s>{% endif %}{% endfor %}"
)
"""Mistral: the system text in the first instruction, and no mark that opens an answer."""

FAMILIES = {
    "qwen2.5": (_CHATML, "<|im_end|>"), "smollm2": (_CHATML, "<|im_end|>"), "llama3": (_LLAMA3, "<|eot_id|>"),
    "gemma3": (_GEMMA3, "<end_of_turn>"), "mistral": (_MISTRAL, "</s>"),
}  # fmt: skip
SPECIAL = ["<bos>", "<|eot_id|>", "<start_of_turn>", "<end_of_turn>", "[INST]", "[/INST]", "</s>"]

TALK = (
    Message(role="system", content="Find a fact."),
    Message(role="user", content="Task: capital of Norway"),
    Message(role="assistant", content="Thought: I search.\n<code>\nprint(search('Norway'))\n</code>"),
    Message(role="user", content="Observation:\nOslo is the capital."),
)
ANSWER = Message(role="assistant", content="Thought: I report.\n<code>\nfinal_answer('Oslo')\n</code>")


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest, qwen2: Path) -> tuple[Any, str]:
    """A tokenizer with the family's template and marks, and the token that ends its turns."""
    template, ending = FAMILIES[request.param]
    tokenizer = load_tokenizer(qwen2)
    tokenizer.add_special_tokens({"additional_special_tokens": SPECIAL})
    tokenizer.chat_template = template
    tokenizer.eos_token = ending
    return tokenizer, ending


def test_a_turn_ends_in_its_token_and_nothing_after(family: tuple[Any, str]) -> None:
    tokenizer, ending = family
    assert end_of_turn(tokenizer) == ending
    assert encode(tokenizer, ending)[0] in stop_ids(tokenizer)


def test_the_system_prompt_is_there_once_and_no_other(family: tuple[Any, str]) -> None:
    tokenizer, _ = family
    text = render(tokenizer, TALK, generate=True)
    assert text.count("Find a fact.") == 1
    assert "DEFAULT" not in text


def test_a_prompt_begins_what_it_becomes(family: tuple[Any, str]) -> None:
    """The prefix property: what was served as a prompt begins the rendering with the answer, and the next prompt."""
    tokenizer, ending = family
    prompt = prompt_ids(tokenizer, TALK)
    row = tokenise(
        tokenizer, Example(role="r", prompt=TALK, completion=(ANSWER,), question="q", rollout="a", run="b", call="c")
    )
    assert row.prompt == prompt
    assert tokenizer.decode(row.completion) == ANSWER.content + ending
    whole = encode(tokenizer, render(tokenizer, (*TALK, ANSWER), generate=False))
    assert whole[: len(prompt)] == prompt
    assert ANSWER.content + ending in tokenizer.decode(whole[len(prompt) :])
    further = (*TALK, ANSWER, Message(role="user", content="Observation:\nyes"))
    assert prompt_ids(tokenizer, further)[: len(prompt)] == prompt


def test_a_template_that_refuses_says_so(family: tuple[Any, str]) -> None:
    tokenizer, _ = family
    if tokenizer.chat_template != _GEMMA3:
        return
    with pytest.raises(InputError, match="the chat template refuses these messages: roles must alternate"):
        render(tokenizer, (TALK[1], TALK[1]), generate=True)


def test_turns_that_no_special_token_ends_cannot_be_trained(family: tuple[Any, str]) -> None:
    tokenizer, _ = family
    tokenizer.chat_template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    with pytest.raises(InputError, match="could not stop"):
        end_of_turn(tokenizer)
