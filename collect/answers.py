"""What model-written code hands over, as text."""

from typing import Any

from flywheel.files import valid_text

_LONGEST_REPORT = 10_000
"""Characters."""


def format_answer(answer: Any) -> str:
    """A final answer as text; 42.0 is 42. What is too long to be an answer or a report is cut."""
    try:
        text = _as_text(answer)
    except ValueError:  # Python refuses to write integers of thousands of digits
        text = "a number too long to be written"
    return valid_text(text if len(text) <= _LONGEST_REPORT else f"{text[:_LONGEST_REPORT]} (cut)").strip()


def _as_text(answer: Any) -> str:
    if isinstance(answer, float) and answer.is_integer() and abs(answer) < 1e15:
        answer = int(answer)
    if isinstance(answer, bool):
        return "yes" if answer else "no"
    if isinstance(answer, list | tuple | set):
        return ", ".join(_as_text(item) for item in answer)
    return str(answer).strip()
