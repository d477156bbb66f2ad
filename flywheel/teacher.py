"""A scripted teacher: an engine that plays all roles from the evidence that comes with a question.

It gives a model that cannot do the job at all its first correct traces (round 0). It answers through the same tools, is
recorded by the same recorder and selected by the same rules as a model, and knows nothing but the evidence.
"""

from collections.abc import Iterable

from flywheel.engines.base import CompletionRequest
from flywheel.engines.scripted import ScriptedEngine
from flywheel.evidence import bare_title, chains, number
from flywheel.records import Evidence, Message, Question


class Teacher:
    """The script behind `teacher_engine`: decides each role's next step from what the role was sent.

    Args:
        questions: the questions it can answer, with their evidence.
    """

    def __init__(self, questions: Iterable[Question]) -> None:
        self._questions = {question.question: question for question in questions}
        self._facts = {fact.query: fact for question in self._questions.values() for fact in question.evidence}

    def __call__(self, request: CompletionRequest) -> str:
        """The next step of the role in `request.model`."""
        messages = request.messages
        task = messages[1].content.removeprefix("Task: ")
        seen = _observations(messages)
        role = request.model.partition("@")[0]
        if role == "supervisor":
            return self._supervise(self._questions[task], seen)
        query, _, page = task.partition("\nPage: ")
        fact = self._facts[query]
        return _search_pages(fact, seen) if role == "wiki_search" else _search_passages(fact, page, seen)

    def _supervise(self, question: Question, seen: list[str]) -> str:
        known = sum(fact.value in text for fact, text in zip(question.evidence, seen, strict=False))
        if known < len(seen):
            return _step("The fact was not found.", 'final_answer("unknown")')
        # The first thought is the whole plan: a small model that must decide anew after each report stops too early.
        relations = [fact.relation for fact in question.evidence]
        plan = f"Plan: {', '.join(relations)}, {_LAST_STEP.get(question.operation or '', 'answer')}."
        if known < len(question.evidence):
            fact = question.evidence[known]
            thought = f"Next: {fact.relation}." if seen else plan
            return _step(thought, f"print(wikipedia_search_agent({_quote(fact.query)}))")
        return _conclude(question)


_LAST_STEP = {"difference": "subtract", "smaller": "compare", "larger": "compare", "same": "compare", "less": "compare"}


def _conclude(question: Question) -> str:
    found = chains(question.evidence)
    first, last = found[0][-1].value, found[-1][-1].value
    left, right = number(first), number(last)
    match question.operation:
        case "difference":
            return _step("Next: subtract.", f"final_answer(abs({left} - {right}))")
        case "smaller" | "larger":
            sign = "<" if question.operation == "smaller" else ">"
            names = [_quote(bare_title(chain[0].page)) for chain in found]
            return _step("Next: compare.", f"final_answer({names[0]} if {left} {sign} {right} else {names[-1]})")
        case "same":
            return _step("Next: compare.", f'final_answer("yes" if {_quote(first)} == {_quote(last)} else "no")')
        case "less":
            return _step("Next: compare.", f'final_answer("yes" if {left} < {right} else "no")')
        case _:
            return _step("Next: answer.", f"final_answer({_quote(question.answer)})")


def _search_pages(fact: Evidence, seen: list[str]) -> str:
    if not seen:
        return _step("I search.", f"print(search_wikipedia({_quote(fact.query)}))")
    if len(seen) == 1:
        if f"Page: {fact.page}\n" not in seen[0] + "\n":
            return _step("No page fits.", 'final_answer("Not found.")')
        return _step(f"I look inside {fact.page}.", f"print(search_info({_quote(fact.query)}, {_quote(fact.page)}))")
    return _step("I report.", f"final_answer({_quote(report(fact))})")


def _search_passages(fact: Evidence, page: str, seen: list[str]) -> str:
    if not seen:
        return _step("I read the page.", f"print(retrieve_passages({_quote(fact.relation)}))")
    if fact.value not in seen[-1] or page != fact.page:
        return _step("The page does not say.", 'final_answer("Not found.")')
    return _step("I report.", f"final_answer({_quote(report(fact))})")


def report(fact: Evidence) -> str:
    """The sentence in which a fact is reported."""
    return f"The {fact.relation} of {fact.page} is {fact.value}."


def _step(thought: str, code: str) -> str:
    return f"Thought: {thought}\n<code>\n{code}\n</code>"


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _observations(messages: tuple[Message, ...]) -> list[str]:
    """All observations so far, whichever way the history is shown."""
    texts = [message.content for message in messages[2:] if message.role == "user"]
    return [part for text in texts for part in text.removeprefix("Observation:\n").split("\n\nObservation:\n")]


def teacher_engine(questions: Iterable[Question]) -> ScriptedEngine:
    """An engine that answers in every role's name, from the questions' evidence."""
    return ScriptedEngine(Teacher(questions))
