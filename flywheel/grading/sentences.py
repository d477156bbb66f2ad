"""Sentences that hold the answer."""

from .asked import Asked
from .forms import Word, measures, words
from .words import COMPARES, COPULAS, FUNCTION

_ARTICLES = ("a", "an", "the")
_BEFORE_THE_ANSWER = ("is", "was", "are", "were", "by", "in", "of", "as")


def said(prediction: str, gold: str, asked: Asked) -> bool:
    """A sentence that holds the gold, and beside it only what the question asks about.

    `The capital of Norway is Oslo.` Names of other things may stand in it only where the gold is clearly what it says:
    at its beginning before a verb, after `is` at its end, or when the gold is no name itself. Where the question names
    the gold, as in a choice, the sentence must begin with it: `B is older than A` does not answer `A`.
    """
    answer = [word for word in words(prediction) if word.form not in _ARTICLES]
    target = [_exact(word) for word in words(gold) if word.form not in _ARTICLES]
    forms = [_exact(word) for word in answer]
    size = len(target)
    start = next((place for place in range(len(forms) - size + 1) if forms[place : place + size] == target), None)
    if start is None or len(forms) < size + 2 or not target:
        return False
    before, after = answer[:start], answer[start + size :]
    if _joined(before, after):
        return False
    choice = all(form in asked.forms or form in asked.stems or form in FUNCTION for form in target)
    subject = not before and not after[0].capital and after[0].form not in FUNCTION and asked.repeats(after[0])
    if choice:
        return subject and all(_repeats(word, asked) or measures(word) for word in after)
    predicate = not after and before[-1].form in _BEFORE_THE_ANSWER
    common = all(not word.capital or word.number for word in answer[start : start + size])
    if not (subject or common or any(word.form in COPULAS for word in (*before, *after))):
        return False
    names = predicate or common
    return all(
        asked.repeats(word) or (names and (word.capital or measures(word)) and not word.number)
        for word in (*before, *after)
    )


def _exact(word: Word) -> str:
    """Names are compared as they are: `Queens` is not `Queen`."""
    return word.form if word.capital else word.stem


def _joined(before: list[Word], after: list[Word]) -> bool:
    """The gold is one of several: `Erika Cheung and Tyler Shultz`."""
    return bool(after and after[0].form in ("and", "or")) or bool(before and before[-1].form in ("and", "or"))


def _repeats(word: Word, asked: Asked) -> bool:
    """As the question has it; or `before`, `than` and the thing that was not chosen."""
    return word.number or asked.repeats(word) or bool(COMPARES.get(word.form, frozenset()) & asked.forms)
