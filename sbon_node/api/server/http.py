"""The HTTP API of a node, under ``/v1``: JSON in, JSON or server-sent events out (docs/api.md)."""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Sequence
from typing import Any

from aiohttp import web

from sbon_node.api.encoding import encode
from sbon_node.api.interface import NodeInterface
from sbon_node.api.pages import add_dashboard
from sbon_node.api.routes.route import ApiCall, EventStream, Route, WithHeaders, body_of, query_of, shape_of
from sbon_node.api.routes.table import ROUTES
from sbon_node.api.server.connections import Connections
from sbon_node.api.server.event_stream import stream_events
from sbon_node.api.server.guard import Guard, Handler, Uncut, expect
from sbon_node.api.server.host_names import HostNames
from sbon_node.api.server.malformed import malformed_log
from sbon_node.api.server.request_counts import RequestCounts
from sbon_node.api.server.serving import SERVING, Serving, State, not_ready
from sbon_node.config.api import ApiSettings
from sbon_node.errors import SbonError
from sbon_node.net.counters import Counters
from sbon_node.net.local_users import UserCheck
from sbon_node.net.settings import LocalUsers
from sbon_node.planner.planner import CLIENT


class ApiServer:
    """The server of one node. Before :meth:`set_ready` and after its withdrawal it rejects all but ``/healthz``.

    ``names`` are the addresses at which the node listens and which it announces.
    """

    def __init__(
        self,
        interface: NodeInterface,
        settings: ApiSettings | None = None,
        *,
        names: Sequence[str] = (),
        counters: Counters | None = None,
        local_users: LocalUsers = "any",
    ) -> None:
        self._interface = interface
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
            answered = route.handler(ApiCall(self._interface, self._settings, request, query, body))
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
        """Stream events; the task is recorded, so that :meth:`close` need not wait for endless streams."""
        task = asyncio.current_task()
        assert task is not None
        self._streaming.add(task)
        try:
            return await stream_events(request, stream, keepalive_s=self._settings.keepalive_s)
        finally:
            self._streaming.discard(task)
