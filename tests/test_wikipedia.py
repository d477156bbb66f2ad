"""The live source against a local server that speaks the part of MediaWiki's API that the package uses."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from collect.sources import PageUnavailable
from collect.sources.wikipedia import WikipediaSource
from flywheel.config import SourceConfig
from flywheel.errors import InfrastructureError

TEXTS = {"Oslo": "Oslo is the capital of Norway.\n\n\n== Climate ==\nCool summers.", "Norway": "Norway is a country."}
REDIRECTS = {"Christiania": "Oslo"}


class Handler(BaseHTTPRequestHandler):
    """Search, page, redirect, disambiguation, missing page; and failures on demand."""

    agents: list[str] = []
    failures: list[int] = []

    def do_GET(self) -> None:
        self.agents.append(self.headers["User-Agent"])
        if self.failures:
            body = b"<html>Too many requests</html>"
            self.send_response(self.failures.pop())
            self.send_header("Retry-After", "0")
        else:
            query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query, True).items()}
            body = json.dumps({"query": self.answer(query)}).encode()
            self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def answer(self, query: dict[str, str]) -> dict[str, Any]:
        if query.get("list") == "search":
            return {"search": [{"title": title} for title in ("Oslo", "Mercury", "Gone", "Norway")]}
        title = query.get("titles", "")
        if title in REDIRECTS:
            return {"redirects": [{"from": title, "to": REDIRECTS[title]}], "pages": {"1": {"title": title}}}
        if title == "Mercury" and "revisions" in query.get("prop", ""):
            html = "<ul><li><a>Mercury (planet)</a></li><li><a>Mercury (element)</a></li></ul>"
            return {"pages": {"3": {"revisions": [{"*": html}]}}}
        if query.get("pageids") == "3":
            html = "<ul><li><a>Mercury (planet)</a></li><li><a>Mercury (element)</a></li></ul>"
            return {"pages": {"3": {"revisions": [{"*": html}]}}}
        if title == "Mercury":
            return {"pages": {"3": {"title": title, "pageprops": {"disambiguation": ""}}}}
        if title not in TEXTS:
            return {"pages": {"-1": {"title": title, "missing": ""}}}
        page = {"title": title, "fullurl": f"https://example.org/{title}", "extract": TEXTS[title]}
        return {"pages": {"2": {**page, "revisions": [{"revid": 7, "parentid": 6}]}}}

    def log_message(self, format: str, *args: Any) -> None:
        """Keep quiet."""


@pytest.fixture
def source() -> Iterator[WikipediaSource]:
    """A source that asks the local server."""
    Handler.agents.clear()
    Handler.failures.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    config = SourceConfig(contact="operator@example.org")
    yield WikipediaSource(config, f"http://127.0.0.1:{server.server_port}/w/api.php")
    server.shutdown()


def test_search_gives_pages_and_leaves_out_what_cannot_be_read(source: WikipediaSource) -> None:
    found = source.search("capital of Norway", 4)
    assert [page.title for page in found] == ["Oslo", "Norway"]
    assert found[0].summary == "Oslo is the capital of Norway."
    assert all("operator@example.org" in agent for agent in Handler.agents)


def test_a_redirect_is_followed(source: WikipediaSource) -> None:
    assert source.page("Christiania").title == "Oslo"


def test_what_cannot_be_read_says_what_to_do(source: WikipediaSource) -> None:
    with pytest.raises(PageUnavailable, match=r"Choose one of: Mercury \(planet\); Mercury \(element\)"):
        source.page("Mercury")
    with pytest.raises(PageUnavailable, match="Search for pages first"):
        source.page("Gone")


def test_a_busy_server_is_asked_again(source: WikipediaSource) -> None:
    Handler.failures.extend([429, 503])
    assert source.page("Norway").text == "Norway is a country."


def test_a_server_that_refuses_is_an_infrastructure_failure(source: WikipediaSource) -> None:
    Handler.failures.extend([403])
    with pytest.raises(InfrastructureError, match="cannot be reached"):
        source.page("Oslo")
