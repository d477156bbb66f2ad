"""Chat rendering: the one place where messages become the text and tokens that a model sees and is trained on."""

from collections.abc import Sequence
from typing import Any

from flywheel.errors import ContextExceeded, InputError
from flywheel.records import Message


def render(tokenizer: Any, messages: Sequence[Message], generate: bool) -> str:
    """The model's own chat template over messages.

    Args:
        generate: end with the opening of an assistant turn.

    Raises:
        InputError: when the template refuses these messages.
    """
    from jinja2 import TemplateError

    plain = [message.model_dump() for message in messages]
    try:
        text: str = tokenizer.apply_chat_template(plain, tokenize=False, add_generation_prompt=generate)
    except TemplateError as error:
        raise InputError(f"the chat template refuses these messages: {error}") from error
    return text


def encode(tokenizer: Any, text: str) -> list[int]:
    """Token ids of rendered text; the template has written the special tokens already."""
    ids: list[int] = tokenizer(text, add_special_tokens=False).input_ids
    return ids


def prompt_ids(tokenizer: Any, messages: Sequence[Message]) -> list[int]:
    """Token ids of a conversation that waits for the assistant."""
    return encode(tokenizer, render(tokenizer, messages, generate=True))


def request_ids(tokenizer: Any, messages: Sequence[Message], prompt: str, context: int) -> list[int]:
    """Token ids of what a request is to go on from: a conversation, or a text as it stands.

    Raises:
        InputError: when there is nothing.
        ContextExceeded: when nothing can be added to it within so many tokens.
    """
    ids = prompt_ids(tokenizer, messages) if messages else encode(tokenizer, prompt)
    if not ids:
        raise InputError("there is nothing to complete: the prompt is empty")
    if len(ids) >= context:
        raise ContextExceeded(f"the prompt has {len(ids)} tokens, the context is {context} (engine.context)")
    return ids


def end_of_turn(tokenizer: Any) -> str:
    """The text that ends an assistant turn, including its special token and nothing after it.

    Raises:
        InputError: when the template does not close assistant turns by a special token.
    """
    answer = "xyzzy"
    probe = [Message(role="user", content="a"), Message(role="assistant", content=answer)]
    tail = render(tokenizer, probe, generate=False).rpartition(answer)[2]
    for token in sorted(tokenizer.all_special_tokens, key=len, reverse=True):
        if (position := tail.find(token)) >= 0:
            return tail[: position + len(token)]
    raise InputError(
        "the chat template closes assistant turns without a special token, so a trained role could not stop"
    )


def stop_ids(tokenizer: Any, generation_config: Any = None) -> set[int]:
    """Tokens that end a completion."""
    last = encode(tokenizer, end_of_turn(tokenizer))[-1]
    configured = getattr(generation_config, "eos_token_id", None) or tokenizer.eos_token_id
    more = configured if isinstance(configured, list) else [configured]
    return {last, *(token for token in more if token is not None)}
