"""The live source against a local server that speaks the part of MediaWiki's API that the package uses."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from collect.sources import PageUnavailable, open_source, wikipedia
from collect.sources.wikipedia import WikipediaSource
from flywheel.config import SourceConfig
from flywheel.errors import InfrastructureError, InputError

TEXTS = {"Oslo": "Oslo is the capital of Norway.\n\n\n== Climate ==\nCool summers.", "Norway": "Norway is a country."}
REDIRECTS = {"Christiania": "Oslo"}
HTML = "<ul><li><a>Mercury (planet)</a></li><li><a>Mercury (element)</a></li></ul>"


class Handler(BaseHTTPRequestHandler):
    """Search, page, redirect, disambiguation, missing page; and failures on demand, one for each request."""

    agents: list[str] = []
    queries: list[dict[str, str]] = []
    failures: list[Callable[["Handler"], None]] = []

    def do_GET(self) -> None:
        self.agents.append(self.headers["User-Agent"])
        query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query, True).items()}
        self.queries.append(query)
        if self.failures:
            self.failures.pop(0)(self)
        else:
            self.send(200, json.dumps(self.answer(query)))

    def send(self, status: int, body: str, length: int = 0, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(length or len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode())

    def answer(self, query: dict[str, str]) -> dict[str, Any]:
        if query.get("list") == "search":
            return {"query": {"search": [{"title": title} for title in ("Oslo", "Mercury", "Gone", "Norway")]}}
        title = query.get("titles", "")
        found: dict[str, Any] = {}
        if title and title[0].islower():
            found["normalized"] = [{"from": title, "to": title[0].upper() + title[1:]}]
            title = title[0].upper() + title[1:]
        if title in REDIRECTS:
            found["redirects"] = [{"from": title, "to": REDIRECTS[title]}]
            return {"query": {**found, "pages": {"1": {"title": title}}}}
        if (title == "Mercury" and "revisions" in query.get("prop", "")) or query.get("pageids") == "3":
            return {"query": {"pages": {"3": {"revisions": [{"*": HTML}]}}}}
        if title == "Mercury":
            return {"query": {"pages": {"3": {"title": title, "pageprops": {"disambiguation": ""}}}}}
        if title not in TEXTS:
            return {"query": {**found, "pages": {"-1": {"title": title, "missing": ""}}}}
        page = {"title": title, "fullurl": f"https://example.org/{title}", "extract": TEXTS[title]}
        return {"query": {**found, "pages": {"2": {**page, "revisions": [{"revid": 7, "parentid": 6}]}}}}

    def log_message(self, format: str, *args: Any) -> None:
        """Keep quiet."""


def busy(status: int, body: str = "<html>Too many requests</html>", **headers: str) -> Callable[[Handler], None]:
    """A reply that says no."""
    return lambda handler: handler.send(status, body, **headers)


def lagging(handler: Handler) -> None:
    """How MediaWiki says that its copies lag: a 200 with an error inside."""
    body = json.dumps({"error": {"code": "maxlag", "info": "Waiting for a server: 6 seconds lagged"}})
    handler.send(200, body, Retry_After="0", MediaWiki_API_Error="maxlag")


def cut_off(handler: Handler) -> None:
    """Half a reply."""
    handler.send(200, '{"query": {"pages"', length=500)


@pytest.fixture
def url() -> Iterator[str]:
    """Where the local server listens."""
    for kept in (Handler.agents, Handler.queries, Handler.failures):
        kept.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/w/api.php"
    server.shutdown()


@pytest.fixture
def open_wikipedia(url: str, tmp_path: Path) -> Callable[..., WikipediaSource]:
    """Opens a source that asks the local server."""

    def make(**settings: Any) -> WikipediaSource:
        config = SourceConfig(contact="operator@example.org", url=url, requests_per_second=1000)
        return WikipediaSource(config.model_copy(update=settings), tmp_path, patience=0.01)

    return make


@pytest.fixture
def source(open_wikipedia: Callable[..., WikipediaSource]) -> WikipediaSource:
    """A source with an empty cache."""
    return open_wikipedia()


def test_search_gives_pages_and_leaves_out_what_cannot_be_read(source: WikipediaSource) -> None:
    found = source.search("capital of Norway", 4)
    assert [page.title for page in found] == ["Oslo", "Norway"]
    assert found[0].summary == "Oslo is the capital of Norway."
    assert found[0].revision == "7"
    assert all("operator@example.org" in agent for agent in Handler.agents)
    assert all(query["maxlag"] == "5" for query in Handler.queries)
    assert source.search("  ", 4) == []


def test_redirects_and_normalised_titles_are_followed(source: WikipediaSource) -> None:
    assert source.page("Christiania").title == "Oslo"
    assert source.page("christiania").title == "Oslo"
    assert source.page("norway").text == "Norway is a country."


@pytest.mark.parametrize(
    ("title", "hint"),
    [
        ("Mercury", r"Choose one of: Mercury \(planet\); Mercury \(element\)"),
        ("Gone", "Search for pages first"),
        ("[[Oslo]]", "cannot be the title of a page"),
        ("x" * 300, "cannot be the title of a page"),
        ("", "cannot be the title of a page"),
    ],
)
def test_what_cannot_be_read_says_what_to_do(source: WikipediaSource, title: str, hint: str) -> None:
    for _ in range(2):  # the second time out of memory
        with pytest.raises(PageUnavailable, match=hint):
            source.page(title)


@pytest.mark.parametrize(
    "failure",
    [busy(429, Retry_After="0"), busy(503), busy(500), lagging, cut_off, busy(200, "<html>a proxy speaks</html>")],
    ids=["429", "503", "500", "maxlag", "cut off", "html"],
)
def test_a_busy_server_is_asked_again(source: WikipediaSource, failure: Callable[[Handler], None]) -> None:
    Handler.failures.extend([failure, failure])
    assert source.page("Norway").text == "Norway is a country."


@pytest.mark.parametrize(
    ("failures", "reason", "requests"),
    [
        ([busy(403)] * 5, "403 Forbidden", 1),
        ([busy(500)] * 9, "500", 5),
        ([busy(429, Retry_After="86400")] * 5, "asks to wait 21600 s", 1),
        ([lagging] * 9, "maxlag", 5),
        ([cut_off] * 9, "cannot be reached", 5),
    ],
    ids=["403", "500", "429 for a day", "maxlag", "cut off"],
)
def test_a_server_that_refuses_is_an_infrastructure_failure(
    source: WikipediaSource, failures: list[Callable[[Handler], None]], reason: str, requests: int
) -> None:
    Handler.failures.extend(failures)
    with pytest.raises(InfrastructureError, match=reason):
        source.page("Oslo")
    assert len(Handler.queries) == requests
    Handler.failures.clear()
    assert source.page("Oslo").title == "Oslo"  # a failure is not remembered


def test_a_server_that_does_not_answer_is_given_up_on(source: WikipediaSource, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wikipedia, "_TIMEOUT", (0.2, 0.2))
    Handler.failures.extend([lambda handler: time.sleep(0.6)] * 5)
    with pytest.raises(InfrastructureError, match="Timeout"):
        source.page("Oslo")


def test_a_later_round_sees_the_same_evidence_without_the_network(
    open_wikipedia: Callable[..., WikipediaSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = open_wikipedia().search("capital of Norway", 4)
    asked = len(Handler.queries)
    monkeypatch.setitem(TEXTS, "Oslo", "Oslo was renamed.")
    assert open_wikipedia().search("capital of Norway", 4) == first
    offline = open_wikipedia(offline=True, contact="")
    assert offline.page("Oslo") == first[0]
    assert len(Handler.queries) == asked
    with pytest.raises(InfrastructureError, match=r"offline.*not in the cache"):
        offline.page("Christiania")
    assert len(Handler.queries) == asked


def test_requests_of_all_threads_keep_their_distance(open_wikipedia: Callable[..., WikipediaSource]) -> None:
    paced = wikipedia._Paced(per_second=20)
    turns: list[float] = []

    def send() -> None:
        with pytest.raises(Exception):  # noqa: B017, PT011  # it is not given a request
            paced.send(None)
        turns.append(time.monotonic())

    threads = [threading.Thread(target=send) for _ in range(5)]
    started = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(turns)[-1] - started >= 4 * 0.05  # a lower bound holds on a slow machine too


def test_another_language_is_another_wikipedia(tmp_path: Path) -> None:
    import sys

    WikipediaSource(SourceConfig(contact="x", language="de"), tmp_path)
    assert sys.modules["wikipedia.wikipedia"].API_URL == "https://de.wikipedia.org/w/api.php"


def test_wikipedia_needs_a_contact(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="contact"):
        open_source(SourceConfig(), tmp_path)
