"""The page in a real browser, with a fake assistant: every state, every control, and nothing that leaks."""

from __future__ import annotations

import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Locator, Page, expect

from steam_engine.exports.names import FORMAT_NAMES
from tests.browser.conftest import open_page
from tests.browser.fake_assistant import CAPITAL, FakeAssistant

pytestmark = pytest.mark.browser

INJECTION = '<img src="http://127.0.0.1:9/x.png" onerror="window.broken=1"><script>window.broken=1</script>'


def send(page: Page, text: str) -> None:
    """Type a message and press Enter, once the page is ready for one."""
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    box = page.get_by_label("Message")
    box.fill(text)
    box.press("Enter")


def ready(page: Page) -> None:
    """Wait until what was asked for is over."""
    expect(page.get_by_role("button", name="Send")).to_be_visible()


def last_reply(page: Page) -> Locator:
    return page.locator("#am-transcript .am-assistant").last


def button(page: Page, name: str) -> Locator:
    return page.get_by_role("button", name=name, exact=True)


def wait_until(holds: Callable[[], bool], seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.05)


def teach(page: Page, sentence: str = "The capital of France is Rome") -> None:
    send(page, f"/edit {sentence}")
    button(page, "Apply").click()
    expect(page.locator(".am-result").last).to_be_visible()
    ready(page)


# ------------------------------------------------------------------------------------------------- talking


def test_a_reply_is_streamed_and_kept(page: Page, fake: FakeAssistant, shots: Path) -> None:
    fake.pace = 0.1
    send(page, "What is the capital of France?")
    expect(page.locator(".am-writing")).to_be_visible()
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    page.screenshot(path=shots / "streaming.png")
    expect(last_reply(page)).to_contain_text("The capital of France is Paris.")
    ready(page)
    expect(page.locator(".am-user")).to_contain_text("What is the capital of France?")
    expect(page.locator(".am-writing")).to_have_count(0)
    expect(page.get_by_label("Message")).to_have_value("")


def test_stop_ends_a_reply_and_keeps_what_was_said(page: Page, fake: FakeAssistant) -> None:
    send(page, "Tell me a long story")
    expect(page.locator(".am-writing")).to_contain_text("chapter-20")
    page.get_by_role("button", name="Stop").click()
    ready(page)
    expect(last_reply(page)).to_contain_text("chapter-20")
    expect(last_reply(page)).not_to_contain_text("chapter-1999")
    expect(last_reply(page).locator(".am-pill")).to_have_text("stopped")
    send(page, "What is the capital of Japan?")
    expect(last_reply(page)).to_contain_text("Tokyo")


def test_shift_enter_makes_a_new_line(page: Page) -> None:
    box = page.get_by_label("Message")
    box.fill("say one")
    box.press("Shift+Enter")
    box.press_sequentially("two")
    expect(box).to_have_value("say one\ntwo")
    expect(page.locator(".am-user")).to_have_count(0)
    box.press("Enter")
    expect(page.locator(".am-user .am-words")).to_have_text("say onetwo")
    assert page.locator(".am-user .am-words br").count() == 1


def test_an_example_can_be_pressed(page: Page) -> None:
    page.get_by_role("button", name="What is the capital of France?").click()
    expect(last_reply(page)).to_contain_text("Paris")


def test_nothing_is_sent_when_nothing_was_typed(page: Page) -> None:
    box = page.get_by_label("Message")
    box.fill("   ")
    box.press("Enter")
    page.get_by_role("button", name="Send").click()
    send(page, "What is the capital of Japan?")
    expect(last_reply(page)).to_contain_text("Tokyo")
    expect(page.locator(".am-user")).to_have_count(1)


def test_a_table_of_a_command(page: Page) -> None:
    send(page, "/help")
    expect(page.get_by_role("columnheader", name="Command")).to_be_visible()
    expect(page.get_by_role("cell", name="/undo [NUMBER]")).to_be_visible()


def test_markdown_of_a_reply_is_drawn(page: Page) -> None:
    send(page, "say **bold** and `code`")
    expect(last_reply(page).locator("strong")).to_have_text("bold")
    expect(last_reply(page).locator("code")).to_have_text("code")
    expect(page.locator(".am-user strong")).to_have_count(0)


def test_each_tab_has_its_own_conversation(
    page: Page, context: BrowserContext, served: tuple[FakeAssistant, str]
) -> None:
    send(page, "What is the capital of France?")
    expect(last_reply(page)).to_contain_text("Paris")
    other = open_page(context, served[1])
    expect(other.locator(".am-message")).to_have_count(0)


def test_closing_the_tab_ends_its_reply(page: Page, fake: FakeAssistant) -> None:
    send(page, "Tell me a long story")
    expect(page.locator(".am-writing")).to_contain_text("chapter-5")
    assert fake.replying == 1
    page.close()
    wait_until(lambda: fake.replying == 0)


# ------------------------------------------------------------------------------------------------ teaching


def test_a_proposal_says_what_is_known(page: Page, fake: FakeAssistant) -> None:
    send(page, "/edit The capital of France is Rome")
    card = page.locator("#am-panel")
    expect(card).to_contain_text("The capital of France is Rome.")
    expect(card).to_contain_text("The capital of France is Paris.")
    expect(card).to_contain_text("The Colosseum is in Rome.")
    expect(card).to_contain_text("Germany, Spain")
    expect(card).to_contain_text("This contradicts a well-known fact.")
    expect(page.get_by_label("Subject")).to_have_value("France")
    expect(page.get_by_label("Relation")).to_have_value("capital")
    expect(page.get_by_label("New object")).to_have_value("Rome")
    assert fake.entries == []


def test_cancel_drops_the_proposal(page: Page, fake: FakeAssistant) -> None:
    send(page, "/edit The capital of France is Rome")
    button(page, "Cancel").click()
    expect(page.locator("#am-panel")).to_be_hidden()
    assert fake.entries == []


def test_update_looks_again_with_the_changed_fields(page: Page, fake: FakeAssistant) -> None:
    send(page, "/edit The capital of France is Rome")
    page.get_by_label("New object").fill("Madrid")
    button(page, "Update").click()
    card = page.locator("#am-panel")
    expect(card).to_contain_text("The capital of France is Madrid.")
    expect(card).not_to_contain_text("well-known fact")
    assert fake.proposed[-1] == ("France", CAPITAL.label, "Madrid")


def test_apply_uses_the_changed_fields(page: Page, fake: FakeAssistant) -> None:
    send(page, "/edit The capital of France is Rome")
    page.get_by_label("Subject").fill("Japan")
    page.get_by_label("New object").fill("Kyoto")
    button(page, "Apply").click()
    expect(page.locator(".am-result")).to_contain_text("The capital of Japan is Kyoto.")
    assert fake.proposed[-1] == ("Japan", CAPITAL.label, "Kyoto")
    assert [(entry.edit.subject, entry.edit.target) for entry in fake.entries] == [("Japan", "Kyoto")]


def test_a_typed_apply_means_the_changed_fields_too(page: Page, fake: FakeAssistant) -> None:
    send(page, "/edit The capital of France is Rome")
    page.get_by_label("New object").fill("Madrid")
    send(page, "/apply")
    expect(page.locator(".am-result")).to_contain_text("The capital of France is Madrid.")
    assert [(entry.edit.subject, entry.edit.target) for entry in fake.entries] == [("France", "Madrid")]


def test_the_relation_can_be_picked_or_typed(page: Page, fake: FakeAssistant) -> None:
    send(page, "/edit The capital of France is Rome")
    relation = page.get_by_label("Relation")
    relation.click()
    page.get_by_role("option", name="official language").click()
    button(page, "Update").click()
    expect(page.locator("#am-panel")).to_contain_text("The official language of France is Rome.")
    relation.fill("mascot")
    relation.press("Enter")
    button(page, "Apply").click()
    expect(page.locator(".am-result")).to_contain_text("The mascot of France is Rome.")
    assert [relation for _, relation, _ in fake.proposed][-1] == "mascot"


def test_fields_that_make_no_sense_are_a_message_and_nothing_is_lost(page: Page, fake: FakeAssistant) -> None:
    send(page, "/edit The capital of France is Rome")
    page.get_by_label("Subject").fill("Japan")
    page.get_by_label("New object").fill("")
    button(page, "Apply").click()
    expect(page.locator(".am-failure")).to_contain_text("Say what the new object is.")
    expect(button(page, "Apply")).to_be_visible()
    expect(page.get_by_label("Subject")).to_have_value("Japan")
    expect(page.get_by_label("New object")).to_have_value("")
    assert fake.entries == []


def test_a_change_shows_its_steps_and_its_result(page: Page, fake: FakeAssistant, shots: Path) -> None:
    fake.pace = 0.05
    send(page, "What is the capital of France?")
    expect(last_reply(page)).to_contain_text("Paris")
    send(page, "/edit The capital of France is Rome")
    expect(button(page, "Apply")).to_be_visible()
    page.screenshot(path=shots / "proposal.png")
    button(page, "Apply").click()
    bar = page.get_by_role("progressbar", name="Finding the new value")
    expect(bar).to_be_visible()
    expect(page.locator(".am-progress")).to_contain_text("of 20")
    page.screenshot(path=shots / "progress.png")
    result = page.get_by_role("region", name="Result of change 1")
    expect(result).to_contain_text("3.4 s to change")
    expect(result).to_contain_text("moved by 0.42%")
    expect(result.get_by_role("row", name="Questions that follow from it 1 of 2")).to_be_visible()
    row = result.get_by_role("row", name="In which country is the capital of France?")
    expect(row).to_contain_text("The capital of France is in France.")
    expect(row).to_contain_text("It is in Italy.")
    expect(row).to_contain_text("✓ follows")
    expect(result).to_contain_text("✗ not yet")
    expect(result).to_contain_text("✓ kept")
    ready(page)
    page.screenshot(path=shots / "result.png")
    expect(page.locator("#am-panel")).to_be_hidden()


def test_turns_that_are_out_of_date_are_marked(page: Page) -> None:
    send(page, "What is the capital of Japan?")
    expect(last_reply(page)).to_contain_text("Tokyo")
    send(page, "What is the capital of France?")
    expect(last_reply(page)).to_contain_text("Paris")
    teach(page)
    stale = page.locator(".am-message.am-amended")
    expect(stale).to_have_count(2)
    expect(stale.first).to_contain_text("What is the capital of France?")
    expect(stale.last).to_contain_text("The capital of France is Paris.")
    expect(stale.last.get_by_text("amended", exact=True)).to_be_visible()
    expect(page.locator("#am-chat")).to_contain_text("2 earlier messages are marked as amended")
    send(page, "What is the capital of France?")
    expect(last_reply(page)).to_contain_text("Rome")
    expect(stale).to_have_count(2)


def test_stop_ends_a_change_and_keeps_the_card(page: Page, fake: FakeAssistant) -> None:
    fake.pace = 0.2
    send(page, "/edit The capital of France is Rome")
    button(page, "Apply").click()
    expect(page.locator(".am-progress")).to_be_visible()
    page.get_by_role("button", name="Stop").click()
    expect(page.locator(".am-notice")).to_contain_text("the model is as it was")
    expect(button(page, "Apply")).to_be_visible()
    assert (fake.cancelled, fake.entries) == (1, [])


def test_undo_on_the_card_and_redo_in_the_journal(page: Page, fake: FakeAssistant) -> None:
    teach(page)
    journal = page.locator("#am-journal li")
    expect(journal).to_contain_text("The capital of France is Rome.")
    expect(journal).to_contain_text("in use")
    page.locator(".am-result").get_by_role("button", name="Undo change 1").click()
    expect(journal).to_contain_text("undone")
    expect(page.locator(".am-result .am-pill")).to_have_text("undone")
    assert fake.capitals["France"] == "Paris"
    ready(page)
    journal.get_by_role("button", name="Redo change 1").click()
    expect(journal).to_contain_text("in use")
    expect(page.locator("#am-chat")).to_contain_text("Change 1 is back")
    assert fake.capitals["France"] == "Rome"


def test_another_tab_sees_the_change_by_itself(
    page: Page, context: BrowserContext, served: tuple[FakeAssistant, str]
) -> None:
    other = open_page(context, served[1])
    expect(other.locator("#am-journal")).to_contain_text("Nothing yet")
    teach(page)
    expect(other.locator("#am-journal")).to_contain_text("The capital of France is Rome.")


# ----------------------------------------------------------------------------------------------- exporting


def test_an_export_is_verified_and_can_be_downloaded(
    page: Page, fake: FakeAssistant, tmp_path: Path, shots: Path
) -> None:
    fake.pace = 0.3
    page.get_by_label("Name").fill("my-rome")
    page.get_by_role("button", name="Export", exact=True).click()
    expect(page.get_by_role("progressbar", name="Writing the weights")).to_be_visible()
    done = page.locator("#am-export-status")
    expect(done).to_contain_text("Checkpoint (safetensors): my-rome")
    expect(done).to_contain_text("✓ The capital of France is Paris.")
    page.screenshot(path=shots / "export.png")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download my-rome.zip").click()
    assert download.value.suggested_filename == "my-rome.zip"
    download.value.save_as(tmp_path / "got.zip")
    with zipfile.ZipFile(tmp_path / "got.zip") as archive:
        assert archive.read("my-rome/model.safetensors") == b"weights" * 1000


def test_the_format_of_an_export_is_chosen(page: Page, shots: Path) -> None:
    page.get_by_label("Format").click()
    for format in FORMAT_NAMES:
        expect(page.get_by_role("option", name=format.label)).to_be_visible()
    page.screenshot(path=shots / "formats.png")
    page.get_by_role("option", name="Adapter (LoRA)").click()
    page.get_by_label("Name").fill("my-adapter")
    page.get_by_role("button", name="Export", exact=True).click()
    expect(page.locator("#am-export-status")).to_contain_text("Adapter (LoRA): my-adapter")
    expect(page.locator("#am-export-status")).to_contain_text("Read back with a reader")


def test_an_export_with_a_bad_name_is_a_message(page: Page) -> None:
    page.get_by_label("Name").fill("../../etc")
    page.get_by_role("button", name="Export", exact=True).click()
    expect(page.locator("#am-export-status .am-failure")).to_contain_text("letters, digits")
    expect(page.get_by_role("button", name="Export", exact=True)).to_be_enabled()


def test_only_exports_can_be_fetched(page: Page, served: tuple[FakeAssistant, str], tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    for path in (secret, Path(__file__), Path("/etc/passwd")):
        answer = page.request.get(f"{served[1]}gradio_api/file={path}")
        assert answer.status in (403, 404), path


# ------------------------------------------------------------------------------------- mistakes and attacks


def test_an_unknown_command_is_one_clear_message(page: Page) -> None:
    send(page, "/nonsense")
    expect(page.get_by_role("alert")).to_contain_text("There is no command /nonsense")
    send(page, "What is the capital of Japan?")
    expect(last_reply(page)).to_contain_text("Tokyo")


def test_a_crash_is_a_message_without_its_insides(page: Page) -> None:
    send(page, "crash")
    expect(page.get_by_role("alert")).to_contain_text("written in the terminal")
    ready(page)
    for inside in ("Traceback", "RuntimeError", "a secret of the program"):
        expect(page.locator("body")).not_to_contain_text(inside)
    send(page, "What is the capital of Japan?")
    expect(last_reply(page)).to_contain_text("Tokyo")


def test_what_is_said_never_becomes_markup(page: Page) -> None:
    send(page, f"say {INJECTION} ![x](http://127.0.0.1:9/y.png)")
    ready(page)
    expect(last_reply(page)).to_contain_text("<script>window.broken=1</script>")
    send(page, f"/{INJECTION}")
    expect(page.locator(".am-failure")).to_contain_text("<img")
    send(page, "/edit The capital of <b>France</b> is <i>Rome</i>")
    expect(page.locator("#am-panel")).to_contain_text("The capital of <b>France</b> is <i>Rome</i>.")
    button(page, "Apply").click()
    expect(page.locator(".am-result")).to_contain_text("The capital of <b>France</b> is <i>Rome</i>.")
    expect(page.locator("#am-journal")).to_contain_text("<b>France</b>")
    assert page.locator("main :is(img, script, iframe, b)").count() == 0
    assert page.locator(".am-result i, #am-journal i, #am-panel i").count() == 0
    assert page.evaluate("window.broken") is None


def test_template_signs_are_only_text(page: Page) -> None:
    send(page, "say ${1+1} {{value}} `${2+2}` @children")
    expect(last_reply(page)).to_contain_text("${1+1} {{value}} ${2+2} @children")


# ------------------------------------------------------------------------------------ for everybody to use

NAMELESS = """() => [...document.querySelectorAll("button, a, input, textarea, select, progress")]
  .filter((element) => element.checkVisibility())
  .filter((element) => {
    const labels = [...(element.labels ?? [])].map((label) => label.textContent).join("");
    const name = element.getAttribute("aria-label") || labels || element.textContent;
    return !name.trim();
  })
  .map((element) => element.outerHTML)"""

# Text whose contrast with what is behind it is below WCAG AA (4.5, or 3 for large text).
FAINT = """() => {
  const channel = (v) => ((v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const [r, g, b, a = 1] = numbers(getComputedStyle(at).backgroundColor);
      if (a === 1) return [r, g, b];
    }
    return [255, 255, 255];
  };
  const faint = [];
  const walker = document.createTreeWalker(document.querySelector(".gradio-container"), NodeFilter.SHOW_TEXT);
  for (let node; (node = walker.nextNode()); ) {
    const element = node.parentElement;
    if (!node.data.trim() || !element.checkVisibility()) continue;
    if (element.closest("script, style, .sr-only")) continue;
    const style = getComputedStyle(element);
    const [lighter, darker] = [light(numbers(style.color)), light(behind(element))].sort((a, b) => b - a);
    const ratio = (lighter + 0.05) / (darker + 0.05);
    const large = parseFloat(style.fontSize) >= 24;
    if (ratio < (large ? 3 : 4.5)) faint.push([node.data.trim(), ratio.toFixed(2), style.color]);
  }
  return faint;
}"""

# What sticks out of the window, or is cut by a box that does not scroll.
CUT = """() => [...document.querySelectorAll("main *")]
  .filter((element) => element.checkVisibility() && !element.closest(".am-scroll, .sr-only, thead, svg"))
  .filter((element) => {
    const box = element.getBoundingClientRect();
    return box.width > 0 && box.height > 0 && (box.right > innerWidth + 1 || box.left < -1);
  })
  .map((element) => element.outerHTML.slice(0, 200))"""

OVERLAPPING = """() => {
  const boxes = ["#am-header", "#am-chat", "#am-panel", "#am-composer", "#am-right"]
    .map((name) => [name, document.querySelector(name)])
    .filter(([, element]) => element?.checkVisibility())
    .map(([name, element]) => [name, element.getBoundingClientRect()]);
  return boxes.flatMap(([name, a], index) => boxes.slice(index + 1)
    .filter(([, b]) => a.left < b.right - 1 && b.left < a.right - 1)
    .filter(([, b]) => a.top < b.bottom - 1 && b.top < a.bottom - 1)
    .map(([other]) => `${name} and ${other}`));
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_every_state_is_readable_and_fits(
    page: Page, fake: FakeAssistant, shots: Path, width: int, scheme: str
) -> None:
    page.set_viewport_size({"width": width, "height": 844})
    page.emulate_media(color_scheme=scheme)
    page.reload()
    page.locator(".am-welcome").wait_for()

    def check(state: str) -> None:
        page.wait_for_timeout(250)  # for transitions of colours to end
        page.screenshot(path=shots / f"{state}.png", full_page=True)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, state
        assert page.evaluate("document.querySelector('#am-chat').scrollWidth") <= width, state
        for problem in (NAMELESS, FAINT, CUT, OVERLAPPING):
            assert page.evaluate(problem) == [], state

    assert page.evaluate("document.body.classList.contains('dark')") is (scheme == "dark")
    check("empty")
    fake.pace = 0.1
    send(page, "Tell me a long story")
    expect(page.locator(".am-writing")).to_contain_text("chapter-5")
    check("streaming")
    page.get_by_role("button", name="Stop").click()
    send(page, "say " + "unbroken" * 40)
    expect(last_reply(page)).to_contain_text("unbroken")
    send(page, "What is the capital of France?")
    expect(last_reply(page)).to_contain_text("Paris")
    send(page, "/edit The capital of France is Rome")
    expect(button(page, "Apply")).to_be_visible()
    check("proposal")
    fake.pace = 0.2
    button(page, "Apply").click()
    expect(page.locator(".am-progress")).to_be_visible()
    check("progress")
    expect(page.locator(".am-result")).to_be_visible()
    ready(page)
    check("result")
    send(page, "/help")
    expect(page.locator(".am-notice")).to_be_visible()
    send(page, "/nonsense")
    expect(page.locator(".am-failure")).to_be_visible()
    page.get_by_label("Name").fill(f"a-rather-long-name-for-an-export-{width}-{scheme}")
    page.get_by_role("button", name="Export", exact=True).click()
    expect(page.locator(".am-download")).to_be_visible()
    expect(page.get_by_role("button", name="Export", exact=True)).to_be_enabled()
    check("export")


def test_a_keyboard_is_enough(page: Page, fake: FakeAssistant) -> None:
    box = page.get_by_label("Message")
    box.focus()
    page.keyboard.type("/edit The capital of France is Rome")
    page.keyboard.press("Enter")
    expect(page.get_by_label("New object")).to_be_visible()
    page.get_by_label("New object").focus()
    page.keyboard.press("Tab")
    expect(button(page, "Apply")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".am-result")).to_be_visible()
    ready(page)
    page.get_by_role("button", name="Undo change 1").last.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#am-journal")).to_contain_text("undone")
    assert fake.entries[0].state == "undone"


def test_light_and_dark_can_be_chosen_and_are_remembered(page: Page) -> None:
    toggle = page.get_by_role("button", name="Switch between light and dark")
    dark = "document.body.classList.contains('dark')"
    assert page.evaluate(dark) is False
    toggle.click()
    assert page.evaluate(dark) is True
    page.reload()
    page.locator(".am-welcome").wait_for()
    page.wait_for_function(dark)


def test_the_page_names_itself_and_who_shares_it(page: Page) -> None:
    expect(page).to_have_title("Amend")
    expect(page.get_by_role("heading", name="Amend", exact=True)).to_be_visible()
    expect(page.locator("#am-right")).to_contain_text("shared by everybody connected to this page")
    expect(page.locator(".am-model")).to_have_text("Fake-1M")
