"""Pages out of a file, with full-text search by SQLite FTS5 (BM25)."""

import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flywheel.errors import InfrastructureError, InputError
from flywheel.files import disk_errors, sha256, valid_text
from flywheel.rows import HUB, paragraphs, read_rows
from flywheel.workspace import data_folder

from . import Page, PageUnavailable, query_words

_TITLE_WEIGHT = 4.0
_INDEX_FORMAT = 3


class CorpusSource:
    """Pages with a full-text index in one SQLite file."""

    def __init__(self, index: Path) -> None:
        self._lock = threading.Lock()
        self._database = sqlite3.connect(f"{index.resolve().as_uri()}?mode=ro", uri=True, check_same_thread=False)

    def search(self, query: str, limit: int) -> list[Page]:
        """Pages that hold any of the query's words, the rarest words and those in titles weighing most."""
        words = query_words(query)
        if not words:
            return []
        match = " OR ".join(f'"{word}"' for word in words)
        rows = self._read(
            "SELECT title, text FROM pages WHERE pages MATCH ? ORDER BY bm25(pages, ?, 1.0), rowid LIMIT ?",
            (match, _TITLE_WEIGHT, limit),
        )
        return [Page(title, text) for title, text in rows]

    def page(self, title: str) -> Page:
        """The page of that title; upper and lower case do not matter."""
        for column, wanted in (("title", title.strip()), ("folded", title.strip().casefold())):
            rows = self._read(f"SELECT title, text FROM page_titles WHERE {column} = ?", (wanted,))
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
        raise InputError("the source needs a file of pages: --source corpus:pages.jsonl (or corpus:embedded)")
    if path == "embedded":
        path = str(data_folder() / "pages.jsonl")
    if not path.startswith(HUB) and not Path(path).is_file():
        raise InputError(f"cannot read the corpus {path}: no such file")
    digest = sha256(path if path.startswith(HUB) else Path(path))
    index = cache / f"corpus-{_INDEX_FORMAT}-{digest[:16]}.sqlite"
    if not _whole(index):
        _build(index, read_pages(path))
    return CorpusSource(index)


def _whole(index: Path) -> bool:
    """The index is there, and can be read."""
    if not index.is_file():
        return False
    database = sqlite3.connect(index)
    try:
        return bool(database.execute("SELECT COUNT(*) FROM page_titles").fetchone()[0])
    except sqlite3.DatabaseError:
        return False
    finally:
        database.close()


def read_pages(file: str) -> Iterator[Page]:
    """Read {title, text} rows, or the paragraphs of questions; equal titles with different texts get a number.

    Raises:
        InputError: names file and line.
    """
    seen: set[tuple[str, str]] = set()
    titles: set[str] = set()
    for place, row in read_rows(file):
        for title, text in _texts(row, place):
            if (title, text) in seen:
                continue
            seen.add((title, text))
            unique, number = title, 1
            while unique in titles:
                number += 1
                unique = f"{title} ({number})"
            titles.add(unique)
            yield Page(unique, text)


def _texts(row: dict[str, Any], place: str) -> list[tuple[str, str]]:
    """Titles and texts of a row: a page, or a question with its paragraphs."""
    if "text" not in row and (found := paragraphs(row)):
        return [(paragraph.page.strip(), paragraph.text) for paragraph in found]
    title, text = row.get("title"), row.get("text")
    if not isinstance(title, str) or not title.strip():
        raise InputError(f"{place}: a page needs a title, or a question paragraphs, and this row has neither")
    if not isinstance(text, str) or not text.strip():
        raise InputError(f"{place}: the page {title!r} needs a text")
    return [(valid_text(title.strip()), valid_text(text))]


def _build(index: Path, pages: Iterator[Page]) -> None:
    temporary = index.with_suffix(f".{os.getpid()}.part")
    with disk_errors(index):
        temporary.unlink(missing_ok=True)
        index.parent.mkdir(parents=True, exist_ok=True)
    database = sqlite3.connect(temporary)
    try:
        database.execute("CREATE VIRTUAL TABLE pages USING fts5 (title, text, tokenize = 'porter unicode61')")
        database.execute("CREATE TABLE page_titles (title TEXT PRIMARY KEY, folded TEXT NOT NULL, text TEXT NOT NULL)")
        database.execute("CREATE INDEX titles_folded ON page_titles (folded)")
        count = 0
        for count, page in enumerate(pages, start=1):  # noqa: B007
            database.execute("INSERT INTO pages VALUES (?, ?)", (page.title, page.text))
            titled = (page.title, page.title.casefold(), page.text)
            database.execute("INSERT OR IGNORE INTO page_titles VALUES (?, ?, ?)", titled)
        if not count:
            raise InputError("the corpus has no pages")
        database.commit()
        temporary.replace(index)
    except sqlite3.Error as error:
        raise InfrastructureError(f"cannot write {index}: {error}") from error
    finally:
        database.close()
        temporary.unlink(missing_ok=True)
