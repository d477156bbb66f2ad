"""What a question asks for, as far as the rules of `match` want to know."""

import copy

from .forms import Word, words
from .words import APPROXIMATE, COPULAS, FUNCTION, PERSON_QUESTION, PLACE_QUESTION, THING_QUESTION


class Asked:
    """A question's words, and the kind of answer it asks for."""

    def __init__(self, question: str) -> None:
        self.words = words(question)
        self.stems = {word.stem for word in self.words}
        forms = [word.form for word in self.words]
        self.forms = set(forms)
        self.person = bool(self.forms & PERSON_QUESTION)
        self.who = bool(self.forms & {"who", "whom", "whose"})
        self.place = bool(self.forms & PLACE_QUESTION)
        self.country = bool(self.stems & {"country", "nationality", "citizenship", "nation", "citizen"})
        follow = {
            form for place, word in enumerate(forms) if word in ("which", "what") for form in forms[place + 1 :][:3]
        }
        near = {
            form for place, word in enumerate(forms) if word in ("which", "what") for form in forms[place + 1 :][:8]
        }
        self.thing = bool(follow & THING_QUESTION) and not near & PERSON_QUESTION
        self.choice = False
        """The answer stands in the question."""

    def as_a_choice(self) -> "Asked":
        """The same question where the answer stands in it: its names are no longer mere repetition."""
        asked = copy.copy(self)
        asked.stems = {word.stem for word in self.words if not word.capital}
        asked.choice = True
        return asked

    def repeats(self, word: Word) -> bool:
        """Whether a word says nothing that the question does not say, but for its inflection."""
        if word.number:
            return word.form in self.forms
        if word.form in FUNCTION | COPULAS | APPROXIMATE or word.stem in self.stems:
            return True
        return any(_inflected(word.form, other) for other in self.forms)


def _inflected(first: str, second: str) -> bool:
    """`died` and `die`, `directed` and `director`."""
    short, long = sorted((first, second), key=len)
    if len(short) < 3 or not short[0].isalpha():
        return False
    if long.startswith(short):
        return len(long) - len(short) <= 3
    return len(short) >= 6 and long.startswith(short[:-2]) and len(long) - len(short) <= 2
