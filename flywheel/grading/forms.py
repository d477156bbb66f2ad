"""Normal forms: one way to write each number, date, unit, spelling and abbreviation, so that forms can be compared.

Number words are read by text2num, dates by python-dateutil, units by pint, other scripts and diacritics by anyascii.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from anyascii import anyascii
from text_to_num import alpha2digit

from .words import APPROXIMATE, EQUIVALENT, FUNCTION, MEASURES, UNITS, US_STATES

_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?)"
)
_DAY = r"\d{1,2}(?:st|nd|rd|th)?"
_DATES = re.compile(
    rf"\b(?:{_MONTH}\.?\s+(?:the\s+)?{_DAY}(?:,?\s+\d{{4}})?|{_DAY}\s+(?:of\s+)?{_MONTH}\.?(?:,?\s+\d{{4}})?"
    rf"|{_MONTH}\.?,?\s+(?:of\s+)?\d{{4}}|\d{{4}}-\d{{2}}-\d{{2}}|\d{{1,2}}[./]\d{{1,2}}[./]\d{{4}})\b",
    re.IGNORECASE,
)
_ROMAN = re.compile(r"(?=[XVIL]{2})(XL|L?X{0,3})(IX|IV|V?I{0,3})")
"""Roman numerals from II to LXXXIX; single letters are initials or names."""
_ROMAN_VALUES = {"I": 1, "V": 5, "X": 10, "L": 50}
_TIME_QUESTION = frozenset(("old", "long", "age", "year"))
_TOKEN = re.compile(r"\d+(?:st|nd|rd|th|d|s)\b|(?<![\w)])-\d+(?:\.\d+)?|\d+(?:\.\d+)?|[^\W\d_]+|,")
_SCALES = {"1000": 10**3, "1000000": 10**6, "1000000000": 10**9, "1000000000000": 10**12}


@dataclass(frozen=True)
class Word:
    """One word of an answer."""

    form: str
    """Lower case, without diacritics; numbers in digits."""
    capital: bool
    """Written with a capital, as names are; a number with one was a Roman numeral."""
    after_comma: bool = False
    """Stands behind a comma, or behind a word that does."""

    @property
    def stem(self) -> str:
        """The form without a plural's ending (Harman's S-stemmer)."""
        return stem(self.form)

    @property
    def shades(self) -> bool:
        """Says nothing of its own: an article, a preposition, `about`, `mainly`."""
        return self.form in FUNCTION or (self.form in APPROXIMATE and not (self.capital and len(self.form) < 3))

    @property
    def number(self) -> bool:
        """Holds a digit."""
        return any(character.isdigit() for character in self.form)


@cache
def stem(form: str) -> str:
    """A word without a plural's ending."""
    if len(form) <= 3 or form.endswith(("us", "ss", "is")):
        return form
    if form.endswith("ies") and len(form) > 4:
        return form[:-3] + "y"
    if form.endswith(("ches", "shes", "xes", "sses")):
        return form[:-2]
    return form.removesuffix("s")


@lru_cache(4096)
def words(text: str) -> tuple[Word, ...]:
    """The words of a text in normal form."""
    text = _numbers(_ascii(_DATES.sub(_canonical_date, text)))
    found: list[Word] = []
    after_comma = False
    for token in _TOKEN.findall(text):
        if token == ",":
            after_comma = bool(found)
            continue
        form = str(_roman(token)) if _ROMAN.fullmatch(token) else token.lower()
        if after_comma and token in US_STATES:
            form = US_STATES[token]
        form = re.sub(r"^(\d+)(?:st|nd|rd|th|d)$", r"\1th", form)
        found.append(Word(form, token[0].isupper(), after_comma))
    return tuple(_expand(found))


def _roman(numeral: str) -> int:
    values = [_ROMAN_VALUES[letter] for letter in numeral]
    return sum(-value if value < max(values[index:]) else value for index, value in enumerate(values))


def content(found: Iterable[Word]) -> list[str]:
    """Forms of all words but articles."""
    return [word.form for word in found if word.form not in ("a", "an", "the")]


def _ascii(text: str) -> str:
    """Plain letters; quotes, dashes, initials and symbols in one way."""
    text = re.sub(r"\bco-(?=\w)", "co", text, flags=re.IGNORECASE)
    text = re.sub(r"\b(WW)(?=[12]\b)", "World War ", text)
    text = re.sub(r"(\d)\s?[′’'](?=\W|$)", r"\1 feet ", text)
    text = re.sub(r"(\d)\s?[″”\"](?=\W|$)(?=[^\"]*$)", r"\1 inches ", text)
    text = re.sub(r"(\d)\s?[-\u2010-\u2015\u2212]\s?(?=\d)", r"\1 to ", text)
    text = re.sub(r"\b(first|second) world war\b", r"world war \1", text, flags=re.IGNORECASE)
    text = re.sub(r"\bworld war (?:first|one|i)\b", "World War 1", text, flags=re.IGNORECASE)
    text = re.sub(r"\bworld war second\b", "World War 2", text, flags=re.IGNORECASE)
    text = re.sub(r"\b(k?m|mi|ft)(?:²|\^?2)(?!\w)", r"square \1", text)
    text = re.sub(r"\b(km|m|mi)/(h|s)\b", lambda unit: f"{unit[1]} per {'hour' if unit[2] == 'h' else 'second'}", text)
    text = anyascii(text.replace("%", " percent ").replace("°", " degrees ").replace("&", " and "))
    text = re.sub(r"\$\s*(\d[\d,.]*(?:\s+(?:thousand|million|billion|trillion))?)", r"\1 dollars ", text)
    text = re.sub(r"\s(?:and)\s+co\b", " Co", text, flags=re.IGNORECASE)
    text = re.sub(r"'s\b|(?<=s)'(?!\w)", "", text).replace("'", "").replace("`", "")
    text = re.sub(r"\b((?:[A-Za-z]\.\s?){2,})(?=([A-Z][a-z])?)", _initials, text)
    return re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text)


def _initials(found: re.Match[str]) -> str:
    """`F.C.` as FC; but the initials of a name one by one, since another text may spell them out."""
    letters = re.sub(r"[.\s]", "", found[0])
    return f"{letters} " if not found[2] or letters.lower() in EQUIVALENT else " ".join(letters) + " "


def _canonical_date(found: re.Match[str]) -> str:
    """A date as `day month year`, with what is missing left out."""
    from datetime import datetime

    from dateutil import parser

    text = re.sub(r"\b(of|the)\b", " ", found[0], flags=re.IGNORECASE)
    defaults = datetime(2001, 1, 1), datetime(2004, 2, 2)  # noqa: DTZ001  # to see which parts the text holds
    try:
        first, second = (parser.parse(text, default=default, dayfirst="." in text) for default in defaults)
    except (ValueError, OverflowError):
        return found[0]
    parts = [str(first.day)] if first.day == second.day else []
    parts += [first.strftime("%B")] if first.month == second.month else []
    parts += [str(first.year)] if first.year == second.year else []
    return " ".join(parts)


def _numbers(text: str) -> str:
    """Number words as digits, and scales multiplied out: `2.1 million` is 2100000."""
    text = alpha2digit(re.sub(r"\ba dozen\b", "12", text, flags=re.IGNORECASE), "en", 0.0)
    text = re.sub(r"\bhalf a (?=1000)", "0.5 ", text)
    return re.sub(r"(\d+(?:\.\d+)?) (1000|1000000|1000000000|1000000000000)\b", _multiplied, text)


def _multiplied(found: re.Match[str]) -> str:
    value = round(float(found[1]) * _SCALES[found[2]], 3)
    return str(int(value)) if value.is_integer() else str(value)


def _expand(found: list[Word]) -> Iterator[Word]:
    """Words with abbreviations and spellings replaced."""
    for word in found:
        for form in EQUIVALENT.get(word.form, word.form).split():
            yield Word(_trim(form), word.capital, word.after_comma)


def _trim(form: str) -> str:
    """A number without closing zeros of its fraction."""
    return form.rstrip("0").rstrip(".") if re.fullmatch(r"-?\d+\.\d+", form) else form


@dataclass(frozen=True)
class Quantity:
    """A number and what it counts or measures."""

    value: float
    unit: Any
    """A pint unit, or None."""
    noun: tuple[str, ...]
    """Stems of what is counted."""


def quantity(found: Iterable[Word]) -> Quantity | None:
    """A text that is one number with at most a unit or a noun; None for any other text."""
    rest = [word for word in found if word.form not in APPROXIMATE | FUNCTION | {"ad", "bc", "old"}]
    if not rest or not re.fullmatch(r"-?\d+(\.\d+)?", rest[0].form) or len(rest) > 4:
        return None
    if any(word.number or (word.capital and index > 1) for index, word in enumerate(rest[1:], start=1)):
        return None
    name = " ".join(word.form for word in rest[1:])
    unit = None if not name or any(word.form in UNITS for word in rest[1:]) else _unit(name)
    noun = () if unit is not None else tuple(word.stem for word in rest[1:])
    return Quantity(float(rest[0].form), unit, noun)


def same_quantity(first: Quantity, second: Quantity, question: set[str]) -> bool:
    """Whether two quantities are the same; what is counted or measured may be left out where the question says it."""
    if first.unit is not None and second.unit is not None:
        left, right = first.value * first.unit, second.value * second.unit
        if left.dimensionality != right.dimensionality:
            return False
        magnitudes = left.to_base_units().magnitude, right.to_base_units().magnitude
        return bool(abs(magnitudes[0] - magnitudes[1]) <= 1e-9 * abs(magnitudes[0]))
    left_noun, right_noun = set(first.noun), set(second.noun)
    mixed = (first.unit is not None and right_noun) or (second.unit is not None and left_noun)
    if first.value != second.value or mixed:
        return False
    if left_noun and right_noun:
        return left_noun <= right_noun or right_noun <= left_noun
    return not question or _goes_without_saying(first.unit or second.unit, left_noun | right_noun, question)


def _goes_without_saying(unit: Any, noun: set[str], question: set[str]) -> bool:
    """Whether a question makes clear what is measured or counted."""
    if unit is None:
        return noun <= question | {stem(word) for word in UNITS}
    lasting = str(unit) in ("year", "day", "month", "week", "hour", "minute", "second")
    return bool(({stem(part) for part in str(unit).split()} | (_TIME_QUESTION if lasting else MEASURES)) & question)


def measures(word: Word) -> bool:
    """The word is a unit, such as `metres`."""
    return not word.capital and word.form not in FUNCTION and _unit(word.form) is not None


@cache
def _unit(name: str) -> Any:
    """A pint unit by name, or None. Only names are read, never an expression."""
    try:
        return _registry().Unit(name) if re.fullmatch(r"[a-z ]+", name) else None
    except Exception:  # pint has many ways to say that it does not know a word
        return None


@cache
def _registry() -> Any:
    import pint

    return pint.UnitRegistry(autoconvert_offset_to_baseunit=True)
