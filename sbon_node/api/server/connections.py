"""Connections of the API: their limits in all and per address, and the time limit for a request.

A connection *waits* while it has no request in progress: it has not sent its first request, or is kept for the next. At the
limit, the connection that has waited longest is closed for a new one. So connections that are only held open, or send their
headers byte by byte, block no other. While all connections have requests in progress, a further connection gets 503.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Middleware

from sbon_node.api.encoding import encode
from sbon_node.api.server.guard import Handler
from sbon_node.config.api import ApiSettings
from sbon_node.net.local_users import UserCheck
from sbon_node.net.names import site_of

Refusal = tuple[bytes, dict[str, str]]
"""Status and further headers of an answer to a connection that may not stay, and the problem in its body."""

_HEAD = b"HTTP/1.1 %s\r\nContent-Type: application/problem+json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
_FULL = b"503 Service Unavailable\r\nRetry-After: 1"
_FULL_BODY = {"code": "too-many-connections", "message": "this node serves as many connections as it may"}
_FOREIGN = b"403 Forbidden"
_FOREIGN_BODY = {"code": "forbidden-user", "message": "this node serves its own user and root alone (net.local_users)"}
LINGER_S = 1.0
"""Seconds that a rejected client has to read the reason."""


class Connections:
    """All open connections, by the time since when they wait."""

    def __init__(self, settings: ApiSettings, user_check: UserCheck) -> None:
        self._settings, self._user_check = settings, user_check
        self._open: dict[Connection, None] = {}
        self._of_site: dict[str, int] = {}
        self._waiting: dict[Connection, None] = {}
        """Connections that have waited longest come first."""
        self._inner: dict[Any, Connection] = {}
        self._lingering = 0

    def __len__(self) -> int:
        return len(self._open)

    def accept(self, make: Callable[[], Any]) -> asyncio.Protocol:
        """Return the protocol of a new connection; ``make`` makes that of the HTTP server."""
        return Connection(self, make, self._settings.header_s)

    def middleware(self) -> Middleware:
        """Return the middleware that records a request's arrival; it runs first."""

        @web.middleware
        async def under_way(request: web.Request, handler: Handler) -> web.StreamResponse:
            connection = self._inner.get(request.protocol)
            if connection is None:
                return await handler(request)
            connection.asked()
            self._waiting.pop(connection, None)
            try:
                return await handler(request)
            finally:
                connection.answered()
                if connection in self._open:
                    self._waiting[connection] = None

        return under_way

    def refusal(self, connection: Connection, transport: Any) -> Refusal | None:
        """Return why the connection may not stay; close another for it if possible."""
        if not self._user_check.permits(transport):
            return _FOREIGN, _FOREIGN_BODY
        return None if self._has_room(connection) else (_FULL, _FULL_BODY)

    def _has_room(self, connection: Connection) -> bool:
        own = self._of_site.get(connection.site, 0)
        if own >= self._settings.max_connections_per_address and not self._drop_one(connection.site):
            return False
        if len(self._open) >= self._settings.max_connections and not self._drop_one(self._largest_waiting()):
            return False
        self._open[connection] = self._waiting[connection] = None
        self._of_site[connection.site] = self._of_site.get(connection.site, 0) + 1
        return True

    def bind(self, connection: Connection, inner: Any) -> None:
        self._inner[inner] = connection

    def turn_away(self, transport: Any, refusal: Refusal) -> Callable[[], None]:
        """Answer and close; return the callback for the moment of closing."""
        if self._lingering >= self._settings.max_connections:
            transport.abort()
            return lambda: None
        self._lingering += 1
        status, body = refusal[0], encode(refusal[1])
        transport.write(_HEAD % (status, len(body)) + body)
        transport.write_eof()  # close at once would make the system drop the answer, because of the caller's unread bytes
        timer = asyncio.get_running_loop().call_later(LINGER_S, transport.abort)

        def closed() -> None:
            self._lingering -= 1
            timer.cancel()

        return closed

    def forget(self, connection: Connection, inner: Any) -> None:
        self._inner.pop(inner, None)
        self._remove(connection)

    def _remove(self, connection: Connection) -> None:
        self._waiting.pop(connection, None)
        if connection in self._open:
            del self._open[connection]
            self._of_site[connection.site] -= 1
            if not self._of_site[connection.site]:
                del self._of_site[connection.site]

    def _largest_waiting(self) -> str:
        """Return the address with most waiting connections: it can spare most."""
        counts: dict[str, int] = {}
        for connection in self._waiting:
            counts[connection.site] = counts.get(connection.site, 0) + 1
        return max(counts, key=lambda site: counts[site], default="")

    def _drop_one(self, site: str) -> bool:
        connection = next((connection for connection in self._waiting if connection.site == site), None)
        if connection is None:
            return False
        self._remove(connection)
        connection.abort()
        return True


class Connection(asyncio.Protocol):
    """One connection: passes everything on to the HTTP server's protocol, once it is admitted."""

    def __init__(self, connections: Connections, make: Callable[[], Any], header_s: float) -> None:
        self._connections, self._make, self._header_s = connections, make, header_s
        self._inner: Any = None
        self._transport: Any = None
        self._timer: asyncio.TimerHandle | None = None
        self._busy = False
        self._closed: Callable[[], None] = lambda: None
        self.site = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # uvloop's transport is no asyncio.Transport
        self.site = site_of(str((transport.get_extra_info("peername") or ("",))[0]))
        refusal = self._connections.refusal(self, transport)
        if refusal is not None:
            self._closed = self._connections.turn_away(transport, refusal)
            return
        self._inner = self._make()
        self._connections.bind(self, self._inner)
        self._wait_for_headers()
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._inner is None:
            return
        if not self._busy and self._timer is None:
            self._wait_for_headers()
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        if self._inner is None:
            return None
        stays_open: bool | None = self._inner.eof_received()
        return stays_open

    def pause_writing(self) -> None:
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self._inner is not None:
            self._inner.resume_writing()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._stop_timer()
        self._closed()
        if self._inner is not None:
            self._connections.forget(self, self._inner)
            self._inner.connection_lost(exc)

    def asked(self) -> None:
        """Record that a request has come."""
        self._busy = True
        self._stop_timer()

    def answered(self) -> None:
        self._busy = False

    def abort(self) -> None:
        self._transport.abort()

    def _wait_for_headers(self) -> None:
        """Limit the time for headers, from the start and from the first byte of each further request."""
        self._timer = asyncio.get_running_loop().call_later(self._header_s, self.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
