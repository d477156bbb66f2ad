"""The embedded encyclopedia: golds follow from the pages, and splits share nothing."""

import subprocess
import sys
from collections import Counter

import pytest

from collect.sources.corpus import read_pages
from flywheel.questions import read_questions
from flywheel.records import Question
from flywheel.workspace import data_folder

PAGES = {page.title: page for page in read_pages(str(data_folder() / "pages.jsonl"))}
QUESTIONS = read_questions("embedded")


def _answer(question: Question) -> str:
    """The answer, derived anew from the evidence."""
    first, last = question.evidence[0], question.evidence[-1]
    match question.operation:
        case "copy":
            return last.value
        case "page":
            return last.page
        case "difference":
            return str(abs(int(first.value) - int(last.value)))
        case "smaller" | "larger":
            first_is_it = (int(first.value) < int(last.value)) == (question.operation == "smaller")
            return first.page if first_is_it else last.page
        case "same":
            return "yes" if first.value == last.value else "no"
        case "less":
            return "yes" if int(first.value) < int(last.value) else "no"
    raise AssertionError(question.operation)


def test_every_gold_follows_from_the_pages() -> None:
    for question in QUESTIONS:
        for fact in question.evidence:
            page = PAGES[fact.page]
            assert fact.value in page.text, (question.id, fact)
        assert _answer(question) == question.answer, question.id


def test_there_is_enough_of_everything() -> None:
    assert len(PAGES) >= 120
    splits = Counter(question.split for question in QUESTIONS)
    assert splits["train"] >= 400 and splits["dev"] >= 100 and splits["test"] >= 150
    kinds = {"one_hop", "two_hop", "comparison", "difference", "yes_no"}
    for split in splits:
        assert {question.kind for question in QUESTIONS if question.split == split} == kinds


def test_pages_of_the_test_split_are_in_no_training_question() -> None:
    held_out = {fact.page for question in QUESTIONS if question.split == "test" for fact in question.evidence}
    for question in QUESTIONS:
        if question.split == "train":
            assert not held_out & {fact.page for fact in question.evidence}
            assert question.answer not in held_out


@pytest.mark.parametrize(("name", "answer"), [("eiffel", "42"), ("plywood", "yes"), ("dynasty", "Ming dynasty")])
def test_the_three_first_questions_are_held_out(name: str, answer: str) -> None:
    question = next(question for question in QUESTIONS if question.id == f"test-{name}")
    assert (question.split, question.answer) == ("test", answer)


def test_the_files_are_what_the_script_builds() -> None:
    done = subprocess.run([sys.executable, "data/build.py", "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
