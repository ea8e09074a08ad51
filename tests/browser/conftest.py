"""A real Chromium, and a page on a loopback port with the fake assistant behind it."""

from __future__ import annotations

import os
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from assistant.page import serve
from tests.browser.fake_assistant import FakeAssistant

expect.set_options(timeout=20_000)  # a busy machine is not a broken page
_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]


def free_port() -> int:
    """A loopback port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_port(port: int, seconds: float = 60) -> None:
    """Return once something listens on the port."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise TimeoutError(f"nothing listens on port {port} after {seconds} s")


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    names = (os.environ.get("CHROMIUM", ""), "chromium", "chromium-browser", "google-chrome")
    executable = next((found for name in names if name and (found := shutil.which(name))), None)
    if executable is None:
        message = "No Chromium found; install chromium or point CHROMIUM at one to run the browser tests."
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=_FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> tuple[FakeAssistant, str]:
    """The page of a fake assistant, and its address. One server for all tests: starting it takes a second."""
    exports = tmp_path_factory.mktemp("exports")
    fake = FakeAssistant(exports)
    port = free_port()
    threading.Thread(target=serve, args=(fake, exports, "127.0.0.1", port, False), daemon=True).start()
    wait_for_port(port)
    return fake, f"http://127.0.0.1:{port}/"


@pytest.fixture
def fake(served: tuple[FakeAssistant, str]) -> FakeAssistant:
    served[0].forget()
    return served[0]


@pytest.fixture
def shots(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a test leaves its screenshots."""
    folder = tmp_path_factory.getbasetemp() / "screenshots" / request.node.name.replace("/", "-")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def context(chromium: Browser) -> Iterator[BrowserContext]:
    """A browser profile of its own; fails the test when anything but the page's server is asked for."""
    context = chromium.new_context(viewport={"width": 1280, "height": 800}, accept_downloads=True)
    context.set_default_timeout(20_000)
    outside: list[str] = []
    context.on(
        "request",
        lambda asked: (
            None if asked.url.startswith(("http://127.0.0.1:", "data:", "blob:")) else outside.append(asked.url)
        ),
    )
    yield context
    context.close()
    assert outside == []


def open_page(context: BrowserContext, address: str) -> Page:
    """A new tab with the page ready to be used. Script errors fail the test that closes over it."""
    tab = context.new_page()
    tab.goto(address)
    tab.locator(".am-welcome").wait_for()
    return tab


@pytest.fixture
def page(context: BrowserContext, fake: FakeAssistant, served: tuple[FakeAssistant, str]) -> Page:
    return open_page(context, served[1])
