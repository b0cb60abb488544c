"""The HTTP API of a node, under ``/v1``: JSON in, JSON or server-sent events out (docs/api.md)."""

from __future__ import annotations

import asyncio
import errno
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from aiohttp import web
from aiohttp.http import HttpProcessingError
from aiohttp.typedefs import Middleware

from sbon_node.api.encoding import encode
from sbon_node.api.pages import add_dashboard
from sbon_node.api.routes.route import ApiCall, EventStream, Route, WithHeaders, body_of, query_of, shape_of
from sbon_node.api.routes.table import ROUTES
from sbon_node.api.server.event_stream import stream_events
from sbon_node.api.server.guard import Guard, Handler, HostNames, Uncut, expect
from sbon_node.api.server.serving import SERVING, RequestCounts, Serving, State, not_ready
from sbon_node.config.api import ApiSettings
from sbon_node.net.counters import Counters
from sbon_node.net.local_users import UserCheck
from sbon_node.net.names import site_of
from sbon_node.net.settings import LocalUsers
from sbon_node.node import Node
from sbon_node.planning.process.planner import CLIENT
from sbon_protocol.errors import SbonError


class ApiServer:
    """The server of one node. Before :meth:`set_ready` and after its withdrawal it rejects all but ``/healthz``.

    ``names`` are the addresses at which the node listens and which it announces.
    """

    def __init__(
        self,
        node: Node,
        settings: ApiSettings | None = None,
        *,
        names: Sequence[str] = (),
        counters: Counters | None = None,
        local_users: LocalUsers = "any",
    ) -> None:
        self._node = node
        self._settings = settings or ApiSettings()
        self._host_names = HostNames([*names, *self._settings.hosts])
        self._counters = counters or Counters(time.monotonic)
        self._connections = Connections(self._settings, UserCheck(local_users, self._counters))
        self._uncut = Uncut()
        self._streaming: set[asyncio.Task[Any]] = set()
        self._state: State = "starting"
        self._listening: asyncio.Server | None = None
        self._runner = web.AppRunner(
            self._application(),
            handler_cancellation=True,  # a reader of events that goes away ends its iterator at once
            keepalive_timeout=self._settings.idle_s,
            shutdown_timeout=self._settings.shutdown_s,
            access_log=None,
            logger=malformed_log(self._counters),
        )

    @property
    def port(self) -> int:
        """The bound port, also where 0 was requested."""
        assert self._listening is not None
        return int(self._listening.sockets[0].getsockname()[1])

    @property
    def connections(self) -> int:
        return len(self._connections)

    def set_ready(self, ready: bool = True) -> None:
        self._state = "ready" if ready else "stopping"

    async def start(self, host: str, port: int) -> None:
        """Listen; raise :class:`SbonError` ``port-in-use`` or ``bad-address``."""
        await self._runner.setup()
        try:
            self._listening = await asyncio.get_running_loop().create_server(self._accept, host, port, reuse_address=True)
        except OSError as error:
            await self._runner.cleanup()
            in_use = error.errno == errno.EADDRINUSE
            raise SbonError(
                "port-in-use" if in_use else "bad-address",
                f"the API cannot listen at {host}:{port}: {'the port is in use' if in_use else error.strerror}",
                where="node.api_port" if in_use else "node.api_bind",
                hint="choose another with --api-port, or stop what uses it" if in_use else "name an address of this machine",
            ) from error

    async def close(self) -> None:
        """Stop accepting, end event streams, and let requests with side effects finish within ``api.shutdown_s``."""
        self.set_ready(False)
        if self._listening is not None:
            self._listening.close()
        for task in self._streaming:
            task.cancel()
        await self._uncut.close(self._settings.shutdown_s)
        await self._runner.cleanup()

    def _accept(self) -> asyncio.Protocol:
        server = self._runner.server
        assert server is not None
        return self._connections.accept(server)

    def _application(self) -> web.Application:
        requests, guard = RequestCounts(), Guard(self._settings, self._host_names, self._counters)
        middlewares = [self._connections.middleware(), requests.middleware(), guard.middleware()]
        app = web.Application(middlewares=middlewares, client_max_size=self._settings.max_body_bytes)
        app[SERVING] = Serving(lambda: self._state, lambda: self.connections, requests)
        for route in ROUTES:
            answering = self._answering(route)
            work = self._uncut(answering) if route.uncut else answering
            app.router.add_route(route.method, route.path, work, expect_handler=expect)
        add_dashboard(app)
        return app

    def _answering(self, route: Route) -> Handler:
        shape = shape_of(route)

        async def answer(request: web.Request) -> web.StreamResponse:
            if self._state != "ready" and not route.always:
                raise not_ready(self._state)
            CLIENT.set(request.remote or "")
            query, body = query_of(request, shape.query), await body_of(request, shape.body, self._settings.body_s)
            answered = route.handler(ApiCall(self._node, self._settings, request, query, body))
            if isinstance(answered, EventStream):
                return await self._stream_out(request, answered)
            value = await answered
            if isinstance(value, web.StreamResponse):
                return value
            if shape.reply is None:
                return web.Response(status=204)
            value, headers = (value.value, value.headers) if isinstance(value, WithHeaders) else (value, {})
            return web.Response(status=route.status, body=encode(value), content_type="application/json", headers=headers)

        return answer

    async def _stream_out(self, request: web.Request, stream: EventStream[Any]) -> web.StreamResponse:
        """Stream events; the task is recorded, so that :meth:`close` need not wait for endless streams."""
        task = asyncio.current_task()
        assert task is not None
        self._streaming.add(task)
        try:
            return await stream_events(request, stream, keepalive_s=self._settings.keepalive_s)
        finally:
            self._streaming.discard(task)


# -- Malformed HTTP requests: counted, and logged at a limited rate, since any client can send many -------------------


class _Malformed(logging.Filter):
    """Filter that takes the HTTP server's log lines about such requests, and lets all others pass."""

    def __init__(self, counters: Counters) -> None:
        super().__init__()
        self._counters = counters

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        if isinstance(error, web.RequestPayloadError):
            self._counters.refuse("http-malformed", reason="the body is not as its headers say")
            return False
        if not isinstance(error, HttpProcessingError):
            return self._counters.may_log("http-failed")
        peer = str(record.args[0]) if isinstance(record.args, tuple) and record.args else ""
        reason = next(iter(error.message.splitlines()), "") or type(error).__name__
        self._counters.refuse("http-malformed", peer=peer, reason=reason)
        return False


def malformed_log(counters: Counters) -> logging.Logger:
    """Return the log of a server, outside the registry of loggers: each server has its own counts."""
    logger = logging.Logger(__name__)
    logger.parent = logging.getLogger()
    logger.addFilter(_Malformed(counters))
    return logger


# -- Connections of the API: their limits in all and per address, and the time limit for a request --------------------

# A connection *waits* while it has no request in progress: it has not sent its first request, or is kept for the next. At the
# limit, the connection that has waited longest is closed for a new one. So connections that are only held open, or send their
# headers byte by byte, block no other. While all connections have requests in progress, a further connection gets 503.

Refusal = tuple[bytes, dict[str, str]]
"""Status and further headers of an answer to a connection that may not stay, and the problem in its body."""

_HEAD = b"HTTP/1.1 %s\r\nContent-Type: application/problem+json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
_FULL = b"503 Service Unavailable\r\nRetry-After: 1"
_FULL_BODY = {"code": "too-many-connections", "message": "this node serves as many connections as it may"}
_FOREIGN = b"403 Forbidden"
_FOREIGN_BODY = {"code": "forbidden-user", "message": "this node serves its own user and root alone (net.local_users)"}
HELD_UP_S = 0.05
"""Lateness of a timer in seconds that shows that this process was stopped, or waited for a processor."""
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
        counts = Counter(connection.site for connection in self._waiting)
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
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._header_s, self._expired, loop.time() + self._header_s)

    def _expired(self, due_s: float) -> None:
        """Close the connection. If this process was held up, headers may be there unread: then it gets as long once more."""
        loop = asyncio.get_running_loop()
        if loop.time() - due_s > HELD_UP_S:
            self._timer = loop.call_later(self._header_s, self.abort)
        else:
            self.abort()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
