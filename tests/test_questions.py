"""Questions out of the files that people have, and which rollout comes next."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pyarrow
import pyarrow.parquet
import pytest

from collect.schedule import Schedule
from flywheel.errors import InputError
from flywheel.questions import parse_names, read_questions, summarise
from flywheel.records import Question

ROWS = [
    {"id": "a", "question": "Who?", "answer": "She", "split": "train"},
    {"id": "b", "question": "Where, then?", "answer": "There", "split": "dev"},
]


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([{"question": "?"}], "rows.jsonl:1: a question needs a text in the field 'answer'"),
        ([{"id": "a", "question": "?", "answer": "!"}] * 2, "rows.jsonl:2: the id 'a' occurs twice"),
        ([{"question": " ", "answer": "!"}], "rows.jsonl:1: a question needs a text in the field 'question'"),
        ([{"question": "?", "answer": " "}], "rows.jsonl:1: a question needs a text in the field 'answer'"),
        ([{"question": "?", "answer": True}], "rows.jsonl:1: a question needs a text in the field 'answer'"),
        ([{"question": "?", "answer": {"a": 5}}], "rows.jsonl:1: a question needs a text in the field 'answer'"),
        ([{"question": "?", "answer": []}], "rows.jsonl:1: a question needs a text in the field 'answer'"),
        ([{"question": "?", "answer": "!", "aliases": "x"}], "rows.jsonl:1: aliases"),
        ([{"question": "?", "answer": "!", "id": [5]}], "rows.jsonl:1: id"),
        ([{"question": "?", "answer": "!"}] * 2, "rows.jsonl:2: the id 'q-[0-9a-f]{12}' occurs twice"),
        (["text"], "rows.jsonl:1: expected a JSON object, found str"),
        ([], "has no questions"),
    ],
)
def test_broken_questions_are_refused(write_rows: Callable[..., Path], rows: list[object], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        read_questions(str(write_rows("rows.jsonl", rows)))


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("x.jsonl", '{"question": "?"', "x.jsonl:1: not JSON"),
        ("x.json", "[1,", "not a JSON array"),
        ("x.jsonl", b"\xff\xfe", "not UTF-8"),
        ("x.csv", b"\xff\xfe", "x.csv:1: not CSV in UTF-8"),
        ("x.csv", "question,question\na,b\n", "'question' stands twice"),
        ("x.jsonl", b'{"question": "a", "answer": "b"}\n{"question": "\xff"}\n', "x.jsonl:2: not UTF-8"),
        ("x.jsonl", '{"a": ' + "9" * 5000 + "}", "x.jsonl:1: not JSON"),
        ("x.jsonl", "[" * 100_000, "not a JSON array"),
        ("x.jsonl", '{"a": ' * 100_000, "x.jsonl:1: not JSON"),
        ("x.csv", "question,answer\nWho?\n", "x.csv:2: this row has not as many fields"),
        ("x.csv", 'question,answer\n"Who?,She\n', "x.csv:2: not CSV"),
        ("x.parquet", "no", "not a Parquet file"),
    ],
)
def test_broken_files_are_refused(tmp_path: Path, name: str, content: str | bytes, reason: str) -> None:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=reason):
        read_questions(str(path))


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_questions("nowhere.jsonl")
    with pytest.raises(InputError, match="it is a folder"):
        read_questions(str(tmp_path))
    with pytest.raises(InputError, match="cannot load the dataset"):
        read_questions(f"hf:{tmp_path / 'nothing'}")


def _write(folder: Path, kind: str) -> str:
    path = folder / f"rows.{kind}"
    match kind:
        case "jsonl":
            path.write_text("".join(json.dumps(row) + "\n\n" for row in ROWS))
        case "json":
            path.write_text(json.dumps(ROWS, indent=1))
        case "csv":
            path.write_text('id,question,answer,split\na,Who?,She,train\nb,"Where, then?",There,dev\n')
        case "tsv":
            path.write_text("id\tquestion\tanswer\tsplit\na\tWho?\tShe\ttrain\nb\tWhere, then?\tThere\tdev\n")
        case "parquet":
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), path)
        case _:
            for part in ("train", "dev"):
                rows = [{name: value for name, value in row.items() if name != "split"}
                        for row in ROWS if row["split"] == part]  # fmt: skip
                datasets.Dataset.from_list(rows).to_parquet(str(folder / "hub" / f"{part}.parquet"))
            (folder / "hub" / "README.md").write_text(
                "---\nconfigs:\n- config_name: default\n  data_files:\n  - split: train\n    path: train.parquet\n"
                "  - split: dev\n    path: dev.parquet\n---\n"
            )
            return f"hf:{folder / 'hub'}"
    return str(path)


@pytest.mark.parametrize("kind", ["jsonl", "json", "csv", "tsv", "parquet", "hub"])
def test_every_kind_of_file_gives_the_same_questions(tmp_path: Path, kind: str) -> None:
    path = _write(tmp_path, kind)
    questions = {question.id: question for question in read_questions(path)}
    assert questions == {row["id"]: Question(**row) for row in ROWS}  # type: ignore[arg-type]
    assert [question.id for question in read_questions(path, split="dev")] == ["b"]
    with pytest.raises(InputError, match="no questions of split 'test'"):
        read_questions(path, split="test")


def test_one_split_of_a_dataset(tmp_path: Path) -> None:
    assert [question.id for question in read_questions(f"{_write(tmp_path, 'hub')}:dev")] == ["b"]


FIELD: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "HotpotQA": (
        {"_id": "5a", "question": "Who?", "answer": "She", "type": "bridge", "level": "hard",
         "context": [["T", ["s one.", " s two."]], ["U", ["u."]]], "supporting_facts": [["T", 1]]},
        {"id": "5a", "kind": "bridge", "supporting": [{"page": "T", "text": "s one. s two."}]},
    ),
    "HotpotQA on the hub": (
        {"id": "5a", "question": "Who?", "answer": "She", "type": "bridge",
         "context": {"title": ["T", "U"], "sentences": [["s."], ["u."]]},
         "supporting_facts": {"title": ["T"], "sent_id": [0]}},
        {"id": "5a", "kind": "bridge", "supporting": [{"page": "T", "text": "s."}]},
    ),
    "MuSiQue": (
        {"id": "2hop", "question": "Where?", "answer": "There", "answer_aliases": ["Over there"], "answerable": True,
         "paragraphs": [{"title": "T", "paragraph_text": "t", "is_supporting": True},
                        {"title": "T", "paragraph_text": "other", "is_supporting": False}]},
        {"id": "2hop", "aliases": ["Over there"], "supporting": [{"page": "T", "text": "t"}]},
    ),
    "Bamboogle": ({"Question": "Who?", "Answer": "She"}, {"question": "Who?", "answer": "She"}),
    "numbers": (
        {"id": 5, "question": "When?", "answer": 1990, "type": 3}, {"id": "5", "answer": "1990", "kind": "3"},
    ),
    "a table's aliases": (
        {"question": "Who?", "answer": "She", "aliases": "Her | Herself"}, {"aliases": ["Her", "Herself"]},
    ),
    "foreign columns": (
        {"question": "Who?", "answer": "She", "evidence": "a text", "wording": "odd", "operation": 5}, {"evidence": []},
    ),
    "odd evidence": (
        {"question": "Who?", "answer": "She", "supporting_facts": [[["x"], 1], 5, {"title": "T"}],
         "context": {"title": 5, "sentences": [["s"]]}},
        {"supporting": []},
    ),
    "halves of characters": ({"question": "Who \ud83d?", "answer": "She"}, {"question": "Who ??"}),
    "FRAMES": (
        {"Prompt": "Who?", "Answer": "She", "reasoning_types": "Numerical reasoning", "wiki_links": "[]"},
        {"question": "Who?", "answer": "She", "kind": "Numerical reasoning"},
    ),
    "several golds": (
        {"question": "Who?", "answers": ["She", "Her", "She"]}, {"answer": "She", "aliases": ["Her"]},
    ),
    "SQuAD": (
        {"id": "1", "question": "Who?", "answers": {"text": ["She", "Her"], "answer_start": [0, 5]}},
        {"answer": "She", "aliases": ["Her"]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FIELD)
def test_field_names_of_datasets_are_known(write_rows: Callable[..., Path], name: str) -> None:
    row, expected = FIELD[name]
    question = read_questions(str(write_rows("rows.jsonl", [row])))[0].model_dump(mode="json")
    assert {key: question[key] for key in expected} == expected


def test_a_question_without_an_id_is_known_by_what_it_says(write_rows: Callable[..., Path]) -> None:
    rows = [{"question": f"Question {number}?", "answer": "!"} for number in range(3)]
    first = {question.id for question in read_questions(str(write_rows("a.jsonl", rows)))}
    second = {
        question.id
        for question in read_questions(str(write_rows("b.jsonl", [{"question": "?", "answer": "!"}, *rows])))
    }
    assert len(first) == 3
    assert first < second


def test_an_array_may_begin_with_white_space(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("\n  " + json.dumps(ROWS))
    assert len(read_questions(str(tmp_path / "x.json"))) == 2


def test_other_names_are_mapped(write_rows: Callable[..., Path]) -> None:
    path = str(write_rows("rows.jsonl", [{"ask": "Who?", "say": "She", "id": "1"}]))
    questions = read_questions(path, names=parse_names(["question=ask", "answer=say"]))
    assert (questions[0].question, questions[0].answer) == ("Who?", "She")
    with pytest.raises(
        InputError, match=r"rows.jsonl:1: there is no 'tell' to take as 'answer' \(it has: ask, say, id\)"
    ):
        read_questions(path, names=parse_names(["question=ask", "answer=tell"]))
    for wrong in ("question", "colour=x", "question="):
        with pytest.raises(InputError, match="expected FIELD=NAME"):
            parse_names([wrong])


def test_limit_takes_from_the_shuffled_questions(write_rows: Callable[..., Path]) -> None:
    rows = [{"id": str(number), "question": "?", "answer": "!"} for number in range(50)]
    path = str(write_rows("rows.jsonl", rows))
    first, again = (read_questions(path, limit=10, shuffle_seed=3) for _ in range(2))
    assert first == again
    assert len(first) == 10
    assert [question.id for question in first] != [str(number) for number in range(10)]
    assert [question.id for question in read_questions(path, limit=3)] == ["0", "1", "2"]
    assert summarise(first) == "10 questions (10 any kind)"


def _questions(count: int) -> list[Question]:
    return [Question(id=str(number), question="?", answer="!") for number in range(count)]


def _play(schedule: Schedule, right: Callable[[str, int], bool], at_once: int = 3) -> list[tuple[str, int]]:
    """Run a schedule to its end, the oldest job finishing first."""
    under_way: list[tuple[str, int]] = []
    order: list[tuple[str, int]] = []
    while True:
        while len(under_way) < at_once and (job := schedule.take()):
            under_way.append((job[0].id, job[1]))
        if not under_way:
            return order
        question, sample = under_way.pop(0)
        order.append((question, sample))
        schedule.ended(question, right(question, sample))


def test_without_a_target_every_question_gets_its_samples_pass_by_pass() -> None:
    order = _play(Schedule(_questions(4), 2, 0, {("1", 0): True}), lambda *_: False)
    assert order == [("0", 0), ("2", 0), ("3", 0), ("0", 1), ("1", 1), ("2", 1), ("3", 1)]


def test_a_question_with_enough_right_answers_leaves_its_budget_to_the_others() -> None:
    schedule = Schedule(_questions(4), 3, 1, {})
    order = _play(schedule, lambda question, sample: question in "01" or (question == "2" and sample == 5))
    counts = Counter(question for question, _ in order)
    assert counts == {"0": 1, "1": 1, "2": 5, "3": 5}  # 4 questions x 3 samples in all
    assert len(set(order)) == len(order)
    assert schedule.solved == 2


def test_a_hopeless_question_takes_no_more_than_its_limit() -> None:
    order = _play(Schedule(_questions(10), 3, 2, {}), lambda question, _: question != "9")
    counts = Counter(question for question, _ in order)
    assert all(counts[str(number)] == 2 for number in range(9))
    assert counts["9"] == 12


def test_no_more_rollouts_are_under_way_than_right_ones_are_missing() -> None:
    schedule = Schedule(_questions(1), 8, 2, {})
    assert [schedule.take() is not None for _ in range(3)] == [True, True, False]
    schedule.ended("0", True)
    assert schedule.take() is None
    schedule.ended("0", False)
    assert schedule.take() is not None


def test_a_resumed_schedule_counts_what_is_done() -> None:
    schedule = Schedule(_questions(2), 4, 2, {("0", 0): True, ("0", 1): True, ("1", 0): False, ("gone", 0): True})
    assert (schedule.skipped, schedule.budget, schedule.solved) == (3, 5, 1)
    assert {question for question, _ in _play(schedule, lambda *_: False)} == {"1"}
