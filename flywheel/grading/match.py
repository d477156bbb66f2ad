"""`match`: whether a careful person who knows the gold answer would accept a prediction.

Containment alone is never enough. Two answers match if every word that only one of them has can be excused: because it
repeats the question, is a title, a middle name, a unit, the kind of thing (`company`, `river`), or shades the answer
without changing it. Numbers must agree always; hedges, negations and lists that differ never match.
"""

import re
from collections import Counter
from collections.abc import Iterable
from functools import cache
from itertools import pairwise

from .asked import Asked
from .forms import Word, content, quantity, same_quantity, words
from .names import conjunctions, same_thing
from .sentences import said
from .words import COUNTRIES, FUNCTION, HEDGES, PEERAGE, US_STATES

_BRACKETS = r"[(\[](?![^\d)\]]+\d)[^)\]]*[)\]]"
"""`(film)` and `(2004 film)` say which one is meant; `(season 10)` names a part."""

_LONGEST = 400
"""Characters; a longer text is no short answer."""


def match(prediction: str, gold: str, question: str = "") -> str:
    """Why the two mean the same, in a few words, or an empty string if they do not.

    Args:
        question: lets words that only repeat it be left out.
    """
    if " ".join(prediction.split()).casefold() == " ".join(gold.split()).casefold():
        return "equal" if gold.strip() else ""
    prediction, gold = _answer(prediction), gold.strip()
    if len(prediction) > _LONGEST + len(gold) or len(gold) > _LONGEST or "\n" in prediction:
        return ""
    answer, expected = words(prediction), words(gold)
    if not answer or not expected or _differ_at_once(prediction, gold):
        return ""
    if content(answer) == content(expected):
        return "equal"
    return _unequal(prediction, gold, question)


def _unequal(prediction: str, gold: str, question: str) -> str:
    answer, expected = words(prediction), words(gold)
    if "".join(content(answer)) == "".join(content(expected)) and _numbers(answer) == _numbers(expected):
        return "same letters"
    if content(expected) in (["yes"], ["no"]):
        return _closed(prediction, content(expected)[0])
    if {word.form for word in answer} & HEDGES - {word.form for word in expected}:
        return ""
    return _open(prediction, gold, Asked(question))


def _answer(text: str) -> str:
    """A prediction without `The answer is`."""
    text = re.sub(r"[*_`]{1,3}(?=\w)|(?<=\w)[*_`]{1,3}(?=\W|$)", "", text.strip()[: 10 * _LONGEST])
    return re.sub(r"^(?:the )?(?:final )?answer(?: is)?\s?[:,]?\s|^answer:", "", text, flags=re.IGNORECASE).strip()


def _differ_at_once(prediction: str, gold: str) -> bool:
    """Signs and eras change everything, and no other rule looks at them."""
    eras = [
        any(word.form == "bc" and before.number for before, word in pairwise(words(text)))
        for text in (prediction, gold)
    ]
    return _signs(prediction) != _signs(gold) or eras[0] != eras[1]


def _signs(text: str) -> list[str]:
    """Signs that change what is meant: `C#`, `A-`, `> 5`, `1/2`; a plus before a number does not."""
    return re.findall(r"(?<=\w)\+|\+(?=\D)|[#<>^=*]|(?<=[\w)])[-\u2212](?=\s|$)|(?<=\d)/(?=\d)", text)


def _closed(prediction: str, gold: str) -> str:
    """`No, it sinks` answers; `No information was found` does not."""
    text = prediction.lower()
    if text.strip(" .") == {"yes": "true", "no": "false"}[gold]:
        return "yes/no as a truth value"
    if re.search(rf", ?so,? {gold}\W*$", text):
        return "yes/no at the end"
    other = {"yes": "no", "no": "yes"}[gold]
    if re.search(rf"\b({other}|but|except|unless|although{'|only' if gold == 'yes' else ''})\b", text):
        return ""
    begins = rf"{gold}\s?([,.;:!-]|\u2013|\u2014|$|(they|it|both|he|she|these|neither) )"
    return "yes/no with a tail" if re.match(begins, text) else ""


def _open(prediction: str, gold: str, asked: Asked) -> str:
    """The rules for everything that is not yes or no."""
    answer, expected = words(prediction), words(gold)
    first, second = quantity(answer), quantity(expected)
    if first and second:
        return "same quantity" if same_quantity(first, second, asked.stems) else ""
    if _brackets(prediction) and _brackets(gold) and not _brackets(prediction) & _brackets(gold):
        return ""  # Mercury (planet) is not Mercury (element)
    numbers, others = (Counter(name.removesuffix("th") for name in _numbers(found)) for found in (answer, expected))
    if numbers and others and not (numbers <= others or others <= numbers):
        return ""
    for rule, reason in (
        (_same_members, "same members in another order"),
        (_turned, "same name"),
        (_same_place, "same place"),
        (same_thing, "same thing"),
        (_same_number, "same number"),
        (_chosen, "the one chosen"),
        (_acronym, "acronym"),
        (said, "said in a sentence"),
    ):
        if any(rule(left, right, asked) for left in _readings(prediction) for right in _readings(gold)):
            return reason
    return "named in brackets" if _in_brackets(prediction, gold, asked) else ""


@cache
def _readings(text: str) -> tuple[str, ...]:
    """The text without what stands in brackets; with a nickname in place of what it nicknames; without a peerage."""
    bare = re.sub(rf"\s*{_BRACKETS}", "", text).strip()
    readings = [bare or text]
    if nickname := re.fullmatch(r"(\w+)[\w. ]*[\"“(]([A-Z][\w ]*)[\"”)]\s+(.+)", text):
        readings += [f"{nickname[1]} {nickname[3]}", f"{nickname[2]} {nickname[3]}"]
    name, comma, rank = bare.partition(",")
    if comma and {word.form for word in words(rank)} & PEERAGE and re.match(r"\s*\d+(st|nd|rd|th)\b", rank):
        readings.append(name)
    return tuple(dict.fromkeys(reading for reading in readings if reading))


def _brackets(text: str) -> set[str]:
    return {word.stem for inside in re.findall(_BRACKETS, text) for word in words(inside)}


def _numbers(found: Iterable[Word]) -> Counter[str]:
    return Counter(word.form for word in found if word.number)


def _same_members(prediction: str, gold: str, asked: Asked) -> bool:
    """Lists hold the same members, whatever their order."""
    answer, left = _members(prediction), _members(gold)
    if len(answer) != len(left) or len(left) < 2:
        return False
    for member in answer:
        same = next((other for other in left if _same_member(member, other, asked)), None)
        if same is None:
            return False
        left.remove(same)
    return True


def _members(text: str) -> list[str]:
    parts = re.split(r"\s*(?:[,;]|(?<!\d)/|/(?!\d))\s*(?:and\s+|&\s*)?|\s+(?:and|&)\s+", text.strip(" ."))
    return [re.sub(r"^both\s+", "", part) for part in parts if part]


def _same_member(member: str, other: str, asked: Asked) -> bool:
    first, second = words(member), words(other)
    if not first or not second or _numbers(first) != _numbers(second):
        return False
    return content(first) == content(second) or same_thing(member, other, asked)


def _same_place(prediction: str, gold: str, asked: Asked) -> bool:
    """`Perth, Western Australia` is Perth, and not `Perth, Scotland`, where a place is asked for."""
    if not asked.place or re.search(r"\band\b|&|;", prediction + gold):
        return False
    (head, *tail), (other, *others) = (re.split(r"\s*,\s*(?=.)", text.strip(" .,")) for text in (prediction, gold))
    if not (tail or others) or not any(word.capital for word in words(head)) or not same_thing(head, other, asked):
        return False
    first = {word.stem for part in tail for word in words(part)} - FUNCTION
    second = {word.stem for part in others for word in words(part)} - FUNCTION
    added = first - second  # what the gold does not say, the question must: `London, Ontario` is not London
    known = asked.stems | _COUNTRY_STEMS | {word.stem for word in words(head)}
    if any(word.form == "county" for word in words(other)):  # its state is part of a county's full name
        known |= _STATE_STEMS
    return added <= known and (first <= second or second <= first)


_COUNTRY_STEMS = frozenset(word.stem for name in COUNTRIES.values() for word in words(name))


_STATE_STEMS = frozenset(word.stem for name in US_STATES.values() for word in words(name))


def _turned(prediction: str, gold: str, asked: Asked) -> bool:
    """`Spielberg, Steven`, and names whose family name may stand first."""
    answer, expected = content(words(prediction)), content(words(gold))
    if not asked.person or sorted(answer) != sorted(expected) or len(answer) < 2:
        return False
    family, comma, given = prediction.partition(",")
    turned = comma and content(words(f"{given} {family}")) == expected
    return bool(turned) or (len(answer) == 2 and all(word.capital for word in words(gold)))


def _same_number(prediction: str, gold: str, asked: Asked) -> bool:
    """`Season 6` for `during the sixth season of Shark Tank`: beside numbers, only words of the question."""
    answer, expected = (
        [word for word in words(text) if not (word.stem in asked.stems or word.form in FUNCTION)]
        for text in (prediction, gold)
    )
    numbers = [[form.removesuffix("th") for form in content(found)] for found in (answer, expected)]
    named = len(words(prediction)) > 1 or len(words(gold)) > 1  # `third` is not `three`
    return named and bool(answer) and all(word.number for word in answer) and numbers[0] == numbers[1]


def _chosen(prediction: str, gold: str, asked: Asked) -> bool:
    """The beginning of a name that the question has whole: `Lecrae`, where it asks `Lecrae Devaughn Moore or Gawvi?`"""
    answer, expected = ([word for word in words(text) if word.form not in FUNCTION] for text in (prediction, gold))
    counts = Counter(word.form for word in asked.words)
    names = [word.form for word in expected]
    return (
        "or" in counts
        and f" {' '.join(content(words(gold)))} " in f" {' '.join(content(asked.words))} "
        and bool(answer)
        and answer[0].form == names[0]
        and all(word.capital and 0 < names.count(word.form) == counts[word.form] for word in answer)
    )


def _in_brackets(prediction: str, gold: str, asked: Asked) -> bool:
    """`El-P (Jaime Meline)`, `42.195 km (26.2 mi)`: the other name, or the other unit."""
    inside = re.fullmatch(r"[^()]+\((then |now |born |formerly |also known as |aka )?([^()]+)\)\.?", prediction)
    if not inside:
        return False
    first, second = quantity(words(inside[2])), quantity(words(gold))
    if first and second:
        return first.unit is not None and same_quantity(first, second, asked.stems)
    name = inside[1] is not None or (asked.person and not asked.place)
    return name and content(words(inside[2])) == content(words(gold))


def _acronym(prediction: str, gold: str, asked: Asked) -> bool:
    """`ALS` for amyotrophic lateral sclerosis."""
    short, long = sorted((prediction.strip(" ."), gold.strip(" .")), key=len)
    letters = short.replace(".", "")
    initials = "".join(word.form[0] for word in words(long) if word.form not in FUNCTION | {"and"})
    return (
        bool(re.fullmatch(r"[A-Z]{3,7}", letters)) and initials == letters.lower() and conjunctions(words(short)) == 0
    )
