"""The tables of facts as rows, and the page that each row gives."""

from __future__ import annotations

import csv
import hashlib
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import page_templates as tp

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
SEED = "encyclopedia-1"


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
