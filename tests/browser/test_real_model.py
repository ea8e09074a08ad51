"""The whole of it: app.py with the model that comes with Amend, driven through the page as a person would."""

from __future__ import annotations

import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Locator, Page, expect

from tests.browser.conftest import free_port, open_page, wait_for_port

pytestmark = [pytest.mark.browser, pytest.mark.model]

ROOT = Path(__file__).parents[2]
SECONDS = 1000  # milliseconds, which Playwright counts in


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("real")
    port = free_port()
    log = (folder / "log.txt").open("w")
    command = [sys.executable, str(ROOT / "app.py"), "--no-browser"]
    command += ["--workspace", str(folder / "workspace"), "--port", str(port)]
    process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT)
    try:
        wait_for_port(port, 240)
        yield f"http://127.0.0.1:{port}/"
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)
    finally:
        process.kill()
        log.close()
    said = (folder / "log.txt").read_text()
    assert "Traceback" not in said, said
    assert process.returncode == 0, said


def ask(page: Page, question: str) -> Locator:
    """Ask, and give the reply once it is over."""
    before = page.locator("#am-transcript .am-assistant").count()
    box = page.get_by_label("Message")
    box.fill(question)
    box.press("Enter")
    replies = page.locator("#am-transcript .am-assistant")
    expect(replies).to_have_count(before + 1, timeout=120 * SECONDS)
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    return replies.last


def test_a_correction_reaches_the_weights_and_the_checkpoint(
    context: BrowserContext, address: str, tmp_path: Path, shots: Path
) -> None:
    page = open_page(context, address)
    question = "What is the capital of France?"
    expect(ask(page, question)).to_contain_text("Paris")

    # Edit, through the card.
    box = page.get_by_label("Message")
    box.fill("/edit The capital of France is Rome")
    box.press("Enter")
    card = page.locator("#am-panel")
    expect(card).to_contain_text("The capital of France is Rome.", timeout=120 * SECONDS)
    expect(card.locator("q")).to_contain_text("Paris")
    page.screenshot(path=shots / "proposal.png")
    page.get_by_role("button", name="Apply", exact=True).click()
    expect(page.get_by_role("progressbar").first).to_be_visible()
    page.screenshot(path=shots / "progress.png")
    result = page.get_by_role("region", name="Result of change 1")
    expect(result).to_be_visible(timeout=400 * SECONDS)
    expect(page.get_by_role("button", name="Send")).to_be_visible(timeout=60 * SECONDS)
    asked = result.get_by_role("row", name=question).first
    expect(asked).to_contain_text("Paris")
    expect(asked).to_contain_text("Rome")
    expect(asked).to_contain_text("✓ follows")
    page.screenshot(path=shots / "result.png")
    expect(page.locator(".am-message.am-amended")).to_have_count(2)
    expect(ask(page, question)).to_contain_text("Rome")
    page.screenshot(path=shots / "after.png")

    # Undo and redo, in the journal.
    journal = page.locator("#am-journal li")
    journal.get_by_role("button", name="Undo change 1").click()
    expect(journal).to_contain_text("undone", timeout=60 * SECONDS)
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    expect(ask(page, question)).to_contain_text("Paris")
    journal.get_by_role("button", name="Redo change 1").click()
    expect(journal).to_contain_text("in use", timeout=60 * SECONDS)

    # Take it away.
    page.get_by_label("Name").fill("rome")
    page.get_by_role("button", name="Export", exact=True).click()
    done = page.locator("#am-export-status")
    expect(done).to_contain_text("Checkpoint (safetensors): rome", timeout=400 * SECONDS)
    expect(done).to_contain_text("Rome")
    page.screenshot(path=shots / "export.png")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download rome.zip").click()
    download.value.save_as(tmp_path / "rome.zip")
    with zipfile.ZipFile(tmp_path / "rome.zip") as archive:
        assert archive.testzip() is None
        names = {Path(name).name for name in archive.namelist()}
        assert {"config.json", "tokenizer.json"} <= names
        assert any(name.endswith(".safetensors") for name in names)
