"""Connections between nodes.

The calling side has one kept connection per peer for requests, and separate ones for streams and copies. The called side answers
the handshake, serves concurrent requests, and passes on connections for streams and copies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar

import structlog

from sbon_node.base.clock import Clock
from sbon_node.net.counters import Counters
from sbon_node.net.names import site_of
from sbon_node.net.settings import NetSettings
from sbon_node.net.transport import Address, Connection, ConnectionLostError, Listener, NameUnresolvedError, Transport
from sbon_protocol.base import Call
from sbon_protocol.calls import CALLS, method_of
from sbon_protocol.codec import decode_record
from sbon_protocol.errors import ProtocolError, SbonError
from sbon_protocol.frames import encode_frame, read_frame
from sbon_protocol.messages import Endpoint, Failure, Frame, Hello, Refused, Request, Response, Role, Welcome
from sbon_protocol.version import CAPABILITIES, OLDEST_VERSION, VERSION, negotiate

WRONG_NODE = "wrong-node"
"""Refusal of a Hello that expects another node."""


class Identity(NamedTuple):
    """A node's claimed identity; ``instance`` belongs to its data directory, so that namesakes differ."""

    cluster: str
    node: str
    instance: str


class Expected(NamedTuple):
    """The node that a caller wants to reach; an empty field matches any node, or any instance."""

    node: str = ""
    instance: str = ""

    def mismatch(self, node: str, instance: str) -> str:
        """Return who is there instead, empty for the expected node. An empty ``instance`` matches no expected one."""
        if self.node and node != self.node:
            return f"{node} is there, not {self.node}"
        if self.instance and instance != self.instance:
            return f"{node} is there with another data directory"
        return ""


ANYONE = Expected()


class FrameChannel:
    """Carries frames both ways. ``peer`` is the other side's handshake message, once received."""

    def __init__(self, connection: Connection, counters: Counters) -> None:
        self._connection, self._counters = connection, counters
        self._refused = False
        self._taken = 0
        self.peer: Hello | Welcome | None = None

    @property
    def address(self) -> Address:
        return self._connection.peer

    async def receive(self) -> Frame:
        """Receive one frame, in one task at a time; after a cancellation the channel is unusable.

        Raises :class:`ConnectionLostError`, and :class:`ProtocolError` for a frame that breaks the protocol, once it is closed.
        """
        self._taken = 0
        try:
            frame = await read_frame(self._read_bytes)
        except ProtocolError as error:
            self.refuse(error)
            raise
        self._counters.traffic.frame("received", frame, self._taken)
        return frame

    async def _read_bytes(self, count: int) -> bytes:
        self._taken += count
        return await self._connection.read_exactly(count)

    async def send(self, frame: Frame) -> None:
        """Queue the frame whole, then wait until the queue is short.

        Raises :class:`ConnectionLostError`, and ``ValueError`` for a frame over the limit.
        """
        encoded = encode_frame(frame)
        self._connection.write(encoded)
        self._counters.traffic.frame("sent", frame, len(encoded))
        await self._connection.drain()

    def refuse(self, error: ProtocolError) -> None:
        """Count a breach of the protocol by the peer once, and close."""
        if not self._refused:
            self._refused = True
            self._counters.refuse("frame-malformed", peer=str(self.address), reason=str(error))
        self.close()

    def close(self) -> None:
        self._connection.close()


async def shake(
    transport: Transport,
    address: Address,
    role: Role,
    expected: Expected,
    *,
    identity: Identity,
    clock: Clock,
    counters: Counters,
    timeout_s: float,
) -> FrameChannel:
    """Connect and shake hands within ``timeout_s``; both sides check that the ``expected`` node is there.

    Raises :class:`ConnectionLostError` (also where another node is there), :class:`ProtocolError`, and :class:`SbonError` with
    the code of the peer's refusal.
    """
    channel: FrameChannel | None = None
    hello = Hello(
        version=VERSION,
        oldest_version=OLDEST_VERSION,
        cluster=identity.cluster,
        node=identity.node,
        role=role,
        capabilities=CAPABILITIES,
        instance=identity.instance,
        expected_node=expected.node,
        expected_instance=expected.instance,
    )
    try:
        async with clock.timeout(timeout_s):
            channel = FrameChannel(await transport.connect(address, timeout_s=timeout_s), counters)
            await channel.send(hello)
            answer = await channel.receive()
        if isinstance(answer, Refused):
            if answer.code == WRONG_NODE:
                raise _wrong_node(counters, address, answer.reason)
            raise SbonError(answer.code, answer.reason, where=str(address))
        if not isinstance(answer, Welcome) or not OLDEST_VERSION <= answer.version <= VERSION:
            error = ProtocolError("unexpected", f"{type(answer).__name__} in answer to a hello")
            channel.refuse(error)
            raise error
        if mismatch := expected.mismatch(answer.node, answer.instance):
            raise _wrong_node(counters, address, mismatch)
    except BaseException as error:
        if channel is not None:
            channel.close()
        if isinstance(error, TimeoutError):
            raise ConnectionLostError(f"{address} does not answer within {timeout_s:g} s") from error
        raise
    channel.peer = answer
    return channel


def _wrong_node(counters: Counters, address: Address, reason: str) -> ConnectionLostError:
    """Return the error of a connection that has reached another node than the expected one."""
    counters.refuse(WRONG_NODE, peer=str(address), reason=reason)
    return ConnectionLostError(f"{address}: {reason}")


UNRESOLVED_HINT = "check the name, and this machine's name servers"


class Peers:
    """Calls other nodes.

    The first call opens a connection, which all calls share that expect the same node at the address, and which is reopened when
    it is lost. A call under way is not repeated then, for it may have been served.
    """

    def __init__(self, transport: Transport, clock: Clock, identity: Identity, settings: NetSettings, counters: Counters) -> None:
        self._transport, self._clock, self._identity = transport, clock, identity
        self._settings, self._counters = settings, counters
        self._routes: dict[tuple[Address, Expected], _Route] = {}
        self._ending: dict[asyncio.Task[None], None] = {}
        self._closed = False

    async def call(self, address: Address, call: Call, *, timeout_s: float | None = None, expected: Expected = ANYONE) -> Any:
        """Return the reply, or None where the call has none.

        Raises :class:`SbonError`: the peer's refusal, ``peer-unreachable`` (the call may have been served; or another node than
        expected is there), ``bad-reply`` or ``too-large``.
        """
        limit_s = self._settings.call_timeout_s if timeout_s is None else timeout_s
        where = str(address)
        method = method_of(call)
        try:
            async with self._clock.timeout(limit_s):
                connection = await self._route(address, expected).connection()
                body = await connection.request(method, call)
        except TimeoutError as error:
            raise SbonError("peer-unreachable", f"no answer to {method} within {limit_s:g} s", where=where) from error
        except ConnectionLostError as error:
            message = str(error).removeprefix(where).lstrip(": ").replace(f" with {where}", "").replace(f" to {where}", "")
            hint = UNRESOLVED_HINT if isinstance(error, NameUnresolvedError) else ""
            raise SbonError("peer-unreachable", message, where=where, hint=hint) from error
        except ProtocolError as error:
            raise SbonError("bad-reply", f"{method}: {error}", where=where) from error
        reply = CALLS[method][1]
        try:
            return None if reply is None else decode_record(body, reply)
        except ProtocolError as error:
            self._counters.refuse("reply-malformed", peer=where, method=method, reason=str(error))
            raise SbonError("bad-reply", f"{method}: {error}", where=where) from error

    async def open_stream(self, address: Address, expected: Expected = ANYONE) -> FrameChannel:
        """Open a separate connection for a stream and shake hands.

        Raises :class:`ConnectionLostError` (also where another node than expected is there), :class:`ProtocolError`, or
        :class:`SbonError` with the code of the peer's refusal.
        """
        return await self._shake(address, "stream", expected)

    async def open_copy(self, address: Address, expected: Expected = ANYONE) -> FrameChannel:
        """Open a separate connection for a copy, as :meth:`open_stream`."""
        return await self._shake(address, "copy", expected)

    def reached(self, address: Address, node: str, instance: str) -> bool:
        """Return whether the kept connection to this address, made without an expectation, is with that node."""
        route = self._routes.get((address, ANYONE))
        peer = route.peer if route is not None else None
        return peer is not None and peer.node == node and not Expected(instance=peer.instance).mismatch(node, instance)

    async def close(self) -> None:
        """End all calls under way with ``peer-unreachable``. Stream connections belong to their openers."""
        self._closed = True
        for route in list(self._routes.values()):
            self._end(route)
        while self._ending:
            await asyncio.wait(list(self._ending))

    def _route(self, address: Address, expected: Expected) -> _Route:
        if self._closed:
            raise ConnectionLostError("this node is closing")
        route = self._routes.pop((address, expected), None)
        if route is None:
            self._make_room()
            route = _Route(self, address, expected)
        self._routes[address, expected] = route
        return route

    def _make_room(self) -> None:
        """Close the longest unused of the connections without waiting calls."""
        if len(self._routes) < self._settings.max_connections:
            return
        unused = next((route for route in self._routes.values() if not route.busy), None)
        if unused is None:
            message = f"calls to {len(self._routes)} nodes are under way"
            raise SbonError("too-many-calls", message, hint="raise net.max_connections")
        self._end(unused)

    def _end(self, route: _Route) -> None:
        self._routes.pop((route.address, route.expected), None)
        task = asyncio.get_running_loop().create_task(route.close(), name=f"end {route.address}")
        self._ending[task] = None
        task.add_done_callback(lambda done: self._ending.pop(done, None))

    async def _shake(self, address: Address, role: Role, expected: Expected) -> FrameChannel:
        return await shake(
            self._transport,
            address,
            role,
            expected,
            identity=self._identity,
            clock=self._clock,
            counters=self._counters,
            timeout_s=self._settings.connect_timeout_s,
        )


class _Route:
    """One expected node at an address: its kept connection, or the one attempt to open it that all callers share."""

    def __init__(self, peers: Peers, address: Address, expected: Expected) -> None:
        self._peers, self.address, self.expected = peers, address, expected
        self._connecting: asyncio.Task[_RpcConnection] | None = None
        self._connection: _RpcConnection | None = None
        self._users = 0

    @property
    def busy(self) -> bool:
        return self._users > 0 or (self._connection is not None and self._connection.busy)

    @property
    def peer(self) -> Hello | Welcome | None:
        """The peer's handshake answer."""
        return self._connection.peer if self._connection is not None else None

    async def connection(self) -> _RpcConnection:
        self._users += 1
        try:
            if self._connection is not None and not self._connection.stale:
                return self._connection
            if self._connecting is None or self._connecting.done():
                self._connecting = asyncio.get_running_loop().create_task(self._connect(), name=f"connect {self.address}")
                self._connecting.add_done_callback(_look_at)
            return await self._shared(self._connecting)
        finally:
            self._users -= 1

    async def close(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait([self._connecting])
        if self._connection is not None:
            await self._connection.close()

    async def _shared(self, connecting: asyncio.Task[_RpcConnection]) -> _RpcConnection:
        try:
            return await asyncio.shield(connecting)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if connecting.cancelled() and task is not None and not task.cancelling():  # The route was closed, not the caller.
                raise ConnectionLostError(f"the connection with {self.address} is closed") from None
            raise

    async def _connect(self) -> _RpcConnection:
        if self._connection is not None:
            await self._connection.close()
            self._connection = None
        peers = self._peers
        channel = await peers._shake(self.address, "rpc", self.expected)
        self._connection = _RpcConnection(channel, peers._clock, peers._settings.idle_s / 2)
        return self._connection


def _look_at(task: asyncio.Task[_RpcConnection]) -> None:
    """Retrieve a failure without a waiting caller, so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()


class _RpcConnection:
    """One connection with its requests under way, by id."""

    def __init__(self, channel: FrameChannel, clock: Clock, unused_s: float) -> None:
        self._channel, self._clock, self._unused_s = channel, clock, unused_s
        self._used_s = clock.now()
        self._next = 0
        self._waiting: dict[int, asyncio.Future[Response | Failure | ConnectionLostError]] = {}
        self._lost: ConnectionLostError | None = None
        self._task = asyncio.get_running_loop().create_task(self._receive(), name=f"answers of {channel.address}")

    @property
    def peer(self) -> Hello | Welcome | None:
        return self._channel.peer

    @property
    def busy(self) -> bool:
        return bool(self._waiting)

    @property
    def stale(self) -> bool:
        """Whether the connection is lost, or idle for so long that the other side may close it."""
        return self._lost is not None or (not self._waiting and self._clock.now() > self._used_s + self._unused_s)

    async def request(self, method: str, call: Call) -> Any:
        """Return the answer's body; raises its failure, and :class:`ConnectionLostError`."""
        if self._lost is not None:
            raise self._lost
        self._next += 1
        number = self._next
        answer: asyncio.Future[Response | Failure | ConnectionLostError] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            await self._channel.send(Request(id=number, method=method, body=call))
            outcome = await answer
        except ValueError as error:
            raise SbonError("too-large", f"{method} cannot be sent: {error}", where=method) from error
        finally:
            del self._waiting[number]
            self._used_s = self._clock.now()
        if isinstance(outcome, ConnectionLostError):
            raise outcome
        if isinstance(outcome, Failure):
            raise error_of(outcome)
        return outcome.body

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _receive(self) -> None:
        reason = f"this node closed the connection with {self._channel.address}"
        try:
            while True:
                answer = await self._channel.receive()
                if not isinstance(answer, Response | Failure):
                    raise ProtocolError("unexpected", f"{type(answer).__name__} instead of an answer")
                waiting = self._waiting.get(answer.id)  # None where the caller no longer waits.
                if waiting is not None and not waiting.done():
                    waiting.set_result(answer)
        except ConnectionLostError as error:
            reason = str(error)
        except ProtocolError as error:
            reason = str(error)
            self._channel.refuse(error)
        finally:
            self._channel.close()
            self._lost = ConnectionLostError(reason)
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_result(self._lost)


def error_of(failure: Failure) -> SbonError:
    """Return the error for a peer's refusal."""
    return SbonError(failure.code, failure.message, where=failure.where, hint=failure.hint, details=failure.details)


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
        self, channel: FrameChannel, caller: Caller, handlers: dict[str, CallHandler[Any]], settings: NetSettings, clock: Clock
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
    return Failure(
        id=request_id,
        code=error.code if len(error.code) <= 63 else "error",
        message=error.message[:60_000],
        where=error.where[:500],
        hint=error.hint[:500],
        details=tuple(line[:500] for line in error.details[:256]),
    )
