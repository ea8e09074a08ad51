"""Pure text helpers: how names are compared, and how templates are filled. Nothing here knows facts."""

from __future__ import annotations

import re
import unicodedata

_ARTICLES = re.compile(r"^(?:the|a|an)\s+", re.IGNORECASE)
_SPACES = re.compile(r"\s+")
_QUOTES = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"'})


def fold(text: str) -> str:
    """Return `text` without accents ("Bogotá" -> "Bogota"); letters without a plain form stay."""
    decomposed = unicodedata.normalize("NFKD", text)
    return "".join(char for char in decomposed if not unicodedata.combining(char))


def tidy(text: str) -> str:
    """Return `text` with plain quotes, single spaces, and no surrounding quotes or final punctuation."""
    text = _SPACES.sub(" ", text.translate(_QUOTES)).strip()
    text = text.rstrip("!?;:, ").strip()
    # A final dot is part of a name such as "Washington, D.C." or "Tesla, Inc.", and else ends the sentence.
    if text.endswith(".") and not re.search(r"(?:\b[A-Z]\.[A-Z]|\b(?:Inc|Jr|Sr|Co|Corp|Ltd))\.$", text):
        text = text.rstrip(".").strip()
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'":
        text = text[1:-1].strip()
    return text


def key(name: str) -> str:
    """Return what two spellings of one name share: no case, accents, leading article or punctuation."""
    text = fold(tidy(name)).casefold()
    text = _ARTICLES.sub("", text)
    return _SPACES.sub(" ", text.rstrip(".")).strip()


def capitalise(text: str) -> str:
    """Return `text` with a capital first letter, unless its first word has a capital inside ("iPhone")."""
    first = text.split(" ", 1)[0]
    if any(char.isupper() for char in first[1:]):
        return text
    return text[:1].upper() + text[1:]


def render(template: str, subject: str) -> str:
    """Return the template with its {} replaced by `subject`, with a capital at the start of the sentence."""
    return capitalise(template.replace("{}", subject, 1))


def without_article(name: str) -> str:
    """Return "Eiffel Tower" for "the Eiffel Tower"."""
    return _ARTICLES.sub("", name)


def contains(text: str, name: str) -> bool:
    """Return whether `name` stands in `text` as whole words, however it is spelled."""
    needle = key(name)
    if not needle:
        return False
    return re.search(rf"(?<!\w){re.escape(needle)}(?!\w)", fold(text).casefold()) is not None


def slug(text: str) -> str:
    """Return `text` as lower-case words joined by dashes, in whatever script they are."""
    return re.sub(r"[\W_]+", "-", fold(text).casefold()).strip("-")
