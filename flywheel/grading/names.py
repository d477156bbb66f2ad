"""Names of one thing: two texts aligned word by word, with every word that only one of them has excused, or not."""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from .asked import Asked
from .forms import Word, content, stem, words
from .words import (
    COPULAS,
    COUNTRIES,
    EXPLAINS,
    FUNCTION,
    GENERIC_GROUPS,
    HEDGES,
    HONORIFICS,
    INSTITUTION,
    KINDS,
    MOVABLE,
    NAME_ENDINGS,
    NAMED_AFTER,
    OTHER_PLACES,
    PLAIN_KINDS,
)

_GROUPS = tuple(frozenset(map(stem, group)) for group in GENERIC_GROUPS)
_KINDS = frozenset(map(stem, KINDS))
_PLAIN = frozenset(map(stem, PLAIN_KINDS))
_RELATES = frozenset(
    "of to by from for with than before after near outside inside above below between called formerly then later now "
    "not versus via under".split()
)
"""Before a name, these make it the name of something else: `wife of Bill Clinton`."""
_MONARCHS = ("king", "queen", "pope", "emperor", "empress", "prince")

_Regions = tuple[list[Word], list[Word], list[Word]]
"""Words before, between and after the ones that two texts share."""


def same_thing(prediction: str, gold: str, asked: Asked) -> bool:
    """Whether two names may be taken for one thing's."""
    answer, expected = words(prediction), words(gold)
    if conjunctions(answer) != conjunctions(expected):
        return False
    if asked.country and _same_country(answer, expected):
        return True
    pairs = _align(answer, expected)
    exact = [word for word, other in pairs if word.stem == other.stem and word.form not in FUNCTION]
    whole = len(pairs) == len(answer) == len(expected) >= 2
    if not exact and not whole and not any(_same_faith(word.form, other.form) for word, other in pairs):
        return False  # Hertfordshire is not Herefordshire
    if all(word.stem in asked.stems or word.form in FUNCTION for word, _ in pairs):
        asked = asked.as_a_choice()
    return _Alignment(answer, expected, pairs, asked).excused()


def conjunctions(found: Iterable[Word]) -> int:
    """How many times `and` or `or` occurs."""
    return sum(word.form in ("and", "or") for word in found)


def _same_country(answer: Iterable[Word], expected: Iterable[Word]) -> bool:
    """`American` and `United States`, `Malian` and `Mali`: country or nationality, whichever was asked for."""
    short, long = sorted((_country(answer), _country(expected)), key=len)
    if short == long:
        return bool(short)
    demonym = long.endswith(("an", "i", "ese", "ish"))
    return demonym and len(short) >= 4 and long.startswith(short[: max(4, len(short) - 1)])


def _country(found: Iterable[Word]) -> str:
    omitted = COPULAS | FUNCTION | {"citizen", "citizens", "born"}
    name = " ".join(form for form in content(found) if form not in omitted)
    return COUNTRIES.get(name, name)


def _align(first: Sequence[Word], second: Sequence[Word]) -> list[tuple[Word, Word]]:
    """The longest common subsequence of words that may stand for each other."""
    table = [[0] * (len(second) + 1) for _ in range(len(first) + 1)]
    for row in range(len(first) - 1, -1, -1):
        for column in range(len(second) - 1, -1, -1):
            if _same_word(first[row], second[column]):
                table[row][column] = 1 + table[row + 1][column + 1]
            else:
                table[row][column] = max(table[row + 1][column], table[row][column + 1])
    pairs, row, column = [], 0, 0
    while row < len(first) and column < len(second):
        if _same_word(first[row], second[column]):
            pairs.append((first[row], second[column]))
            row, column = row + 1, column + 1
        elif table[row + 1][column] >= table[row][column + 1]:
            row += 1
        else:
            column += 1
    return pairs


def _same_word(first: Word, second: Word) -> bool:
    """Equal but for a plural; an initial, a short name, or another spelling of the same name."""
    if first.form == second.form or (first.stem == second.stem and not (first.capital and second.capital)):
        return True
    if first.number or second.number:  # `Henry VIII`, `Henry the Eighth`
        roman = (first.capital and first.number) or (second.capital and second.number)
        return bool(roman) and first.form.removesuffix("th") == second.form.removesuffix("th")
    short, long = sorted((first.form, second.form), key=len)
    if not (first.capital and second.capital):
        return _same_faith(short, long)
    if first.capital and second.capital and (
        (len(short) == 1 and long.startswith(short)) or short in _short_names(long) or long in _short_names(short)
    ):  # fmt: skip
        return True
    return _sound(short) == _sound(long) or _near(short, long) or _same_faith(short, long)


def _sound(name: str) -> str:
    """Letters that languages write differently: Jacob and Jakob, Dmitri and Dmitry."""
    return name.replace("ph", "f").translate(str.maketrans("kyzw", "cisv"))


def _same_faith(first: str, second: str) -> bool:
    """`Catholic` and `Catholicism`, `Marxist` and `Marxism`."""
    short, long = sorted((first, second), key=len)
    pair = {short[-3:], long[-3:]} == {"ist", "ism"} and short[:-1] == long[:-1]
    return len(short) >= 6 and (long == f"{short}ism" or pair)


def _near(short: str, long: str) -> bool:
    """A slip of spelling, or another way to spell a name: one letter, in a long word two."""
    from rapidfuzz.distance import OSA

    ends = short[-1] == long[-1] or {short[-1], long[-1]} == {"i", "y"}  # Mario is not Maria
    if len(short) < 7 or short[0] != long[0] or not ends:
        return False
    return OSA.distance(short, long) <= (2 if len(short) >= 8 else 1)


@cache
def _short_names(name: str) -> frozenset[str]:
    return frozenset(_namer().nicknames_of(name.title()))


@cache
def _namer() -> Any:
    from nicknames import NickNamer

    return NickNamer()


class _Alignment:
    """The words that only one side has, and whether each can be excused.

    Words of weight may stand on one side only: where both have some, the two name different things, unless the words
    are of one kind (`Great Northern Railway`, `Great Northern line`) or a title stands for a first name.
    """

    def __init__(
        self, answer: Sequence[Word], expected: Sequence[Word], pairs: list[tuple[Word, Word]], asked: Asked
    ) -> None:
        self.asked = asked
        self.everything = [*answer, *expected]
        self.matched = [left for left, _ in pairs if left.form not in FUNCTION]
        self.equal = sum(left.stem == right.stem for left, right in pairs if left.form not in FUNCTION)
        self.answer = _regions(answer, {id(left) for left, _ in pairs})
        self.expected = _regions(expected, {id(right) for _, right in pairs})
        self.named = any(word.capital for word in self.matched)
        self.person = self._may_be_a_person()

    def excused(self) -> bool:
        """Whether the two are the same, all in all."""
        left, right = (
            [word for place, part in enumerate(side) for word in part if self._weighs(word, place)]
            for side in (self.answer, self.expected)
        )
        if self.person and _initials(self.answer[1]) != _initials(self.expected[1]) and self._has_initials():
            return False  # George H. W. Bush is not George W. Bush
        if left and right and not _of_one_kind(left, right):
            return self._title_for_name(self.answer, self.expected) or self._title_for_name(self.expected, self.answer)
        return self._excuse(self.answer, gold=False) and self._excuse(self.expected, gold=True)

    def _has_initials(self) -> bool:
        return any(len(word.form) == 1 for word in self.matched)

    def _may_be_a_person(self) -> bool:
        written = [word for word in self.everything if not word.number and word.form not in FUNCTION]
        lower = not any(word.capital for word in written)
        names = all(word.capital or lower for word in self.matched)
        institution = any(word.form in INSTITUTION or word.stem in _KINDS for word in written)
        return names and not institution and not self.asked.thing

    def _weighs(self, word: Word, place: int) -> bool:
        """Not a small word, nor an initial or a title of a person."""
        if word.shades:
            return False
        if not self.person or len(self.matched) < 2:
            return True
        initial = len(word.form) == 1 and not word.number and not (self.answer[1] and self.expected[1])
        return not (initial or (place == 0 and word.form in HONORIFICS))

    def _ends_a_name(self, word: Word) -> bool:
        generation = word.capital and word.form in ("2", "3", "4") and self.person and len(self.matched) >= 2
        return word.form in NAME_ENDINGS or generation

    def _title_for_name(self, titled: _Regions, named: _Regions) -> bool:
        """`President Clinton` for Bill Clinton."""
        title, name = titled[0], named[0]
        others = [word for side in (titled, named) for part in side[1:] for word in part]
        return (
            self.person and bool(title) and not others
            and all(word.form in HONORIFICS - {"mr", "mrs", "ms", "miss", "dr", "doctor"} for word in title)
            and 0 < len(name) <= 3 and all(word.capital for word in name)
        )  # fmt: skip

    def _excuse(self, side: _Regions, gold: bool) -> bool:
        before, between, after = side
        return self._leading(before) and self._middle(between) and self._trailing(after, gold)

    def _rest(self, extra: list[Word]) -> list[Word]:
        """Without words that shade, and words that repeat the question."""
        return [word for word in extra if not self._says_nothing(word)]

    def _says_nothing(self, word: Word) -> bool:
        if word.number:
            return word.form in self.asked.forms
        return word.shades or (word.stem in self.asked.stems and word.form not in HONORIFICS)

    def _leading(self, extra: list[Word]) -> bool:
        # `the city of Springfield`; before a name, a kind in lower case says nothing new
        rest = [w for w in self._rest(extra) if not self._kind(w) and (w.capital or w.stem not in _KINDS)]
        if not rest or (self.person and all(word.form in HONORIFICS for word in rest)):
            return True
        if self.person and self.asked.person and self.equal >= 2 and len(rest) == len(extra) == 1:
            return rest[0].capital and not rest[0].number  # goes by a middle name
        if extra[-1].form in ("a", "an") and self.matched[0].after_comma and not self.named:
            return True  # `Rusalka, a water sprite`
        return self._describes(extra, rest)

    def _describes(self, extra: list[Word], rest: list[Word]) -> bool:
        """`American musical duo The Books`, `HBO miniseries Band of Brothers`: described before it is named."""
        if not self.named or len(extra) > 5 or any(word.form in _RELATES | COPULAS for word in extra):
            return False
        if any(word.number or word.form == "and" or (word.capital and self.asked.choice) for word in rest):
            return False
        last = next((word for word in reversed(extra) if word.form not in ("a", "an", "the")), None)
        return last is not None and not last.capital

    def _kind(self, word: Word) -> bool:
        """Says what kind of thing it is, as the question does; or is one of the few that are always left out."""
        return word.stem in _PLAIN or (word.stem in _KINDS and word.stem in self.asked.stems)

    def _may_drop(self, kind: Word) -> bool:
        """Where a county is asked for, Nassau is Nassau County; but Kansas is not Kansas City, whatever is asked."""
        name = [word.form for word in self.matched]
        return kind.form in self.asked.forms and (kind.form not in ("city", "state") or name == ["new", "york"])

    def _middle(self, extra: list[Word]) -> bool:
        rest = self._rest(extra)
        lower = not any(word.capital for word in self.everything if not word.number)
        names = all((word.capital or lower) and not word.number for word in rest)
        titled = any(word.form == "of" for word in self.everything)  # King An of Zhou is not King Wu of Zhou
        return not rest or (self.person and not titled and len(rest) <= 3 and names)

    def _trailing(self, extra: list[Word], gold: bool) -> bool:
        if any(word.capital and word.form in OTHER_PLACES and not self._may_drop(word) for word in extra):
            return False
        rest = [word for word in self._rest(extra) if not self._kind(word) and not (gold and self._ends_a_name(word))]
        if not rest:  # `The David Lee Roth Band` is nobody
            return not (self.asked.who and any(word.capital and word.form in NAMED_AFTER for word in extra))
        if extra[0].after_comma and extra[0].form in EXPLAINS | {"a", "an", "the"}:
            return True
        if any(word.number for word in rest):
            return False
        if self.matched[0].form in _MONARCHS and extra[0].form == "of":
            return len(rest) <= 2
        return gold and self.named and not any(word.capital or word.form in HEDGES for word in rest)


def _initials(extra: list[Word]) -> list[str]:
    return [word.form for word in extra if len(word.form) == 1 and not word.number]


def _of_one_kind(left: list[Word], right: list[Word]) -> bool:
    first, second = {word.stem for word in left}, {word.stem for word in right}
    if first == second:  # on the other side of the name
        return first <= MOVABLE
    return any(first | second <= group for group in _GROUPS)


def _regions(found: Sequence[Word], matched: set[int]) -> _Regions:
    """Unmatched words before, between and after the matched ones."""
    places = [index for index, word in enumerate(found) if id(word) in matched]
    first, last = places[0], places[-1]
    between = [word for word in found[first:last] if id(word) not in matched]
    return list(found[:first]), between, list(found[last + 1 :])
