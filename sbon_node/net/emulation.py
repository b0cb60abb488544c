"""An emulated wide area on one machine: delays this node's traffic by half the path's round-trip time.

It wraps any transport. Every node of an emulated cluster delays its own datagrams and bytes, so that each direction is delayed
once. Delays do not serialise: as many bytes are in flight as the bound allows. Order on a connection is kept; datagrams may
overtake each other.

A cut loses datagrams. Bytes of a connection wait for its end, as TCP sends them again; a new connection is not opened.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from pathlib import Path
from typing import Annotated

import msgspec
import structlog
from msgspec import Meta

from sbon_node.base.clock import Clock
from sbon_node.base.validation_messages import in_plain_words
from sbon_node.net.counters import Counters
from sbon_node.net.settings import NetSettings
from sbon_node.net.transport import (
    Address,
    Connection,
    ConnectionHandler,
    ConnectionLostError,
    DatagramEndpoint,
    DatagramHandler,
    Listener,
    Transport,
)
from sbon_protocol.datagram import MAX_DATAGRAM_BYTES
from sbon_protocol.errors import SbonError
from sbon_protocol.rtt_matrix import MAX_RTT_MS

log = structlog.get_logger()

REREAD_S = 1.0
"""Pause between two looks whether the file has changed."""

Rtt = Annotated[float, Meta(ge=0, le=MAX_RTT_MS)]
Load = Annotated[float, Meta(ge=0, le=1000)]


class DelayTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Delays between the sites of an emulated wide-area network.

    ``sites`` maps IP addresses to named places; ``rtt_ms[i][j]`` is the round trip between ``names[i]`` and ``names[j]`` in
    milliseconds; ``jitter`` is the spread of each single delay (the standard deviation of its logarithm). Nothing passes from the
    first to the second site of a pair in ``cuts``. ``load_per_core`` has the runnable processes per core of named sites, in place
    of those of the machine that all share.
    """

    sites: Annotated[dict[str, str], Meta(max_length=65_536)]
    names: Annotated[tuple[str, ...], Meta(max_length=4096)]
    rtt_ms: Annotated[tuple[tuple[Rtt, ...], ...], Meta(max_length=4096)]
    jitter: Annotated[float, Meta(ge=0, le=2)] = 0.05
    cuts: Annotated[tuple[tuple[str, str], ...], Meta(max_length=65_536)] = ()
    load_per_core: Annotated[dict[str, Load], Meta(max_length=4096)] = {}

    def __post_init__(self) -> None:
        count = len(self.names)
        if len(set(self.names)) != count:
            raise ValueError("names repeat")
        if len(self.rtt_ms) != count or any(len(row) != count for row in self.rtt_ms):
            raise ValueError(f"rtt_ms is not {count} rows of {count}, one for each name")
        named = [(f"site {host} is at", name) for host, name in self.sites.items()]
        named += [("a cut has", name) for cut in self.cuts for name in cut]
        named += [("load_per_core has", name) for name in self.load_per_core]
        for what, name in named:
            if name not in self.names:
                raise ValueError(f"{what} {name!r}, which is not among the names")


class Delays:
    """The current delays; :meth:`replace` also affects open connections."""

    def __init__(self, table: DelayTable) -> None:
        self.replace(table)

    @classmethod
    def load(cls, path: Path) -> Delays:
        """Load delays from a file; raises :class:`SbonError` ``bad-delays``."""
        return cls(read_delays(path))

    @property
    def jitter(self) -> float:
        return self._table.jitter

    def replace(self, table: DelayTable) -> None:
        self._table = table
        index = {name: number for number, name in enumerate(table.names)}
        self._sites = {host: index[name] for host, name in table.sites.items()}
        self._rtt_ms = [list(row) for row in table.rtt_ms]
        self._cuts = frozenset((index[source], index[target]) for source, target in table.cuts)
        self._loads = {host: table.load_per_core[name] for host, name in table.sites.items() if name in table.load_per_core}

    def one_way_s(self, source: str, target: str) -> float:
        """Return half the round trip between two IP addresses, in seconds; 0 if either is unknown."""
        i, j = self._sites.get(source), self._sites.get(target)
        return 0.0 if i is None or j is None else self._rtt_ms[i][j] / 2000

    def is_cut(self, source: str, target: str) -> bool:
        """Say whether nothing passes from one IP address to another."""
        return bool(self._cuts) and (self._sites.get(source), self._sites.get(target)) in self._cuts

    def load_per_core(self, host: str) -> float | None:
        """Return the emulated load of the site at an IP address, in runnable processes per core; None if it has none."""
        return self._loads.get(host)


def read_delays(path: Path) -> DelayTable:
    """Read a delay table; raises :class:`SbonError` ``bad-delays``."""
    hint = '{"sites": {"127.0.10.1": "london"}, "names": ["london"], "rtt_ms": [[0]]}'
    try:
        return msgspec.json.decode(path.read_bytes(), type=DelayTable)
    except msgspec.ValidationError as error:
        field, message = in_plain_words(error)
        raise SbonError("bad-delays", f"{field}: {message}" if field else message, where=str(path), hint=hint) from error
    except (OSError, msgspec.DecodeError) as error:
        raise SbonError("bad-delays", str(error), where=str(path), hint=hint) from error


async def keep_reread(delays: Delays, path: Path, clock: Clock) -> None:
    """Replace the delays for ever when the file has changed. The old ones stay while it is missing or cannot be used."""
    seen: tuple[int, int, int] | None = None
    while True:
        stamp = _stamp(path)
        if stamp is not None and stamp != seen:
            seen = stamp
            try:
                delays.replace(read_delays(path))
            except SbonError as error:
                log.warning("delays-not-reread", reason=str(error), hint="the former delays stay")
        await clock.sleep(REREAD_S)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """Return what changes with the file: time, number and size; None if it is missing."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size


HEALED_S = 0.1
"""Pause between two looks whether a cut has ended."""


class EmulatedTransport(Transport):
    """``inner`` with the delays of ``host``'s site in ``delays``, which may change at any time."""

    def __init__(
        self,
        inner: Transport,
        delays: Delays,
        host: str,
        clock: Clock,
        rng: random.Random,
        settings: NetSettings,
        counters: Counters,
    ) -> None:
        self._inner, self._clock, self._settings, self._counters = inner, clock, settings, counters
        self._paths = _Paths(delays, host, rng)

    async def open_datagrams(self, bind: Address, handler: DatagramHandler) -> DatagramEndpoint:
        inner = await self._inner.open_datagrams(bind, handler)
        return _EmulatedDatagrams(inner, self._paths, self._clock, self._settings, self._counters)

    async def listen(self, bind: Address, handler: ConnectionHandler) -> Listener:
        async def accepted(inner: Connection) -> None:
            connection = _EmulatedConnection(inner, self._paths, self._clock, self._settings)
            try:
                await handler(connection)
            finally:
                # This return closes ``inner``, but written bytes are still in flight.
                connection.close()
                await connection.wait_sent()

        return await self._inner.listen(bind, accepted)

    async def connect(self, to: Address, *, timeout_s: float) -> Connection:
        started = self._clock.now()
        inner: Connection | None = None
        try:
            async with self._clock.timeout(timeout_s):
                await self._paths.wait_whole(to.host, self._clock)
                await self._clock.sleep(self._paths.draw_s(to.host))
                inner = await self._inner.connect(to, timeout_s=max(0.001, timeout_s - (self._clock.now() - started)))
                await self._clock.sleep(self._paths.draw_s(to.host))
        except BaseException as error:
            if inner is not None:
                inner.close()
            if isinstance(error, TimeoutError):
                raise ConnectionLostError(f"{to}: no answer within {timeout_s:g} s") from error
            raise
        return _EmulatedConnection(inner, self._paths, self._clock, self._settings)


class _Paths:
    """One-way delays from here, drawn anew each time."""

    def __init__(self, delays: Delays, host: str, rng: random.Random) -> None:
        self._delays, self._host, self._rng = delays, host, rng

    def draw_s(self, host: str) -> float:
        one_way_s = self._delays.one_way_s(self._host, host)
        return one_way_s * self._rng.lognormvariate(0.0, self._delays.jitter) if one_way_s > 0 else 0.0

    def is_cut(self, host: str) -> bool:
        """Say whether nothing passes from here to ``host``."""
        return self._delays.is_cut(self._host, host)

    async def wait_whole(self, host: str, clock: Clock) -> None:
        """Wait until both directions are whole, as a handshake needs."""
        while self.is_cut(host) or self._delays.is_cut(host, self._host):
            await clock.sleep(HEALED_S)


class _EmulatedDatagrams(DatagramEndpoint):
    def __init__(self, inner: DatagramEndpoint, paths: _Paths, clock: Clock, settings: NetSettings, counters: Counters) -> None:
        self._inner, self._paths, self._clock, self._counters = inner, paths, clock, counters
        self._limit = settings.emulated_flight_bytes
        self._in_flight = 0
        self._open = True

    @property
    def local(self) -> Address:
        return self._inner.local

    def send(self, payload: bytes, to: Address) -> float:
        if self._paths.is_cut(to.host):
            self._counters.count("emulated-datagram-cut")
            return self._clock.now()
        delay_s = self._paths.draw_s(to.host)
        if delay_s <= 0 or not self._open:
            return self._inner.send(payload, to)
        if len(payload) > MAX_DATAGRAM_BYTES:
            raise ValueError(f"a datagram of {len(payload)} bytes, the limit is {MAX_DATAGRAM_BYTES}")
        if self._in_flight + len(payload) > self._limit:
            self._counters.count("emulated-datagram-dropped")
        else:
            self._in_flight += len(payload)
            asyncio.get_running_loop().call_later(delay_s, self._arrive, payload, to)
        return self._clock.now()

    def close(self) -> None:
        self._open = False
        self._inner.close()

    def _arrive(self, payload: bytes, to: Address) -> None:
        self._in_flight -= len(payload)
        if self._open:
            self._inner.send(payload, to)


class _EmulatedConnection(Connection):
    """A connection whose written bytes wait in ``_flight`` until due; one task passes them on under the inner backpressure."""

    def __init__(self, inner: Connection, paths: _Paths, clock: Clock, settings: NetSettings) -> None:
        self._inner, self._paths, self._clock, self._settings = inner, paths, clock, settings
        self._flight: deque[tuple[float, bytes]] = deque()
        self._in_flight = 0
        self._last_due_s = 0.0
        self._closed = False
        self._lost: ConnectionLostError | None = None
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._reading: asyncio.Timeout | None = None
        self._give_up: asyncio.TimerHandle | None = None
        self._task = asyncio.get_running_loop().create_task(self._carry(), name=f"wide area to {inner.peer}")

    @property
    def peer(self) -> Address:
        return self._inner.peer

    async def read_exactly(self, count: int) -> bytes:
        if self._closed:
            raise ConnectionLostError(f"this node closed the connection with {self.peer}")
        try:
            async with asyncio.timeout(None) as self._reading:
                return await self._inner.read_exactly(count)
        except TimeoutError:
            raise ConnectionLostError(f"this node closed the connection with {self.peer}") from None
        finally:
            self._reading = None

    def write(self, payload: bytes) -> None:
        if not self._closed and self._lost is None and payload:
            self._launch(payload)

    async def drain(self) -> None:
        await self._room.wait()
        if self._lost is not None:
            raise self._lost
        if self._closed:
            raise ConnectionLostError(f"this node closed the connection with {self.peer}")

    def close(self) -> None:
        """Close after the written bytes have arrived, unless that takes longer than ``linger_s``."""
        if self._closed:
            return
        self._closed = True
        self._room.set()
        loop = asyncio.get_running_loop()
        if self._reading is not None:
            self._reading.reschedule(loop.time())
        self._launch(b"")
        give_up_s = self._last_due_s - self._clock.now() + self._settings.linger_s
        self._give_up = loop.call_later(give_up_s, self._task.cancel)

    async def wait_sent(self) -> None:
        """Wait until everything written before :meth:`close` has been passed on."""
        await asyncio.wait([self._task])

    def _launch(self, payload: bytes) -> None:
        self._last_due_s = max(self._last_due_s, self._clock.now() + self._paths.draw_s(self.peer.host))
        self._flight.append((self._last_due_s, payload))
        self._in_flight += len(payload)
        if self._in_flight > self._settings.emulated_flight_bytes and not self._closed:
            self._room.clear()
        self._news.set()

    async def _carry(self) -> None:
        try:
            while True:
                while not self._flight:
                    self._news.clear()
                    await self._news.wait()
                due_s, payload = self._flight[0]
                wait_s = due_s - self._clock.now()
                if wait_s > 0:
                    await self._clock.sleep(wait_s)
                if not payload:
                    return
                while self._paths.is_cut(self.peer.host):
                    await self._clock.sleep(HEALED_S)
                self._inner.write(payload)
                await self._inner.drain()
                self._in_flight -= len(self._flight.popleft()[1])
                if self._in_flight <= self._settings.emulated_flight_bytes // 2:
                    self._room.set()
        except ConnectionLostError as error:
            self._lost = error
        finally:
            if self._give_up is not None:
                self._give_up.cancel()
            self._flight.clear()
            self._in_flight = 0
            self._room.set()
            self._inner.close()
