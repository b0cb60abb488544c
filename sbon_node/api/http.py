"""The HTTP API of a node, under ``/v1``: JSON in, JSON or server-sent events out (docs/api.md)."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

from aiohttp import web

from sbon_node.api.encoding import encode
from sbon_node.api.events import stream_events
from sbon_node.api.face import NodeFace
from sbon_node.api.guard import Guard, Handler, Uncut
from sbon_node.api.pages import add_dashboard
from sbon_node.api.requests import RequestCounts
from sbon_node.api.route import Asked, EventStream, Route, WithHeaders, body_of, query_of, shape_of
from sbon_node.api.routes import ROUTES
from sbon_node.api.serving import SERVING, Serving, State, not_ready
from sbon_node.api.settings import ApiSettings
from sbon_node.errors import SbonError

_FULL = b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\nRetry-After: 1\r\nConnection: close\r\n"


class ApiServer:
    """Serves one node. Until :meth:`set_ready`, and after it was taken back, everything but ``/healthz`` is refused."""

    def __init__(self, face: NodeFace, settings: ApiSettings | None = None) -> None:
        self._face = face
        self._settings = settings or ApiSettings()
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
        )

    @property
    def port(self) -> int:
        """The port really bound, where 0 was asked for."""
        assert self._listening is not None
        return int(self._listening.sockets[0].getsockname()[1])

    @property
    def connections(self) -> int:
        return len(self._runner.server.connections) if self._runner.server is not None else 0

    def set_ready(self, ready: bool = True) -> None:
        self._state = "ready" if ready else "stopping"

    async def start(self, host: str, port: int) -> None:
        """Listens; raises :class:`SbonError` ``port-in-use`` or ``bad-address``."""
        await self._runner.setup()
        try:
            self._listening = await asyncio.get_running_loop().create_server(self._accept, host, port, reuse_address=True)
        except OSError as error:
            await self._runner.cleanup()
            taken = error.errno == errno.EADDRINUSE
            raise SbonError(
                "port-in-use" if taken else "bad-address",
                f"the API cannot listen at {host}:{port}: {'the port is in use' if taken else error.strerror}",
                where="node.api_port" if taken else "node.api_bind",
                hint="choose another with --api-port, or stop what uses it" if taken else "name an address of this machine",
            ) from error

    async def close(self) -> None:
        """Stops accepting, ends event streams, lets what changes something finish within ``api.shutdown_s``."""
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
        if self.connections >= self._settings.max_connections:
            return _TurnedAway()
        return server()

    def _application(self) -> web.Application:
        requests, guard = RequestCounts(), Guard(self._settings)
        middlewares = [requests.middleware(), guard.middleware()]
        app = web.Application(middlewares=middlewares, client_max_size=self._settings.max_body_bytes)
        app[SERVING] = Serving(lambda: self._state, lambda: self.connections, requests)
        for route in ROUTES:
            answering = self._answering(route)
            app.router.add_route(route.method, route.path, self._uncut(answering) if route.uncut else answering)
        add_dashboard(app)
        return app

    def _answering(self, route: Route) -> Handler:
        shape = shape_of(route)

        async def answer(request: web.Request) -> web.StreamResponse:
            if self._state != "ready" and not route.always:
                raise not_ready(self._state)
            query, body = query_of(request, shape.query), await body_of(request, shape.body)
            answered = route.handler(Asked(self._face, self._settings, request, query, body))
            if isinstance(answered, EventStream):
                return await self._stream_out(request, answered)
            value = await answered
            if isinstance(value, web.StreamResponse):
                return value
            if shape.reply is None:
                return web.Response(status=204)
            if isinstance(value, WithHeaders):
                value, headers = value.value, value.headers
            else:
                headers = {}
            return web.Response(status=route.status, body=encode(value), content_type="application/json", headers=headers)

        return answer

    async def _stream_out(self, request: web.Request, stream: EventStream[Any]) -> web.StreamResponse:
        """Held, so that :meth:`close` need not wait for what never ends by itself."""
        task = asyncio.current_task()
        assert task is not None
        self._streaming.add(task)
        try:
            return await stream_events(request, stream.events, keepalive_s=self._settings.keepalive_s, position=stream.position)
        finally:
            self._streaming.discard(task)


class _TurnedAway(asyncio.Protocol):
    """Answers a connection beyond the limit, and closes it."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        body = encode({"code": "too-many-connections", "message": "this node serves as many connections as it may"})
        transport.write(_FULL + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        transport.close()
