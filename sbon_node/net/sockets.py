"""The real network: UDP through asyncio-dgram, TCP through asyncio's streams."""

import asyncio
import fcntl
import math
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import structlog
from asyncio_dgram.aio import DatagramServer, Protocol, TransportClosed

from sbon_node.base.clock import Clock
from sbon_node.base.connecting import reason_of
from sbon_node.net.counters import Counters
from sbon_node.net.local_users import UserCheck
from sbon_node.net.names import Names
from sbon_node.net.settings import NetSettings
from sbon_node.net.transport import (
    Address,
    Connection,
    ConnectionHandler,
    ConnectionLostError,
    DatagramEndpoint,
    DatagramHandler,
    Listener,
    NameUnresolvedError,
    Transport,
)
from sbon_protocol.datagram import MAX_DATAGRAM_BYTES

log = structlog.get_logger()

_ANY_HOSTS = (None, "", "0.0.0.0", "::")
_PROBES = 4
MOST_WAITING = 1024
"""Datagrams that have been read and not been handled. The reader handles all of them at once, so that there are rarely two."""


class SocketTransport(Transport):
    """Real sockets; connections start from ``source_host``, to tell peers on aliases of the loopback address apart."""

    def __init__(self, clock: Clock, settings: NetSettings, counters: Counters, source_host: str | None = None) -> None:
        self._clock, self._settings, self._counters = clock, settings, counters
        self._source = None if source_host in _ANY_HOSTS else source_host

    async def open_datagrams(self, bind: Address, handler: DatagramHandler) -> DatagramEndpoint:
        endpoint = _SocketDatagrams(handler, self._clock, self._settings, self._counters)
        await endpoint.open(bind)
        return endpoint

    async def listen(self, bind: Address, handler: ConnectionHandler) -> Listener:
        listener = _SocketListener(handler, self._settings, UserCheck(self._settings.local_users, self._counters))
        await listener.open(bind)
        return listener

    async def connect(self, to: Address, *, timeout_s: float) -> Connection:
        source = (self._source, 0) if self._source else None
        try:
            async with self._clock.timeout(timeout_s):
                limit = self._settings.read_buffer_bytes
                reader, writer = await asyncio.open_connection(to.host, to.port, local_addr=source, limit=limit)
        except (socket.gaierror, UnicodeError) as error:
            reason = error.strerror if isinstance(error, socket.gaierror) else "it is no name of a host"
            raise NameUnresolvedError(f"{to}: the name {to.host} cannot be resolved: {reason}") from error
        except (OSError, TimeoutError) as error:
            reason = reason_of(error) if not isinstance(error, TimeoutError) else f"no answer within {timeout_s:g} s"
            raise ConnectionLostError(f"{to}: {reason}") from error
        return _SocketConnection(reader, writer, to, self._settings)


class _Arrivals(asyncio.Queue[tuple[bytes | None, Any]]):
    """Queue from asyncio-dgram's protocol to its reader: ``(data, (sender, stamp))``, with the time of arrival at the system.

    The protocol puts each datagram here as soon as it is read, ``(None, None)`` at the end. The reader takes all that are here
    before others are read; if it cannot, further ones are dropped and counted, as by the system's own bounded buffer.
    """

    def __init__(self, clock: Clock, counters: Counters) -> None:
        super().__init__(MOST_WAITING)
        self._clock, self._counters = clock, counters
        self._waited_s: Callable[[], float] = lambda: 0.0
        self._last_stamp = -math.inf

    def read_from(self, sock: Any) -> None:
        self._waited_s = WaitedInSocket(sock)

    def put_nowait(self, item: tuple[bytes | None, Any]) -> None:
        data, sender = item
        stamp = self._last_stamp = max(self._last_stamp, self._clock.now() - self._waited_s())
        if self.full():
            self._counters.count("datagram-dropped")
            if data is not None:
                return
            self.get_nowait()  # the end has a place in any case
        super().put_nowait((data, (sender, stamp)))


class _Errors(asyncio.Queue[Exception]):
    """Errors of the socket are counted and dropped: otherwise one would hit the next send, perhaps to another peer."""

    def __init__(self, counters: Counters) -> None:
        super().__init__()
        self._counters = counters

    def put_nowait(self, item: Exception) -> None:
        self._counters.count("datagram-error")


class _SocketDatagrams(DatagramEndpoint):
    """Datagrams by asyncio-dgram, with queues of our own in place of its unbounded ones."""

    def __init__(self, handler: DatagramHandler, clock: Clock, settings: NetSettings, counters: Counters) -> None:
        self._handler, self._clock, self._settings, self._counters = handler, clock, settings, counters
        self._names = Names(counters, settings.max_names)
        self._drained = asyncio.Event()
        self._stream: DatagramServer
        self._reader: asyncio.Task[None]
        self._closed, self._local = False, Address("", 0)

    async def open(self, bind: Address) -> None:
        """Bind the socket; raises ``OSError``."""
        arrivals, errors = _Arrivals(self._clock, self._counters), _Errors(self._counters)
        transport: Any  # asyncio's type lacks the write buffer's limits
        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: Protocol(arrivals, errors, self._drained), local_addr=(bind.host, bind.port)
        )
        transport.set_write_buffer_limits(high=self._settings.datagram_buffer_bytes)
        self._stream = DatagramServer(transport, arrivals, errors, self._drained)
        arrivals.read_from(self._stream.socket)
        self._local = Address(*transport.get_extra_info("sockname")[:2])
        self._reader = asyncio.create_task(self._read(), name="datagrams")

    async def _read(self) -> None:
        with suppress(TransportClosed):
            while True:
                arrival: Any = await self._stream.recv()
                data, (sender, stamp) = arrival
                if len(data) > MAX_DATAGRAM_BYTES:
                    self._counters.refuse("datagram-too-large", peer=str(sender), size=len(data))
                    continue
                self._counters.traffic.datagram("received", data)
                try:
                    self._handler(data, Address(*sender[:2]), stamp)
                except Exception:
                    log.exception("datagram-handler-failed", peer=str(sender))

    @property
    def local(self) -> Address:
        return self._local

    def send(self, payload: bytes, to: Address) -> float:
        if len(payload) > MAX_DATAGRAM_BYTES:
            raise ValueError(f"a datagram of {len(payload)} bytes, the limit is {MAX_DATAGRAM_BYTES}")
        host = None if self._closed else self._names.lookup(to.host)
        if host is None or not self._drained.is_set():
            self._counters.count("datagram-not-sent")
            return self._clock.now()
        stamp = self._clock.now()
        sending = self._stream.send(payload, (host, to.port))
        try:
            sending.send(None)  # it sends at once, and then waits until the buffer has drained, for which nobody waits here
        except StopIteration:
            self._counters.traffic.datagram("sent", payload)
        except (OSError, ValueError):
            self._counters.count("datagram-error")
        else:
            sending.close()
            self._counters.traffic.datagram("sent", payload)
        return stamp

    def close(self) -> None:
        self._closed = True
        self._names.close()
        self._stream.close()


class _SocketConnection(Connection):
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, peer: Address, settings: NetSettings) -> None:
        self._reader, self._writer, self._peer, self._settings = reader, writer, peer, settings
        self._linger: asyncio.TimerHandle | None = None
        writer.transport.set_write_buffer_limits(high=settings.write_buffer_bytes)
        _notice_death(writer.get_extra_info("socket"), settings.dead_after_s)

    @property
    def peer(self) -> Address:
        return self._peer

    async def read_exactly(self, count: int) -> bytes:
        try:
            return await self._reader.readexactly(count)
        except (asyncio.IncompleteReadError, OSError) as error:
            side = "this node" if self._linger else "the peer"
            raise ConnectionLostError(f"{side} closed the connection with {self._peer}") from error

    def write(self, payload: bytes) -> None:
        if not self._writer.is_closing():
            self._writer.write(payload)

    async def drain(self) -> None:
        if self._writer.is_closing():
            raise ConnectionLostError(f"the connection with {self._peer} is closed")
        try:
            await self._writer.drain()
        except OSError as error:
            raise ConnectionLostError(f"{self._peer}: {error}") from error

    def close(self) -> None:
        if self._linger is None:
            self._writer.close()
            # asyncio ends the reader only after all is written; a reader of a closed connection need not wait for that.
            self._reader.feed_eof()
            self._linger = asyncio.get_running_loop().call_later(self._settings.linger_s, self._writer.transport.abort)


def _notice_death(sock: Any, dead_after_s: float) -> None:
    """Let the system end a connection whose other side vanished, while sending and while idle."""
    interval_s = max(1, round(dead_after_s / _PROBES))
    options = [(socket.SOL_SOCKET, "SO_KEEPALIVE", 1), (socket.IPPROTO_TCP, "TCP_NODELAY", 1)]
    limits = {"TCP_KEEPIDLE": interval_s, "TCP_KEEPINTVL": interval_s, "TCP_KEEPCNT": _PROBES - 1}
    limits["TCP_USER_TIMEOUT"] = round(dead_after_s * 1000)
    options += [(socket.IPPROTO_TCP, name, value) for name, value in limits.items()]
    try:
        for level, name, value in options:
            if hasattr(socket, name):  # Not every system has each option.
                sock.setsockopt(level, getattr(socket, name), value)
    except OSError as error:
        log.debug("keepalive-refused", reason=str(error))


class _SocketListener(Listener):
    def __init__(self, handler: ConnectionHandler, settings: NetSettings, user_check: UserCheck) -> None:
        self._handler, self._settings, self._user_check = handler, settings, user_check
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._local = Address("", 0)

    async def open(self, bind: Address) -> None:
        """Begin to listen; raises ``OSError``."""
        self._server = await asyncio.start_server(
            self._accepted, bind.host, bind.port, limit=self._settings.read_buffer_bytes, backlog=256
        )
        self._local = Address(*self._server.sockets[0].getsockname()[:2])

    @property
    def local(self) -> Address:
        return self._local

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        tasks = [t for t in self._tasks if t is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._server is None or not self._user_check.permits(writer):
            writer.close()
            return
        host, port = (writer.get_extra_info("peername") or ("", 0))[:2]
        connection = _SocketConnection(reader, writer, Address(host, port), self._settings)
        # A task of our own: asyncio's task for a coroutine logs an error whenever it is cancelled (3.11).
        task = asyncio.get_running_loop().create_task(self._handle(connection), name=f"connection from {host}:{port}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _handle(self, connection: Connection) -> None:
        try:
            await self._handler(connection)
        except ConnectionLostError as error:
            log.debug("connection-lost", peer=str(connection.peer), reason=str(error))
        except Exception:
            log.exception("connection-handler-failed", peer=str(connection.peer))
        finally:
            connection.close()


# -- Time a datagram spent in its socket before it was read; it must not count as round-trip time ---------------------

# Linux stamps each datagram as it arrives and returns the stamp of the last one read (SIOCGSTAMP, see socket(7)). The stamp is
# wall-clock time, so the difference to now is taken at once; a difference that a clock step has made absurd counts as 0.

_SIOCGSTAMP = 0x8906
_TIMEVAL = struct.Struct("@ll")
MAX_WAITED_S = 10.0
"""No datagram waits that long in the socket of a live process; more is a step of the clock."""


class WaitedInSocket:
    """The waiting time at one UDP socket: call right after reading a datagram."""

    def __init__(self, sock: Any) -> None:
        self._fd = sock.fileno()
        self._told = True
        self()  # The first call makes the system begin to stamp.

    def __call__(self) -> float:
        """Return seconds; 0 where the system gives no stamp."""
        if not self._told:
            return 0.0
        try:
            seconds, microseconds = _TIMEVAL.unpack(fcntl.ioctl(self._fd, _SIOCGSTAMP, bytes(_TIMEVAL.size)))
        except FileNotFoundError:
            return 0.0  # Nothing has been read since stamping began.
        except OSError:
            self._told = False
            return 0.0
        waited_s: float = time.time() - (seconds + microseconds / 1e6)
        return waited_s if 0.0 <= waited_s <= MAX_WAITED_S else 0.0
