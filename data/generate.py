"""All questions that the rows of one split give, each with the answer that follows from its evidence."""

from __future__ import annotations

import itertools
import json
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

import question_templates as tp
from tables import Row, digest, mention, upper_first

PINNED_QUESTIONS = {
    "How many years passed between the construction of the Eiffel Tower and the construction of the Empire State "
    "Building?": "test-eiffel",
    "Does birch plywood float in ethanol?": "test-plywood",
    "Which dynasty was ruling China at the time of the fall of Constantinople?": "test-dynasty",
}
PINNED_PAIRS = (("Eiffel Tower", "Empire State Building"), ("Birch plywood", "Ethanol"))
VALUE_ALIASES: dict[str, list[str]] = {
    "pound sterling": ["pound", "British pound"],
    "US dollar": ["United States dollar"],
    "yen": ["Japanese yen"],
    "Norwegian krone": ["krone"],
    "Danish krone": ["krone"],
    "Swedish krona": ["krona"],
    "złoty": ["zloty"],
    "euro": ["euros"],
    "sol": ["Peruvian sol"],
    "Indian rupee": ["rupee"],
    "Icelandic króna": ["króna"],
    "Czech koruna": ["koruna"],
    "New York": ["New York City"],
    "tögrög": ["tugrik"],
    "forint": ["Hungarian forint"],
    "hryvnia": ["Ukrainian hryvnia"],
    "baht": ["Thai baht"],
    "cedi": ["Ghanaian cedi"],
    "dong": ["Vietnamese dong"],
    "ringgit": ["Malaysian ringgit"],
    "birr": ["Ethiopian birr"],
    "naira": ["Nigerian naira"],
    "Dnieper": ["Dnipro"],
    "Danzig": ["Gdańsk"],
    "Oranienbaum": ["Lomonosov"],
    "Red River": ["Red"],
    "Braunschweig": ["Brunswick"],
    "Frankfurt": ["Frankfurt am Main"],
    "Halle": ["Halle (Saale)", "Halle an der Saale"],
    "Saint Paul": ["St. Paul", "St Paul"],
    "St. Louis": ["Saint Louis", "St Louis"],
    "Saint-Germain-en-Laye": ["St-Germain-en-Laye"],
    "Le Roncole": ["Roncole", "Roncole Verdi"],
    "Lennep": ["Remscheid-Lennep"],
    "Ottawa River": ["Ottawa"],
}
# Two densities closer than this ratio are not compared: typical values are not that exact.
DENSITY_MARGIN = 1.10


@dataclass(frozen=True)
class Evidence:
    """One look-up: the page, the relation, the literal value and the sub-query that leads there."""

    page: str
    relation: str
    value: str
    query: str


@dataclass(frozen=True)
class Question:
    """A question with its gold answer; ``topic`` spreads the choice and does not go into the file."""

    text: str
    answer: str
    aliases: tuple[str, ...]
    kind: str
    wording: int
    evidence: tuple[Evidence, ...]
    operation: str
    topic: tuple[str, ...]

    def as_json(self, identifier: str, split: str) -> str:
        """Return the line for ``questions.jsonl``."""
        record = {
            "id": identifier,
            "question": self.text,
            "answer": self.answer,
            "aliases": list(self.aliases),
            "split": split,
            "kind": self.kind,
            "wording": self.wording,
            "evidence": [vars(item) for item in self.evidence],
            "operation": self.operation,
        }
        return json.dumps(record, ensure_ascii=False)


def look_up(row: Row, relation: str) -> Evidence | None:
    """Return the evidence for one relation of a page, or None when the cell is empty."""
    column, _ = tp.ONE_HOP[row.group, relation]
    value = row.cells[column]
    return Evidence(row.name, relation, value, f"{relation} of {row.name}") if value else None


def without_accents(text: str) -> str:
    """Return the text in plain letters, so that "Kaliste" is as good as "Kaliště"."""
    spread = unicodedata.normalize("NFD", text.translate(str.maketrans("øØłŁ", "oOlL")))
    return "".join(char for char in spread if not unicodedata.combining(char))


def answer_aliases(answer: str, rows: dict[str, Row]) -> tuple[str, ...]:
    """Return other correct ways to write the answer."""
    aliases = list(VALUE_ALIASES.get(answer, []))
    if answer in rows:
        aliases += rows[answer].aliases
    if answer.startswith("+"):
        aliases.append(answer[1:])
    if re.fullmatch(r"\d+ to \d+", answer):
        aliases += [answer.replace(" to ", "-"), answer.replace(" to ", "–")]
    aliases += [plain for name in [answer, *aliases] if (plain := without_accents(name)) != name]
    return tuple(dict.fromkeys(aliases))


def follow(operation: str, evidence: tuple[Evidence, ...]) -> str:
    """Return the answer that follows from the evidence."""
    first, last = evidence[0], evidence[-1]
    if operation == "copy":
        return last.value
    if operation == "page":
        return last.page
    if operation == "same":
        return "yes" if first.value == last.value else "no"
    left, right = int(first.value), int(last.value)
    if operation == "less":
        return "yes" if left < right else "no"
    if operation == "difference":
        return str(abs(left - right))
    assert operation in ("smaller", "larger"), f"unknown operation {operation}"
    return first.page if (left < right) == (operation == "smaller") else last.page


def is_pinned(pair: tuple[Evidence, Evidence]) -> bool:
    """Tell whether the pair is one of the fixed ones, which are asked in the first wording."""
    return (pair[0].page, pair[1].page) in PINNED_PAIRS


class Generator:
    """Makes all question candidates of one split."""

    def __init__(self, rows: dict[str, Row], members: list[Row]) -> None:
        """Keep the table of all rows and the rows of this split."""
        self.rows = rows
        self.members = members
        self.inside = {row.name for row in members}

    def ordered(self, group: str, *salt: str) -> list[Row]:
        """Return this split's rows of a template group in a stable mixed order."""
        return sorted((row for row in self.members if row.group == group), key=lambda row: digest(row.name, *salt))

    def question(
        self, text: str, kind: str, wording: int, operation: str, evidence: tuple[Evidence, ...], *topic: str
    ) -> Question:
        """Return the question with the answer that follows from its evidence."""
        answer = follow(operation, evidence)
        return Question(text, answer, answer_aliases(answer, self.rows), kind, wording, evidence, operation, topic)

    def one_hop(self) -> Iterator[Question]:
        """Yield questions about one cell of one page; the wording rotates, so a second pass gives new texts."""
        for turn, ((group, relation), (_, wordings)) in itertools.product(range(3), tp.ONE_HOP.items()):
            for index, row in enumerate(self.ordered(group, relation), digest(group, relation) % 3):
                found = look_up(row, relation)
                if found:
                    wording = (index + turn) % 3
                    text = wordings[wording].format(e=mention(row), E=upper_first(mention(row)))
                    yield self.question(text, "one_hop", wording, "copy", (found,), relation, group)

    def two_hop(self) -> Iterator[Question]:
        """Yield questions whose second page is found through the value on the first."""
        for turn, ((group, first, second), wordings) in itertools.product(range(3), tp.TWO_HOP.items()):
            for index, row in enumerate(self.ordered(group, first, second), digest(group, first, second) % 3):
                found = look_up(row, first)
                if not found:
                    continue
                if second == "years of rule":
                    target = self.rows[row.cells["dynasty"]]
                    query = f"dynasty that ruled China in {found.value}"
                    last: Evidence | None = Evidence(target.name, second, target.cells["span"], query)
                elif found.value in self.inside and (self.rows[found.value].group, second) in tp.ONE_HOP:
                    last = look_up(self.rows[found.value], second)
                else:
                    last = None
                if last:
                    wording = (index + turn) % 3
                    text = wordings[wording].format(e=mention(row), E=upper_first(mention(row)))
                    operation = "page" if second == "years of rule" else "copy"
                    yield self.question(text, "two_hop", wording, operation, (found, last), second, group)

    def pairs(self, group: str, relation: str, *salt: str) -> Iterator[tuple[Evidence, Evidence]]:
        """Yield pairs of evidence, near neighbours in the mixed order first; the fixed pairs lead."""
        found = [item for row in self.ordered(group, relation, *salt) if (item := look_up(row, relation))]
        by_page = {item.page: item for item in found}
        for left, right in PINNED_PAIRS:
            if left in by_page and right in by_page:
                yield by_page[left], by_page[right]
        for step in range(1, len(found)):
            for index in range(len(found) - step):
                yield found[index], found[index + step]

    def pair_text(self, wording: str, left: Evidence, right: Evidence) -> str:
        """Return the wording with both names."""
        return upper_first(wording.format(a=mention(self.rows[left.page]), b=mention(self.rows[right.page])))

    def comparison(self) -> Iterator[Question]:
        """Yield which-of-two questions, the answer standing first and second in turn."""
        for group, relation, operation, wordings in tp.COMPARISON:
            index = digest(group, relation, operation) % 6
            for pair in self.pairs(group, relation, operation):
                if not self.clear(*pair):
                    continue
                if (follow(operation, pair) == pair[0].page) != (index % 2 == 0):
                    pair = (pair[1], pair[0])
                wording = (index // 2) % 3
                text = self.pair_text(wordings[wording], *pair)
                yield self.question(text, "comparison", wording, operation, pair, relation, group, operation)
                index += 1

    def difference(self) -> Iterator[Question]:
        """Yield questions for the distance between two numbers."""
        for group, relation, wordings in tp.DIFFERENCE:
            for index, pair in enumerate(self.pairs(group, relation, "difference"), digest(group, relation) % 3):
                wording = 0 if is_pinned(pair) else index % 3
                if pair[0].value != pair[1].value:
                    text = self.pair_text(wordings[wording], *pair)
                    yield self.question(text, "difference", wording, "difference", pair, relation, group)
        for group, first, second, wordings in tp.SELF_DIFFERENCE:
            for index, row in enumerate(self.ordered(group, "self")):
                left, right = look_up(row, first), look_up(row, second)
                if left and right:
                    text = wordings[index % 3].format(a=mention(row))
                    yield self.question(text, "difference", index % 3, "difference", (left, right), first, second)

    def yes_no(self) -> Iterator[Question]:
        """Yield yes-or-no questions, yes and no in turn within every topic."""
        for group, relation, operation, wordings in tp.YES_NO:
            piles: dict[str, list[tuple[Evidence, Evidence]]] = {"yes": [], "no": []}
            for number, pair in enumerate(self.pairs(group, relation, "yes or no")):
                if relation == "density":
                    phases = [self.rows[item.page].cells["phase"] for item in pair]
                    if phases == ["liquid", "solid"]:
                        pair = (pair[1], pair[0])
                    elif phases != ["solid", "liquid"]:
                        continue
                elif any(item.value in self.rows.keys() - self.inside for item in pair):
                    continue
                elif operation == "less" and (follow("less", pair) == "yes") != (number % 2 == 0):
                    pair = (pair[1], pair[0])
                if operation == "same" or self.clear(*pair):
                    piles[follow(operation, pair)].append(pair)
            both = zip(piles["yes"], piles["no"], strict=False)
            for index, pair in enumerate(itertools.chain.from_iterable(both), digest(group, relation, operation) % 3):
                wording = 0 if is_pinned(pair) else index % 3
                text = self.pair_text(wordings[wording], *pair)
                yield self.question(text, "yes_no", wording, operation, pair, relation, group)

    def clear(self, left: Evidence, right: Evidence) -> bool:
        """Tell whether the two numbers are apart enough to be compared."""
        low, high = sorted((int(left.value), int(right.value)))
        return high > low * DENSITY_MARGIN if left.relation == "density" else high > low
