"""Finds the passages of a page that are closest to a query: chunks, sentence embeddings, FAISS."""

import sqlite3
import threading
from collections import OrderedDict
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING

import numpy

from flywheel.config import SourceConfig
from flywheel.errors import InputError
from flywheel.files import disk_errors, sha256

from .embedder import Embedder, Vectors

if TYPE_CHECKING:
    import faiss

_PAGES_KEPT = 2000
_QUERIES_KEPT = 20_000


def split_passages(text: str, size: int, overlap: int) -> list[str]:
    """Cut a text into passages of at most `size` characters, each sharing about `overlap` with the one before.

    Cuts fall on white space where there is some, so that no word or number is torn.
    """
    passages = []
    start = 0
    while start < len(text):
        end = min(start + size, len(text))
        if end < len(text) and (space := max(text.rfind(" ", start, end), text.rfind("\n", start, end))) > start:
            end = space
        if passage := text[start:end].strip():
            passages.append(passage)
        if end == len(text):
            break
        after = max(end - overlap, start + 1)
        space = text.find(" ", after, end)
        start = space + 1 if space >= 0 else after
    return passages


class PassageFinder:
    """Semantic search inside pages. Safe to use from several threads.

    The vectors of a page are made once for its text, embedder and passage size, and kept on disk for later rounds. A
    page with no more passages than are asked for is shown whole, in reading order, without embedding anything.

    Args:
        cache: folder for the vectors; None keeps them in memory alone.
    """

    def __init__(self, config: SourceConfig, cache: Path | None = None) -> None:
        if config.passage_overlap >= config.passage_characters:
            raise InputError("source.passage_overlap must be smaller than source.passage_characters")
        self._config = config
        self._embedder = Embedder(config.embedder)
        self._kept = _VectorCache(cache) if cache else None
        self._lock = threading.Lock()
        self._pages: OrderedDict[str, Future[_Passages]] = OrderedDict()
        self._queries: OrderedDict[str, Vectors] = OrderedDict()

    def find(self, text: str, query: str) -> list[str]:
        """The passages closest to the query by cosine similarity, the closest first.

        Raises:
            InputError: when the embedder cannot be loaded.
            InfrastructureError: when the disk refuses the cache.
        """
        page = self._page(text)
        if page.index is None:
            return page.texts
        _, found = page.index.search(self._query(query).astype(numpy.float32), self._config.passages)
        return [page.texts[position] for position in found[0]]

    def _page(self, text: str) -> "_Passages":
        """The page's passages; the first thread to ask makes them, others wait for it."""
        config = self._config
        key = sha256(f"{config.embedder}\0{config.passage_characters}\0{config.passage_overlap}\0{text}")
        with self._lock:
            page = self._pages.get(key)
            mine = page is None
            if page is None:
                page = self._pages[key] = Future()
            self._pages.move_to_end(key)
            if len(self._pages) > _PAGES_KEPT:
                self._pages.popitem(last=False)
        if mine:
            try:
                page.set_result(self._make(key, text))
            except BaseException as error:
                with self._lock:
                    self._pages.pop(key, None)  # whoever comes next tries again
                page.set_exception(error)
        return page.result()

    def _make(self, key: str, text: str) -> "_Passages":
        import faiss

        texts = split_passages(text, self._config.passage_characters, self._config.passage_overlap)
        if len(texts) <= self._config.passages:
            return _Passages(texts, None)
        vectors = self._kept.get(key, len(texts)) if self._kept else None
        if vectors is None:
            vectors = self._embedder.embed(texts)
            if self._kept:
                self._kept.put(key, vectors)
        index = faiss.IndexFlatIP(vectors.shape[1])
        index.add(vectors.astype(numpy.float32))
        return _Passages(texts, index)

    def _query(self, query: str) -> Vectors:
        with self._lock:
            vector = self._queries.get(query)
        if vector is None:
            vector = self._embedder.embed([query])
            with self._lock:
                self._queries[query] = vector
                if len(self._queries) > _QUERIES_KEPT:
                    self._queries.popitem(last=False)
        return vector


class _Passages:
    """A page in passages, with their index unless they are so few that all are shown."""

    def __init__(self, texts: list[str], index: "faiss.Index | None") -> None:
        self.texts = texts
        self.index = index


class _VectorCache:
    """Vectors on disk, in one SQLite file, as float16."""

    def __init__(self, folder: Path) -> None:
        self._lock = threading.Lock()
        self._file = folder / "passages.sqlite"
        with disk_errors(self._file):
            folder.mkdir(parents=True, exist_ok=True)
        self._database = self._open()

    def _open(self) -> sqlite3.Connection:
        """Open the file; a damaged one is made anew: it holds nothing that cannot be computed again."""
        for attempt in (1, 2):
            database = sqlite3.connect(self._file, check_same_thread=False, isolation_level=None, timeout=30)
            try:
                database.execute("PRAGMA journal_mode = WAL")
                database.execute("PRAGMA synchronous = OFF")
                database.execute(
                    "CREATE TABLE IF NOT EXISTS vectors (key TEXT PRIMARY KEY, vectors BLOB) WITHOUT ROWID"
                )
                return database
            except sqlite3.DatabaseError:
                database.close()
                if attempt == 2:
                    raise
                with disk_errors(self._file):
                    self._file.unlink(missing_ok=True)
        raise AssertionError

    def get(self, key: str, count: int) -> Vectors | None:
        """The vectors of a page of so many passages, if they are there and whole."""
        with self._lock:
            try:
                row = self._database.execute("SELECT vectors FROM vectors WHERE key = ?", (key,)).fetchone()
            except sqlite3.Error:
                return None
        if row is None or len(row[0]) % (2 * count):
            return None
        return numpy.frombuffer(row[0], dtype=numpy.float16).reshape(count, -1)

    def put(self, key: str, vectors: Vectors) -> None:
        """Keep vectors; a full disk costs the cache and nothing else."""
        with self._lock:
            try:
                self._database.execute("INSERT OR REPLACE INTO vectors VALUES (?, ?)", (key, vectors.tobytes()))
            except sqlite3.Error:
                return
