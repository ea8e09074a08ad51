"""Facts that standards keep, for the seed: codes, names in other languages, holidays, file types."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Collection, Iterator
from http import HTTPStatus

from knowledge_store.catalog_reference import NAME_LANGUAGES
from knowledge_store.text import key

ISO = "pycountry"
CLDR = "CLDR, through babel"
COUNTRYINFO = "countryinfo"
HOLIDAYS = "holidays"
PYGMENTS = "pygments"
PYTHON = "Python's standard library"
BY_HAND = "curated by hand"
BY_RULE = "by rule from the atomic number"
YEARS = (2024, 2025)  # a holiday is stated when both years have it
# fmt: off
_LEFT = frozenset((  # ISO codes of the countries that keep to the left
    "GB", "IE", "CY", "MT", "AU", "NZ", "FJ", "KI", "NR", "PG", "WS", "SB", "TO", "TV", "BD", "BT", "BN", "IN",
    "ID", "JP", "MY", "MV", "NP", "PK", "SG", "LK", "TH", "TL", "AG", "BS", "BB", "DM", "GD", "GY", "JM", "KN",
    "LC", "VC", "SR", "TT", "BW", "KE", "LS", "MW", "MU", "MZ", "NA", "SC", "ZA", "SZ", "TZ", "UG", "ZM", "ZW",
))
# The names of languages in the seed where ISO 639 writes them in another way.
_LANGUAGE_CODES = {
    "Mandarin Chinese": "cmn", "Greek": "ell", "Persian": "fas", "Malay": "msa", "Swahili": "swa", "Norwegian": "nor",
    "Slovene": "slv", "Punjabi": "pan", "Nepali": "nep", "Māori": "mri", "Khmer": "khm", "Kyrgyz": "kir",
    "Pashto": "pus", "Sinhala": "sin", "Filipino": "fil",
}
# fmt: on
# What the package has outdated, or as the country's own name (demonyms; regions that the UN counts otherwise).
_NO_DEMONYM = frozenset(("DJ", "KG", "TJ", "CV", "MV"))
_NO_REGION = frozenset(("RS", "ME"))
_NOT_A_HOLIDAY = re.compile(r"substitut|observed|in lieu|bridge|additional|day off|estimated|\(|[;,/]|election", re.I)
_REALM = re.compile(
    r"\b(?:Republic|Kingdom|States?|Union|Federation|Duchy|Sultanate|Principality|Confederation|Commonwealth)\b"
)


def countries_codes(known: dict[str, str]) -> Iterator[tuple[str, str, str, str]]:
    """Return (relation, country, object, source): ISO codes, official names, names in other languages, driving side."""
    import pycountry
    from babel import Locale

    for code, name in known.items():
        entry = pycountry.countries.get(alpha_2=code)
        if entry is not None:
            yield "country_code_2", name, entry.alpha_2, ISO
            yield "country_code_3", name, entry.alpha_3, ISO
            yield "country_number", name, entry.numeric, ISO
            official = getattr(entry, "official_name", None)
            if official and key(official) != key(name) and "," not in official:
                yield "official_name", name, f"the {official}" if _REALM.search(official) else official, ISO
        yield "driving_side", name, "the left" if code in _LEFT else "the right", BY_HAND
    for id, _, language in NAME_LANGUAGES:
        territories = Locale(language).territories
        for code, name in known.items():
            translated = territories.get(code)
            if translated and key(translated) != key(name):
                yield f"name_in_{id}", name, translated, CLDR


def about_countries(known: dict[str, str]) -> Iterator[tuple[str, str, str, str]]:
    """Return (relation, country, object, source): neighbours, demonym, region of the world."""
    import pycountry
    from countryinfo import CountryInfo
    from countryinfo.exceptions import CountryNotFoundError

    borders: set[tuple[str, str]] = set()
    for code, name in known.items():
        try:
            info = CountryInfo(code).info()
        except CountryNotFoundError:
            continue
        demonym, region = info.get("demonym"), info.get("subregion")
        if code not in _NO_DEMONYM and isinstance(demonym, str) and re.fullmatch(r"[^\W\d_][\w' -]+", demonym):
            yield "demonym", name, demonym, COUNTRYINFO
        if code not in _NO_REGION and isinstance(region, str) and region:
            yield "subregion", name, region, COUNTRYINFO
        for other in info.get("borders") or ():
            entry = pycountry.countries.get(alpha_3=other)
            if entry is not None and entry.alpha_2 in known:
                borders.add((code, entry.alpha_2))
    for code, name in known.items():
        for other, neighbour in known.items():
            if (code, other) in borders and (other, code) in borders:
                yield "borders", name, neighbour, COUNTRYINFO


def public_holidays(known: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Return (country, holiday), those that fall in both of the years, by their English names."""
    import holidays

    for code, name in known.items():
        found: list[set[str]] = []
        try:
            for year in YEARS:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    days = holidays.country_holidays(code, years=year, language="en_US")
                found.append({part.strip() for text in days.values() for part in text.split(";")})
        except (NotImplementedError, KeyError):
            continue
        for holiday in sorted(found[0] & found[1]):
            if holiday.isascii() and not _NOT_A_HOLIDAY.search(holiday):
                yield name, holiday


def language_codes(languages: Collection[str]) -> Iterator[tuple[str, str, str]]:
    """Return (relation, language, code): those of the seed first, then all that have a code of two letters."""
    import pycountry

    entries = []
    for language in languages:
        code = _LANGUAGE_CODES.get(language)
        entry = pycountry.languages.get(alpha_3=code) if code else pycountry.languages.get(name=language)
        if entry is not None:
            entries.append((language, entry))
    taken = {entry.alpha_3 for _, entry in entries}
    for entry in pycountry.languages:
        if getattr(entry, "alpha_2", None) and entry.alpha_3 not in taken and re.fullmatch(r"[\w' -]+", entry.name):
            entries.append((entry.name, entry))
    for name, entry in entries:
        if getattr(entry, "alpha_2", None):
            yield "language_code_2", name, entry.alpha_2
    for name, entry in entries:
        yield "language_code_3", name, entry.alpha_3


def script_codes() -> Iterator[tuple[str, str]]:
    """Return (writing system, its four letters)."""
    import pycountry

    for script in pycountry.scripts:
        name = re.sub(r"\s*\(.*", "", script.name).strip()
        if re.fullmatch(r"[^\W\d_][\w' -]+", name) and not re.search(
            r"variant|code|script|reserved|Symbols", name, re.I
        ):
            yield name, script.alpha_4


def currency_symbols(currencies: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Return (currency, symbol) for the currencies (name by code) that have a sign of their own."""
    from babel import Locale

    symbols = Locale("en").currency_symbols
    for code, name in currencies.items():
        symbol = symbols.get(code)
        if symbol and symbol != code:
            yield name, symbol


def computer_languages(taken: Collection[str]) -> Iterator[tuple[str, str, str]]:
    """Return (relation, computer language, file extension or media type), of the languages whose names are free."""
    from pygments.lexers import get_all_lexers

    for name, _, patterns, types in sorted(get_all_lexers(plugins=False)):
        if key(name) in taken or not re.fullmatch(r"[\w#+. -]+", name) or "+" in name[:-2]:
            continue
        endings = [pattern[1:] for pattern in patterns if re.fullmatch(r"\*\.[a-z0-9]{1,8}", pattern)]
        for ending in endings[:2]:
            yield "file_extension", name, ending
        for type_ in types[:1]:
            yield "media_type", name, type_


def http_statuses() -> Iterator[tuple[str, str]]:
    """Return (status code, what it says)."""
    for status in HTTPStatus:
        yield f"HTTP status {status.value}", status.phrase


def element_places(names: list[str]) -> Iterator[tuple[str, str, str]]:
    """Return (relation, element, object) for the elements, whose names are in the order of the atomic numbers."""
    starts = (1, 3, 11, 19, 37, 55, 87, 119)
    for number, name in enumerate(names, start=1):
        period = next(index for index in range(7) if starts[index] <= number < starts[index + 1]) + 1
        place, size = number - starts[period - 1], starts[period] - starts[period - 1]
        group: int | None
        if number == 2:
            group, block = 18, "s"
        elif place < 2:
            group, block = place + 1, "s"
        elif size - place <= 6:
            group, block = 18 - (size - place) + 1, "p"
        elif size == 32 and place < 16:
            group, block = None, "f"
        else:
            group, block = place + 1 - (14 if size == 32 else 0), "d"
        yield "element_period", name, f"period {period}"
        yield "element_block", name, f"the {block}-block"
        if group is not None:
            yield "element_group", name, f"group {group}"


def free_of_repeats(rows: Iterator[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the rows whose first cell is there once."""
    found = list(rows)
    counts = Counter(key(row[0]) for row in found)
    return [row for row in found if counts[key(row[0])] == 1]
