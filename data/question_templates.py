"""Question templates of the embedded encyclopedia, in three wordings each; groups are those of the pages."""

from __future__ import annotations

_CREATOR = {
    "book": ("wrote", "writer", "pen"),
    "play": ("wrote", "writer", "pen"),
    "opera": ("composed", "composer", "mind"),
    "music": ("composed", "composer", "mind"),
    "painting": ("painted", "painter", "brush"),
}
_RELEASED = {
    "book": "published",
    "play": "first performed",
    "opera": "first performed",
    "music": "first performed",
    "painting": "completed",
}

# (group, relation) -> the column holding the value, and three wordings.
ONE_HOP: dict[tuple[str, str], tuple[str, list[str]]] = {
    ("country", "capital"): (
        "capital",
        [
            "What is the capital of {e}?",
            "Which city is the seat of power of {e}?",
            "From which city is {e} officially governed?",
        ],
    ),
    ("country", "currency"): (
        "currency",
        ["What is the currency of {e}?", "Which money is used in {e}?", "What does one pay with in shops in {e}?"],
    ),
    ("country", "continent"): (
        "continent",
        [
            "On which continent is {e}?",
            "In which part of the world does {e} lie?",
            "To which large landmass does {e} belong?",
        ],
    ),
    ("country", "internet domain"): (
        "domain",
        [
            "What is the internet domain of {e}?",
            "How do web addresses in {e} end?",
            "Which suffix do sites from {e} carry?",
        ],
    ),
    ("country", "calling code"): (
        "code",
        [
            "What is the calling code of {e}?",
            "Which phone prefix reaches {e}?",
            "What must be dialled before a number in {e}?",
        ],
    ),
    ("city", "country"): (
        "country",
        [
            "{E} is the capital of which country?",
            "Which nation has {e} as its capital?",
            "Which state is governed from {e}?",
        ],
    ),
    ("city", "river"): (
        "river",
        ["Which river does {e} lie on?", "On the banks of which river is {e}?", "Which waterway does {e} stand on?"],
    ),
    ("person", "birth year"): (
        "birth",
        [
            "In which year was {e} born?",
            "When did the life of {e} begin?",
            "What was the first year of the life of {e}?",
        ],
    ),
    ("person", "death year"): (
        "death",
        ["In which year did {e} die?", "When did the life of {e} end?", "What was the last year {e} lived to see?"],
    ),
    ("person", "birthplace"): (
        "birthplace",
        [
            "Where was {e} born?",
            "In which town or city did {e} first see the light of day?",
            "What is the native town of {e}?",
        ],
    ),
    ("element", "symbol"): (
        "symbol",
        [
            "What is the chemical symbol of {e}?",
            "Which letters stand for {e} in formulas?",
            "How is {e} abbreviated in chemistry?",
        ],
    ),
    ("element", "atomic number"): (
        "number",
        [
            "What is the atomic number of {e}?",
            "How many protons does an atom of {e} have?",
            "How large is the nuclear charge of {e}?",
        ],
    ),
    ("element", "discoverer"): (
        "discoverer",
        ["Who discovered {e}?", "Who first found {e}?", "To whom do we owe the finding of {e}?"],
    ),
    ("element", "year"): (
        "year",
        ["In which year was {e} discovered?", "When was {e} first found?", "Since when has {e} been known?"],
    ),
    ("building", "city"): (
        "city",
        ["In which city is {e}?", "Where would a tourist go to see {e}?", "Which town is home to {e}?"],
    ),
    ("building", "country"): (
        "country",
        ["In which country is {e}?", "Which nation is home to {e}?", "Within whose borders does {e} stand?"],
    ),
    ("building", "year"): (
        "year",
        [
            "In which year was {e} completed?",
            "When was {e} finished?",
            "In what year did the work on {e} come to an end?",
        ],
    ),
    ("building", "architect"): (
        "architect",
        ["Who was the architect of {e}?", "Who designed {e}?", "Who drew up the plans for {e}?"],
    ),
    ("mountain", "height"): (
        "height",
        ["How high is {e} in metres?", "How many metres tall is {e}?", "At how many metres is the top of {e}?"],
    ),
    ("mountain", "country"): (
        "country",
        ["In which country is {e}?", "Which nation does {e} belong to?", "Within whose borders does {e} rise?"],
    ),
    ("planet", "position"): (
        "position",
        [
            "Which position does {e} have, counted from the Sun?",
            "Counting outwards from the Sun, what number is the planet {e}?",
            "What is the rank of {e} among the planets by distance from the Sun?",
        ],
    ),
    ("event", "year"): (
        "year",
        ["In which year did {e} take place?", "When did {e} happen?", "To which year does {e} belong?"],
    ),
    ("dynasty", "years of rule"): (
        "span",
        ["In which years did {e} rule?", "From when to when was {e} in power?", "How is the reign of {e} dated?"],
    ),
    ("material", "density"): (
        "density",
        [
            "What is the density of {e} in kg per cubic metre?",
            "How many kilograms does a cubic metre of {e} weigh?",
            "How heavy is {e}, in kg for each cubic metre?",
        ],
    ),
    ("invention", "inventor"): ("inventor", ["Who invented {e}?", "Who came up with {e}?", "Whose idea was {e}?"]),
    ("invention", "year"): (
        "year",
        ["In which year was {e} invented?", "When was {e} thought up?", "Since when has {e} existed?"],
    ),
}
for _g, (_v, _r, _tool) in _CREATOR.items():
    ONE_HOP[_g, "creator"] = (
        "creator",
        [f"Who {_v} {{e}}?", f"Which {_r} created {{e}}?", f"From whose {_tool} did {{e}} come?"],
    )
    ONE_HOP[_g, "year"] = (
        "year",
        [
            f"In which year was {{e}} {_RELEASED[_g]}?",
            "When did the public first get to know {e}?" if _g != "painting" else "When was {e} finished?",
            "What year does {e} date from?",
        ],
    )

# (group, first relation, second relation) -> three wordings. The first value is the title of the second page.
TWO_HOP: dict[tuple[str, str, str], list[str]] = {
    ("country", "capital", "river"): [
        "Which river does the capital of {e} lie on?",
        "On which waterway does the seat of government of {e} stand?",
        "On the banks of which river is the city from which {e} is governed?",
    ],
    ("building", "city", "river"): [
        "On which river is the city where {e} stands?",
        "{E} is in a city on which river?",
        "Which waterway does the home city of {e} lie on?",
    ],
    ("event", "year", "years of rule"): [
        "Which dynasty was ruling China at the time of {e}?",
        "Which dynasty ruled China when {e} happened?",
        "Which imperial house governed China in the year of {e}?",
    ],
}
_OF_COUNTRY = {
    "currency": ("What is the currency of", "Which money is used in"),
    "internet domain": ("What is the internet domain of", "Which web suffix is used in"),
    "calling code": ("What is the calling code of", "Which phone prefix is used for"),
    "continent": ("What is the continent of", "Which part of the world contains"),
    "capital": ("What is the capital of", "Which city is the seat of power in"),
}
_COUNTRY_OF = {
    "city": (
        "the country whose capital is {e}",
        "the nation governed from {e}",
        "the state that has its capital in {e}",
    ),
    "building": (
        "the country where {e} stands",
        "the nation that is home to {e}",
        "the country in which one finds {e}",
    ),
    "mountain": ("the country where {e} rises", "the nation that is home to {e}", "the country in which one finds {e}"),
}
for _g, (_d0, _d1, _d2) in _COUNTRY_OF.items():
    for _r, (_q0, _q1) in _OF_COUNTRY.items():
        if (_g, _r) != ("city", "capital"):
            TWO_HOP[_g, "country", _r] = [f"{_q0} {_d0}?", f"{_q1} {_d1}?", f"{_q1} {_d2}?"]
_MAKER_OF = {
    "book": ("creator", "the author of {e}", "the person who wrote {e}"),
    "play": ("creator", "the author of {e}", "the person who wrote {e}"),
    "opera": ("creator", "the composer of {e}", "the person who set {e} to music"),
    "music": ("creator", "the composer of {e}", "the person who composed {e}"),
    "painting": ("creator", "the painter of {e}", "the artist behind {e}"),
    "element": ("discoverer", "the discoverer of {e}", "the person who first found {e}"),
    "invention": ("inventor", "the inventor of {e}", "the person who came up with {e}"),
    "building": ("architect", "the architect of {e}", "the person who designed {e}"),
}
for _g, (_rel, _d0, _d1) in _MAKER_OF.items():
    TWO_HOP[_g, _rel, "birthplace"] = [
        f"Where was {_d0} born?",
        f"In which town or city was {_d1} born?",
        f"What is the native town of {_d0}?",
    ]
    TWO_HOP[_g, _rel, "birth year"] = [
        f"In which year was {_d0} born?",
        f"When did the life of {_d1} begin?",
        f"What is the birth year of {_d1}?",
    ]
    TWO_HOP[_g, _rel, "death year"] = [
        f"In which year did {_d0} die?",
        f"When did the life of {_d1} end?",
        f"What is the death year of {_d1}?",
    ]

# (group, relation, operation, wordings)
COMPARISON: list[tuple[str, str, str, list[str]]] = [
    (
        "mountain",
        "height",
        "larger",
        [
            "Which is taller, {a} or {b}?",
            "Which of the two rises higher: {a} or {b}?",
            "Between {a} and {b}, which has its top further up?",
        ],
    ),
    (
        "mountain",
        "height",
        "smaller",
        [
            "Which is lower, {a} or {b}?",
            "Which summit is less high, {a} or {b}?",
            "Is {a} or {b} the smaller mountain?",
        ],
    ),
    (
        "person",
        "birth year",
        "smaller",
        [
            "Who was born first, {a} or {b}?",
            "Who was the elder of the two, {a} or {b}?",
            "Between {a} and {b}, whose birth came earlier?",
        ],
    ),
    (
        "person",
        "birth year",
        "larger",
        [
            "Who was born later, {a} or {b}?",
            "Who was the younger of the two, {a} or {b}?",
            "Between {a} and {b}, whose birth came later?",
        ],
    ),
    (
        "person",
        "death year",
        "larger",
        [
            "Who died later, {a} or {b}?",
            "Whose life ended later, {a}'s or {b}'s?",
            "Between {a} and {b}, who died later?",
        ],
    ),
    (
        "building",
        "year",
        "smaller",
        [
            "Which was finished first, {a} or {b}?",
            "Which is older, {a} or {b}?",
            "Between {a} and {b}, which has stood longer?",
        ],
    ),
    (
        "book",
        "year",
        "smaller",
        [
            "Which was published first, {a} or {b}?",
            "Which came out earlier, {a} or {b}?",
            "Between {a} and {b}, which could be read first?",
        ],
    ),
    (
        "opera",
        "year",
        "smaller",
        [
            "Which was performed first, {a} or {b}?",
            "Which came to the stage earlier, {a} or {b}?",
            "Between {a} and {b}, which had the earlier premiere?",
        ],
    ),
    (
        "painting",
        "year",
        "larger",
        [
            "Which was painted later, {a} or {b}?",
            "Which is the newer picture, {a} or {b}?",
            "Between {a} and {b}, which was completed later?",
        ],
    ),
    (
        "element",
        "atomic number",
        "larger",
        [
            "Which has the larger atomic number, {a} or {b}?",
            "Whose atoms hold more protons, those of {a} or those of {b}?",
            "Between {a} and {b}, which has the higher nuclear charge?",
        ],
    ),
    (
        "planet",
        "position",
        "smaller",
        [
            "Which is closer to the Sun, {a} or {b}?",
            "Which planet circles nearer to the Sun, {a} or {b}?",
            "Between {a} and {b}, which has the inner orbit?",
        ],
    ),
    (
        "event",
        "year",
        "smaller",
        [
            "Which happened first, {a} or {b}?",
            "Which was earlier, {a} or {b}?",
            "Between {a} and {b}, which lies further back in time?",
        ],
    ),
    (
        "invention",
        "year",
        "larger",
        [
            "Which was invented later, {a} or {b}?",
            "Which is newer, {a} or {b}?",
            "Between {a} and {b}, which was thought up more recently?",
        ],
    ),
    (
        "material",
        "density",
        "larger",
        [
            "Which is denser, {a} or {b}?",
            "Which is heavier for its size, {a} or {b}?",
            "Between {a} and {b}, of which does a cubic metre weigh more?",
        ],
    ),
]
DIFFERENCE: list[tuple[str, str, list[str]]] = [
    (
        "building",
        "year",
        [
            "How many years passed between the construction of {a} and the construction of {b}?",
            "By how many years do the completion dates of {a} and {b} differ?",
            "How many years apart were {a} and {b} finished?",
        ],
    ),
    (
        "person",
        "birth year",
        [
            "How many years lie between the birth years of {a} and {b}?",
            "How many years apart were {a} and {b} born?",
            "By how many years do {a} and {b} differ in year of birth?",
        ],
    ),
    (
        "person",
        "death year",
        [
            "How many years lie between the death years of {a} and {b}?",
            "How many years apart did {a} and {b} die?",
            "By how many years do {a} and {b} differ in year of death?",
        ],
    ),
    (
        "book",
        "year",
        [
            "How many years passed between the publication of {a} and that of {b}?",
            "How many years apart did {a} and {b} come out?",
            "By how many years do {a} and {b} differ in age?",
        ],
    ),
    (
        "opera",
        "year",
        [
            "How many years passed between the premiere of {a} and that of {b}?",
            "How many years apart did {a} and {b} reach the stage?",
            "By how many years do the premieres of {a} and {b} differ?",
        ],
    ),
    (
        "painting",
        "year",
        [
            "How many years passed between the completion of {a} and that of {b}?",
            "How many years apart were {a} and {b} painted?",
            "By how many years do the pictures {a} and {b} differ in age?",
        ],
    ),
    (
        "event",
        "year",
        [
            "How many years passed between {a} and {b}?",
            "How many years apart were {a} and {b}?",
            "What is the distance in years between {a} and {b}?",
        ],
    ),
    (
        "invention",
        "year",
        [
            "How many years passed between the invention of {a} and that of {b}?",
            "How many years apart were {a} and {b} invented?",
            "By how many years do {a} and {b} differ in age?",
        ],
    ),
    (
        "mountain",
        "height",
        [
            "What is the difference in height between {a} and {b} in metres?",
            "How many metres separate the heights of {a} and {b}?",
            "By how many metres do {a} and {b} differ in height?",
        ],
    ),
    (
        "element",
        "atomic number",
        [
            "What is the difference between the atomic numbers of {a} and {b}?",
            "By how many protons do atoms of {a} and {b} differ?",
            "How large is the gap in nuclear charge between {a} and {b}?",
        ],
    ),
]
# One page, two relations: (group, relation, relation, wordings)
SELF_DIFFERENCE: list[tuple[str, str, str, list[str]]] = [
    (
        "person",
        "birth year",
        "death year",
        [
            "How many years lie between the birth year and the death year of {a}?",
            "How many years are there from the year {a} was born to the year {a} died?",
            "By how many years do the first and the last year of the life of {a} differ?",
        ],
    ),
]
YES_NO: list[tuple[str, str, str, list[str]]] = [
    (
        "person",
        "birthplace",
        "same",
        [
            "Were {a} and {b} born in the same place?",
            "Do {a} and {b} share a native town?",
            "Is the birthplace of {a} also that of {b}?",
        ],
    ),
    (
        "country",
        "continent",
        "same",
        [
            "Are {a} and {b} on the same continent?",
            "Do {a} and {b} lie in the same part of the world?",
            "Is the continent of {a} also that of {b}?",
        ],
    ),
    (
        "country",
        "currency",
        "same",
        [
            "Do {a} and {b} use the same currency?",
            "Is the money of {a} also that of {b}?",
            "Can one pay with one currency in both {a} and {b}?",
        ],
    ),
    (
        "building",
        "country",
        "same",
        [
            "Are {a} and {b} in the same country?",
            "Do {a} and {b} stand within one nation's borders?",
            "Is the country of {a} also that of {b}?",
        ],
    ),
    (
        "person",
        "birth year",
        "less",
        [
            "Was {a} born before {b}?",
            "Of {a} and {b}, was {a} the elder?",
            "Is the birth year of {a} before that of {b}?",
        ],
    ),
    (
        "mountain",
        "height",
        "less",
        [
            "Is {a} lower than {b}?",
            "Does {a} rise less high than {b}?",
            "Would one have to climb higher for the top of {b} than for that of {a}?",
        ],
    ),
    (
        "event",
        "year",
        "less",
        ["Did {a} happen before {b}?", "Is {a} further back in time than {b}?", "Was {a} earlier than {b}?"],
    ),
    (
        "material",
        "density",
        "less",
        [
            "Does {a} float in {b}?",
            "Would {a} stay on the surface of {b} rather than sink?",
            "Is {a} light enough to stay on top of {b}?",
        ],
    ),
]
