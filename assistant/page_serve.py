"""Serving the page on an own socket: a taken port is a clear message, and no port is ever chosen silently."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable, Sequence
from pathlib import Path

import gradio as gr
import uvicorn
from fastapi import FastAPI

from assistant import page_theme
from assistant.page_hosts import OnlyTrustedHosts, is_loopback, trusted_hosts
from steam_engine.errors import AmendError

MAX_UPLOAD = "200mb"  # far more than a file of thousands of edits


class PortInUseError(AmendError):
    """Another program listens on the port that was asked for."""


class AddressError(AmendError):
    """The host or the port cannot be listened on."""


class _Server(uvicorn.Server):
    """Calls back once it answers."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start listening, then tell."""
        await super().startup(sockets)
        if self.started:
            self._ready()


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens on host and port (0: any free one). Raises PortInUseError, AddressError."""
    if not 0 <= port <= 65535:
        raise AddressError(f"{port} is not a port; use a number from 1 to 65535 with --port.")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (socket.gaierror, UnicodeError) as error:
        raise AddressError(f"{host}:{port} is not an address to serve on; try --host 127.0.0.1.") from error
    listener = socket.socket(family, kind, protocol)
    if os.name == "posix":  # elsewhere the option would let two programs share the port
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        listener.listen(128)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise PortInUseError(
                f"Port {port} is taken by another program; stop that one or pick another port with --port."
            ) from error
        raise AddressError(f"{host}:{port} cannot be served on: {error.strerror or error}.") from error
    return listener


def serve_blocks(
    blocks: gr.Blocks, exports: Path, host: str, port: int, open_browser: bool, allowed_hosts: Sequence[str] = ()
) -> None:
    """Serve a page, and downloads from `exports`, until Ctrl+C. Raises PortInUseError, AddressError.

    Requests are answered where they name `host` or one of `allowed_hosts`; see `page_hosts`.
    """
    listener = listen(host, port)
    address = _address(host, listener.getsockname()[1])
    if not is_loopback(host):
        print(
            f"Warning: serving on {host}; whoever reaches this machine can talk to the model and change it.",
            file=sys.stderr,
        )
    application = gr.mount_gradio_app(
        FastAPI(openapi_url=None, docs_url=None, redoc_url=None),
        blocks,
        path="/",
        theme=page_theme.theme(),
        js=page_theme.script(),
        head=page_theme.head(),
        favicon_path=str(page_theme.FAVICON),
        allowed_paths=[str(exports.resolve())],
        footer_links=[],
        run_history=False,
        show_error=False,
        ssr_mode=False,
        enable_monitoring=False,
        mcp_server=False,
        pwa=False,
        max_file_size=MAX_UPLOAD,
        app_kwargs={"openapi_url": None},
    )
    application.add_middleware(OnlyTrustedHosts, hosts=trusted_hosts(host, allowed_hosts))
    for noisy in ("httpx", "uvicorn.access", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    config = uvicorn.Config(application, log_level="warning", access_log=False, timeout_graceful_shutdown=2)

    def announce() -> None:
        print(f"Amend is ready: {address}  (Ctrl+C stops it)", flush=True)
        if open_browser:  # a thread, because starting a browser can take seconds
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()

    with listener, contextlib.suppress(KeyboardInterrupt):
        _Server(config, announce).run(sockets=[listener])


def _address(host: str, port: int) -> str:
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}.get(host, host)
    if ":" in shown and not shown.startswith("["):
        shown = f"[{shown}]"
    return f"http://{shown}:{port}/"
