"""Sentence and question templates of the embedded encyclopedia.

A template group is a page kind, narrowed where the wording depends on the form ("opera" is a group of kind "work").
Page sentences and question wordings avoid each other's words on purpose: a model must match meanings, not strings.
"""

from __future__ import annotations

# Names that take "the" inside a sentence. Kinds in LOWER_KINDS are written without a capital letter there.
WITH_THE: frozenset[str] = frozenset(
    {
        "United States",
        "United Kingdom",
        "Czech Republic",
        "United Arab Emirates",
        "Eiger",
        "Jungfrau",
        "Eiffel Tower",
        "Palais Garnier",
        "Arc de Triomphe",
        "Millau Viaduct",
        "Empire State Building",
        "Chrysler Building",
        "Flatiron Building",
        "Golden Gate Bridge",
        "Gateway Arch",
        "Lincoln Memorial",
        "Space Needle",
        "Royal Albert Hall",
        "Clifton Suspension Bridge",
        "Brandenburg Gate",
        "Reichstag building",
        "Sydney Opera House",
        "Sydney Harbour Bridge",
        "Tokyo Skytree",
        "CN Tower",
        "Burj Khalifa",
        "Atomium",
        "Oslo Opera House",
        "Palace of Culture and Science",
        "Dancing House",
        "Secession Building",
        "Mole Antonelliana",
        "Guggenheim Museum Bilbao",
        "25 de Abril Bridge",
        "National Mosque of Malaysia",
        "Hassan II Mosque",
        "Barometer",
        "Cotton gin",
        "World Wide Web",
        "Rubik's Cube",
        "Davy lamp",
        "Stethoscope",
        "Celsius scale",
        "Fahrenheit scale",
        "Phonograph",
        "Foucault pendulum",
        "Crossword",
        "Tang dynasty",
        "Song dynasty",
        "Yuan dynasty",
        "Ming dynasty",
        "Qing dynasty",
        "Lisbon earthquake",
        "Gunpowder Plot",
        "Battle of Agincourt",
        "Battle of Bosworth Field",
        "Battle of Lepanto",
        "Great Fire of London",
        "Fall of Constantinople",
        "Storming of the Bastille",
        "Battle of Trafalgar",
        "Battle of Waterloo",
        "Battle of Gettysburg",
        "Great Chicago Fire",
        "Battle of Tours",
        "Treaty of Verdun",
        "Battle of Hastings",
        "Battle of Manzikert",
        "Battle of Bannockburn",
        "Battle of Crécy",
    }
)
LOWER_KINDS: frozenset[str] = frozenset({"element", "material"})
LOWER_NAMES: frozenset[str] = frozenset(
    {
        "Barometer",
        "Cotton gin",
        "Stethoscope",
        "Phonograph",
        "Crossword",
        "Fall of Constantinople",
        "Storming of the Bastille",
        "Dynamite",
        "Basketball",
        "Volleyball",
    }
)

LEADS: dict[str, str] = {
    "country": "{Name} is a country.",
    "city": "{Name} is a capital city.",
    "person": "{Name} was {an} {occupation}.",
    "work": "{Name} is {an} {form}.",
    "element": "{Name} is a chemical element.",
    "building": "{Name} is {an} {form}.",
    "mountain": "{Name} is a mountain.",
    "planet": "{Name} is a planet.",
    "event": "{Name} was {an} {form}.",
    "dynasty": "{Name} ruled China from {start} to {end}.",
    "material": "{Name} is {an} {form}.",
    "invention": "{Name} is {an} {form}.",
}

# Per group: (heading, phrasings). A sentence is left out when one of the cells it names is empty.
Sentences = list[tuple[str, list[str]]]
SENTENCES: dict[str, Sentences] = {
    "country": [
        ("State", ["Its capital is {capital}.", "{capital} is the capital.", "The national capital is {capital}."]),
        (
            "State",
            [
                "People pay with the {currency}.",
                "The currency is the {currency}.",
                "Its official money is the {currency}.",
            ],
        ),
        (
            "Place",
            [
                "It belongs to the continent of {continent}.",
                "The continent it belongs to is {continent}.",
                "On a map of the continents it is part of {continent}.",
            ],
        ),
        (
            "Communication",
            [
                "Its internet domain is {domain} for local sites.",
                "Local websites use the internet domain {domain} as an ending.",
            ],
        ),
        (
            "Communication",
            [
                "The calling code {code} comes first in phone calls from abroad.",
                "Its calling code is {code} on the telephone.",
            ],
        ),
        ("Communication", ["{language} is widely spoken there.", "Many people there speak {language}."]),
        ("Place", ["It shares a land border with {neighbour}.", "One of its neighbours is {neighbour}."]),
    ],
    "city": [
        (
            "Place",
            [
                "It serves as the capital of {country}.",
                "The country it belongs to is {country}.",
                "Its country is {country}.",
            ],
        ),
        (
            "Place",
            [
                "It lies on a river, the {river}.",
                "The city lies on a river called the {river}.",
                "The river on which it lies is the {river}.",
            ],
        ),
        ("Sights", ["A well-known sight is {landmark}.", "Visitors go to see {landmark}."]),
        ("Sights", ["It is also home to {second}.", "Another place of interest is {second}."]),
        ("History", ["The Summer Olympics came there in {games}.", "It hosted the Summer Olympics in {games}."]),
        ("Place", ["It lies by {water}.", "It stands near {water}."]),
        ("Place", ["On the globe it lies in the {half} half.", "It is in the {half} hemisphere."]),
        ("Place", ["The continent it lies in is {continent}.", "It is found in {continent}."]),
    ],
    "person": [
        (
            "Life",
            [
                "The {occupation} came into the world in {birth}.",
                "The year of birth was {birth}.",
                "The birth took place in the year {birth}.",
            ],
        ),
        (
            "Life",
            [
                "The {occupation} passed away in {death}.",
                "The year of death was {death}.",
                "Death came in the year {death}.",
            ],
        ),
        ("Life", ["The birthplace was {birthplace}.", "The {occupation}'s birthplace is {birthplace}."]),
        ("Life", ["The place of death was {deathplace}.", "The {occupation} died in {deathplace}."]),
        ("Achievements", ["The {occupation} is known for {known}.", "People know the {occupation} for {known}."]),
        (
            "Achievements",
            ["The {occupation} is remembered for {known2}.", "People remember the {occupation} for {known2}."],
        ),
    ],
    "book": [
        ("Origin", ["Its author is {creator}.", "It is a text by {creator}.", "{creator} is the author."]),
        (
            "Origin",
            [
                "It first appeared in the year {year}.",
                "Readers could first buy it in {year}.",
                "The year of its first edition was {year}.",
            ],
        ),
        ("Content", ["One of its figures is {a}.", "Readers meet {a} in it."]),
        ("Content", ["Much of the story is set {b}.", "Much of the story takes place {b}."]),
        ("Origin", ["The original language is {c}.", "It was written in {c}."]),
        (
            "Origin",
            ["The author also wrote {other} ({other_year}).", "{other} ({other_year}) is by the same author."],
        ),
    ],
    "play": [
        ("Origin", ["Its author is {creator}.", "It is a text by {creator}."]),
        ("Origin", ["It was first seen on stage in the year {year}.", "The year of its first night was {year}."]),
        ("Content", ["One of its figures is {a}.", "Audiences meet {a} in it."]),
        ("Content", ["It is set {b}.", "The action takes place {b}."]),
        ("Origin", ["The original language is {c}.", "It was written in {c}."]),
        ("Origin", ["The author also wrote {other} ({other_year})."]),
    ],
    "opera": [
        ("Origin", ["The music is by {creator}.", "{creator} wrote the music.", "The score is by {creator}."]),
        (
            "Premiere",
            ["The first night was in the year {year}.", "It opened in {year}.", "Audiences first saw it in {year}."],
        ),
        ("Content", ["One of its roles is {a}.", "Its characters include {a}."]),
        ("Premiere", ["It was first performed in {b}.", "The premiere took place in {b}."]),
        ("Content", ["The text is sung in {c}.", "Its words are in {c}."]),
        (
            "Origin",
            ["The composer also wrote {other} ({other_year}).", "{other} ({other_year}) is by the same composer."],
        ),
    ],
    "music": [
        ("Origin", ["The music is by {creator}.", "{creator} wrote the music.", "The score is by {creator}."]),
        ("Premiere", ["The premiere was in the year {year}.", "It was first heard in {year}."]),
        ("Content", ["It features {a}.", "Listeners hear {a} in it."]),
        ("Premiere", ["It was first performed in {b}.", "The first performance took place in {b}."]),
        ("Origin", ["The composer also wrote {other} ({other_year})."]),
    ],
    "painting": [
        ("Origin", ["The artist is {creator}.", "It is a picture by {creator}.", "It is the work of {creator}."]),
        (
            "Origin",
            [
                "The artist finished it in the year {year}.",
                "It dates from {year}.",
                "Work on it ended in {year}.",
            ],
        ),
        ("Content", ["It shows {a}.", "It depicts {a}."]),
        ("Place", ["It hangs in {b}.", "Visitors see it in {b}."]),
        ("Content", ["The technique is {c}.", "It is done in {c}."]),
        ("Origin", ["The painter also made {other} ({other_year})."]),
    ],
    "element": [
        ("Table", ["The chemical symbol is {symbol}.", "Chemists use the symbol {symbol} for it."]),
        ("Table", ["Its atomic number is {number}.", "The atomic number {number} belongs to it."]),
        ("Table", ["It stands in period {period} of the periodic table.", "Its row in the table is period {period}."]),
        ("Table", ["Its column in the table is group {group}.", "It is part of group {group}."]),
        ("Nature and use", ["At room temperature it is a {state}.", "Under everyday conditions it is a {state}."]),
        ("Nature and use", ["It is used in {use}.", "It finds use in {use}."]),
        ("Discovery", ["The discoverer was {discoverer}.", "{discoverer} is named as its discoverer."]),
        ("Discovery", ["The discovery came in the year {year}.", "Its discovery dates from {year}."]),
    ],
    "building": [
        ("Place", ["The city it stands in is {city}.", "It stands in the city of {city}."]),
        ("Place", ["Its country is {country}.", "The country is {country}."]),
        (
            "History",
            [
                "The building work was over in {year}.",
                "The year of completion was {year}.",
                "It was complete by the year {year}.",
            ],
        ),
        ("History", ["Its architect was {architect}.", "The design is by the architect {architect}."]),
        ("Features", ["{f1}"]),
        ("Features", ["{f2}"]),
        ("Features", ["{f3}"]),
    ],
    "mountain": [
        ("Place", ["Its country is {country}.", "The country it rises in is {country}."]),
        ("Size", ["The height is {height} metres.", "Its height comes to {height} metres above the sea."]),
        ("Size", ["In feet it measures about {feet}.", "Measured in feet it is about {feet} high."]),
        ("Climbing", ["People first stood on top in {ascent}.", "The first ascent was in {ascent}."]),
        ("Climbing", ["The first ascent was by {climber}.", "The first ascent was made by {climber}."]),
        ("Place", ["It belongs to a range called {range}.", "The range around it is {range}."]),
        ("Place", ["{f1}"]),
        ("Place", ["{f2}"]),
    ],
    "planet": [
        (
            "Orbit",
            [
                "Its position, counted from the Sun, is number {position}.",
                "Counted outwards from the Sun, its position is {position}.",
            ],
        ),
        (
            "Orbit",
            ["One trip around the Sun takes about {orbit} {unit}.", "Its year lasts about {orbit} of our {unit}."],
        ),
        ("Moons", ["The number of its moons is {moons}.", "Its number of moons is {moons}."]),
        ("Nature", ["It is {a_type}.", "Astronomers call it {a_type}."]),
        ("Nature", ["{f1}"]),
        ("Nature", ["{f2}"]),
    ],
    "event": [
        ("Time and place", ["The year was {year}.", "It took place in the year {year}.", "It dates from {year}."]),
        ("Time and place", ["The place was {place}.", "Its scene was {place}."]),
        ("Details", ["{f1}"]),
        ("Details", ["{f2}"]),
        ("Details", ["{f3}"]),
    ],
    "dynasty": [
        ("Rulers", ["The founder was {founder}.", "{founder} founded it."]),
        ("Rulers", ["Its court first sat in {capital}.", "The first capital was {capital}."]),
        ("Before and after", ["The house before it was the {before}.", "It came after the {before}."]),
        ("Before and after", ["The house after it was the {after}.", "It gave way to the {after}."]),
        ("Culture", ["{f1}"]),
        ("Culture", ["{f2}"]),
        ("Culture", ["{f3}"]),
        ("Culture", ["{f4}"]),
    ],
    "material": [
        (
            "Properties",
            [
                "Its density is about {density} kg per cubic metre.",
                "The density comes to about {density} kg per cubic metre.",
            ],
        ),
        ("Properties", ["One litre of it has a mass of about {litre} kg.", "A litre weighs about {litre} kg."]),
        ("Properties", ["It {temp}."]),
        ("Origin and use", ["{f1}"]),
        ("Origin and use", ["{f2}"]),
        ("Origin and use", ["{f3}"]),
    ],
    "invention": [
        ("Origin", ["Its inventor was {inventor}.", "The inventor is {inventor}."]),
        ("Origin", ["The idea was born in the year {year}.", "It goes back to the year {year}."]),
        ("Details", ["{f1}"]),
        ("Details", ["{f2}"]),
        ("Details", ["{f3}"]),
        ("Details", ["{f4}"]),
    ],
}

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
