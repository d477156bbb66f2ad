"""Where pages come from: the protocol that every source follows, and how one is opened."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from flywheel.config import SourceConfig
from flywheel.errors import InputError


@dataclass(frozen=True)
class Page:
    """A page: its title and plain text, sections headed by `== Heading ==`."""

    title: str
    text: str

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


def open_source(config: SourceConfig, cache: Path) -> Source:
    """Open the configured source.

    Raises:
        InputError: when the corpus cannot be read or a setting is missing.
    """
    if config.kind == "corpus":
        from .corpus import open_corpus

        return open_corpus(config.path, cache)
    from .wikipedia import WikipediaSource

    if not config.contact:
        raise InputError(
            "Wikimedia asks whoever runs a bot for a contact: set source.contact to an e-mail address or URL, "
            "or use pages of your own with -o source.kind=corpus -o source.path=pages.jsonl"
        )
    return WikipediaSource(config)
