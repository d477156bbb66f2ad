"""Where a wrong rollout went wrong: the first agent run after which the answer could no longer be right.

The facts that a question needs are followed, in order, from the page to the answer: asked for, page found, page opened,
fact retrieved, reported by page_search, passed on by wiki_search, used by the supervisor. The first fact that is lost
says where. It takes the traces, and questions that name their supporting facts.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from flywheel.grading.forms import words
from flywheel.grading.words import FUNCTION
from flywheel.records import AgentRun, Question, Rollout
from flywheel.workspace import ROLES

_COVERED = 0.8
"""Share of the words of a fact's sub-question that a task which asks for it has; half, with the relation's own word."""


@dataclass(frozen=True)
class Origin:
    """Whose failure it was, and of which kind."""

    role: str
    what: str

    def __str__(self) -> str:
        return f"{self.role}: {self.what}"


@dataclass(frozen=True)
class _Fact:
    """A fact that the answer rests on."""

    page: frozenset[str]
    """Stems of the page's title."""
    tells: frozenset[str]
    """Stems of the names and numbers that only this fact brings in."""
    relation: frozenset[str] = frozenset()
    query: frozenset[str] = frozenset()
    """Stems of a sub-question that asks for it; empty if none is known."""
    own: frozenset[str] = frozenset()
    """Stems of the title, as far as the sub-question has them, that no other fact's title has."""
    twin: bool = False
    """Whether another fact brings in the same."""

    def told(self, texts: Iterable[str]) -> bool:
        """Whether the texts hold what the fact brings in: a known value wholly, of a sentence some name or number."""
        if self.twin and self.own:  # which of the two facts is told is only known by whom it is about
            texts = [text for text in texts if self.own & _stems([text])]
        found = _stems(texts)
        if not self.tells:
            return self.page <= found
        return self.tells <= found if self.query else bool(self.tells & found)

    def asked(self, run: AgentRun) -> bool:
        """Whether a run was asked for it, as far as that is known."""
        task = _stems([run.task])
        if not self.query:
            return True
        if self.own and not self.own & task:
            return False
        share = len(self.query & task) / len(self.query)
        return share >= _COVERED or (share >= _COVERED / 2 and bool(self.relation & task))


def find_origin(rollout: Rollout) -> Origin | None:
    """Where a wrong rollout went wrong; None where the supporting facts are not known."""
    facts = _facts(rollout.question)
    if not facts or not rollout.runs:
        return None
    for fact in facts:
        if lost := _lost(fact, rollout.runs):
            return lost
    if rollout.runs[0].status != "finished":
        return Origin(rollout.runs[0].role, "ended without an answer")
    computed = rollout.question.operation not in (None, "copy", "page")
    return Origin(rollout.runs[0].role, "wrong conclusion from all facts" if computed else "facts reported, not used")


def _lost(fact: _Fact, runs: Sequence[AgentRun]) -> Origin | None:
    """How a fact got lost on its way to the root, if it did."""
    root, *others = runs
    if fact.told(_observations(root)):
        return None
    by_call = {call.id: run for run in runs for call in run.calls}
    said = [run for run in others if fact.told([run.report])]
    if said:
        parent = by_call.get(said[-1].parent_call or "")
        return Origin(parent.role if parent else root.role, "reported to it, not passed on")
    return _missed(fact, [run for run in others if fact.asked(run)]) or Origin(root.role, "never asked for")


def _missed(fact: _Fact, asked: Sequence[AgentRun]) -> Origin | None:
    """Who missed a fact that no report holds, among those who were asked for it."""
    if saw := [run for run in asked if fact.told(_observations(run))]:
        return Origin(saw[-1].role, "retrieved, not reported")
    readers = [run for run in asked if run.role == ROLES[-1] and fact.page <= _stems([run.task])]
    if readers:
        return Origin(readers[-1].role, "page opened, fact not retrieved")
    searchers = [run for run in asked if run.role != ROLES[-1]]
    if found := [run for run in searchers if fact.page <= _stems(_observations(run))]:
        return Origin(found[-1].role, "page found, not opened")
    if searchers:
        return Origin(searchers[-1].role, "page not found")
    return None


def _facts(question: Question) -> list[_Fact]:
    """In the order in which they are needed."""
    known = _stems([question.question])
    if question.evidence:
        titles = [_stems([fact.page]) for fact in question.evidence]
        values = [_stems([fact.value]) for fact in question.evidence]
        found = []
        for place, fact in enumerate(question.evidence):
            query = _stems([fact.query])
            others = frozenset().union(*(title for title in titles if title != titles[place]))
            own = (titles[place] & query) - others - _stems([fact.relation])
            twin = values.count(values[place]) > 1
            found.append(_Fact(titles[place], values[place], _stems([fact.relation]), query, own, twin))
        return found
    facts = []
    for support in question.supporting:
        tells = frozenset(
            word.stem for place, word in enumerate(words(support.text)) if word.number or (word.capital and place > 0)
        )
        facts.append(_Fact(_stems([support.page]), tells - known - _stems([support.page])))
    return facts


def _observations(run: AgentRun) -> list[str]:
    return [call.observation for call in run.calls if call.observation]


def _stems(texts: Iterable[str]) -> frozenset[str]:
    return frozenset(word.stem for text in texts for word in words(text) if word.form not in FUNCTION)
