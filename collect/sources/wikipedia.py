"""Live Wikipedia through the `wikipedia` package, given what it lacks: https, patience, a name, and a memory.

Every answer is kept on disk by its URL, with the revision in it, so that a later round sees the same evidence.
"""

import contextlib
import re
import sqlite3
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import requests
import requests_cache
import wikipedia
from bs4 import GuessedAtParserWarning
from requests.adapters import HTTPAdapter
from urllib3.exceptions import InvalidHeader
from urllib3.util import Retry

from flywheel import __version__
from flywheel.config import SourceConfig
from flywheel.errors import InfrastructureError, InputError
from flywheel.files import disk_errors

from . import Page, PageUnavailable

_TIMEOUT = (10.0, 30.0)
"""Seconds to connect, and between two bytes of a reply."""
_ATTEMPTS = 5
_LONGEST_WAIT = 120.0
"""Seconds; a server that asks for a longer wait is given up on, and the rollout is made again later."""
_MAXLAG = "5"
"""Seconds of replication lag above which Wikimedia asks robots to hold back (API etiquette)."""
_PAGES_KEPT = 2000
_BUSY = (408, 425, 429, 500, 502, 503, 504)

Answer = TypeVar("Answer")


class _Paced(HTTPAdapter):
    """Sends requests no faster than agreed, all threads together. Answers from the cache do not pass here."""

    def __init__(self, per_second: float) -> None:
        super().__init__()
        self._interval = 1 / per_second
        self._lock = threading.Lock()
        self._next = 0.0

    def send(self, *args: Any, **options: Any) -> requests.Response:
        """Wait for this request's turn, then send it."""
        with self._lock:
            turn = max(self._next, time.monotonic())
            self._next = turn + self._interval
        time.sleep(max(0.0, turn - time.monotonic()))
        return super().send(*args, **options)


class _Session:
    """What the package calls in place of the bare module `requests`."""

    exceptions = requests.exceptions

    def __init__(self, config: SourceConfig, cache: Path, patience: float) -> None:
        self._patience = patience
        _remove_if_damaged(cache / "wikipedia.sqlite")
        # what is an error now may be an answer later, so only answers are kept
        self._session = requests_cache.CachedSession(
            str(cache / "wikipedia"), backend="sqlite", ignored_parameters=["maxlag"], filter_fn=_is_answer,
            only_if_cached=config.offline,
        )  # fmt: skip
        self._offline = config.offline
        self._session.headers["User-Agent"] = f"Flywheel/{__version__} ({config.contact}) python-requests"
        for scheme in ("https://", "http://"):
            self._session.mount(scheme, _Paced(config.requests_per_second))

    def get(self, url: str, params: dict[str, Any], **_: Any) -> requests.Response:
        """A GET that is repeated while the server is busy or the line breaks.

        Raises:
            InfrastructureError: when there is no answer in the end.
        """
        reason = ""
        for attempt in range(_ATTEMPTS):
            wait = self._patience * 2.0**attempt
            try:
                reply = self._session.get(url, params={**params, "maxlag": _MAXLAG}, timeout=_TIMEOUT)
            except requests.RequestException as error:
                reason = f"{type(error).__name__} at {url}"
            else:
                if _is_answer(reply):
                    return reply
                if self._offline and reply.status_code == 504:
                    raise InfrastructureError(
                        "Wikipedia is offline here (source.offline), and this request is not in the cache"
                    )
                reason = _complaint(reply)
                if reply.status_code < 500 and reply.status_code not in _BUSY and not _lagged(reply):
                    break
                wait = _retry_after(reply, wait)
            if wait > _LONGEST_WAIT:
                reason += f"; it asks to wait {wait:.0f} s"
                break
            if attempt < _ATTEMPTS - 1:
                time.sleep(wait)
        raise InfrastructureError(f"Wikipedia cannot be reached: {reason}")


def _remove_if_damaged(file: Path) -> None:
    """A cache that is no database any more is begun anew."""
    if not file.exists():
        return
    database = sqlite3.connect(file)
    try:
        database.execute("PRAGMA schema_version")
    except sqlite3.DatabaseError:
        with disk_errors(file):
            file.unlink()
    finally:
        database.close()


def _is_answer(reply: Any) -> bool:
    """JSON of a query that was carried out."""
    if reply.status_code != 200 or "MediaWiki-API-Error" in reply.headers:
        return False
    try:
        body = reply.json()
    except ValueError:
        return False
    return isinstance(body, dict) and "error" not in body


def _lagged(reply: requests.Response) -> bool:
    """The server says that its copies lag behind (a 200 with an error inside)."""
    with contextlib.suppress(ValueError, AttributeError, KeyError):
        return str(reply.json()["error"]["code"]) in ("maxlag", "ratelimited", "readonly")
    return reply.status_code == 200  # a 200 that is no JSON was cut off or came from a proxy


def _complaint(reply: requests.Response) -> str:
    with contextlib.suppress(ValueError, AttributeError, KeyError, TypeError):
        error = reply.json()["error"]
        return f"{error['code']}: {' '.join(str(error['info']).split())[:150]}"
    text = " ".join(re.sub(r"<[^>]*>", " ", reply.text).split())[:150]
    return f"{reply.status_code} {reply.reason or ''}".strip() + (f" ({text})" if text else "")


def _retry_after(reply: requests.Response, otherwise: float) -> float:
    """Seconds that the server asks to wait."""
    with contextlib.suppress(KeyError, InvalidHeader):
        return float(Retry().parse_retry_after(reply.headers["Retry-After"]))
    return otherwise


def _forget(kept: dict[Any, Any]) -> None:
    """Let the oldest go; all of them are on disk as well."""
    while len(kept) > _PAGES_KEPT:
        with contextlib.suppress(StopIteration, RuntimeError):  # another thread may be at it
            kept.pop(next(iter(kept)), None)


class WikipediaSource:
    """Pages of a Wikipedia. The package keeps its state in module globals, so one thread uses it at a time.

    Args:
        patience: seconds to wait before the second attempt at a request, twice as long before each further one.

    Raises:
        InputError: when no contact is set: Wikimedia's User-Agent policy asks for one.
    """

    def __init__(self, config: SourceConfig, cache: Path, patience: float = 1.0) -> None:
        if not config.contact and not config.offline:
            raise InputError(
                "Wikimedia asks whoever runs a bot for a contact: set source.contact to an e-mail address or URL, "
                "or use pages of your own with --source corpus:pages.jsonl"
            )
        self._lock = threading.Lock()
        self._pages: dict[str, Page | PageUnavailable] = {}
        self._searches: dict[tuple[str, int], list[str]] = {}
        module: Any = sys.modules["wikipedia.wikipedia"]  # the package's function `wikipedia` hides the module
        wikipedia.set_lang(config.language)
        module.API_URL = config.url or f"https://{config.language}.wikipedia.org/w/api.php"
        module.requests = _Session(config, cache, patience)
        warnings.filterwarnings("ignore", category=GuessedAtParserWarning)  # the package names no HTML parser

    def search(self, query: str, limit: int) -> list[Page]:
        """Pages that fit the query; those that turn out ambiguous or missing are left out."""
        query = query.strip()[:300]
        if not query:
            return []
        titles = self._searches.get((query, limit))
        if titles is None:
            titles = self._searches[query, limit] = self._ask(lambda: wikipedia.search(query, results=limit))
            _forget(self._searches)
        pages = []
        for title in titles:
            with contextlib.suppress(PageUnavailable):
                pages.append(self.page(title))
        return pages

    def page(self, title: str) -> Page:
        """One page, after redirects."""
        title = title.strip()
        found = self._pages.get(title)
        if found is None:
            found = self._pages[title] = self._find(title)
            _forget(self._pages)
        if isinstance(found, PageUnavailable):
            raise PageUnavailable(*found.args)
        return found

    def _find(self, title: str) -> Page | PageUnavailable:
        if not title or len(title.encode()) > 255 or re.search(r"[<>\[\]|{}#]", title):
            return PageUnavailable(f"{title[:100]!r} cannot be the title of a page. Search for pages first.")
        try:
            # `auto_suggest` changes titles that are right
            page = self._ask(lambda: wikipedia.page(title, auto_suggest=False))
            text = self._ask(lambda: page.content)
            return Page(page.title, text, revision=str(page.revision_id))
        except wikipedia.DisambiguationError as error:
            options = "; ".join(dict.fromkeys(error.options[:10]))
            return PageUnavailable(f"{title!r} may mean several pages. Choose one of: {options}.")
        except (wikipedia.PageError, KeyError, AssertionError):
            return PageUnavailable(f"There is no page {title!r}. Search for pages first, and use a title as listed.")

    def _ask(self, question: Callable[[], Answer]) -> Answer:
        with self._lock:
            try:
                return question()
            except (wikipedia.DisambiguationError, wikipedia.PageError):
                raise
            except (wikipedia.WikipediaException, requests.RequestException, ValueError) as error:
                raise InfrastructureError(f"Wikipedia cannot be reached: {error}") from error
