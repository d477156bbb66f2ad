"""Pages out of a file, with full-text search by SQLite FTS5 (BM25)."""

import re
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

from flywheel.errors import InputError
from flywheel.files import disk_errors, read_jsonl, sha256
from flywheel.workspace import data_folder

from . import Page, PageUnavailable

_TITLE_WEIGHT = 4.0
_STOP_WORDS = frozenset(
    "a an and are at by for from in is of on or that the to was were what when where which who whom whose with".split()
)
_INDEX_FORMAT = 1


class CorpusSource:
    """Pages with a full-text index in one SQLite file."""

    def __init__(self, index: Path) -> None:
        self._lock = threading.Lock()
        self._database = sqlite3.connect(f"file:{index}?mode=ro", uri=True, check_same_thread=False)

    def search(self, query: str, limit: int) -> list[Page]:
        """Pages that hold any of the query's words, the rarest words and those in titles weighing most."""
        words = [word for word in re.findall(r"\w+", query.lower()) if word not in _STOP_WORDS]
        if not words:
            return []
        match = " OR ".join(f'"{word}"' for word in dict.fromkeys(words))
        rows = self._read(
            "SELECT title, text FROM pages WHERE pages MATCH ? ORDER BY bm25(pages, ?, 1.0), rowid LIMIT ?",
            (match, _TITLE_WEIGHT, limit),
        )
        return [Page(title, text) for title, text in rows]

    def page(self, title: str) -> Page:
        """The page of that title; upper and lower case do not matter."""
        for comparison in ("title = ?", "lower(title) = lower(?)"):
            rows = self._read(f"SELECT title, text FROM page_titles WHERE {comparison}", (title.strip(),))
            if rows:
                return Page(*rows[0])
        near = [page.title for page in self.search(title, 3)]
        hint = f" Did you mean one of: {'; '.join(near)}?" if near else " Search for pages first."
        raise PageUnavailable(f"There is no page {title!r}.{hint}")

    def _read(self, query: str, values: tuple[object, ...]) -> list[tuple[str, str]]:
        with self._lock:
            return self._database.execute(query, values).fetchall()


def open_corpus(path: str, cache: Path) -> CorpusSource:
    """Index a pages.jsonl, once per content, and open it.

    Raises:
        InputError: when the file is missing, or a page has no title or text.
    """
    if not path:
        raise InputError("the source `corpus` needs a file of pages: -o source.path=pages.jsonl (or embedded)")
    file = data_folder() / "pages.jsonl" if path == "embedded" else Path(path)
    if not file.is_file():
        raise InputError(f"cannot read the corpus {file}: no such file")
    index = cache / f"corpus-{_INDEX_FORMAT}-{sha256(file)[:16]}.sqlite"
    if not index.exists():
        _build(index, read_pages(file))
    return CorpusSource(index)


def read_pages(file: Path) -> Iterator[Page]:
    """Read {title, text} rows; equal titles with different texts are told apart by a number.

    Raises:
        InputError: names file and line.
    """
    texts: dict[str, list[str]] = {}
    for number, row in read_jsonl(file):
        title, text = row.get("title"), row.get("text")
        if not isinstance(title, str) or not title.strip():
            raise InputError(f"{file}:{number}: a page needs a title")
        if not isinstance(text, str) or not text.strip():
            raise InputError(f"{file}:{number}: the page {title!r} needs a text")
        known = texts.setdefault(title.strip(), [])
        if text in known:
            continue
        known.append(text)
        yield Page(title.strip() if len(known) == 1 else f"{title.strip()} ({len(known)})", text)


def _build(index: Path, pages: Iterator[Page]) -> None:
    temporary = index.with_suffix(".part")
    with disk_errors(index):
        temporary.unlink(missing_ok=True)
        index.parent.mkdir(parents=True, exist_ok=True)
    database = sqlite3.connect(temporary)
    try:
        database.execute("CREATE VIRTUAL TABLE pages USING fts5 (title, text, tokenize = 'porter unicode61')")
        database.execute("CREATE TABLE page_titles (title TEXT PRIMARY KEY, text TEXT NOT NULL)")
        count = 0
        for count, page in enumerate(pages, start=1):  # noqa: B007
            database.execute("INSERT INTO pages VALUES (?, ?)", (page.title, page.text))
            database.execute("INSERT OR IGNORE INTO page_titles VALUES (?, ?)", (page.title, page.text))
        if not count:
            raise InputError("the corpus has no pages")
        database.commit()
    finally:
        database.close()
    temporary.replace(index)
