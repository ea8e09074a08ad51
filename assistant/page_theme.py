"""The look of the page: a theme whose every colour is a variable of page.css; nothing comes from outside."""

from __future__ import annotations

from pathlib import Path

import gradio as gr

_STATIC = Path(__file__).parent / "static"
FAVICON = _STATIC / "favicon.svg"

# Families that are already on the reader's machine: plain names make Gradio download nothing.
_SANS = ("ui-sans-serif", "system-ui", "-apple-system", "Segoe UI", "Roboto", "Noto Sans", "sans-serif")
_MONO = ("ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace")

# Gradio's names for the places that get a colour, and the variable of page.css that colours them.
# page.css gives each variable a light and a dark value, so both modes share one table.
_COLOURS = {
    "body_background_fill": "--am-paper",
    "body_text_color": "--am-ink",
    "body_text_color_subdued": "--am-quiet",
    "background_fill_primary": "--am-sheet",
    "background_fill_secondary": "--am-well",
    "border_color_primary": "--am-line",
    "border_color_accent": "--am-accent",
    "color_accent_soft": "--am-accent-soft",
    "link_text_color": "--am-accent",
    "link_text_color_active": "--am-accent",
    "link_text_color_hover": "--am-accent",
    "link_text_color_visited": "--am-accent",
    "block_background_fill": "--am-sheet",
    "block_border_color": "--am-line",
    "block_label_text_color": "--am-quiet",
    "block_title_text_color": "--am-quiet",
    "block_info_text_color": "--am-quiet",
    "panel_background_fill": "--am-sheet",
    "panel_border_color": "--am-line",
    "input_background_fill": "--am-sheet",
    "input_background_fill_focus": "--am-sheet",
    "input_border_color": "--am-edge",
    "input_border_color_focus": "--am-accent",
    "input_placeholder_color": "--am-quiet",
    "button_primary_background_fill": "--am-button",
    "button_primary_background_fill_hover": "--am-button-hover",
    "button_primary_text_color": "--am-on-button",
    "button_primary_text_color_hover": "--am-on-button",
    "button_primary_border_color": "--am-button",
    "button_secondary_background_fill": "--am-sheet",
    "button_secondary_background_fill_hover": "--am-well",
    "button_secondary_text_color": "--am-ink",
    "button_secondary_text_color_hover": "--am-ink",
    "button_secondary_border_color": "--am-edge",
    "button_cancel_background_fill": "--am-sheet",
    "button_cancel_background_fill_hover": "--am-well",
    "button_cancel_text_color": "--am-bad",
    "button_cancel_text_color_hover": "--am-bad",
    "button_cancel_border_color": "--am-bad",
}


def theme() -> gr.themes.Base:
    """The Gradio theme of the page; light and dark."""
    colours = {name: f"var({variable})" for name, variable in _COLOURS.items()}
    return gr.themes.Base(
        font=_SANS,
        font_mono=_MONO,
        text_size=gr.themes.sizes.text_md,
        radius_size=gr.themes.sizes.radius_md,
        spacing_size=gr.themes.sizes.spacing_md,
    ).set(
        **colours,
        **{f"{name}_dark": value for name, value in colours.items()},
        button_border_width="1px",
        block_border_width="0px",
        block_shadow="none",
        input_shadow="none",
        input_shadow_focus="none",
        button_primary_shadow="none",
        button_secondary_shadow="none",
    )


def head() -> str:
    """What the page adds to its <head>: the stylesheet, as written.

    Gradio's own way in (`css_paths`) rewrites selectors and breaks those with commas inside `:is()`.
    """
    return f"<style>\n{(_STATIC / 'page.css').read_text(encoding='utf-8')}</style>"


def logo() -> str:
    """The favicon as inline SVG."""
    return FAVICON.read_text(encoding="utf-8")


def script() -> str:
    """The JavaScript that runs once the page is there."""
    return (_STATIC / "page.js").read_text(encoding="utf-8")
