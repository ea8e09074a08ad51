"""Relations for reference facts: codes, zones, borders, holidays, regions, airports, elements, file types, history.

They follow those of `catalog`, so that a sentence that both could read is read as before. Those whose subject is a
country or a city have no compositions: the second steps of edits are those that were measured.
"""

from __future__ import annotations

from knowledge_store.types import Relation


def _reference(
    id: str,
    label: str,
    types: str,  # "subject type -> object type"
    noun_phrase: str,
    statements: tuple[str, ...],
    questions: tuple[str, ...],
    compositions: tuple[str, ...] = (),
    *,
    wikidata: str | None = None,
    many: bool = False,
    inverse: str | None = None,
) -> Relation:
    subject_type, _, object_type = types.partition(" -> ")
    return Relation(
        id=id,
        label=label,
        statements=statements,
        questions=questions,
        noun_phrase=noun_phrase,
        many=many,
        subject_type=subject_type,
        object_type=object_type,
        inverse=inverse,
        compositions=compositions,
        wikidata=wikidata,
    )


def _code(id: str, label: str, types: str, of: str, wikidata: str | None) -> Relation:
    """Return the relation of a code that things of one kind have; `of` is how the thing is named: "the country {}"."""
    return _reference(
        id,
        label,
        types,
        f"the {label} of {of}",
        (
            f"The {label} of {of} is",
            f"{{}} has the {label}",
            f"In lists, {of} is marked with the {label}",
            f"The {label} that stands for {of} is",
        ),
        (
            f"What is the {label} of {of}?",
            f"Which {label} does {of} have?",
            f"Can you tell me the {label} of {of}?",
            f"Which {label} stands for {of}?",
        ),
        wikidata=wikidata,
    )


# Languages in which names of countries are known: id, how it is called, CLDR code.
NAME_LANGUAGES = (
    ("french", "French", "fr"),
    ("german", "German", "de"),
    ("spanish", "Spanish", "es"),
    ("italian", "Italian", "it"),
    ("portuguese", "Portuguese", "pt"),
    ("dutch", "Dutch", "nl"),
    ("polish", "Polish", "pl"),
    ("swedish", "Swedish", "sv"),
    ("finnish", "Finnish", "fi"),
    ("turkish", "Turkish", "tr"),
)


def _name_in(id: str, language: str) -> Relation:
    return _reference(
        f"name_in_{id}",
        f"{language} name",
        f"country -> {language} name",
        f"the {language} name of {{}}",
        (
            f"The {language} name of {{}} is",
            f"In {language}, the country {{}} is called",
            f"The {language} word for the country {{}} is",
            f"Translated into {language}, {{}} is",
        ),
        (
            f"What is the {language} name of {{}}?",
            f"What is {{}} called in {language}?",
            f"How do you say {{}} in {language}?",
            f"What is the {language} word for {{}}?",
        ),
    )


_COUNTRIES = (
    _reference(
        "borders",
        "neighbouring country",
        "country -> country",
        "a neighbouring country of {}",
        (
            "{} shares a border with",
            "{} borders on",
            "A country that borders on {} is",
            "A neighbouring country of {} is",
        ),
        (
            "Which country shares a border with {}?",
            "Which country borders on {}?",
            "What is a neighbouring country of {}?",
            "Which country can I walk to from {}?",
        ),
        wikidata="P47",
        many=True,
        inverse="borders",
    ),
    _reference(
        "demonym",
        "demonym",
        "country -> demonym",
        "the demonym of {}",
        (
            "The demonym of {} is",
            "A person who comes from {} is called",
            "The word for people from {} is",
            "Somebody with a passport of {} is",
        ),
        (
            "What is the demonym of {}?",
            "What is a person from {} called?",
            "What do you call people from {}?",
            "What is the word for somebody from {}?",
        ),
        wikidata="P1549",
    ),
    _code("country_code_2", "two-letter country code", "country -> country code", "{}", "P297"),
    _code("country_code_3", "three-letter country code", "country -> country code", "{}", "P298"),
    _code("country_number", "numeric country code", "country -> number", "{}", "P299"),
    _reference(
        "official_name",
        "official name",
        "country -> official name",
        "the official name of {}",
        (
            "The official name of {} is",
            "{} is officially called",
            "In treaties, the country {} is named",
            "The full name of the country {} is",
        ),
        (
            "What is the official name of {}?",
            "What is {} officially called?",
            "What is the full name of the country {}?",
            "Under which name does {} sign treaties?",
        ),
        wikidata="P1448",
    ),
    _reference(
        "subregion",
        "region of the world",
        "country -> region of the world",
        "the region of the world that {} belongs to",
        (
            "The region of the world that {} belongs to is",
            "The United Nations count {} as part of",
            "On the map of world regions, {} lies in",
            "The world region of {} is",
        ),
        (
            "Which region of the world does {} belong to?",
            "In which world region is {}?",
            "Which part of its continent is {} in?",
            "To which region do the United Nations count {}?",
        ),
    ),
    _reference(
        "country_timezone",
        "time zone of the country",
        "country -> time zone",
        "the time zone of {}",
        (
            "The time zone of {} is",
            "Clocks in the country {} follow the time zone",
            "All of {} is in the time zone",
            "The IANA time zone of the country {} is",
        ),
        (
            "What is the time zone of {}?",
            "Which time zone is {} in?",
            "Which time zone do clocks in {} follow?",
            "What is the IANA time zone of {}?",
        ),
        wikidata="P421",
    ),
    _reference(
        "driving_side",
        "driving side",
        "country -> side",
        "the side of the road on which people drive in {}",
        (
            "The side of the road on which people drive in {} is",
            "In {}, cars drive on",
            "Traffic in {} keeps to",
            "The driving side of {} is",
        ),
        (
            "On which side of the road do people drive in {}?",
            "Which side of the road do cars drive on in {}?",
            "What is the driving side of {}?",
            "Does traffic in {} keep to the left or to the right?",
        ),
        wikidata="P1622",
    ),
    _reference(
        "largest_city",
        "largest city",
        "country -> city",
        "the largest city of {}",
        (
            "The largest city of {} is",
            "The city with the most inhabitants in {} is",
            "{}'s largest city is",
            "More people than in any other city of {} live in",
        ),
        (
            "What is the largest city of {}?",
            "Which city in {} has the most inhabitants?",
            "What is the biggest city of {}?",
            "In which city of {} do the most people live?",
        ),
    ),
    _reference(
        "public_holiday",
        "public holiday",
        "country -> holiday",
        "a public holiday of {}",
        (
            "A public holiday of {} is",
            "A public holiday in {} is",
            "People in {} have a day off on",
            "One of the holidays that {} celebrates is",
        ),
        (
            "What is a public holiday of {}?",
            "Which public holiday is celebrated in {}?",
            "On which holiday do people in {} have a day off?",
            "Can you name a public holiday in {}?",
        ),
        wikidata="P832",
        many=True,
    ),
    *(_name_in(id, language) for id, language, _ in NAME_LANGUAGES),
)

_REGIONS = (
    _reference(
        "city_timezone",
        "time zone",
        "city -> time zone",
        "the time zone of {}",
        (
            "The time zone of the city of {} is",
            "The city of {} is in the time zone",
            "Clocks in {} follow the time zone",
            "The IANA time zone of {} is",
        ),
        (
            "In which time zone is the city of {}?",
            "What is the time zone of {}?",
            "Which time zone do clocks in {} follow?",
            "What is the IANA time zone of {}?",
        ),
        wikidata="P421",
    ),
    _reference(
        "city_us_state",
        "US state of the city",
        "city -> US state",
        "the US state where {} is located",
        (
            "The US state where {} is located is",
            "The city of {} lies in the US state of",
            "{} is a city in the US state of",
            "Mail to the city of {} goes to the state of",
        ),
        (
            "In which US state is {}?",
            "Which US state is the city of {} in?",
            "What state does the city of {} belong to?",
            "{} is a city in which US state?",
        ),
        wikidata="P131",
    ),
    _reference(
        "region_country",
        "country of the region",
        "region -> country",
        "the country that the region {} belongs to",
        (
            "The region {} belongs to the country",
            "The country that the region {} belongs to is",
            "{} is a region of the country",
            "On a map, the region {} is found in",
        ),
        (
            "Which country does the region {} belong to?",
            "In which country is the region {}?",
            "{} is a region of which country?",
            "Which country has a region called {}?",
        ),
        ("Which country does the region that is {} belong to?",),
        wikidata="P17",
    ),
    _code("region_code", "region code", "region -> region code", "{}", "P300"),
    _code("state_abbreviation", "postal abbreviation", "US state -> abbreviation", "the US state of {}", "P5086"),
    _reference(
        "statehood_year",
        "year of statehood",
        "US state -> year",
        "the year in which {} became a US state",
        (
            "The year in which {} became a US state is",
            "{} became a state of the USA in",
            "{} was admitted to the Union in",
            "The statehood of {} dates from",
        ),
        (
            "In which year did {} become a US state?",
            "When did {} become a state of the USA?",
            "When was {} admitted to the Union?",
            "Since which year has {} been a US state?",
        ),
        wikidata="P571",
    ),
    _reference(
        "airport_country",
        "country of the airport",
        "airport -> country",
        "the country where {} is located",
        (
            "The airport {} is in the country",
            "The country where travellers land at {} is",
            "Somebody who lands at {} has arrived in",
            "{} is an airport in the country of",
        ),
        (
            "In which country is the airport {}?",
            "Which country do I arrive in when I land at {}?",
            "{} is an airport in which country?",
            "Which country is {} in?",
        ),
        wikidata="P17",
    ),
    _code("airport_code", "airport code", "airport -> airport code", "{}", "P238"),
    _reference(
        "utc_offset",
        "offset from UTC",
        "time zone -> offset",
        "the offset from UTC of the time zone {}",
        (
            "The offset from UTC of the time zone {} is",
            "Clocks in the time zone {} differ from UTC by",
            "In the time zone {}, local time is",
            "The time zone {} is at",
        ),
        (
            "What is the offset from UTC of the time zone {}?",
            "How far is the time zone {} from UTC?",
            "By how much do clocks in {} differ from UTC?",
            "Which UTC offset does {} have?",
        ),
        ("What is the offset from UTC of {}?",),
        wikidata="P2907",
    ),
)

_SCIENCE = (
    _reference(
        "element_group",
        "group in the periodic table",
        "element -> group",
        "the group of {} in the periodic table",
        (
            "The group of {} in the periodic table is",
            "In the periodic table, {} stands in the column called",
            "Chemists place the element {} in",
            "The element {} belongs to",
        ),
        (
            "Which group of the periodic table is {} in?",
            "What is the group of {} in the periodic table?",
            "In which column of the periodic table is {}?",
            "To which group does the element {} belong?",
        ),
    ),
    _reference(
        "element_period",
        "period in the periodic table",
        "element -> period",
        "the period of {} in the periodic table",
        (
            "The period of {} in the periodic table is",
            "In the periodic table, {} stands in the row called",
            "The row of the periodic table that has {} is",
            "Counting rows of the periodic table, {} is in",
        ),
        (
            "Which period of the periodic table is {} in?",
            "What is the period of {} in the periodic table?",
            "In which row of the periodic table is {}?",
            "To which period does the element {} belong?",
        ),
    ),
    _reference(
        "element_block",
        "block in the periodic table",
        "element -> block",
        "the block of {} in the periodic table",
        (
            "The block of {} in the periodic table is",
            "By its outer electrons, the element {} belongs to",
            "In the periodic table, {} is part of",
            "The element {} is a member of",
        ),
        (
            "Which block of the periodic table is {} in?",
            "What is the block of {} in the periodic table?",
            "To which block does the element {} belong?",
            "In which block do chemists place {}?",
        ),
    ),
    _code("language_code_2", "two-letter language code", "language -> language code", "{}", "P218"),
    _code("language_code_3", "three-letter language code", "language -> language code", "{}", "P220"),
    _code("script_code", "four-letter script code", "writing system -> script code", "the {} script", "P506"),
    _code("currency_symbol", "currency symbol", "currency -> symbol", "the {}", "P5061"),
)

_COMPUTING = (
    _reference(
        "file_extension",
        "file extension",
        "computer language -> file extension",
        "the file extension of {}",
        (
            "A file extension of {} is",
            "Source files of the computer language {} end in",
            "A file that is written in {} can be recognised by the ending",
            "The file extension that stands for {} code is",
        ),
        (
            "What is a file extension of {}?",
            "Which file extension do {} files have?",
            "What do source files of {} end in?",
            "By which ending do I recognise {} code?",
        ),
        ("What is a file extension of {}?",),
        wikidata="P1195",
        many=True,
    ),
    _reference(
        "media_type",
        "media type",
        "computer language -> media type",
        "the media type of {}",
        (
            "A media type of {} is",
            "Web servers send {} code with the media type",
            "The MIME type that stands for {} is",
            "On the web, files of the computer language {} have the media type",
        ),
        (
            "What is a media type of {}?",
            "Which media type do {} files have?",
            "What is the MIME type of {}?",
            "With which media type do web servers send {} code?",
        ),
        ("What is a media type of {}?",),
        wikidata="P1163",
        many=True,
    ),
    _reference(
        "http_status",
        "meaning of the status code",
        "HTTP status code -> meaning",
        "the meaning of {}",
        (
            "The meaning of {} is",
            "A web server that answers with {} says",
            "In a browser, {} stands for",
            "The reason phrase of {} is",
        ),
        (
            "What is the meaning of {}?",
            "What does {} mean?",
            "What does a web server say with {}?",
            "What is the reason phrase of {}?",
        ),
        ("What is the meaning of {}?",),
    ),
)

_HISTORY = (
    _reference(
        "event_year",
        "year of the event",
        "event -> year",
        "the year of {}",
        (
            "The year of {} is",
            "{} took place in the year",
            "{} happened in",
            "History books date {} to",
        ),
        (
            "What is the year of {}?",
            "In which year did {} take place?",
            "When did {} happen?",
            "To which year do history books date {}?",
        ),
        ("What is the year of {}?",),
        wikidata="P585",
    ),
    _reference(
        "games_city",
        "host city",
        "games -> city",
        "the host city of {}",
        (
            "The host city of {} was",
            "{} were held in",
            "Athletes travelled to {} in",
            "The games of {} were hosted by the city of",
        ),
        (
            "What was the host city of {}?",
            "In which city were {} held?",
            "Which city hosted {}?",
            "To which city did athletes travel for {}?",
        ),
    ),
    _reference(
        "cup_winner",
        "winner of the tournament",
        "tournament -> country",
        "the winner of {}",
        (
            "The winner of {} was",
            "{} was won by",
            "The team that won {} came from",
            "The champion of {} was",
        ),
        (
            "Which country was the winner of {}?",
            "Which country won {}?",
            "Who won {}?",
            "From which country did the champion of {} come?",
        ),
        wikidata="P1346",
    ),
    _reference(
        "cup_host",
        "host of the tournament",
        "tournament -> country",
        "a host country of {}",
        (
            "A host country of {} was",
            "{} was hosted by",
            "The matches of {} were played in",
            "Fans of {} travelled to",
        ),
        (
            "Which country hosted {}?",
            "What was a host country of {}?",
            "Where was {} played?",
            "To which country did fans of {} travel?",
        ),
        wikidata="P17",
        many=True,
    ),
    _reference(
        "prize_winner",
        "winner of the prize",
        "prize -> person",
        "the winner of {}",
        (
            "The winner of {} was",
            "{} was awarded to",
            "{} went to",
            "The person who received {} is",
        ),
        (
            "Who was the winner of {}?",
            "Who won {}?",
            "To whom was {} awarded?",
            "Who received {}?",
        ),
        wikidata="P1346",
        many=True,
    ),
    _reference(
        "office_start",
        "year of taking office",
        "head of state -> year",
        "the year in which {} became president of the United States",
        (
            "The year in which {} became president of the United States is",
            "{} became president of the United States in",
            "{} moved into the White House in",
            "{} took office as US president in",
        ),
        (
            "In which year did {} become president of the United States?",
            "When did {} become US president?",
            "When did {} move into the White House?",
            "In which year did {} take office as US president?",
        ),
    ),
    _reference(
        "moon_planet",
        "planet of the moon",
        "moon -> planet",
        "the planet that {} orbits",
        (
            "The planet that {} orbits is",
            "{} is a moon of",
            "{} moves around the planet",
            "The moon {} belongs to the planet",
        ),
        (
            "Which planet does {} orbit?",
            "{} is a moon of which planet?",
            "Around which planet does {} move?",
            "To which planet does the moon {} belong?",
        ),
        wikidata="P397",
    ),
    _reference(
        "highest_mountain",
        "highest mountain",
        "country -> mountain",
        "the highest mountain of {}",
        (
            "The highest mountain of {} is",
            "The highest point of {} is",
            "{}'s highest mountain is",
            "Climbers who want to stand on top of {} go up",
        ),
        (
            "What is the highest mountain of {}?",
            "What is the highest point of {}?",
            "Which mountain is the highest in {}?",
            "What is {}'s highest peak called?",
        ),
        wikidata="P610",
    ),
)

REFERENCE_RELATIONS: tuple[Relation, ...] = (*_COUNTRIES, *_REGIONS, *_SCIENCE, *_COMPUTING, *_HISTORY)
