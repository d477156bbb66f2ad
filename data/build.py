"""Build the embedded encyclopedia: ``pages.jsonl`` and ``questions.jsonl`` from the tables in ``facts/``.

Run ``python data/build.py`` to rebuild and ``python data/build.py --check`` to compare with the files on disk.
Everything follows from the tables and the templates, so a question's gold answer cannot disagree with its page.
Order and choice come from SHA-256 of the texts instead of a random generator, hence two runs give the same bytes.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator

from generate import PINNED_QUESTIONS, Generator, Question, follow
from splits import SPLITS, assign_splits, named_in, title_patterns
from tables import HERE, Row, digest, load, page_text

COUNTS: dict[str, dict[str, int]] = {
    "train": {"one_hop": 350, "two_hop": 300, "comparison": 120, "difference": 130, "yes_no": 100},
    "dev": {"one_hop": 56, "two_hop": 48, "comparison": 20, "difference": 20, "yes_no": 16},
    "test": {"one_hop": 105, "two_hop": 90, "comparison": 36, "difference": 39, "yes_no": 30},
}
MINIMUM = {"train": 600, "dev": 120, "test": 200}


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
