"""The official exact match and token F1, to the letter, so that figures can be compared with papers.

The normaliser and F1 follow the public evaluation scripts of SQuAD, HotpotQA, 2WikiMultihopQA and MuSiQue: lower case,
ASCII punctuation deleted, the articles a/an/the removed, white space collapsed.
"""

import re
import string
from collections import Counter
from collections.abc import Sequence

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_CLOSED = {"yes", "no", "noanswer"}


def normalise(text: str) -> str:
    """The official answer normaliser."""
    text = text.lower().translate(_PUNCTUATION)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def exact_match(prediction: str, golds: Sequence[str]) -> bool:
    """Official exact match: the largest over all golds."""
    return any(normalise(prediction) == normalise(gold) for gold in golds)


def token_f1(prediction: str, golds: Sequence[str]) -> float:
    """Official token F1, the largest over all golds; 0 where one side is yes/no and the other differs (HotpotQA).

    Where a normalised text is empty, F1 is 1 if both are and 0 otherwise (SQuAD 2.0, MuSiQue).
    """
    return max(_f1(normalise(prediction), normalise(gold)) for gold in golds)


def _f1(prediction: str, gold: str) -> float:
    if prediction != gold and (prediction in _CLOSED or gold in _CLOSED):
        return 0.0
    predicted, expected = prediction.split(), gold.split()
    if not predicted or not expected:
        return float(predicted == expected)
    overlap = sum((Counter(predicted) & Counter(expected)).values())
    return 2 * overlap / (len(predicted) + len(expected)) if overlap else 0.0
