"""Evidence for a scripted teacher, out of the fact triples that come with 2WikiMultihopQA's questions.

A triple such as ["Last Rampage", "director", "Dwight H. Little"] becomes a sub-question for a page. Only questions are
taken whose facts stand word for word in their supporting pages, and whose answer follows from them.
"""

import re
from collections.abc import Sequence
from typing import Any

from flywheel.records import Evidence, Operation, Support


def from_triples(triples: Any, supporting: Sequence[Support], answer: str) -> dict[str, Any]:
    """A question's `evidence`, in the order of the triples, and its `operation`; nothing where they are not sure.

    Args:
        triples: [subject, relation, object], as a file has it.
    """
    if not isinstance(triples, list) or not triples:
        return {}
    found = [_fact(triple, supporting) for triple in triples]
    facts = [fact for fact in found if fact is not None]
    operation = _operation(facts, answer) if len(facts) == len(found) else None
    return {"evidence": facts, "operation": operation} if operation else {}


def _fact(triple: Any, supporting: Sequence[Support]) -> Evidence | None:
    if not isinstance(triple, list | tuple) or len(triple) != 3 or not all(isinstance(part, str) for part in triple):
        return None
    subject, relation, value = (part.strip() for part in triple)
    for support in supporting:
        place = support.text.casefold().find(value.casefold())
        if value and place >= 0 and bare_title(support.page).casefold() == bare_title(subject).casefold():
            literal = support.text[place : place + len(value)]
            return Evidence(page=support.page, relation=relation, value=literal, query=f"{relation} of {subject}")
    return None


def bare_title(title: str) -> str:
    """A page's title without what tells it from others of that name: `Last Rampage` for `Last Rampage (film)`."""
    return re.sub(r"\s*\([^()]*\)$", "", title)


def chains(evidence: Sequence[Evidence]) -> list[list[Evidence]]:
    """Facts that lead to one another: a fact about what an earlier one has found goes on from it."""
    found: list[list[Evidence]] = []
    for fact in evidence:
        about = bare_title(fact.page).casefold()
        before = next((chain for chain in found if bare_title(chain[-1].value).casefold() == about), None)
        if before is None:
            found.append([fact])
        else:
            before.append(fact)
    return found


def number(value: str) -> int | None:
    """The number by which values are compared: itself, or the year of a date."""
    if re.fullmatch(r"-?\d+", value):
        return int(value)
    year = re.search(r"\b[12]\d{3}\b", value)
    return int(year[0]) if year else None


def _operation(facts: Sequence[Evidence], answer: str) -> Operation | None:
    """How the answer follows; None if it does not."""
    found, gold = chains(facts), answer.casefold()
    if len(found) == 1:
        return "copy" if facts[-1].value.casefold() == gold else None
    if len(found) != 2:
        return None
    (first, second), last = (tuple(chain[place] for chain in found) for place in (0, -1))
    if gold in ("yes", "no"):
        return "same" if (last[0].value.casefold() == last[1].value.casefold()) == (gold == "yes") else None
    left, right = number(last[0].value), number(last[1].value)
    names = [bare_title(fact.page).casefold() for fact in (first, second)]
    if left is None or right is None or left == right or gold not in names:
        return None
    return "smaller" if (names.index(gold) == 0) == (left < right) else "larger"
