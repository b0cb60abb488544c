"""The HTTP API of a node, under ``/v1``: JSON in, JSON or server-sent events out (docs/api.md)."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal, TypeVar

import msgspec
import structlog
from aiohttp import web

from sbon_node.api.encoding import decode, encode
from sbon_node.api.events import Event, position_of, stream_events
from sbon_node.api.face import NodeFace
from sbon_node.api.guard import Handler, Uncut, errors_as_json
from sbon_node.api.monitor import happenings, kinds_of, level_of
from sbon_node.api.settings import ApiSettings
from sbon_node.control.explanation import Question
from sbon_node.control.report import RttQuestion, Submission
from sbon_node.errors import SbonError
from sbon_node.query.catalog import SourceDeclaration, StreamDeclaration

log = structlog.get_logger()
T = TypeVar("T")

_FULL = b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\nRetry-After: 1\r\nConnection: close\r\n"


Milliseconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class JoinBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    addresses: tuple[str, ...]


class Joined(msgspec.Struct, frozen=True, kw_only=True):
    members: int


class AcknowledgeBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Frame numbers by stream."""

    numbers: dict[str, int]


class ApiServer:
    """Serves one node. Until :meth:`set_ready`, and after it was taken back, everything but ``/healthz`` is refused."""

    def __init__(self, face: NodeFace, settings: ApiSettings | None = None) -> None:
        self._face = face
        self._settings = settings or ApiSettings()
        self._uncut = Uncut()
        self._streaming: set[asyncio.Task[Any]] = set()
        self._state: Literal["starting", "ready", "stopping"] = "starting"
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
        app = web.Application(middlewares=[errors_as_json], client_max_size=self._settings.max_body_bytes)
        uncut = self._uncut
        routes: list[tuple[str, str, Handler]] = [
            ("GET", "/healthz", self._health),
            ("GET", "/readyz", self._readiness),
            ("GET", "/v1/status", self._status),
            ("GET", "/v1/events", self._events),
            ("GET", "/v1/members", self._members),
            ("POST", "/v1/rtt", self._rtt),
            ("POST", "/v1/join", uncut(self._join)),
            ("POST", "/v1/leave", uncut(self._leave)),
            ("GET", "/v1/streams", self._streams),
            ("POST", "/v1/streams", uncut(self._create_stream)),
            ("GET", "/v1/streams/{name}", self._stream),
            ("DELETE", "/v1/streams/{name}", uncut(self._drop_stream)),
            ("POST", "/v1/streams/{name}/sources", uncut(self._attach_source)),
            ("GET", "/v1/queries", self._queries),
            ("POST", "/v1/queries", self._submit),
            ("GET", "/v1/queries/{id}", self._query),
            ("DELETE", "/v1/queries/{id}", uncut(self._stop_query)),
            ("GET", "/v1/queries/{id}/bill", self._bill),
            ("GET", "/v1/queries/{id}/explain", self._explain_query),
            ("GET", "/v1/queries/{id}/explain/placement", self._explain_query_placement),
            ("POST", "/v1/explain", self._explain),
            ("POST", "/v1/explain/placement", self._explain_placement),
            ("GET", "/v1/queries/{id}/rows", self._rows),
            ("POST", "/v1/queries/{id}/acknowledge", uncut(self._acknowledge)),
        ]
        for method, path, handler in routes:
            app.router.add_route(method, path, handler if path == "/healthz" else self._when_ready(handler))
        return app

    def _when_ready(self, handler: Handler) -> Handler:
        async def run(request: web.Request) -> web.StreamResponse:
            if self._state != "ready":
                raise SbonError(self._state, f"the node is {self._state}", hint="try again soon")
            return await handler(request)

        return run

    # -- the node ---------------------------------------------------------------------------------------------------

    async def _health(self, request: web.Request) -> web.StreamResponse:
        return web.Response(text="ok\n")

    async def _readiness(self, request: web.Request) -> web.StreamResponse:
        return _json({"ready": True})

    async def _status(self, request: web.Request) -> web.StreamResponse:
        return _json(self._face.status())

    async def _members(self, request: web.Request) -> web.StreamResponse:
        within = request.query.get("within_ms", "")
        try:
            within_ms = msgspec.json.decode(within, type=Milliseconds) if within else None
        except msgspec.DecodeError as error:
            hint = "for example within_ms=30"
            raise SbonError("bad-request", f"{within!r} is no length of time", where="within_ms", hint=hint) from error
        return _json(self._face.members(request.query.get("near", ""), within_ms))

    async def _events(self, request: web.Request) -> web.StreamResponse:
        events = happenings(self._face.bus, kinds_of(request), level_of(request), self._settings.event_queue)
        return await self._stream_out(request, events, {})

    async def _rtt(self, request: web.Request) -> web.StreamResponse:
        return _json(await self._face.rtt(await _body(request, RttQuestion)))

    async def _join(self, request: web.Request) -> web.StreamResponse:
        body = await _body(request, JoinBody)
        return _json(Joined(members=await self._face.join(body.addresses)))

    async def _leave(self, request: web.Request) -> web.StreamResponse:
        await self._face.leave(force=request.query.get("force") == "true")
        return web.Response(status=204)

    # -- streams ----------------------------------------------------------------------------------------------------

    async def _streams(self, request: web.Request) -> web.StreamResponse:
        return _json(await self._face.streams())

    async def _create_stream(self, request: web.Request) -> web.StreamResponse:
        declaration = await _body(request, StreamDeclaration)
        await self._face.create_stream(declaration)
        return _json(await self._face.stream(declaration.name), status=201)

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        return _json(await self._face.stream(request.match_info["name"]))

    async def _drop_stream(self, request: web.Request) -> web.StreamResponse:
        await self._face.drop_stream(request.match_info["name"])
        return web.Response(status=204)

    async def _attach_source(self, request: web.Request) -> web.StreamResponse:
        source = await _body(request, SourceDeclaration)
        name = request.match_info["name"]
        if source.stream != name:
            raise SbonError("bad-request", f"the body names stream {source.stream!r}, the path {name!r}", where="stream")
        await self._face.attach_source(source)
        return _json(await self._face.stream(name), status=201)

    # -- queries ----------------------------------------------------------------------------------------------------

    async def _queries(self, request: web.Request) -> web.StreamResponse:
        return _json(await self._face.queries())

    async def _submit(self, request: web.Request) -> web.StreamResponse:
        submission = await _body(request, Submission)
        return await self._stream_out(request, self._face.submit(submission), {})

    async def _query(self, request: web.Request) -> web.StreamResponse:
        return _json(await self._face.query(request.match_info["id"]))

    async def _stop_query(self, request: web.Request) -> web.StreamResponse:
        return _json(await self._face.stop_query(request.match_info["id"]))

    async def _bill(self, request: web.Request) -> web.StreamResponse:
        return _json(await self._face.bill(request.match_info["id"]))

    async def _explain(self, request: web.Request) -> web.StreamResponse:
        return _json(await self._face.explain(await _body(request, Question)))

    async def _explain_query(self, request: web.Request) -> web.StreamResponse:
        return _json(await self._face.explain_query(request.match_info["id"]))

    async def _explain_placement(self, request: web.Request) -> web.StreamResponse:
        return _json(await self._face.explain_placement(await _body(request, Question)))

    async def _explain_query_placement(self, request: web.Request) -> web.StreamResponse:
        return _json(await self._face.explain_query_placement(request.match_info["id"]))

    async def _rows(self, request: web.Request) -> web.StreamResponse:
        position = position_of(request)
        rows = self._face.follow(request.match_info["id"], position)
        return await self._stream_out(request, rows, position)

    async def _stream_out(
        self, request: web.Request, events: AsyncIterator[Event], position: dict[str, int]
    ) -> web.StreamResponse:
        """Held, so that :meth:`close` need not wait for what never ends by itself."""
        task = asyncio.current_task()
        assert task is not None
        self._streaming.add(task)
        try:
            return await stream_events(request, events, keepalive_s=self._settings.keepalive_s, position=position)
        finally:
            self._streaming.discard(task)

    async def _acknowledge(self, request: web.Request) -> web.StreamResponse:
        body = await _body(request, AcknowledgeBody)
        await self._face.acknowledge(request.match_info["id"], body.numbers)
        return web.Response(status=204)


class _TurnedAway(asyncio.Protocol):
    """Answers a connection beyond the limit, and closes it."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        body = encode({"code": "too-many-connections", "message": "this node serves as many connections as it may"})
        transport.write(_FULL + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        transport.close()


async def _body(request: web.Request, kind: type[T]) -> T:
    """Checked and typed. Asking for JSON by name keeps a browser's plain forms out."""
    if request.content_type != "application/json":
        raise SbonError("not-json", f"the body is {request.content_type}", where="Content-Type", hint="send application/json")
    return decode(await request.read(), kind)


def _json(value: object, *, status: int = 200) -> web.Response:
    return web.Response(status=status, body=encode(value), content_type="application/json")
