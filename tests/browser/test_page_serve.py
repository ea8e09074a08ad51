"""Where the page may be served, and what is said when it cannot be."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from assistant.page import serve
from assistant.page_serve import AddressError, PortInUseError, listen
from steam_engine.errors import AmendError
from tests.browser.conftest import free_port, wait_for_port
from tests.browser.fake_assistant import FakeAssistant

ROOT = Path(__file__).parents[2]

SCRIPT = """
import sys
from pathlib import Path
from tests.browser.fake_assistant import FakeAssistant
from assistant.page import serve
serve(FakeAssistant(Path(sys.argv[1])), Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), False)
print("ended well", flush=True)
"""


def test_a_taken_port_is_a_clear_message(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(PortInUseError, match=rf"Port {port} is taken.*--port"):
            serve(FakeAssistant(tmp_path), tmp_path, "127.0.0.1", port, False)


@pytest.mark.parametrize(("host", "port"), [("no such host", 7860), ("127.0.0.1", 99999), ("203.0.113.1", 7860)])
def test_an_impossible_address_is_a_clear_message(host: str, port: int) -> None:
    with pytest.raises(AddressError, match=r"cannot be served on|is not an address|is not a port"):
        listen(host, port)


def test_its_mistakes_are_of_the_family() -> None:
    assert issubclass(PortInUseError, AmendError)
    assert issubclass(AddressError, AmendError)


@pytest.mark.parametrize(("host", "warned"), [("127.0.0.1", False), ("localhost", False), ("0.0.0.0", True)])
def test_serving_is_quiet_and_ends_with_ctrl_c(tmp_path: Path, host: str, warned: bool) -> None:
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, str(tmp_path), host, str(port)],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_for_port(port)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=20) as answer:
            page = answer.read().decode()
        assert "<title>Amend</title>" in page or '"title":"Amend"' in page.replace('": "', '":"')
        assert "googleapis" not in page
        time.sleep(0.2)
        process.send_signal(2)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert out.splitlines() == [
        f"Amend is ready: http://{'127.0.0.1' if warned else host}:{port}/  (Ctrl+C stops it)",
        "ended well",
    ]
    assert err.startswith("Warning: serving on 0.0.0.0") if warned else err == ""
    assert len(err.splitlines()) == int(warned)
