"""Lists of words that `match` leans on. Each says what may differ between two texts that name the same thing."""


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


FUNCTION = _set("a an the of in on at for from by to with as during called named known its his her their")
"""May be added or left out anywhere."""

COPULAS = _set(
    "is was are were be been has had have did does do will would that which who it this he she they there both also "
    "whose and then when while since because later"
)
"""May be added in a sentence that holds the answer."""

APPROXIMATE = _set(
    "about around approximately approx roughly nearly almost close circa ca c some over primarily mainly mostly "
    "originally partly formerly chiefly largely generally just exactly total currently number more than least up"
)
"""May be added or left out: they shade an answer and do not change it."""

HEDGES = _set(
    "or either neither nor not never no none unknown unclear unsure possibly perhaps maybe probably likely cannot "
    "couldn couldnt didn doesn isn wasn aren unable sorry error unless except without but however although instead "
    "despite nothing nobody false incorrect wrong yet"
)
"""An answer with one of these that the gold lacks is no plain answer."""

HONORIFICS = _set(
    "mr mrs ms miss dr doctor prof professor sir dame lord lady president general gen colonel col captain capt major "
    "lieutenant lt sergeant sgt admiral senator sen governor gov mayor judge justice rev reverend father pope king "
    "queen prince princess emperor empress sultan chief chancellor minister secretary ambassador coach baron count "
    "duke duchess earl saint st rabbi sheikh shah tsar pharaoh congressman representative rep cardinal bishop"
)
"""Before a person's name."""

NAME_ENDINGS = _set("jr sr esq phd md")
"""After a person's name."""

GENERIC_GROUPS = tuple(
    _set(words)
    for words in (
        "company corporation corp inc incorporated co ltd limited llc plc gmbh ag holdings",
        "fc afc cf club football soccer team",
        "railway railroad line rail",
        "film movie picture",
        "song single",
        "album record ep lp",
        "series show sitcom program programme miniseries",
        "band group duo trio",
        "language",
        "award prize",
        "book novel",
        "genre style",
        "network channel broadcasting station",
    )
)
"""Kinds of things whose names mean the same here: `Great Northern Railway`, `Great Northern line`."""

KINDS = frozenset().union(*GENERIC_GROUPS) | _set(
    "brand business church party dynasty mountain mountains range hill river stream lake island islands city town "
    "village municipality borough county parish district region province state country nation republic kingdom "
    "people tribe street road avenue magazine newspaper journal breed dog plant tree flower label records university "
    "college house palace castle airport season members member cathedral"
)
"""Says what kind of thing a name belongs to; may be added or left out where the question asks for that kind."""

PLAIN_KINDS = GENERIC_GROUPS[0] | _set("fc afc cf party railway")
"""May be added or left out whatever was asked."""

OTHER_PLACES = _set("city county state province district island river lake republic")
"""Where a name has one of these, it is another place without it: `Kansas City`, `Los Angeles County`."""

NAMED_AFTER = _set("band show series film movie album song book group trio duo quartet orchestra award prize")
"""What is named after people and is none: `The David Lee Roth Band`."""

MOVABLE = _set(
    "province region state city town county district river lake island mountain republic kingdom prefecture parish"
)
"""Kinds that may stand on either side of a name: `Province of Buenos Aires`, `Buenos Aires Province`."""

COMPARES = {"before": _set("first earlier older before"), "after": _set("last later younger after recently")}
"""Allowed in `A was founded before B`, where the question has one of these."""

EXPLAINS = _set("who which because since as with at born founded whose while whereas compared after when where by")
"""After `gold,` begins an explanation, not a second answer."""

PEERAGE = _set("baron baroness viscount viscountess earl marquess marquis duke duchess count countess baronet lord")
"""`Charles McLaren, 1st Baron Aberconway` is Charles McLaren."""

PERSON_QUESTION = _set(
    "who whom whose actor actress singer musician rapper director author writer player politician president scientist "
    "painter composer person man woman artist poet footballer driver athlete boxer comedian producer brother sister "
    "father mother son daughter husband wife spouse child children grandfather grandmother stepfather uncle member"
)
"""A question with one of these may ask for a person."""

PLACE_QUESTION = _set(
    "where city town village located location place born birthplace from headquartered headquarters based state "
    "country county capital live lives lived reside resides died hometown borough suburb neighborhood neighbourhood "
    "municipality campus buried"
)
"""A question with one of these asks for a place."""

THING_QUESTION = _set(
    "film movie song album book novel series show university college school company organization club team city town "
    "country state county river lake mountain island airport station battle war award prize magazine newspaper "
    "building castle museum park game opera play musical bank ship airline hotel brand newspaper language genre food "
    "planet element building tower church road street highway"
)
"""After `which` or `what`: the question asks for a thing, so words inside its name cannot be middle names."""

INSTITUTION = _set(
    "university college school institute academy museum hospital bank airport station church cathedral castle battle "
    "war treaty act river lake mountain park national international north south east west new old great northern "
    "southern eastern western central state city county district island street road avenue bridge tower building "
    "house hall theatre theater stadium arena league cup prize award festival company records pictures studios team "
    "club united football orchestra band film series album song party order society association union army navy "
    "division regiment department ministry office court and of the for in"
)
"""Never part of a person's name; between two matching words they tell apart, as in `Boston Architectural College`."""

EQUIVALENT = {
    "usa": "united states", "us": "united states", "america": "united states", "u s": "united states",
    "u s a": "united states", "united states of america": "united states", "uk": "united kingdom",
    "u k": "united kingdom", "great britain": "united kingdom", "ussr": "soviet union", "uae": "united arab emirates",
    "nyc": "new york city", "mt": "mount", "st": "saint", "gen": "general",
    "col": "colonel", "capt": "captain", "lt": "lieutenant", "dr": "doctor", "prof": "professor", "sen": "senator",
    "gov": "governor", "univ": "university", "dept": "department", "intl": "international", "vs": "versus",
    "tv": "television", "wwi": "world war 1", "wwii": "world war 2",
    "futbol": "football", "theatre": "theater", "centre": "center", "colour": "color", "grey": "gray",
    "organisation": "organization", "defence": "defense", "harbour": "harbor", "labour": "labor", "double": "2 x",
    "triple": "3 x", "quadruple": "4 x", "twice": "2 x", "pct": "percent", "okay": "ok", "bce": "bc",
    "ce": "ad", "metre": "meter", "metres": "meter", "kilometre": "kilometer", "kilometres": "kilometer",
    "centimetre": "centimeter", "centimetres": "centimeter", "litre": "liter", "litres": "liter", "sq": "square",
}  # fmt: skip
"""Short forms and spellings, by what they stand for."""

UNITS = _set(
    "people inhabitants residents citizens copies albums members employees students seats votes viewers listeners "
    "goals points runs caps times games matches wins titles episodes seasons films books songs rooms floors stories "
    "storeys users"
)
"""What is counted: may be left out after a number."""

COUNTRIES = {
    "russian federation": "russia", "czechia": "czech republic", "holland": "netherlands", "burma": "myanmar",
    "cote divoire": "ivory coast", "peoples republic china": "china", "republic korea": "south korea",
    "united states united states": "united states",
    "american": "united states", "british": "united kingdom", "french": "france", "german": "germany",
    "dutch": "netherlands", "swiss": "switzerland", "greek": "greece", "polish": "poland", "danish": "denmark",
    "swedish": "sweden", "finnish": "finland", "spanish": "spain", "turkish": "turkey", "irish": "ireland",
    "scottish": "scotland", "welsh": "wales", "english": "england", "thai": "thailand", "filipino": "philippines",
    "chinese": "china", "japanese": "japan", "norwegian": "norway", "portuguese": "portugal", "israeli": "israel",
    "iraqi": "iraq", "pakistani": "pakistan", "belgian": "belgium", "canadian": "canada", "czech": "czech republic",
    "hungarian": "hungary", "italian": "italy", "russian": "russia", "soviet": "soviet union", "brazilian": "brazil",
    "peruvian": "peru", "egyptian": "egypt", "ukrainian": "ukraine", "vietnamese": "vietnam", "lebanese": "lebanon",
    "argentine": "argentina", "argentinian": "argentina", "icelandic": "iceland", "new zealander": "new zealand",
    "austrian": "austria", "australian": "australia", "indian": "india", "mexican": "mexico", "romanian": "romania",
    "bulgarian": "bulgaria", "serbian": "serbia", "croatian": "croatia", "cuban": "cuba", "chilean": "chile",
    "colombian": "colombia", "kenyan": "kenya", "nigerian": "nigeria", "south african": "south africa",
    "iranian": "iran", "indonesian": "indonesia", "malaysian": "malaysia", "south korean": "south korea",
    "slovak": "slovakia", "slovenian": "slovenia", "estonian": "estonia", "latvian": "latvia",
    "lithuanian": "lithuania", "jamaican": "jamaica", "moroccan": "morocco", "tunisian": "tunisia",
}  # fmt: skip
"""Nationalities, by country: the same where a question asks for a country or a nationality."""

US_STATES = {
    "AL": "alabama", "AK": "alaska", "AZ": "arizona", "AR": "arkansas", "CA": "california", "CO": "colorado",
    "CT": "connecticut", "DE": "delaware", "FL": "florida", "GA": "georgia", "HI": "hawaii", "ID": "idaho",
    "IL": "illinois", "IN": "indiana", "IA": "iowa", "KS": "kansas", "KY": "kentucky", "LA": "louisiana",
    "ME": "maine", "MD": "maryland", "MA": "massachusetts", "MI": "michigan", "MN": "minnesota", "MS": "mississippi",
    "MO": "missouri", "MT": "montana", "NE": "nebraska", "NV": "nevada", "NH": "new hampshire", "NJ": "new jersey",
    "NM": "new mexico", "NY": "new york", "NC": "north carolina", "ND": "north dakota", "OH": "ohio",
    "OK": "oklahoma", "OR": "oregon", "PA": "pennsylvania", "RI": "rhode island", "SC": "south carolina",
    "SD": "south dakota", "TN": "tennessee", "TX": "texas", "UT": "utah", "VT": "vermont", "VA": "virginia",
    "WA": "washington", "WV": "west virginia", "WI": "wisconsin", "WY": "wyoming", "DC": "district of columbia",
}  # fmt: skip
"""Postal abbreviations, read as states behind a comma."""

MEASURES = _set(
    "old long tall far high height length distance deep depth wide width area large big size heavy weight weigh fast "
    "speed elevation age far much hot cold temperature"
)
"""A question with one of these asks for a measure, whose unit may be left out."""
