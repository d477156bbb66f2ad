"""A language model as the judge of answers that `match` does not accept. Off unless asked for."""

import re
from collections.abc import Sequence

from flywheel.engines import CompletionRequest, Engine
from flywheel.records import BASE, Message

_SYSTEM = """You grade short answers. You are given a question, its correct answer, and an answer to grade.
Accept the answer if it means the same as the correct one: other words, spelling, units or more detail do not matter.
Reject it if it names another thing, a different number or date, several alternatives, or gives no answer.
Reply with one word: yes to accept, no to reject."""


def judge(engine: Engine, prediction: str, golds: Sequence[str], question: str) -> str:
    """Ask the engine's base model, at temperature 0; why the answer is accepted, or an empty string.

    A reply that is neither yes nor no rejects.

    Raises:
        InfrastructureError: when the engine fails.
    """
    task = f"Question: {question}\nCorrect answer: {' or '.join(golds)}\nAnswer to grade: {prediction[:2000]}"
    messages = (Message(role="system", content=_SYSTEM), Message(role="user", content=task))
    reply = engine.complete(CompletionRequest(messages=messages, model=BASE, max_tokens=8, temperature=0.0))
    return "accepted by the judge" if re.match(r"\W*yes\b", reply.text.lower()) else ""
