"""The calling side: requests over one kept connection per peer, and separate connections for streams and copies.

It re-exports the server, as this package's interface for other packages.
"""

from __future__ import annotations

import asyncio
from typing import Any

from sbon_node.base.clock import Clock
from sbon_node.net.channel import ANYONE, Expected, FrameChannel, Identity, shake
from sbon_node.net.counters import Counters
from sbon_node.net.server import Caller, PeerServer
from sbon_node.net.settings import NetSettings
from sbon_node.net.transport import Address, ConnectionLostError, NameUnresolvedError, Transport
from sbon_protocol.base import Call
from sbon_protocol.calls import CALLS, method_of
from sbon_protocol.codec import decode_record
from sbon_protocol.errors import ProtocolError, SbonError
from sbon_protocol.messages import Failure, Hello, Request, Response, Role, Welcome

__all__ = ["ANYONE", "Caller", "Expected", "FrameChannel", "Identity", "PeerServer", "Peers"]

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
            raise SbonError(
                "too-many-calls", f"calls to {len(self._routes)} nodes are under way", hint="raise net.max_connections"
            )
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
        self._connecting: asyncio.Task[_Kept] | None = None
        self._kept: _Kept | None = None
        self._users = 0

    @property
    def busy(self) -> bool:
        return self._users > 0 or (self._kept is not None and self._kept.busy)

    @property
    def peer(self) -> Hello | Welcome | None:
        """The peer's handshake answer."""
        return self._kept.peer if self._kept is not None else None

    async def connection(self) -> _Kept:
        self._users += 1
        try:
            if self._kept is not None and not self._kept.stale:
                return self._kept
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
        if self._kept is not None:
            await self._kept.close()

    async def _shared(self, connecting: asyncio.Task[_Kept]) -> _Kept:
        try:
            return await asyncio.shield(connecting)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if connecting.cancelled() and task is not None and not task.cancelling():  # The route was closed, not the caller.
                raise ConnectionLostError(f"the connection with {self.address} is closed") from None
            raise

    async def _connect(self) -> _Kept:
        if self._kept is not None:
            await self._kept.close()
            self._kept = None
        peers = self._peers
        channel = await peers._shake(self.address, "rpc", self.expected)
        self._kept = _Kept(channel, peers._clock, peers._settings.idle_s / 2)
        return self._kept


def _look_at(task: asyncio.Task[_Kept]) -> None:
    """Retrieve a failure without a waiting caller, so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()


class _Kept:
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
