"""Words from people and models become HTML here, and nowhere else: what they wrote can never act as markup.

A person's words are shown as typed. A model's reply may use Markdown; raw HTML in it is shown as text and
images are not drawn, so that a reply cannot make the page fetch anything.
"""

from __future__ import annotations

import html

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict


def escape(text: str) -> str:
    """`text` as HTML that shows exactly these characters; safe in an element and in a quoted attribute."""
    return html.escape(text, quote=True)


def plain(text: str) -> str:
    """`text` as typed: escaped, line breaks kept."""
    return "<br>".join(escape(text).splitlines())


def markdown(text: str) -> str:
    """A model's reply as HTML. Raw HTML is escaped, links open elsewhere, images stay text."""
    return str(_reader().render(text))


def _reader() -> MarkdownIt:
    reader = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable("table").disable("image")
    reader.add_render_rule("link_open", _link_elsewhere)
    reader.add_render_rule("heading_open", _small_heading)
    reader.add_render_rule("heading_close", _small_heading)
    return reader


def _link_elsewhere(renderer: RendererHTML, tokens: list[Token], index: int, options: OptionsDict, env: EnvType) -> str:
    tokens[index].attrSet("rel", "noopener noreferrer nofollow")
    tokens[index].attrSet("target", "_blank")
    return renderer.renderToken(tokens, index, options, env)


def _small_heading(renderer: RendererHTML, tokens: list[Token], index: int, options: OptionsDict, env: EnvType) -> str:
    # A heading inside a reply is emphasis, not a part of the page's outline.
    tokens[index].tag = "strong"
    return (
        ("<p>" if tokens[index].nesting > 0 else "")
        + renderer.renderToken(tokens, index, options, env)
        + ("</p>" if tokens[index].nesting < 0 else "")
    )
