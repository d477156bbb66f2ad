"""Grading: the official scores to the letter, and `match`, rule by rule."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from flywheel.cli import flywheel
from flywheel.engines.scripted import ScriptedEngine
from flywheel.errors import InputError
from flywheel.grading import exact_match, gaia, grade, match, normalise, open_grader, token_f1
from flywheel.grading.pairs import read_pairs

TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40)


@pytest.mark.parametrize(
    ("prediction", "gold", "exact", "right"),
    [
        ("The Eiffel Tower!", "eiffel tower", True, True),
        ("December 14, 1990", "14 December 1990", False, True),
        ("41 years", "41", False, True),
        ("5", "five", False, True),
        ("1990-1995", "1990–1995", False, True),
        ("21 million", "2.1 million", True, False),
        ("27 km", "28 km", False, False),
        ("28 m", "28 km", False, False),
        ("yes, both are", "yes", False, True),
        ("No information was found.", "no", False, False),
        ("no", "No", True, True),
        ("", "The The", True, False),
        ("not Mark Twain", "Mark Twain", False, False),
        ("21", "1", False, False),
        ("1,234", "1234", True, True),
        ("Emily Bronte", "Emily Brontë", False, True),
        ("8.0", "8", False, True),
    ],
)
def test_match_stands_beside_exact_match(prediction: str, gold: str, exact: bool, right: bool) -> None:
    verdict = grade(prediction, [gold])
    assert (verdict.exact_match, verdict.match) == (exact, right), verdict.reason


def test_official_scores() -> None:
    """Values that the public scripts of HotpotQA and MuSiQue give."""
    assert token_f1("the big red dog", ["red dog"]) == pytest.approx(0.8)
    assert token_f1("yes it is", ["yes"]) == 0.0
    assert token_f1("noanswer here", ["no answer"]) == 0.0
    assert token_f1("Mings", ["Yuan", "Mings"]) == 1.0
    assert token_f1("a b b c", ["b b d"]) == pytest.approx(2 * (2 / 3) * (2 / 3) / (4 / 3))
    assert token_f1("", ["The"]) == 1.0
    assert token_f1("x", ["The"]) == 0.0
    assert normalise(" The  U.S.A. ") == "usa"
    assert normalise("St.George-in-the-East") == "stgeorgeintheeast"
    assert exact_match("b", ["a", "b"])


WHO, WHICH_FILM, WHERE, WHEN = "Who painted it?", "Which film came first?", "Where was she born?", "When did it happen?"
YOUNGER = "Which river is longer, the Po or the Rhine?"


@pytest.mark.parametrize(
    ("question", "gold", "prediction"),
    [
        # dates and numbers
        (WHEN, "3 March 1875", "March 3rd, 1875"),
        (WHEN, "3 March 1875", "1875-03-03"),
        (WHEN, "May 1945", "in May of 1945"),
        (WHEN, "1066", "It happened in 1066."),
        ("How long is it?", "1.8 m", "180 cm"),
        ("How long is it?", "86 ft", "86′"),
        ("How fast is it?", "320 km/h", "320 kilometers per hour"),
        ("How large is it?", "310 square kilometres", "310 km²"),
        ("How many members does it have?", "42 members", "forty-two"),
        ("How many copies were sold?", "close to 50 million", "50,000,000 copies"),
        ("How many stores are there?", "over 600 stores", "more than 600"),
        ("In which season did it end?", "the sixth season", "Season 6"),
        ("Which game was it?", "Super Bowl XLVIII", "Super Bowl 48"),
        ("Which squadron was it?", "133d Squadron", "133rd Squadron"),
        ("Which war was it?", "World War II", "the Second World War"),
        # names
        (WHO, "Otto Ludwig Preminger", "Otto Preminger"),
        (WHO, "Robert Gibson", "Bob Gibson"),
        (WHO, "John Ronald Reuel Tolkien", "J. R. R. Tolkien"),
        (WHO, "General Sam Houston", "Gen. Sam Houston"),
        (WHO, "Bill Clinton", "President Clinton"),
        (WHO, "Ozzie Newsome Jr.", "Ozzie Newsome"),
        (WHO, "Edward Franklin Albee III", "Edward Albee"),
        (WHO, 'John Michael "Ozzy" Osbourne', "Ozzy Osbourne"),
        (WHO, "Charles McLaren, 1st Baron Aberconway", "Charles McLaren"),
        (WHO, "Dmitri Mendeleev", "Dmitri Mendeleyev"),
        (WHO, "Steven Spielberg", "Spielberg, Steven"),
        (WHO, "Steven Spielberg", "The answer is **Steven Spielberg**."),
        (WHO, "Henry VIII", "Henry the Eighth"),
        ("Which county is it?", "Nassau County", "Nassau"),
        ("Which city is it?", "New York City", "New York"),
        (WHERE, "Porto", "Porto, Portugal"),
        ("Which war was it?", "World War II", "WW2"),
        ("At what age did he win?", "15", "15 years old"),
        ("Are both in Iran?", "yes", "Yes they are"),
        # kinds and descriptions
        ("Who made it?", "Miller Brewing", "Miller Brewing Company"),
        ("Which football club was it?", "Middlesbrough", "Middlesbrough F.C."),
        ("Which mountain range is it in?", "Karakoram mountain range", "Karakoram"),
        ("Which line was it?", "Great Northern Railway", "Great Northern line"),
        ("Which duo was it?", "American musical duo The Books", "The Books"),
        ("Which province owns it?", "Province of Buenos Aires", "Buenos Aires Province"),
        ("Which film was it?", "Predestination", "Predestination (2014 film)"),
        ("What sprite was it?", "water sprite", "Rusalka, a water sprite"),
        ("What is it called?", "UCLA", "University of California, Los Angeles"),
        ("Which church was it?", "Presbyterian Church", "the Presbyterian Church (USA)"),
        ("Which faith was it?", "Roman Catholic", "Roman Catholicism"),
        # places and nationalities
        (WHERE, "Perth, Western Australia", "Perth, Australia"),
        (WHERE, "Springfield, Massachusetts", "Springfield, MA"),
        (WHERE, "Boise, Idaho", "Boise"),
        ("What nationality was he?", "American", "the United States"),
        ("Which country is he from?", "Mali", "Malian"),
        # spelling
        (WHERE, "St.George", "St. George"),
        ("What bird is it?", "duck", "ducks"),
        ("Which station is it?", "NBC 10", "NBC10"),
        # lists and sentences
        ("Which parks?", "Biscayne Park and Everglades Park", "Everglades Park & Biscayne Park"),
        ("Which groups?", "Royalists (Cavaliers) and Parliamentarians", "Parliamentarians and Royalists"),
        ("What is the capital of Norway?", "Oslo", "The capital of Norway is Oslo."),
        ("Who replaced David O'Leary?", "Martin O'Neill", "Martin O'Neill replaced David O'Leary."),
        (YOUNGER, "the Rhine", "The Rhine is longer than the Po."),
        (YOUNGER, "the Rhine", "The Rhine (1,230 km) is longer."),
        ("Who was born first, Lecrae Devaughn Moore or Gawvi?", "Lecrae Devaughn Moore", "Lecrae"),
        ("Are both in Iran?", "yes", "Both are in Iran, so yes."),
        ("Are both in Iran?", "no", "False"),
        ("How far is it?", "26.2 miles", "42.195 km (26.2 mi)"),
    ],
)
def test_what_a_careful_person_accepts(question: str, gold: str, prediction: str) -> None:
    assert match(prediction, gold, question)


@pytest.mark.parametrize(
    ("question", "gold", "prediction"),
    [
        (WHEN, "3 March 1875", "4 March 1875"),
        (WHEN, "1875", "1857"),
        ("How long is it?", "28 km", "28 miles"),
        ("How cold is it?", "5 °C", "-5 °C"),
        ("How many were sold?", "25 million", "3 million"),
        ("Which part is it?", "Rocky II", "Rocky III"),
        (WHO, "Martin Sheen", "Charlie Sheen"),
        # signs, eras, ordinals, units
        ("Which blood type is it?", "A+", "A-"),
        ("Which key is it in?", "C# minor", "C minor"),
        ("What holds?", "x > 5", "x < 5"),
        ("What share is it?", "1/2", "2/1"),
        (WHEN, "300 BC", "300 AD"),
        (WHEN, "44 BC", "44"),
        (WHEN, "1990", "1990s"),
        ("How many are there?", "two", "second"),
        ("Which place was it?", "third", "three"),
        ("How much was it?", "100 dollars", "100 euros"),
        ("How much was it?", "$100", "100 pounds"),
        ("How heavy is it?", "5 kg", "5 pounds"),
        ("How many albums are there?", "12 albums", "12 songs"),
        ("How old was he?", "41 years", "41 days"),
        # people
        (WHO, "George W. Bush", "George H. W. Bush"),
        (WHO, "Johann Sebastian Bach", "J. C. Bach"),
        (WHO, "Tom Hanks", "Tom Hanks Jr."),
        (WHO, "Henry Ford", "Henry Ford II"),
        (WHO, "Michael Jackson", "Mr. Jackson"),
        (WHO, "Mario Puzo", "Maria Puzo"),
        (WHO, "Christian Bale", "Christina Bale"),
        ("What was it?", "chronic hyperthyroidism", "chronic hypothyroidism"),
        ("What was it?", "potassium nitrate", "potassium nitrite"),
        # places and names inside names
        ("Which city is it?", "Kansas City", "Kansas"),
        ("Which state is it?", "New York", "New York City"),
        (WHERE, "Paris", "Paris, Texas"),
        (WHERE, "Paris", "Versailles, near Paris"),
        ("Which street is it?", "Baker Street", "Baker Road"),
        ("Which film is it?", "Alien", "Aliens"),
        ("Which band is it?", "Queen", "Queens of the Stone Age"),
        ("Which company is it?", "Apple", "Apple Records"),
        ("What was his job?", "producer", "co-producer"),
        ("What is the capital of Norway?", "Oslo", "Oslo is the capital of Sweden"),
        ("What is the capital of Norway?", "Oslo", "Oslo, then Bergen"),
        ("Are both in Iran?", "no", "No. 1 is in Iran, so yes"),
        ("Are both in Iran?", "yes", "Yes, but only one of them"),
        (WHO, "King Wu of Zhou", "King An of Zhou"),
        (WHO, "Charles Tupper Sr.", "Charles Hibbert Tupper"),
        (WHO, "Bill Clinton", "the wife of Bill Clinton"),
        (WHO, "David Lee Roth", "The David Lee Roth Band"),
        (WHO, "Andreas", "Peter Andreas Thiel"),
        (WHO, "Sir Roger Martin, 2nd Baronet", "Sir Roger Martin, 3rd Baronet"),
        ("Which university is it, Boston College or Stanford?", "Boston College", "Boston University"),
        ("Which university is it?", "University of Texas", "University of North Texas"),
        ("Which game is it?", "Red Dead Redemption", "Red Dead Revolver"),
        ("Which opera is it?", "Louise", "Thelma & Louise"),
        ("Which series is it?", "South Park", "South Park (season 10)"),
        ("Which Mercury is it?", "Mercury (planet)", "Mercury (element)"),
        (WHERE, "Portland, Maine", "Portland, Oregon"),
        (WHERE, "Hertfordshire", "Herefordshire"),
        (WHERE, "Paris", "France"),
        ("Which song is it?", "White Horse", '"White Horse" or "You Belong with Me"'),
        ("Which team was it?", "Boston Celtics", "Los Angeles Clippers, Boston Celtics and Orlando Magic"),
        ("Which whistleblower is it?", "Erika Cheung", "Erika Cheung and Tyler Shultz"),
        (YOUNGER, "the Rhine", "The Po is longer than the Rhine."),
        (YOUNGER, "the Rhine", "the Po or the Rhine"),
        (YOUNGER, "the Rhine", "Not the Rhine"),
        ("What is the capital of Norway?", "Oslo", "I could not find the capital, perhaps Oslo."),
        ("What is the capital of Norway?", "Oslo", "The city north of Oslo"),
        ("What is the capital of Norway?", "Oslo", "Traceback: Oslo"),
        ("Are both in Iran?", "yes", "No"),
        ("Are both in Iran?", "no", "No answer"),
        ("What is it?", "x", "a very long text " * 60 + "x"),
    ],
)
def test_what_a_careful_person_rejects(question: str, gold: str, prediction: str) -> None:
    assert not match(prediction, gold, question)


@pytest.mark.parametrize(
    "text", ["1" * 200_000, "a" + " " * 200_000 + "b", "1 " * 100_000, "(" * 100_000, "and " * 50_000]
)
def test_long_answers_are_graded_at_once(text: str) -> None:
    verdict = grade(text, ["Oslo"], "Where?")
    assert not verdict.match


@given(TEXT.filter(lambda text: text.strip()))
def test_every_answer_equals_itself(text: str) -> None:
    """Also in capitals."""
    verdict = grade(text, [text])
    assert verdict.exact_match
    assert verdict.match
    if text.upper().casefold() == text.casefold():
        assert grade(text.upper(), [text]).match


@given(TEXT, TEXT, TEXT)
def test_no_text_breaks_the_grader(prediction: str, gold: str, question: str) -> None:
    verdict = grade(prediction, [gold], question)
    assert 0 <= verdict.f1 <= 1


@pytest.mark.parametrize(
    ("prediction", "gold", "right"),
    [
        ("$1,234.50", "1234.5", True),
        ("17%", "17", True),
        ("seventeen", "17", False),
        ("red, 5; blue", "Red,5;Blue", True),
        ("blue, red", "red, blue", False),
        ("red", "red, blue", False),
        ("St. Petersburg!", "Saint Petersburg", False),
        ("New York", "newyork", True),
        ("banana", "Infinity", False),
    ],
)
def test_gaia(prediction: str, gold: str, right: bool) -> None:
    assert bool(gaia(prediction, gold)) == right
    verdict = open_grader("gaia")(prediction, [gold], "")
    assert verdict.match == right
    assert verdict.exact_match == exact_match(prediction, [gold])


def test_a_judge_is_asked_where_match_says_no() -> None:
    prompts: list[str] = []

    def reply(request: object) -> str:
        prompts.append(request.messages[1].content)  # type: ignore[attr-defined]
        return "Yes." if "Bombay" in prompts[-1] else "I cannot say"

    judged = open_grader("judge", ScriptedEngine(reply))
    assert judged("Oslo", ["Oslo"], "Where?").match
    assert judged("", ["Oslo"], "Where?").match is False
    assert prompts == []
    verdict = judged("Mumbai", ["Bombay"], "Where?")
    assert (verdict.match, verdict.exact_match, verdict.reason) == (True, False, "accepted by the judge")
    assert not judged("Bergen", ["Oslo"], "Where?").match
    assert prompts[0] == "Question: Where?\nCorrect answer: Bombay\nAnswer to grade: Mumbai"


def test_pairs_are_graded_line_by_line(write_rows: Callable[..., Path]) -> None:
    rows = [
        {"question": "How many?", "gold": "five", "prediction": "5", "label": "not ours"},
        {"gold": "Oslo", "aliases": ["Christiania"], "prediction": "Christiania"},
        {"gold": "Oslo", "prediction": ""},
    ]
    result = CliRunner().invoke(flywheel, ["grade", "--pairs", str(write_rows("pairs.jsonl", rows))])
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(line["em"], line["match"]) for line in lines] == [(False, True), (True, True), (False, False)]
    assert lines[0] == {"em": False, "f1": 0.0, "match": True, "reason": "equal"}
    assert "3 pairs" in result.stderr


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([{"gold": "a"}], "pairs.jsonl:1: prediction: Field required"),
        ([{"gold": "a", "prediction": "b"}, {"gold": 5, "prediction": "b"}], "pairs.jsonl:2: gold"),
        ([{"gold": "a", "prediction": "b", "aliases": "c"}], "pairs.jsonl:1: aliases"),
        (["text"], "pairs.jsonl:1: expected a JSON object"),
    ],
)
def test_broken_pairs_are_refused(write_rows: Callable[..., Path], rows: list[object], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        list(read_pairs(write_rows("pairs.jsonl", rows)))
