"""The chat as HTML: what was said, the cards in between, and what is happening right now."""

from __future__ import annotations

from assistant import page_cards as cards
from assistant.events import EditDone, Exported, Failure, Notice, Redone, TurnsAmended, Undone
from assistant.page_session import Line, PageSession, Said
from assistant.page_text import escape, markdown, plain

EXAMPLES = (
    "What is the capital of France?",
    "/edit The capital of France is Rome",
    "Where is the Eiffel Tower?",
    "/help",
)


def transcript(session: PageSession) -> str:
    """Everything that is over."""
    if not session.lines:
        return _welcome()
    return "".join(_line(session, line) for line in session.lines)


def live(session: PageSession) -> str:
    """What is happening now: the reply as it is written, a change as it is made, or nothing."""
    if session.working is not None:
        return cards.progress(session.working)
    if session.writing:
        return _message("assistant", f'<div class="am-words">{markdown(session.writing)}</div>', "am-writing")
    if session.busy:
        return _message(
            "assistant", '<span class="am-dots" role="img" aria-label="Thinking"><i></i><i></i><i></i></span>'
        )
    return ""


def _line(session: PageSession, line: Line) -> str:
    match line.content:
        case Said() as said:
            amended = line.turn is not None and session.conversation.turns[line.turn].amended
            return _said(said, amended)
        case Notice() as notice:
            return cards.notice(notice)
        case EditDone(card=card):
            return cards.result(card, session.states.get(card.entry.number, card.entry.state))
        case Undone(entry=entry):
            return _remark(f"Change {entry.number} is undone: {cards.statement(entry)}")
        case Redone(entry=entry):
            return _remark(f"Change {entry.number} is back: {cards.statement(entry)}")
        case Exported() as exported:
            return cards.export(exported)
        case Failure(message=message):
            return cards.failure(message)
        case TurnsAmended(count=count):
            what = "1 earlier message is" if count == 1 else f"{count} earlier messages are"
            return _remark(f"{what} marked as amended: the model no longer sees what is out of date.")


def _remark(text: str) -> str:
    return f'<p class="am-remark">{escape(text)}</p>'


def _said(said: Said, amended: bool) -> str:
    text = plain(said.text) if said.role == "user" else markdown(said.text) or "<em>The model said nothing.</em>"
    words = f'<div class="am-words">{text}</div>'
    marks = ""
    if said.stopped:
        marks += '<span class="am-pill">stopped</span>'
    if amended:
        marks += '<span class="am-pill am-pill-amended" title="The model no longer sees this.">amended</span>'
    return _message(said.role, words + marks, "am-amended" if amended else "")


def _message(role: str, content: str, extra: str = "") -> str:
    who = "You" if role == "user" else "Model"
    return (
        f'<article class="am-message am-{role} {extra}" aria-label="{who}">'
        f'<span class="am-who" aria-hidden="true">{who}</span>{content}</article>'
    )


def _welcome() -> str:
    chips = "".join(
        f'<button type="button" class="am-chip" data-do="say" data-text="{escape(example)}">{escape(example)}</button>'
        for example in EXAMPLES
    )
    return (
        '<div class="am-welcome"><h2>Ask it something. Correct it when it is wrong.</h2>'
        "<p>A correction is written into the model itself, in seconds. Later answers follow from it, "
        "with nothing added to the prompt.</p>"
        f'<div class="am-chips">{chips}</div></div>'
    )
