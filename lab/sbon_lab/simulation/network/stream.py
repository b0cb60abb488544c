"""Byte connections on the simulated paths, as TCP: ordered, bounded, delayed by cuts, ended by close or death."""

from __future__ import annotations

import asyncio
from collections import deque

from sbon_lab.simulation.network.paths import Paths
from sbon_lab.simulation.process import NO_PROCESS, Process
from sbon_node.net.transport import Address, ConnectionLostError

_RETRANSMIT_S = 0.2
_END = b""


class _Pipe:
    """One direction of a connection.

    Bytes wait in ``queue`` at the writer, then travel in ``_flight``, then lie unread at the reader. Bytes that have left the
    queue and are not yet read (``_unread_bytes``) are at most the window.
    """

    def __init__(self, paths: Paths, source: SimulatedConnection, target: SimulatedConnection) -> None:
        self._paths = paths
        self._source = source
        self._target = target
        self._loop = asyncio.get_running_loop()
        self.queue: deque[bytes] = deque()
        self.queued = 0
        self._closing = self._ended = False
        self._flight: deque[tuple[float, bytes]] = deque()
        self._unread_bytes = self._freed = 0
        self._arrival_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._ack: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None
        self._waits_for_heal = False

    def write(self, payload: bytes) -> None:
        if payload and not self._closing:
            self.queue.append(bytes(payload))
            self.queued += len(payload)
            self._pump()

    def finish(self, *, flush: bool) -> None:
        """Send the end after all sent bytes; without ``flush``, drop the bytes that the kernel has not taken."""
        if not flush:
            self.queue.clear()
            self.queued = 0
        self._closing = True
        self._pump()

    def free(self, count: int) -> None:
        """Free so many bytes that the reader took; the writer learns it one latency later."""
        self._freed += count
        if self._freed and self._ack is None:
            delay = self._paths.delay_s(self._target.node, self._source.node)
            self._ack = self._loop.call_later(delay, self._acknowledged, context=NO_PROCESS)

    def drop(self) -> None:
        """Drop the connection: nothing moves any more."""
        self.queue.clear()
        self._flight.clear()
        self.queued = 0
        self._ended = True
        for timer in (self._timer, self._ack, self._stall):
            if timer is not None:
                timer.cancel()
        self._timer = self._ack = self._stall = None

    def _pump(self) -> None:
        window = self._paths.quality.window_bytes
        while self.queue and self._unread_bytes < window:
            chunk = self.queue.popleft()
            room = window - self._unread_bytes
            if len(chunk) > room:
                self.queue.appendleft(chunk[room:])
                chunk = chunk[:room]
            self.queued -= len(chunk)
            self._unread_bytes += len(chunk)
            self._paths.traffic(self._source.node).stream_bytes_sent += len(chunk)
            self._launch(chunk)
        if self._closing and not self.queue and not self._ended:
            self._ended = True
            self._launch(_END)
        self._source.drained()

    def _launch(self, chunk: bytes) -> None:
        arrival = self._loop.time() + self._paths.delay_s(self._source.node, self._target.node)
        self._arrival_s = max(self._arrival_s, arrival)
        self._flight.append((self._arrival_s, chunk))
        if self._timer is None:
            self._timer = self._loop.call_at(self._flight[0][0], self._deliver, context=NO_PROCESS)

    def _deliver(self) -> None:
        self._timer = None
        if self._paths.is_cut(self._source.node, self._target.node):
            self._hold_up()
            return
        self._flows()
        now = self._loop.time() + 1e-9
        while self._flight and self._flight[0][0] <= now:
            _, chunk = self._flight.popleft()
            if self._target.closed and chunk is not _END:
                self._reset()
            elif chunk is _END:
                self._target.ended()
            else:
                self._paths.traffic(self._target.node).stream_bytes_received += len(chunk)
                self._target.received(chunk)
        if self._flight and self._timer is None:
            self._timer = self._loop.call_at(self._flight[0][0], self._deliver, context=NO_PROCESS)

    def _acknowledged(self) -> None:
        self._ack = None
        if self._paths.is_cut(self._target.node, self._source.node):
            self._hold_up()
            return
        self._flows()
        self._unread_bytes -= self._freed
        self._freed = 0
        self._pump()

    def _reset(self) -> None:
        """Reset the writer, because bytes reached a closed end."""
        delay = self._paths.delay_s(self._target.node, self._source.node)
        self._loop.call_later(delay, self._source.lose, context=NO_PROCESS)

    def _hold_up(self) -> None:
        if self._stall is None:
            self._stall = self._loop.call_later(self._paths.quality.stall_timeout_s, self._break, context=NO_PROCESS)
        if not self._waits_for_heal:
            self._waits_for_heal = True
            self._paths.when_healed(self._resume)

    def _resume(self) -> None:
        self._waits_for_heal = False
        if self._flight and self._timer is None:
            self._timer = self._loop.call_later(_RETRANSMIT_S, self._deliver, context=NO_PROCESS)
        if self._freed and self._ack is None:
            self._ack = self._loop.call_later(_RETRANSMIT_S, self._acknowledged, context=NO_PROCESS)

    def _flows(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def _break(self) -> None:
        self._stall = None
        self._source.lose()
        self._target.lose()


class SimulatedConnection:
    """One end of a connection (:class:`sbon_node.net.transport.Connection`)."""

    def __init__(self, paths: Paths, process: Process, node: str, peer: Address) -> None:
        self._paths = paths
        self._process = process
        self.node = node
        self._peer = peer
        self.closed = False
        self._lost = self._eof = False
        self._unread = bytearray()
        self._credited = 0
        self._wanted = 0
        self._reader: asyncio.Future[None] | None = None
        self._drainers: list[asyncio.Future[None]] = []
        self._out: _Pipe | None = None
        self._in: _Pipe | None = None
        process.on_kill(self._die)

    def join(self, other: SimulatedConnection) -> None:
        self._out = other._in = _Pipe(self._paths, self, other)
        other._out = self._in = _Pipe(self._paths, other, self)

    @property
    def peer(self) -> Address:
        return self._peer

    async def read_exactly(self, count: int) -> bytes:
        assert self._reader is None, "two readers on one connection"
        self._wanted = count
        try:
            while len(self._unread) < count:
                self._check_readable()
                self._credit()
                self._reader = asyncio.get_running_loop().create_future()
                await self._reader
                self._reader = None
            if self._lost or self.closed:
                raise ConnectionLostError(f"connection to {self._peer} is lost")
            self._credit()
        finally:
            self._reader = None
            self._wanted = 0
        data = bytes(self._unread[:count])
        del self._unread[:count]
        self._credited -= count
        return data

    def write(self, payload: bytes) -> None:
        if self._out is not None and not (self._lost or self._eof or self.closed) and self._process.alive:
            self._out.write(payload)

    async def drain(self) -> None:
        while True:
            if self._lost or self._eof or self.closed or self._out is None:
                raise ConnectionLostError(f"connection to {self._peer} is lost")
            if self._out.queued <= self._paths.quality.queue_bytes:
                return
            waiter = asyncio.get_running_loop().create_future()
            self._drainers.append(waiter)
            await waiter

    def close(self) -> None:
        self._shut(flush=True)

    # -- calls of the pipes -------------------------------------------------------------------------------------------

    def received(self, chunk: bytes) -> None:
        self._unread += chunk
        if self._process.paused:  # reads nothing: its kernel's buffer fills
            self._process.on_resume(self._credit)
        else:
            self._credit()
        if len(self._unread) >= self._wanted:
            self._wake_reader()

    def ended(self) -> None:
        self._eof = True
        self._wake()

    def drained(self) -> None:
        if self._drainers and self._out is not None and self._out.queued <= self._paths.quality.queue_bytes:
            self._wake_drainers()

    def lose(self) -> None:
        """Break the connection at both ends; each end learns it from its own pipe."""
        if not self._lost:
            self._lost = True
            self._process.off_kill(self._die)
            if self._out is not None:
                self._out.drop()
            self._wake()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _die(self) -> None:
        self._shut(flush=False)

    def _shut(self, *, flush: bool) -> None:
        if self.closed:
            return
        self.closed = True
        self._process.off_kill(self._die)
        if not self._lost and self._out is not None:
            self._out.finish(flush=flush)
        self._wake()

    def _credit(self) -> None:
        """Free requested bytes from the window; a frame larger than the window could otherwise never be read."""
        fresh = min(self._wanted, len(self._unread)) - self._credited
        if fresh > 0 and self._in is not None:
            self._credited += fresh
            self._in.free(fresh)

    def _check_readable(self) -> None:
        if self._lost or self._eof or self.closed or self._in is None:
            raise ConnectionLostError(f"connection to {self._peer} is lost")

    def _wake(self) -> None:
        self._wake_reader()
        self._wake_drainers()

    def _wake_reader(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _wake_drainers(self) -> None:
        waiting, self._drainers = self._drainers, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)
