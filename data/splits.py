"""Which split a page belongs to: pages that can name each other stay together."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable

from tables import Row, digest

SPLITS = ("train", "dev", "test")
PAGE_SHARE = {"train": 0.50, "dev": 0.18, "test": 0.32}

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
# Columns whose value can be the title of another page; such pages stay in one split.
LINK_COLUMNS = ("capital", "country", "creator", "discoverer", "architect", "inventor", "city", "dynasty")


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
