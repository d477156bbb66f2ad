"""The scorer of the GAIA benchmark, by its published rules: numbers as numbers, lists item by item, text as letters.

Source: Mialon et al., GAIA: a benchmark for General AI Assistants, arXiv 2311.12983, and the scorer of its public
leaderboard.
"""

import re
import string

_PUNCTUATION = str.maketrans("", "", string.punctuation)


def gaia(prediction: str, gold: str) -> str:
    """Why a prediction scores, in a word, or an empty string."""
    if _is_number(gold):
        return "number" if _number(prediction) == float(gold) else ""
    if re.search("[,;]", gold):
        answers, expected = re.split("[,;]", prediction), re.split("[,;]", gold)
        same = len(answers) == len(expected) and all(map(_same_item, answers, expected))
        return "list" if same else ""
    return "text" if _letters(prediction).translate(_PUNCTUATION) == _letters(gold).translate(_PUNCTUATION) else ""


def _same_item(answer: str, expected: str) -> bool:
    if _is_number(expected):
        return _number(answer) == float(expected)
    return _letters(answer) == _letters(expected)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _number(text: str) -> float:
    """A number without `$`, `%` and thousands separators; not-a-number for what is none, which equals nothing."""
    try:
        return float(re.sub("[$%,]", "", text))
    except ValueError:
        return float("nan")


def _letters(text: str) -> str:
    """Lower case, without white space."""
    return re.sub(r"\s", "", text).lower()
