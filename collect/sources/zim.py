"""Pages out of a Kiwix file (ZIM): a whole Wikipedia on disk, searched with the index inside it."""

import re
import threading
from collections import Counter, OrderedDict
from pathlib import Path
from typing import Any

from bs4 import BeautifulSoup
from bs4.element import NavigableString, Tag

from flywheel.errors import InfrastructureError, InputError

from . import Page, PageUnavailable, query_words

_PAGES_KEPT = 2000
_PER_WORD = 100
"""Pages looked at for each word of a query."""
_FUSION = 60
_NOISE = (
    "script, style, noscript, table.infobox, table.navbox, .navbox, .mw-editsection, sup.reference, .reflist, .toc, "
    ".metadata, .hatnote, figure, .thumb, .gallery, .noprint"
)
"""CSS selectors of what is not running text in Wikipedia's HTML."""
_BLOCKS = ("p", "li", "dd", "dt", "blockquote", "td", "th", "div", "section", "br", "tr", "ul", "ol", "dl", "table")


class ZimSource:
    """Pages of a ZIM file, with its full-text index where it has one, and its index of titles.

    Raises:
        InputError: when libzim is not installed, or the file is missing or no ZIM file.
    """

    def __init__(self, path: str) -> None:
        try:
            from libzim.reader import Archive
        except ImportError as error:
            raise InputError("the source `zim` needs libzim: pip install 'flywheel-lora[zim]'") from error
        if not path or not Path(path).is_file():
            raise InputError(f"the source `zim` needs a Kiwix file: --source zim:FILE.zim (no file {path!r})")
        self._lock = threading.Lock()
        try:
            self._archive = Archive(Path(path))
        except RuntimeError as error:
            raise InputError(f"{path} is no ZIM file: {error}") from error
        self._revision = str(self._archive.uuid)
        self._pages: OrderedDict[str, Page] = OrderedDict()

    def search(self, query: str, limit: int) -> list[Page]:
        """Pages by full text, then by title."""
        found: dict[str, Page] = {}
        with self._lock:
            for path in self._paths(query, 2 * limit):
                page = self._read(path)
                if page is not None and len(found) < limit:
                    found.setdefault(page.title, page)
        return list(found.values())

    def page(self, title: str) -> Page:
        """The page of that title."""
        title = title.strip()
        with self._lock:
            page = self._by_title(title)
            if page is not None:
                return page
            near = [self._title(path) for path in self._suggestions(title, 5)]
        hint = f"Did you mean one of: {'; '.join(near)}?" if near else "Search for pages first."
        raise PageUnavailable(f"There is no page {title!r}. {hint}")

    def _by_title(self, title: str) -> Page | None:
        for spelling in dict.fromkeys((title, title[:1].upper() + title[1:])):
            if spelling and self._archive.has_entry_by_title(spelling):
                return self._read(self._archive.get_entry_by_title(spelling).path)
        for path in self._suggestions(title, 5):
            if self._title(path).casefold() == title.casefold():
                return self._read(path)
        return None

    def _paths(self, query: str, limit: int) -> list[str]:
        from libzim.search import Query, Searcher

        if not query.strip():
            return []
        found: list[str] = []
        if self._archive.has_fulltext_index:
            searcher = Searcher(self._archive)

            def results(text: str, count: int) -> list[str]:
                return list(searcher.search(Query().set_query(text)).getResults(0, count))

            found = results(query, limit)
            if len(found) < limit:  # the index wants all words on a page; agents write more than that
                found += _fused([results(word, _PER_WORD) for word in query_words(query)])
        return list(dict.fromkeys([*found, *self._suggestions(query, limit)]))[:limit]

    def _suggestions(self, text: str, limit: int) -> list[str]:
        from libzim.suggestion import SuggestionSearcher

        if not text.strip():
            return []
        return list(SuggestionSearcher(self._archive).suggest(text).getResults(0, limit))

    def _title(self, path: str) -> str:
        return str(self._archive.get_entry_by_path(path).title)

    def _read(self, path: str) -> Page | None:
        """The page at a path, after redirects; None for what is no page of text.

        Raises:
            InfrastructureError: when the file is damaged there.
        """
        if path not in self._pages:
            try:
                entry: Any = self._archive.get_entry_by_path(path)
                item = entry.get_item()
                if not item.mimetype.startswith("text/html"):
                    return None
                html = bytes(item.content).decode("utf-8", errors="replace")
            except (RuntimeError, KeyError) as error:
                raise InfrastructureError(f"the ZIM file cannot be read at {path}: {error}") from error
            title = self._archive.get_entry_by_path(item.path).title
            self._pages[path] = Page(str(title), html_to_text(html), revision=self._revision)
            if len(self._pages) > _PAGES_KEPT:
                self._pages.popitem(last=False)
        self._pages.move_to_end(path)
        return self._pages[path]


def _fused(rankings: list[list[str]]) -> list[str]:
    """Several rankings as one: reciprocal rank fusion (Cormack et al., SIGIR 2009)."""
    scores: Counter[str] = Counter()
    for ranking in rankings:
        for rank, path in enumerate(ranking):
            scores[path] += 1 / (_FUSION + rank)  # type: ignore[assignment]  # counters add fractions too
    return [path for path, _ in scores.most_common()]


def html_to_text(html: str) -> str:
    """Running text of a page, with its section headings as `== Heading ==`; the page's own title is left out."""
    soup = BeautifulSoup(html, "html.parser")
    body = soup.select_one(".mw-parser-output, #mw-content-text, #content, main, article") or soup.body or soup
    for noise in body.select(_NOISE):
        noise.decompose()
    for heading in body.find_all(re.compile(r"^h[1-6]$")):
        level = int(heading.name[1])
        text = " ".join(heading.get_text(" ", strip=True).split())
        marks = "=" * max(2, level)
        heading.replace_with(f"\n\n{marks} {text} {marks}\n" if level > 1 and text else "\n")
    parts: list[str] = []
    for node in body.descendants:
        if isinstance(node, Tag) and node.name in _BLOCKS:
            parts.append("\n")
        elif type(node) is NavigableString:
            parts.append(str(node) if node.startswith("\n\n==") else re.sub(r"\s+", " ", node))
    lines = [" ".join(line.split()) for line in "".join(parts).split("\n")]
    text = "\n".join(line for line in lines if line)
    return re.sub(r"\n(==+ )", r"\n\n\1", text).strip()
