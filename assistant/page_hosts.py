"""Who the page answers: requests that name this server, so that a web site elsewhere cannot use it through a browser.

A site can let its own name point to this machine (DNS rebinding), and then the browser takes the page for a part of
the site; the Host header still says the site's name. A site can also send requests across; then Origin says its name.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^\s:@/\[\]]+?)\.?)(?::\d*)?", re.IGNORECASE)


@dataclass(frozen=True)
class TrustedHosts:
    """The names of this server, in lower case."""

    names: frozenset[str]
    any_address: bool  # numeric addresses too: a site cannot make one its name

    def trusts(self, name: str | None) -> bool:
        """Whether a request to that host is meant for this server."""
        return name is not None and (name in self.names or (self.any_address and _is_address(name)))


def trusted_hosts(host: str, listed: Iterable[str] = ()) -> TrustedHosts:
    """What a server on `host` is called: on a loopback address only this machine knows it.

    Args:
        host: an address, or a name, that is listened on.
        listed: further names, as a proxy may use.
    """
    names = {"localhost", "127.0.0.1", "::1", *(name.strip("[]").lower() for name in (host, *listed))}
    if is_loopback(host):
        return TrustedHosts(frozenset(names), any_address=False)
    own = socket.gethostname().lower()
    return TrustedHosts(frozenset({*names, own, f"{own}.local"}), any_address=True)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach that host."""
    name = host.strip("[]").lower()
    return ipaddress.ip_address(name).is_loopback if _is_address(name) else name == "localhost"


class OnlyTrustedHosts:
    """ASGI middleware that refuses every request to a host, or from a page of one, that is not trusted."""

    def __init__(self, app: ASGIApp, hosts: TrustedHosts) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers the request, or refuses it with status 403."""
        if scope["type"] in ("http", "websocket"):
            headers = Headers(scope=scope)
            host = _name(headers.get("host", ""))
            refused = None
            if not self._hosts.trusts(host):
                refused = host or "unnamed"
            elif "origin" in headers:
                origin = _name(headers["origin"].partition("://")[2])
                if origin is None or (origin != host and origin not in self._hosts.names):
                    refused = origin or "unnamed"
            if refused is not None:
                text = f"Amend is not served to '{refused[:100]}'. If it should be, start it with --allow-host NAME."
                await PlainTextResponse(text, status_code=403)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _name(host: str) -> str | None:
    """The host without its port, in lower case; None where it is not a host."""
    found = _HOST.fullmatch(host)
    return (found[1] or found[2]).lower() if found else None


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
