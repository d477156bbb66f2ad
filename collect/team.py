"""Who is in a team: roles, their prompts and tools, and who may call whom."""

from dataclasses import dataclass
from functools import cache
from importlib import resources

from flywheel.errors import InputError
from flywheel.records import Prompt


@dataclass(frozen=True)
class Role:
    """A job in a team."""

    name: str
    tools: tuple[str, ...]
    """Names in `collect.tools.TOOLS`, besides `final_answer`, which every role has."""

    def prompt(self, mode: Prompt) -> str:
        """The system prompt: with worked examples, or the short one for roles that were trained."""
        return _read_prompt(self.name, mode)


@cache
def _read_prompt(role: str, mode: Prompt) -> str:
    file = resources.files(__package__).joinpath("prompts", f"{role}.{mode}.md")
    return file.read_text(encoding="utf-8").strip()


@dataclass(frozen=True)
class Team:
    """Roles that work together; the first one gets the question."""

    name: str
    roles: tuple[Role, ...]

    @property
    def root(self) -> Role:
        """The role that gets the question and gives the answer."""
        return self.roles[0]

    def role(self, name: str) -> Role:
        """The role of that name.

        Raises:
            InputError: when the team has none.
        """
        for role in self.roles:
            if role.name == name:
                return role
        raise InputError(
            f"unknown role {name!r}; the team {self.name} has {', '.join(role.name for role in self.roles)}"
        )


WIKIPEDIA = Team(
    name="wikipedia",
    roles=(
        Role("supervisor", tools=("wikipedia_search_agent",)),
        Role("wiki_search", tools=("search_wikipedia", "search_info")),
        Role("page_search", tools=("retrieve_passages",)),
    ),
)
