"""Sentence templates of the embedded encyclopedia's pages, and how names stand in a sentence.

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
