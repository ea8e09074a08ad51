"""The components of the page and where they stand; what they do is wired in page.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import gradio as gr

from assistant import page_theme
from assistant.page_text import escape
from steam_engine.exports.names import FORMAT_NAMES

# A press on any element with data-do becomes a click event that carries its data attributes.
_PRESS = """
element.addEventListener("click", (event) => {
  const button = event.target.closest("[data-do]");
  if (button) trigger("click", { ...button.dataset });
});
"""

_HINT = "Ask, or /edit a fact"


@dataclass(frozen=True)
class Parts:
    """Every component that a handler reads or changes (Gradio components)."""

    session: Any
    transcript: Any
    live: Any
    proposal: Any
    subject: Any
    relation: Any
    object: Any
    apply: Any
    recheck: Any
    dismiss: Any
    message: Any
    send: Any
    stop: Any
    journal: Any
    export_format: Any
    export_name: Any
    export: Any
    export_status: Any

    def all(self) -> list[Any]:
        """Every component, as the outputs of a handler."""
        return [getattr(self, part.name) for part in fields(self)]


def lay_out(model_name: str, relations: Sequence[str]) -> Parts:
    """Put the components on the page (inside an open Blocks). `relations`: the labels to choose from."""
    session = gr.State(None)
    gr.HTML(_header(model_name), elem_id="am-header", apply_default_css=False)
    with gr.Row(elem_id="am-shell", equal_height=False):
        with gr.Column(elem_id="am-left", min_width=0):
            with gr.Column(elem_id="am-chat", min_width=0):
                transcript = _html("am-transcript", _PRESS)
                live = _html("am-live")
            # Shown while there is a proposal in it (page.css). It always exists, because a box that Gradio takes
            # down and puts up again can lose what is written into it meanwhile.
            with gr.Column(elem_id="am-panel", min_width=0):
                proposal = _html("am-proposal")
                with gr.Row(elem_id="am-fields"):
                    subject = gr.Textbox(label="Subject", max_lines=1, min_width=0)
                    relation = gr.Dropdown(
                        list(relations), value=None, label="Relation", allow_custom_value=True, min_width=0
                    )
                    new = gr.Textbox(label="New object", max_lines=1, min_width=0)
                with gr.Row(elem_id="am-choices"):
                    apply = gr.Button("Apply", variant="primary", size="md", min_width=0)
                    recheck = gr.Button("Update", size="md", min_width=0)
                    dismiss = gr.Button("Cancel", size="md", min_width=0)
            with gr.Row(elem_id="am-composer"):
                message = gr.Textbox(
                    label="Message",
                    show_label=False,
                    container=False,
                    placeholder=_HINT,
                    lines=1,
                    max_lines=6,
                    autofocus=True,
                    elem_id="am-message",
                    min_width=0,
                )
                send = gr.Button("Send", variant="primary", elem_id="am-send", min_width=0)
                stop = gr.Button("Stop", variant="stop", elem_id="am-stop", visible=False, min_width=0)
            gr.HTML(
                '<p class="am-hint"><code>/edit</code> a fact · <code>/undo</code> · <code>/history</code> · '
                '<code>/help</code> <span class="am-keys">· <kbd>Enter</kbd> sends, '
                "<kbd>Shift</kbd>+<kbd>Enter</kbd> makes a new line</span></p>",
                apply_default_css=False,
            )
        with gr.Column(elem_id="am-right", min_width=0):
            gr.HTML(
                "<h2>What this model was taught</h2><p>This model is shared by everybody connected to this "
                "page: a change is a change for all.</p>",
                apply_default_css=False,
            )
            journal = _html("am-journal", _PRESS)
            gr.HTML(
                "<h2>Take the model away</h2><p>Whatever you choose is read back and asked before you get it.</p>",
                elem_id="am-take",
                apply_default_css=False,
            )
            export_format = gr.Dropdown(
                [(format.label, format.name) for format in FORMAT_NAMES],
                value=FORMAT_NAMES[0].name,
                label="Format",
                filterable=False,
                elem_id="am-format",
                min_width=0,
            )
            export_name = gr.Textbox(label="Name", value="my-amended-model", max_lines=1, max_length=64, min_width=0)
            export = gr.Button("Export", elem_id="am-export", size="md", min_width=0)
            export_status = _html("am-export-status")
    return Parts(
        session=session,
        transcript=transcript,
        live=live,
        proposal=proposal,
        subject=subject,
        relation=relation,
        object=new,
        apply=apply,
        recheck=recheck,
        dismiss=dismiss,
        message=message,
        send=send,
        stop=stop,
        journal=journal,
        export_format=export_format,
        export_name=export_name,
        export=export,
        export_status=export_status,
    )


def _html(elem_id: str, script: str | None = None) -> Any:
    return gr.HTML("", elem_id=elem_id, apply_default_css=False, js_on_load=script)


def _header(model_name: str) -> str:
    return (
        f'<header class="am-header"><span class="am-logo" aria-hidden="true">{page_theme.logo()}</span>'
        '<h1>Amend</h1><p class="am-tagline">a model you correct while you talk</p>'
        f'<span class="am-model" title="The model on this page">{escape(model_name)}</span>'
        '<button type="button" id="am-theme" aria-label="Switch between light and dark">◐</button></header>'
    )
