"""Where pages come from: the protocol that every source follows, and how one is opened."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from flywheel.config import SourceConfig
from flywheel.files import sha256
from flywheel.rows import HUB

_STOP_WORDS = frozenset(
    "a an and are at by for from in is of on or that the to was were what when where which who whom whose with".split()
)


@dataclass(frozen=True)
class Page:
    """A page: its title and plain text, sections headed by `== Heading ==`."""

    title: str
    text: str
    revision: str = ""
    """Which revision of the page this is, where the source numbers them."""

    @property
    def summary(self) -> str:
        """The lead, before the first section."""
        return self.text.partition("\n==")[0].strip()


class PageUnavailable(Exception):
    """A page cannot be had; the text tells a model what it can do next."""


class Source(Protocol):
    """Pages to search and to read. Safe to use from several threads."""

    def search(self, query: str, limit: int) -> list[Page]:
        """The pages that fit a query best, at most `limit`.

        Raises:
            InfrastructureError: when the network or a server fails.
        """
        ...

    def page(self, title: str) -> Page:
        """One page.

        Raises:
            PageUnavailable: when there is no such page, or several.
            InfrastructureError: when the network or a server fails.
        """
        ...


def query_words(query: str) -> list[str]:
    """The words of a query that a full-text index can tell pages apart by."""
    return list(dict.fromkeys(word for word in re.findall(r"\w+", query.lower()) if word not in _STOP_WORDS))


def content_of(config: SourceConfig) -> str:
    """A fingerprint of the pages in a file, whatever the file is called; empty for sources that are no file.

    Raises:
        InputError: when there is no such file.
    """
    if config.kind == "wikipedia":
        return ""
    if config.kind == "corpus" and config.path == "embedded":
        return "embedded"
    if config.path.startswith(HUB):
        return config.path
    path = Path(config.path)
    if not config.path or not path.is_file():
        return ""  # opening it says what is wrong
    if config.kind == "zim":  # may be a hundred gigabytes
        return f"{path.name}, {path.stat().st_size} bytes"
    return sha256(path)[:16]


def open_source(config: SourceConfig, cache: Path) -> Source:
    """Open the configured source.

    Raises:
        InputError: when the corpus cannot be read or a setting is missing.
    """
    if config.kind in ("corpus", "questions"):
        from .corpus import open_corpus

        return open_corpus(config.path, cache)
    if config.kind == "zim":
        from .zim import ZimSource

        return ZimSource(config.path)
    from .wikipedia import WikipediaSource

    return WikipediaSource(config, cache)
