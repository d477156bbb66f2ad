"""Live Wikipedia through the `wikipedia` package, given what it lacks: https, time limits, and a User-Agent."""

import sys
import threading
import warnings
from typing import Any

import requests
import wikipedia
from bs4 import GuessedAtParserWarning
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from flywheel import __version__
from flywheel.config import SourceConfig
from flywheel.errors import InfrastructureError

from . import Page, PageUnavailable

_TIMEOUT = (10, 30)
"""Seconds to connect, and between two bytes of a reply."""


class _Session(requests.Session):
    """A session with time limits and retries, in place of the bare `requests` that the package calls."""

    def __init__(self, contact: str) -> None:
        super().__init__()
        self.headers["User-Agent"] = f"Flywheel/{__version__} ({contact})"
        retry = Retry(
            total=4, backoff_factor=1.0, status_forcelist=(429, 500, 502, 503), respect_retry_after_header=True
        )
        self.mount("https://", HTTPAdapter(max_retries=retry))
        self.mount("http://", HTTPAdapter(max_retries=retry))

    def get(self, url: str | bytes, **options: Any) -> requests.Response:
        """A GET whose bad status is an error, instead of HTML that the package would read as JSON."""
        headers = {key: value for key, value in (options.pop("headers", None) or {}).items() if key != "User-Agent"}
        reply = super().get(url, timeout=_TIMEOUT, headers=headers, **options)
        reply.raise_for_status()
        return reply


class WikipediaSource:
    """Pages of a Wikipedia. The package keeps its state in module globals, so one thread uses it at a time.

    Args:
        config: `contact` goes into the User-Agent; `language` chooses the Wikipedia.
        api_url: another MediaWiki API, such as a private wiki's.
    """

    def __init__(self, config: SourceConfig, api_url: str = "") -> None:
        self._lock = threading.Lock()
        self._pages: dict[str, Page] = {}
        module: Any = sys.modules["wikipedia.wikipedia"]  # the package's function `wikipedia` hides the module
        wikipedia.set_lang(config.language)
        module.API_URL = api_url or f"https://{config.language}.wikipedia.org/w/api.php"
        session = _Session(config.contact)
        session.exceptions = requests.exceptions  # type: ignore[attr-defined]  # the package reads requests.exceptions
        module.requests = session
        warnings.filterwarnings("ignore", category=GuessedAtParserWarning)  # the package names no HTML parser

    def search(self, query: str, limit: int) -> list[Page]:
        """Pages that fit the query; those that turn out ambiguous or missing are left out."""
        titles = self._ask(lambda: wikipedia.search(query[:300], results=limit))
        pages = []
        for title in titles:
            try:
                pages.append(self.page(title))
            except PageUnavailable:
                continue
        return pages

    def page(self, title: str) -> Page:
        """One page, after redirects. `auto_suggest` stays off: it changes titles that are right."""
        if title not in self._pages:
            try:
                found = self._ask(lambda: wikipedia.page(title, auto_suggest=False))
                self._pages[title] = Page(found.title, self._ask(lambda: found.content))
            except wikipedia.DisambiguationError as error:
                options = "; ".join(error.options[:10])
                raise PageUnavailable(f"{title!r} may mean several pages. Choose one of: {options}") from error
            except (wikipedia.PageError, KeyError, AssertionError) as error:
                raise PageUnavailable(f"There is no page {title!r}. Search for pages first.") from error
        return self._pages[title]

    def _ask(self, question: Any) -> Any:
        with self._lock:
            try:
                return question()
            except (wikipedia.DisambiguationError, wikipedia.PageError):
                raise
            except (wikipedia.WikipediaException, requests.RequestException, ValueError) as error:
                raise InfrastructureError(f"Wikipedia cannot be reached: {error}") from error
