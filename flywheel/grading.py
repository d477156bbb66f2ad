"""Grading of answers: the official exact match and token F1, unchanged, and `match`, what a careful person accepts.

The normaliser and F1 follow the public evaluation scripts of SQuAD, HotpotQA, 2WikiMultihopQA and MuSiQue: lower case,
ASCII punctuation deleted, the articles a/an/the removed, white space collapsed.
"""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Sequence

from flywheel.records import Verdict

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_CLOSED = {"yes", "no", "noanswer"}
_NUMBER_NAMES = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
    seventeen eighteen nineteen twenty"""
_NUMBER_WORDS = {word: str(value) for value, word in enumerate(_NUMBER_NAMES.split())}
_MONTH_NAMES = "january february march april may june july august september october november december"
_MONTHS = {month: number for number, month in enumerate(_MONTH_NAMES.split(), start=1)}
_UNIT_NAMES = """year years day days hour hours minute minutes metre metres meter meters m kilometre kilometres
    kilometer kilometers km kg people inhabitants"""
_UNITS = frozenset(_UNIT_NAMES.split())


def normalise(text: str) -> str:
    """The official answer normaliser."""
    text = text.lower().translate(_PUNCTUATION)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def exact_match(prediction: str, golds: Sequence[str]) -> bool:
    """Official exact match: the largest over all golds."""
    return any(normalise(prediction) == normalise(gold) for gold in golds)


def token_f1(prediction: str, golds: Sequence[str]) -> float:
    """Official token F1, the largest over all golds; 0 where one side is yes/no and the other differs (HotpotQA)."""
    return max(_f1(normalise(prediction), normalise(gold)) for gold in golds)


def _f1(prediction: str, gold: str) -> float:
    if prediction != gold and (prediction in _CLOSED or gold in _CLOSED):
        return 0.0
    predicted, expected = prediction.split(), gold.split()
    if not predicted or not expected:
        return float(predicted == expected)
    overlap = sum((Counter(predicted) & Counter(expected)).values())
    return 2 * overlap / (len(predicted) + len(expected)) if overlap else 0.0


def grade(prediction: str, golds: Sequence[str]) -> Verdict:
    """Grade an answer against a gold and its aliases.

    `match` is stricter than exact match where the official normaliser loses meaning (an empty answer, `2.1` and `21`)
    and wider where it is blind to form (`41 years` for `41`, `December 14, 1990` for `14 December 1990`).
    """
    reason = next((found for gold in golds if (found := _match(prediction, gold))), "")
    return Verdict(
        exact_match=exact_match(prediction, golds),
        f1=round(token_f1(prediction, golds), 4),
        match=bool(reason),
        reason=reason or "differs",
    )


def _match(prediction: str, gold: str) -> str:
    """Why the two mean the same, or an empty string."""
    if not prediction.strip():
        return ""
    plain_prediction, plain_gold = _plain(prediction), _plain(gold)
    if plain_prediction == plain_gold and _numbers(prediction) == _numbers(gold):
        return "equal"
    if plain_gold in {"yes", "no"}:
        # "No, it sinks" answers; "No information was found" does not.
        return "yes/no with a tail" if re.match(rf"{plain_gold}\s*[,.;:!-]", prediction.strip().lower()) else ""
    if (date := _date(gold)) and date == _date(prediction):
        return "same date"
    expected, found = _quantity(gold), _quantity(prediction)
    if expected and found and expected[0] == found[0] and (expected[1] == found[1] or "" in (expected[1], found[1])):
        return "same number"
    return ""


def _plain(text: str) -> str:
    """Normal form that keeps what the official one deletes inside numbers, and folds what it keeps apart."""
    text = unicodedata.normalize("NFKD", text)
    text = "".join(character for character in text if not unicodedata.combining(character))
    text = re.sub("[\u2010-\u2015]", "-", text).lower()
    text = re.sub(r"(?<=\d),(?=\d{3})", "", text)
    text = re.sub(r"(?<!\d)\.|\.(?!\d)|[^\w\s.]", " ", text)
    words = [word for word in text.split() if word not in {"a", "an", "the"}]
    return " ".join(_NUMBER_WORDS.get(word, word) for word in words)


def _numbers(text: str) -> list[str]:
    return re.findall(r"\d+(?:\.\d+)?", re.sub(r"(?<=\d),(?=\d{3})", "", text)) if re.search(r"\d", text) else []


def _date(text: str) -> tuple[int, int, int] | None:
    """(year, month, day) if the text is a full date and nothing else."""
    words = re.sub(r"(?<=\d)(st|nd|rd|th)\b", "", _plain(text)).split()
    words = [word for word in words if word not in {"of", "on"}]
    months = [_MONTHS[word] for word in words if word in _MONTHS]
    numbers = sorted(int(word) for word in words if word.isdigit())
    if len(words) != 3 or len(months) != 1 or len(numbers) != 2 or not numbers[0] <= 31 < numbers[1]:
        return None
    return numbers[1], months[0], numbers[0]


def _quantity(text: str) -> tuple[str, str] | None:
    """(number, unit or nothing), if the text is one number and at most a unit of counting, such as `41 years`."""
    words = [word for word in _plain(text).split() if word not in {"about", "approximately", "around"}]
    if not words or len(words) > 2 or not re.fullmatch(r"\d+(\.\d+)?", words[0]):
        return None
    unit = words[1] if len(words) == 2 else ""
    if unit and unit not in _UNITS:
        return None
    return words[0].rstrip("0").rstrip(".") if "." in words[0] else words[0], unit.rstrip("s")
