"""Questions with fact triples, as 2WikiMultihopQA has them: a scripted teacher can play them."""

import json
from pathlib import Path
from typing import Any

import pytest

from collect.collector import collect
from collect.teaching import Teaching
from flywheel.config import validate
from flywheel.errors import InputError
from flywheel.questions import read_questions
from flywheel.store import TraceStore
from flywheel.teacher import teacher_engine

PAGES = {
    "Red Lantern (1961 film)": "Red Lantern is a drama film directed by Anna Holm. It was shot in Tromsø.",
    "The Long Tide": "The Long Tide is a film about fishermen. Its director was Pavel Dusek.",
    "Anna Holm": "Anna Holm, a Norwegian director, was born on 3 May 1912 in Bodø.",
    "Pavel Dusek (director)": "Pavel Dusek( born 17 August 1930) was a Czech film director.",
}
HOLM, DUSEK = ["Red Lantern", "director", "Anna Holm"], ["The Long Tide", "director", "Pavel Dusek"]
BORN = [["Anna Holm", "date of birth", "3 May 1912"], ["Pavel Dusek", "date of birth", "17 August 1930"]]
FROM = [["Anna Holm", "country", "Norwegian"], ["Pavel Dusek", "country", "Czech"]]


def _row(question: str, answer: str, *triples: list[str]) -> dict[str, Any]:
    pages = [{"title": title, "text": text, "is_supporting": True} for title, text in PAGES.items()]
    return {"question": question, "answer": answer, "paragraphs": pages, "evidences": list(triples)}


ROWS = [
    _row("When was the director of Red Lantern born?", "3 May 1912", HOLM, BORN[0]),
    _row("Where does the director of The Long Tide come from?", "czech", DUSEK, FROM[1]),
    _row("Who was born first, Anna Holm or Pavel Dusek?", "Anna Holm", *BORN),
    _row("Which film has the younger director, Red Lantern or The Long Tide?", "The Long Tide", HOLM, DUSEK, *BORN),
    _row("Do Anna Holm and Pavel Dusek come from one country?", "no", *FROM),
    _row("Are the directors of both films from one country?", "no", HOLM, DUSEK, *FROM),
]


def test_a_teacher_plays_what_its_triples_say(tmp_path: Path) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    questions = read_questions(str(path))
    assert [question.operation for question in questions] == ["copy", "copy", "smaller", "larger", "same", "same"]
    assert questions[0].evidence[0].page == "Red Lantern (1961 film)"
    settings = {
        "team": {"history": "full", "prompt": "compact", "supervisor_steps": 6},
        "source": {"kind": "corpus", "path": str(path)},
    }
    with TraceStore(tmp_path / "traces.sqlite") as store:
        config, engine = validate(settings, "test"), teacher_engine(questions)
        summary = collect(questions, config, engine, store, tmp_path, round=0, samples=1, temperature=0)
        rollouts = list(store.rollouts())
    assert summary.match == len(ROWS), [(rollout.question.question, rollout.answer) for rollout in rollouts]
    assert max(len(rollout.runs) for rollout in rollouts) == 1 + 4 * 2, "four facts, each searched and read"


@pytest.mark.parametrize(
    ("answer", "triples"),
    [
        ("3 May 1912", [HOLM, ["Anna Holm", "date of birth", "4 May 1912"]]),
        ("Bodø", [HOLM, BORN[0]]),
        ("3 May 1912", [["Blue Lantern", "director", "Anna Holm"], BORN[0]]),
        ("Red Lantern", [BORN[0], BORN[1]]),
        ("yes", [FROM[0], FROM[1]]),
        ("Anna Holm", [BORN[0], FROM[1]]),
        ("Anna Holm", [HOLM, DUSEK, ["Red Lantern", "place", "Tromsø"]]),
        ("3 May 1912", [["Anna Holm", "date of birth", ""]]),
        ("3 May 1912", [["Anna Holm", "date of birth"]]),
        ("3 May 1912", "none"),
    ],
    ids=[
        "a fact that no page holds", "an answer that does not follow", "a page that is not there", "an unasked name",
        "yes where they differ", "nothing to compare", "three chains", "no value", "no triple", "no list",
    ],
)  # fmt: skip
def test_evidence_that_is_not_sure_is_left_out(tmp_path: Path, answer: str, triples: Any) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_text(json.dumps(_row("A question?", answer) | {"evidences": triples}) + "\n", encoding="utf-8")
    (question,) = read_questions(str(path))
    assert not question.evidence
    assert question.operation is None
    assert question.supporting
    with pytest.raises(InputError, match="needs questions with evidence"):
        Teaching("scripted").able([question])
