"""The tools of the default team. Every failure is a text that tells the model what it can do next."""

from typing import TYPE_CHECKING, Any, ClassVar

from smolagents import Tool

from flywheel.errors import FlywheelError, InfrastructureError

from .answers import format_answer
from .recording import RunRecorder
from .sources import PageUnavailable

if TYPE_CHECKING:
    from .rollout import LiveRollout

_MOST_CALLS = 100
"""Calls of tools in one agent run; code can call them in a loop."""
_QUERY = {"query": {"type": "string", "description": "What to look for."}}


class TeamTool(Tool):  # type: ignore[misc]  # smolagents is untyped here
    """A tool that knows the rollout and the agent run it serves."""

    output_type = "string"
    skip_forward_signature_validation = True

    def __init__(self, rollout: "LiveRollout", run: RunRecorder, page: str) -> None:
        super().__init__()
        self.rollout = rollout
        self.run = run
        self.page = page

    def forward(self, *values: Any, **named: Any) -> str:
        """Do the tool's work; a failure of engine or network is remembered by the rollout."""
        self.run.tool_calls += 1
        if self.run.tool_calls > _MOST_CALLS:
            return (
                f"Tools have been called {_MOST_CALLS} times in this run, which is the limit. Finish with final_answer."
            )
        arguments = dict(zip(self.inputs, values, strict=False)) | named
        if len(values) + len(named) != len(arguments) or not set(arguments) <= set(self.inputs):
            return f"Call it as {self.name}({', '.join(self.inputs)})."
        try:
            texts = {name: format_answer(value) for name, value in arguments.items()}
            return self.answer(**texts)
        except PageUnavailable as error:
            return str(error)
        except FlywheelError as error:
            raise self.rollout.guard(error) from None
        except Exception as error:  # the model's code would be shown it as its own mistake
            unexpected = InfrastructureError(f"unexpected {type(error).__name__}: {error}")
            raise self.rollout.guard(unexpected) from error

    def answer(self, **arguments: str) -> str:
        """The tool's text for the model."""
        raise NotImplementedError


class WikipediaSearchAgent(TeamTool):
    """Lets the supervisor call the wiki_search role."""

    name = "wikipedia_search_agent"
    description = "Finds one fact on Wikipedia and reports it."
    inputs = _QUERY

    def answer(self, query: str = "") -> str:  # type: ignore[override]
        """Run a wiki_search agent."""
        if not query:
            return "The query is empty. Name the thing and the property you want to know."
        return self.rollout.call_role("wiki_search", query, self.run)


class SearchWikipedia(TeamTool):
    """Full-text search."""

    name = "search_wikipedia"
    description = "Pages that fit the query, each with its summary."
    inputs = _QUERY

    def answer(self, query: str = "") -> str:  # type: ignore[override]
        """List pages with their summaries."""
        if not query:
            return "The query is empty. Name the thing that the page is about."
        settings = self.rollout.setup.config.source
        found = self.rollout.setup.source.search(query, settings.results)
        if not found:
            return f"No page was found for {query!r}. Try fewer or other words."
        cut = settings.summary_characters
        return "\n".join(f"Page: {page.title}\nSummary: {page.summary[:cut]}" for page in found)


class SearchInfo(TeamTool):
    """Lets wiki_search call the page_search role."""

    name = "search_info"
    description = "Has one page read for the query and returns a short report."
    inputs: ClassVar = {**_QUERY, "page": {"type": "string", "description": "Title of the page."}}

    def answer(self, query: str = "", page: str = "") -> str:  # type: ignore[override]
        """Run a page_search agent, if the page exists."""
        if not query or not page:
            return "Both a query and the title of a page are needed: search_info(query, page)."
        title = self.rollout.setup.source.page(page).title
        return self.rollout.call_role("page_search", query, self.run, page=title)


class RetrievePassages(TeamTool):
    """Semantic search in one page."""

    name = "retrieve_passages"
    description = "The passages of the page that fit the query best."
    inputs = _QUERY

    def answer(self, query: str = "") -> str:  # type: ignore[override]
        """Show the passages closest to the query."""
        if not query:
            return "The query is empty. Say what you look for, in words that the page would use."
        page = self.rollout.setup.source.page(self.page)
        limit = self.rollout.setup.config.source.page_characters
        passages = self.rollout.setup.passages.find(page.text[:limit], query)
        if not passages:
            return f"The page {page.title!r} is empty. Say so in your report, so that another page can be tried."
        found = "\n".join(f"Passage {number}: {text}" for number, text in enumerate(passages, start=1))
        if len(page.text) > limit:
            found += f"\n(The page is very long, and only its first {limit:,} characters were searched."
            found += " If the fact is not here, say in your report that a page on a narrower subject may have it.)"
        return found


TOOLS: dict[str, type[TeamTool]] = {
    tool.name: tool for tool in (WikipediaSearchAgent, SearchWikipedia, SearchInfo, RetrievePassages)
}


def make_tools(names: tuple[str, ...], rollout: "LiveRollout", run: RunRecorder, page: str) -> list[Tool]:
    """Fresh tools for one agent run."""
    return [TOOLS[name](rollout, run, page) for name in names]
