"""The page answers whoever means this server, and nobody else."""

from __future__ import annotations

import asyncio
import http.client
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from assistant.page_hosts import OnlyTrustedHosts, trusted_hosts
from tests.browser.fake_assistant import FakeAssistant

Served = tuple[FakeAssistant, str]


def asked(address: str, host: str, path: str = "/", origin: str = "", body: bytes | None = None) -> tuple[int, str]:
    """Status and text of an answer to a request with that Host header."""
    connection = http.client.HTTPConnection("127.0.0.1", int(address.rstrip("/").rpartition(":")[2]), timeout=30)
    connection.putrequest("GET" if body is None else "POST", path, skip_host=True)
    headers = {"Host": host, "Origin": origin, "Content-Length": str(len(body)) if body is not None else ""}
    for name, value in headers.items():
        if value:
            connection.putheader(name, value)
    if body is not None:
        connection.putheader("Content-Type", "multipart/form-data; boundary=edge")
    connection.endheaders(body)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "LOCALHOST:7860", "[::1]:7860", "127.0.0.1:1", "localhost."]
)
def test_this_machine_is_answered(served: Served, host: str) -> None:
    assert asked(served[1], host)[0] == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example:7860", "10.0.0.1", "", "x@localhost", "[::2]"]
)
@pytest.mark.parametrize("path", ["/", "/gradio_api/info", "/gradio_api/upload"])
def test_other_names_are_refused(served: Served, host: str, path: str) -> None:
    status, text = asked(served[1], host, path)
    assert status in ((403,) if host else (400, 403))
    assert "--allow-host" in text or not host


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://127.0.0.1:7860", 200),
        ("http://localhost:3000", 200),
        ("http://evil.example", 403),
        ("http://10.0.0.1", 403),
        ("null", 403),
    ],
)
def test_pages_of_other_sites_are_refused(served: Served, origin: str, status: int) -> None:
    assert asked(served[1], "127.0.0.1", origin=origin)[0] == status


def test_the_api_of_the_page_is_described_nowhere_else(served: Served) -> None:
    assert asked(served[1], "localhost", "/gradio_api/info")[0] == 200
    for path in ("/openapi.json", "/docs", "/redoc"):
        assert '"openapi"' not in asked(served[1], "localhost", path)[1]
        assert "swagger" not in asked(served[1], "localhost", path)[1].lower()


def test_uploads_have_a_limit(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def upload(size: int) -> int:
        head = b'--edge\r\nContent-Disposition: form-data; name="files"; filename="a.json"\r\n\r\n'
        return asked(served[1], "localhost", "/gradio_api/upload", body=head + bytes(size) + b"\r\n--edge--\r\n")[0]

    assert upload(1000) == 200
    assert upload(201 * 1024 * 1024) == 413


def answered(host: str, listed: tuple[str, ...], name: str, origin: str | None = None) -> bool:
    """Whether a server on `host` answers a request to `name`."""
    sent: list[Any] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        sent.append("answered")

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", name.encode()), *([(b"origin", origin.encode())] if origin is not None else [])]
    scope = {"type": "http", "method": "GET", "path": "/", "headers": headers}
    answer = OnlyTrustedHosts(application, trusted_hosts(host, listed))(scope, None, send)  # type: ignore[arg-type]
    with ThreadPoolExecutor(1) as thread:  # Playwright's event loop may be running in this one
        thread.submit(asyncio.run, answer).result()
    return sent == ["answered"]


@pytest.mark.parametrize(
    ("host", "listed", "name", "expected"),
    [
        ("127.0.0.1", (), "amend.example", False),
        ("127.0.0.1", ("Amend.example",), "amend.example:443", True),
        ("127.0.0.2", (), "127.0.0.2:7860", True),
        ("localhost", (), "127.0.0.1:7860", True),
        ("0.0.0.0", (), "192.168.1.7:7860", True),
        ("0.0.0.0", (), "[fe80::7]:7860", True),
        ("0.0.0.0", (), "evil.example:7860", False),
        ("0.0.0.0", (), socket.gethostname(), True),
        ("0.0.0.0", ("amend.example",), "amend.example", True),
        ("amend.lan", (), "amend.lan:7860", True),
        ("::", (), "evil.example", False),
    ],
)
def test_a_server_for_others_has_the_names_it_was_given(
    host: str, listed: tuple[str, ...], name: str, expected: bool
) -> None:
    assert answered(host, listed, name) == expected


def test_a_page_at_another_address_is_another_site() -> None:
    assert answered("0.0.0.0", (), "192.168.1.7:7860", "http://192.168.1.7:7860")
    assert not answered("0.0.0.0", (), "192.168.1.7:7860", "http://6.6.6.6")
    assert answered("127.0.0.1", ("amend.example",), "127.0.0.1:7860", "https://amend.example")
