"""Build the embedded encyclopedia: ``pages.jsonl`` and ``questions.jsonl`` from the tables in ``facts/``.

Run ``python data/build.py`` to rebuild and ``python data/build.py --check`` to compare with the files on disk.
Everything follows from the tables and the templates, so a question's gold answer cannot disagree with its page.
Order and choice come from SHA-256 of the texts instead of a random generator, hence two runs give the same bytes.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import itertools
import json
import re
import sys
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import templates as tp

HERE = Path(__file__).resolve().parent
KINDS = (
    "country",
    "city",
    "person",
    "work",
    "element",
    "building",
    "mountain",
    "planet",
    "event",
    "dynasty",
    "material",
    "invention",
)
SPLITS = ("train", "dev", "test")
PAGE_SHARE = {"train": 0.50, "dev": 0.18, "test": 0.32}
COUNTS: dict[str, dict[str, int]] = {
    "train": {"one_hop": 350, "two_hop": 300, "comparison": 120, "difference": 130, "yes_no": 100},
    "dev": {"one_hop": 56, "two_hop": 48, "comparison": 20, "difference": 20, "yes_no": 16},
    "test": {"one_hop": 105, "two_hop": 90, "comparison": 36, "difference": 39, "yes_no": 30},
}
MINIMUM = {"train": 600, "dev": 120, "test": 200}
SEED = "encyclopedia-1"

# Clusters whose split is fixed: three questions must be in test, and the rest keeps every kind in every split.
PINNED = {
    "France": "test",
    "United States": "test",
    "Birch plywood": "test",
    "Ethanol": "test",
    "Ming dynasty": "test",
    "United Kingdom": "train",
    "Portugal": "train",
    "Qing dynasty": "train",
    "Tang dynasty": "train",
    "Song dynasty": "dev",
    "Yuan dynasty": "dev",
    "Water": "train",
    "Balsa wood": "test",
    "Glycerol": "test",
    "Concrete": "test",
    "Petrol": "dev",
    "Milk": "dev",
    "Cork": "dev",
    "Nylon": "dev",
    "Steel": "train",
}
PINNED_QUESTIONS = {
    "How many years passed between the construction of the Eiffel Tower and the construction of the Empire State "
    "Building?": "test-eiffel",
    "Does birch plywood float in ethanol?": "test-plywood",
    "Which dynasty was ruling China at the time of the fall of Constantinople?": "test-dynasty",
}
PINNED_PAIRS = (("Eiffel Tower", "Empire State Building"), ("Birch plywood", "Ethanol"))
# Columns whose value can be the title of another page; such pages stay in one split.
LINK_COLUMNS = ("capital", "country", "creator", "discoverer", "architect", "inventor", "city", "dynasty")
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
class Row:
    """One entity: its kind, its template group and its cells."""

    kind: str
    group: str
    cells: dict[str, str]

    @property
    def name(self) -> str:
        """Return the page title."""
        return self.cells["name"]

    @property
    def aliases(self) -> list[str]:
        """Return other names of the entity."""
        return [alias for alias in self.cells["aliases"].split(";") if alias]


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


def digest(*parts: str) -> int:
    """Return a stable number for the parts: the only source of variety."""
    return int(hashlib.sha256("\x1f".join((SEED, *parts)).encode()).hexdigest(), 16)


def group_of(kind: str, cells: dict[str, str]) -> str:
    """Return the template group: works of different arts need different verbs."""
    if kind != "work":
        return kind
    return {"novel": "book", "novella": "book", "ballet": "music", "symphony": "music"}.get(
        cells["form"], cells["form"]
    )


def load() -> dict[str, Row]:
    """Read all tables, add the derived cells and return the rows by title."""
    rows: dict[str, Row] = {}
    for kind in KINDS:
        with (HERE / "facts" / f"{kind}.csv").open(encoding="utf-8", newline="") as handle:
            for cells in csv.DictReader(handle):
                assert None not in cells and None not in cells.values(), f"{kind}.csv: ragged row {cells}"
                assert cells["name"] not in rows, f"two pages are called {cells['name']}"
                rows[cells["name"]] = Row(kind, group_of(kind, cells), cells)
    for row in rows.values():
        cells = row.cells
        if row.kind == "city":
            cells["continent"] = rows[cells["country"]].cells["continent"]
        elif row.kind == "mountain":
            cells["feet"] = str(round(int(cells["height"]) / 0.3048))
        elif row.kind == "material":
            cells["litre"] = f"{int(cells['density']) / 1000:g}"
        elif row.kind == "planet":
            cells["a_type"] = with_article(cells["type"])
        elif row.kind == "dynasty":
            cells["span"] = f"{cells['start']} to {cells['end']}"
    return rows


def mention(row: Row) -> str:
    """Return the name as it stands inside a sentence."""
    name = row.name
    if row.kind in tp.LOWER_KINDS or name in tp.LOWER_NAMES:
        name = name[0].lower() + name[1:]
    return f"the {name}" if row.name in tp.WITH_THE else name


def upper_first(text: str) -> str:
    """Return the text with a capital first letter."""
    return text[0].upper() + text[1:]


def with_article(noun: str) -> str:
    """Return ``a`` or ``an`` with the noun."""
    return f"{'an' if noun[0].lower() in 'aeiou' else 'a'} {noun}"


def page_text(row: Row) -> str:
    """Return the page: a lead that tells only what the thing is, then sections with one fact a sentence."""
    noun = row.cells.get("form") or row.cells.get("occupation") or ""
    lead = tp.LEADS[row.kind].replace("{an} {form}", "{thing}").replace("{an} {occupation}", "{thing}")
    lead = lead.format(Name=upper_first(mention(row)), thing=with_article(noun) if noun else "", **row.cells)
    shown = dict(row.cells)
    for column in ("country", "neighbour"):
        if shown.get(column) in tp.WITH_THE:
            shown[column] = f"the {shown[column]}"
    sections: dict[str, list[str]] = defaultdict(list)
    for index, (heading, phrasings) in enumerate(tp.SENTENCES[row.group]):
        phrasing = phrasings[digest(row.name, "phrasing", str(index)) % len(phrasings)]
        if all(row.cells[column] for column in re.findall(r"{(\w+)}", phrasing)):
            sections[heading].append(upper_first(phrasing.format(**shown)))
    parts = [lead, ""]
    for heading in sorted(sections, key=lambda name: digest(row.name, "section", name)):
        sentences = sorted(sections[heading], key=lambda text: digest(row.name, "sentence", text))
        parts += [f"== {heading} ==", " ".join(sentences)]
    return "\n".join(parts)


def named_in(text: str, patterns: dict[str, re.Pattern[str]]) -> set[str]:
    """Return the titles that occur in the text as whole words, in any case."""
    lowered = text.lower()  # The plain test first: a pattern is a hundred times slower.
    return {title for title, pattern in patterns.items() if title.lower() in lowered and pattern.search(text)}


def title_patterns(titles: Iterable[str]) -> dict[str, re.Pattern[str]]:
    """Return a whole-word pattern for every title."""
    return {title: re.compile(rf"(?<!\w){re.escape(title)}(?!\w)", re.IGNORECASE) for title in titles}


def assign_splits(rows: dict[str, Row]) -> dict[str, str]:
    """Give every cluster of linked pages to one split.

    Pages are linked when a cell of one is the title of the other or one title contains the other; a question that
    touches one can name the other, so they may not be parted.
    """
    parent = {name: name for name in rows}

    def root(name: str) -> str:
        while parent[name] != name:
            name = parent[name]
        return name

    patterns = title_patterns(rows)
    for row in rows.values():
        linked = {row.cells.get(column, "") for column in LINK_COLUMNS} | named_in(row.name, patterns)
        if row.kind == "event":
            # The city of an event named after it is not asked about; only the dynasty is.
            linked = {row.cells["dynasty"], row.name}
        for other in linked & rows.keys():
            parent[root(other)] = root(row.name)
    clusters: dict[str, list[str]] = defaultdict(list)
    for name in rows:
        clusters[root(name)].append(name)

    def stratum(name: str) -> str:
        row = rows[name]
        return row.kind + row.cells.get("phase", "") + (row.group if row.kind == "work" else "")

    totals = Counter(map(stratum, rows))
    have: dict[str, Counter[str]] = {split: Counter() for split in SPLITS}
    result: dict[str, str] = {}

    def place(members: list[str], split: str) -> None:
        for name in members:
            result[name] = split
            have[split][stratum(name)] += 1

    def need(members: list[str], split: str) -> float:
        return sum(1 - have[split][key] / (PAGE_SHARE[split] * totals[key]) for key in map(stratum, members))

    free: list[list[str]] = []
    for members in clusters.values():
        pins = {PINNED[name] for name in members if name in PINNED}
        assert len(pins) < 2, f"a cluster is pinned to two splits: {members}"
        if pins:
            place(members, pins.pop())
        else:
            free.append(members)
    for members in sorted(free, key=lambda names: (-len(names), digest(*names))):
        place(members, max(SPLITS, key=lambda split: need(members, split)))
    return result


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


def choose(candidates: list[Question], count: int) -> list[Question]:
    """Return ``count`` questions, taking topics in turn so that no relation crowds the others out."""
    tree: dict[str, dict[tuple[str, ...], list[Question]]] = defaultdict(lambda: defaultdict(list))
    for item in candidates:
        tree[item.topic[0]][item.topic[1:]].append(item)
    queues: list[list[Question]] = []
    for lists in tree.values():
        rounds = itertools.zip_longest(*lists.values())
        queues.append([item for layer in rounds for item in layer if item is not None])
    merged = [item for layer in itertools.zip_longest(*queues) for item in layer if item is not None]
    if not candidates or candidates[0].kind not in ("yes_no", "comparison"):
        return merged[:count]
    # Equal halves of yes and no, and of answers named first and second: the turns above do not see to that.
    first = [item for item in merged if item.answer in ("yes", item.evidence[0].page)]
    second = [item for item in merged if item.answer not in ("yes", item.evidence[0].page)]
    return first[: count // 2] + second[: count - count // 2]


def build_questions(rows: dict[str, Row], splits: dict[str, str]) -> list[tuple[str, str, Question]]:
    """Return (id, split, question) for all splits."""
    patterns = title_patterns(rows)
    result: list[tuple[str, str, Question]] = []
    seen: set[str] = set()
    for split in SPLITS:
        maker = Generator(rows, [row for row in rows.values() if splits[row.name] == split])
        sources: dict[str, Callable[[], Iterator[Question]]] = {
            "one_hop": maker.one_hop,
            "two_hop": maker.two_hop,
            "comparison": maker.comparison,
            "difference": maker.difference,
            "yes_no": maker.yes_no,
        }
        chosen: list[Question] = []
        for kind, source in sources.items():
            candidates: list[Question] = []
            for item in source():
                if item.text not in seen and all(splits[title] == split for title in titles_of(item, patterns)):
                    seen.add(item.text)
                    candidates.append(item)
            pinned = [item for item in candidates if item.text in PINNED_QUESTIONS]
            pages = [{part.page for part in item.evidence} for item in pinned]
            others = [item for item in candidates if {part.page for part in item.evidence} not in pages]
            chosen += pinned + choose(others, COUNTS[split][kind] - len(pinned))
        fixed = [item for item in chosen if item.text in PINNED_QUESTIONS]
        mixed = sorted((item for item in chosen if item not in fixed), key=lambda item: digest("order", item.text))
        result += [(PINNED_QUESTIONS[item.text], split, item) for item in fixed]
        result += [(f"{split}-{number:04d}", split, item) for number, item in enumerate(mixed, 1)]
    return result


def titles_of(item: Question, patterns: dict[str, re.Pattern[str]]) -> set[str]:
    """Return every page title that the question shows anywhere."""
    parts = [item.text, item.answer, *item.aliases]
    for evidence in item.evidence:
        parts += [evidence.page, evidence.value, evidence.query]
    return named_in("\n".join(parts), patterns)


def check_pages(pages: dict[str, str], rows: dict[str, Row]) -> None:
    """Stop with a message when a page breaks a rule."""
    assert len(pages) >= 260, f"only {len(pages)} pages"
    assert len({title.lower() for title in pages}) == len(pages), "two titles differ only in case"
    for title, text in pages.items():
        assert len(text) < 700, f"{title}: {len(text)} characters"
        lead, _, body = text.partition("\n\n")
        assert len(lead.split()) <= 12, f"{title}: long lead"
        if rows[title].kind != "dynasty":
            assert not re.search(r"\d", lead.replace(title, "")), f"{title}: a fact stands in the lead"
        assert 1 <= body.count("\n== ") + 1 <= 3, f"{title}: wrong number of sections"
        prose = " ".join(line for line in body.split("\n") if not line.startswith("== "))
        sentences = [part for part in re.split(r"(?<=[.!?])\s+(?=\S)", prose) if part]
        assert all(len(part.split()) <= 14 for part in sentences), f"{title}: long sentence"
        assert len(sentences) >= 5, f"{title}: only {len(sentences)} facts"


def check_questions(items: list[tuple[str, str, Question]], pages: dict[str, str]) -> None:
    """Stop with a message when the question set breaks a rule."""
    patterns = title_patterns(pages)
    texts: set[str] = set()
    owner: dict[str, str] = {}
    per_split: Counter[str] = Counter()
    relations: set[str] = set()
    for identifier, split, item in items:
        assert item.text not in texts, f"{identifier}: the text occurs twice"
        texts.add(item.text)
        per_split[split] += 1
        relations.update(part.relation for part in item.evidence)
        for part in item.evidence:
            assert part.page in pages, f"{identifier}: no page {part.page}"
            assert part.value in pages[part.page], f"{identifier}: {part.value!r} is not on page {part.page}"
        assert item.answer == follow(item.operation, item.evidence), f"{identifier}: the answer does not follow"
        for title in titles_of(item, patterns):
            assert owner.setdefault(title, split) == split, f"{identifier}: {title} also occurs in {owner[title]}"
    assert len(relations) <= 22, f"{len(relations)} relations: {sorted(relations)}"
    for split, least in MINIMUM.items():
        assert per_split[split] >= least, f"{split}: only {per_split[split]} questions"
        for kind, count in COUNTS[split].items():
            got = [item for _, place, item in items if place == split and item.kind == kind]
            assert len(got) == count, f"{split}/{kind}: {len(got)} questions instead of {count}"
            topics = Counter(item.evidence[0].relation for item in got)
            if kind == "one_hop":
                assert max(topics.values()) <= 0.15 * count, f"{split}: a relation crowds the others out: {topics}"
    fixed = {item.text: identifier for identifier, split, item in items if split == "test"}
    for text, identifier in PINNED_QUESTIONS.items():
        assert fixed.get(text) == identifier, f"{identifier} is missing"


def build() -> dict[str, str]:
    """Return the content of both files by file name, checked."""
    rows = load()
    pages = {name: page_text(row) for name, row in rows.items()}
    check_pages(pages, rows)
    items = build_questions(rows, assign_splits(rows))
    check_questions(items, pages)
    page_lines = (json.dumps({"title": name, "text": text}, ensure_ascii=False) for name, text in pages.items())
    return {
        "pages.jsonl": "".join(f"{line}\n" for line in page_lines),
        "questions.jsonl": "".join(f"{item.as_json(name, split)}\n" for name, split, item in items),
    }


def main() -> int:
    """Write the files, or with ``--check`` only compare; return the exit status."""
    parser = argparse.ArgumentParser(description="Build the embedded encyclopedia from its tables of facts.")
    parser.add_argument("--check", action="store_true", help="compare with the files on disk, write nothing")
    check = bool(parser.parse_args().check)
    try:
        files = build()
    except AssertionError as error:
        print(f"rule broken: {error}", file=sys.stderr)
        return 1
    status = 0
    for name, content in files.items():
        path = HERE / name
        if not check:
            path.write_text(content, encoding="utf-8", newline="\n")
        elif not path.is_file() or path.read_bytes() != content.encode("utf-8"):
            print(f"{name} differs from what the tables give; run python data/build.py", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
