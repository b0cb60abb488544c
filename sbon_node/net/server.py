"""The called side: answers the handshake, serves concurrent requests, and passes on connections for streams and copies."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar

import structlog

from sbon_node.base.clock import Clock
from sbon_node.net.channel import WRONG_NODE, Expected, FrameChannel, Identity
from sbon_node.net.counters import Counters
from sbon_node.net.names import site_of
from sbon_node.net.settings import NetSettings
from sbon_node.net.transport import Address, Connection, ConnectionLostError, Listener, Transport
from sbon_protocol.base import Call
from sbon_protocol.calls import CALLS
from sbon_protocol.codec import decode_record
from sbon_protocol.errors import ProtocolError, SbonError
from sbon_protocol.messages import Endpoint, Failure, Hello, Refused, Request, Response, Role, Welcome
from sbon_protocol.version import CAPABILITIES, negotiate

log = structlog.get_logger()


class Caller(NamedTuple):
    """The caller's claimed identity and observed address."""

    node: str
    instance: str
    address: Address


C = TypeVar("C", bound=Call)
CallHandler = Callable[[C, Caller], Awaitable[Any]]
ChannelHandler = Callable[[FrameChannel, Hello], Awaitable[None]]


class PeerServer:
    """Accepts peers: one handler for each kind of call, and one each for streams and copies."""

    def __init__(self, transport: Transport, clock: Clock, identity: Identity, settings: NetSettings, counters: Counters) -> None:
        self._transport, self._clock, self._identity = transport, clock, identity
        self._settings, self._counters = settings, counters
        self._handlers: dict[str, CallHandler[Any]] = {}
        self._channel_handlers: dict[Role, ChannelHandler] = {}
        self._listener: Listener | None = None
        self._connections = 0
        self._of_site: dict[str, int] = {}

    def handle(self, call_type: type[C], handler: CallHandler[C]) -> None:
        """Register ``handler``; the caller gets its :class:`SbonError`; other errors are logged and reported as ``internal``."""
        method = next(name for name, (known, _) in CALLS.items() if known is call_type)
        self._handlers[method] = handler

    def on_stream(self, handler: ChannelHandler) -> None:
        """Register ``handler``, which owns the connection until it returns."""
        self._channel_handlers["stream"] = handler

    def on_copy(self, handler: ChannelHandler) -> None:
        """Register ``handler`` of connections for copies, as :meth:`on_stream`."""
        self._channel_handlers["copy"] = handler

    async def start(self, bind: Address) -> Address:
        """Begin to accept; raises ``OSError`` where the port is taken."""
        self._listener = await self._transport.listen(bind, self._accepted)
        return self._listener.local

    async def close(self) -> None:
        """Stop accepting, cancel the handlers and wait for them."""
        if self._listener is not None:
            await self._listener.close()

    async def _accepted(self, connection: Connection) -> None:
        site = site_of(connection.peer.host)
        own = self._of_site.get(site, 0)
        if self._connections >= self._settings.max_connections or own >= self._settings.max_connections_per_address:
            reason = "too many connections" if own < self._settings.max_connections_per_address else "too many of this address"
            self._counters.refuse("connection-refused", peer=str(connection.peer), reason=reason)
            return
        self._connections += 1
        self._of_site[site] = own + 1
        try:
            await self._serve(FrameChannel(connection, self._counters))
        finally:
            self._connections -= 1
            self._of_site[site] -= 1
            if not self._of_site[site]:
                del self._of_site[site]

    async def _serve(self, channel: FrameChannel) -> None:
        try:
            async with self._clock.timeout(self._settings.connect_timeout_s):
                hello = await self._welcome(channel)
            if hello is None:
                return
            if (handler := self._channel_handlers.get(hello.role)) is not None:
                await handler(channel, hello)
            else:
                caller = Caller(hello.node, hello.instance, channel.address)
                await _Serving(channel, caller, self._handlers, self._settings, self._clock).run()
        except ProtocolError as error:
            channel.refuse(error)
        except TimeoutError:
            self._counters.count("connection-timeout")
        except ConnectionLostError as error:
            log.debug("peer-gone", peer=str(channel.address), reason=str(error))

    async def _welcome(self, channel: FrameChannel) -> Hello | None:
        hello = await channel.receive()
        if not isinstance(hello, Hello):
            raise ProtocolError("no-hello", f"the connection opened with {type(hello).__name__}")
        try:
            version = negotiate(hello)
            if hello.cluster != self._identity.cluster:
                raise ProtocolError("wrong-cluster", f"this node is of cluster {self._identity.cluster!r}, not {hello.cluster!r}")
            expected = Expected(hello.expected_node, hello.expected_instance)
            if mismatch := expected.mismatch(self._identity.node, self._identity.instance):
                raise ProtocolError(WRONG_NODE, mismatch)
            if hello.role != "rpc" and hello.role not in self._channel_handlers:
                refusal = "no-streams" if hello.role == "stream" else "no-copies"
                raise ProtocolError(refusal, f"this node serves no connections for a {hello.role}")
        except ProtocolError as error:
            self._counters.refuse("handshake-refused", peer=str(channel.address), node=hello.node, reason=str(error))
            await channel.send(Refused(code=error.reason, reason=error.message))
            return None
        observed = Endpoint(host=channel.address.host, port=channel.address.port)
        node, instance = self._identity.node, self._identity.instance
        await channel.send(Welcome(version=version, node=node, seen=observed, capabilities=CAPABILITIES, instance=instance))
        channel.peer = hello
        return hello


class _Serving:
    """Serves concurrent requests of one connection; closes it when it has been idle for long."""

    def __init__(
        self,
        channel: FrameChannel,
        caller: Caller,
        handlers: dict[str, CallHandler[Any]],
        settings: NetSettings,
        clock: Clock,
    ) -> None:
        self._channel, self._caller, self._handlers, self._clock = channel, caller, handlers, clock
        self._idle_s = settings.idle_s
        self._slots = asyncio.Semaphore(settings.max_requests)
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._active_s = clock.now()

    async def run(self) -> None:
        watch = asyncio.get_running_loop().create_task(self._watch(), name=f"idle {self._caller.node}")
        try:
            while True:
                await self._slots.acquire()
                request = await self._channel.receive()
                if not isinstance(request, Request):
                    raise ProtocolError("unexpected", f"{type(request).__name__} instead of a request")
                task = asyncio.get_running_loop().create_task(self._answer(request), name=f"answer {request.method}")
                self._tasks[task] = None
                task.add_done_callback(self._answered)
        finally:
            running = [watch, *self._tasks]
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _watch(self) -> None:
        while self._tasks or self._clock.now() < self._active_s + self._idle_s:
            await self._clock.sleep(max(0.0, self._active_s + self._idle_s - self._clock.now()) or self._idle_s)
        self._channel.close()

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        self._slots.release()
        self._active_s = self._clock.now()

    async def _answer(self, request: Request) -> None:
        try:
            body = await self._body(request)
        except SbonError as error:
            failure: Failure = failure_of(request.id, error)
        except ProtocolError as error:
            failure = Failure(id=request.id, code="bad-request", message=str(error), where=request.method)
        except Exception as error:
            log.exception("request-failed", method=request.method, peer=self._caller.node)
            failure = Failure(id=request.id, code="internal", message=f"{type(error).__name__} at the peer", where=request.method)
        else:
            await self._send(request, Response(id=request.id, body=body))
            return
        await self._send(request, failure)

    async def _send(self, request: Request, answer: Response | Failure) -> None:
        try:
            await self._channel.send(answer)
        except ConnectionLostError:
            log.debug("answer-lost", method=request.method, peer=self._caller.node)
        except (ValueError, TypeError, OverflowError) as error:  # An answer that cannot be encoded.
            log.error("answer-unsendable", method=request.method, reason=str(error))
            if isinstance(answer, Response):
                failure = Failure(id=request.id, code="internal", message="the answer cannot be sent", where=request.method)
                await self._send(request, failure)

    async def _body(self, request: Request) -> Any:
        handler = self._handlers.get(request.method)
        if handler is None:
            raise SbonError("unknown-method", f"this node has no method {request.method!r}", where=request.method)
        call: Any = decode_record(request.body, CALLS[request.method][0])
        return await handler(call, self._caller)


def failure_of(request_id: int, error: SbonError) -> Failure:
    """Return the error, cut to the limits of the wire."""
    code = error.code if len(error.code) <= 63 else "error"
    return Failure(
        id=request_id,
        code=code,
        message=error.message[:60_000],
        where=error.where[:500],
        hint=error.hint[:500],
        details=tuple(line[:500] for line in error.details[:256]),
    )
