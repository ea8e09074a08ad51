"""Whatever is said, its HTML holds only the tags that the page itself puts there."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assistant.page_cards import size
from assistant.page_text import escape, markdown, plain

MARKDOWN_TAGS = {"p", "br", "strong", "em", "code", "pre", "ul", "ol", "li", "blockquote", "hr", "a"}
MARKDOWN_TAGS |= {"table", "thead", "tbody", "tr", "th", "td"}
SIGNS = [*"<>&\"'`*_#[]()!:/\\ \n|-=abij0${}", "<script>", "<img src=x onerror=y>", "](javascript:"]
ANGRY = st.lists(st.sampled_from(SIGNS), max_size=60).map("".join) | st.text(max_size=60)


class _Seen(HTMLParser):
    def __init__(self, markup: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


@given(ANGRY)
def test_markdown_holds_only_harmless_tags(text: str) -> None:
    seen = _Seen(markdown(text))
    assert seen.tags <= MARKDOWN_TAGS
    for name, value in seen.attributes:
        assert not name.startswith("on")
        if name == "href":
            assert not re.match(r"\s*(javascript|vbscript|data|file):", value or "", re.IGNORECASE)


@given(ANGRY)
def test_plain_text_is_shown_as_typed(text: str) -> None:
    seen = _Seen(plain(text))
    assert seen.tags <= {"br"}
    assert seen.text == "".join(text.splitlines())


@given(ANGRY)
def test_escaped_text_stays_inside_an_attribute(text: str) -> None:
    seen = _Seen(f'<i title="{escape(text)}"></i>')
    assert [name for name, _ in seen.attributes] == ["title"]
    assert seen.tags == {"i"}


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("**bold**", "<p><strong>bold</strong></p>"),
        ("# Title", "<p><strong>Title</strong></p>"),
        ("a\nb", "<p>a<br />b</p>"),
        ("<b>x</b>", "<p>&lt;b&gt;x&lt;/b&gt;</p>"),
    ],
)
def test_markdown_is_drawn(text: str, html: str) -> None:
    assert markdown(text).replace("\n", "") == html


def test_images_are_not_fetched() -> None:
    assert "<img" not in markdown("![x](http://example.org/x.png)")


def test_links_leave_the_page_alone() -> None:
    assert 'rel="noopener noreferrer nofollow"' in markdown("[x](https://example.org)")


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (270_900_000, "270.9 MB"),
        (5_200_000_000, "5.2 GB"),
    ],
)
def test_sizes_are_for_people(count: int, text: str) -> None:
    assert size(count) == text
