"""Follow a query: every row once and in order, over lost connections and restarts of the node.

The follower acknowledges a frame only after its rows have been written out. It recognises a repeated frame by its number.
"""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial

from sbon_protocol.errors import SbonError

from . import endpoints, states
from .model import Finished, Reader, Rows
from .requests import Transport

Frames = AsyncGenerator[tuple[Rows, Callable[[], None]], None]

PATIENCE_S = 600.0
"""Seconds that a node may be unreachable before the reader of its events gives up."""
FIRST_PATIENCE_S = 10.0
"""The same limit before the first event."""
PAUSES_S = (0.1, 0.2, 0.5, 1.0, 2.0)
"""Seconds between tries; the last value holds for all further tries."""
ACKNOWLEDGE_PAUSE_S = 0.1
"""Shortest time in seconds between two acknowledgements; the next covers the frames written out meanwhile."""
ACKNOWLEDGE_RETRY_S = 1.0

_PASSING = frozenset(
    {"node-unreachable", "peer-unreachable", "starting", "stopping", "too-many-connections", "too-many-requests", "not-owner"}
)
"""Temporary rejections, due to a restart."""
_PASSING_ONCE_FOLLOWED = frozenset(
    {"already-followed", "consumer-unreachable", "not-followable", "host-unreachable", "holder-unreachable", "no-majority"}
)
_PERHAPS_TERMINAL = frozenset({"consumer-unreachable", "not-followable", "query-over", "node-unreachable"})
"""The query may have ended without a listener; its record answers that."""


class Reconnection:
    """Reaction of a reader of events to lost connections."""

    def __init__(self, *, followed: bool = False) -> None:
        self.tries = 0
        self._lost_since: float | None = None
        self._followed, self._has_heard = followed, False

    def heard(self) -> None:
        """An event has come."""
        self._lost_since, self.tries, self._followed, self._has_heard = None, 0, True, True

    def pause_s(self, error: SbonError, now: float) -> float:
        """Return the seconds to wait before the next try; raise the error if there is none."""
        passing = _PASSING | _PASSING_ONCE_FOLLOWED if self._followed else _PASSING
        self._lost_since = self._lost_since if self._lost_since is not None else now
        is_taken = error.code == "already-followed" and not self._has_heard  # by another, or still by this one's last connection
        patience_s = PATIENCE_S if self._followed and not is_taken else FIRST_PATIENCE_S
        # A query that existed may be at the nodes that did not answer; the details name them.
        is_unanswered = self._followed and error.code == "unknown-query" and bool(error.details)
        if not (error.code in passing or is_unanswered) or now - self._lost_since > patience_s:
            raise error
        self.tries += 1
        return PAUSES_S[min(self.tries, len(PAUSES_S)) - 1]


def connection_ended(api: str) -> SbonError:
    return SbonError("node-unreachable", f"the node at {api} ended the connection")


class Listening:
    """A listener for a follower's rows and waits; this base class does nothing."""

    def broken(self) -> None:
        """Rows have come, and have been taken."""

    def lasts(self) -> None:
        """No rows have come, but the node answers."""


@dataclass
class Follower:
    """A follower of a query. ``notice`` reports lost connections to the user.

    It reads the query's first sink, a further ``sink``, or, with ``any``, one of its own where the first has another follower or
    delivers by itself; ``sink`` is the id of that then.
    """

    node: Transport
    query: str
    notice: Callable[[str], None] = lambda text: None
    listening: Listening = field(default_factory=Listening)
    sink: str = ""
    rows: int = field(default=0, init=False)
    end: Finished | None = field(default=None, init=False)
    """The query's end, once :meth:`frames` is done."""
    _seen: dict[str, int] = field(default_factory=dict, init=False)
    _due: Unacknowledged = field(default_factory=lambda: Unacknowledged(), init=False)

    async def frames(self) -> Frames:
        """Yield each frame once, with a callback for when its rows are stored, until the query's end.

        Once closed, it may be called again: it yields the frames after those whose rows are stored, and acknowledges these.

        Raises :class:`SbonError` if the query cannot be followed, or no longer.
        """
        acknowledger = _Acknowledger(self.node, self.query, self.notice, self._due, self.sink)
        try:
            async with aclosing(self._frames(acknowledger)) as frames:
                async for frame in frames:
                    yield frame, partial(self._written, frame, acknowledger)
        finally:
            await acknowledger.close()

    async def _frames(self, acknowledger: _Acknowledger) -> AsyncGenerator[Rows, None]:
        reconnection = Reconnection(followed=bool(self._seen))
        while self.end is None:
            try:
                events = self.node.events(endpoints.rows(self.query, self._seen, self.sink), self.listening.lasts)
                async with aclosing(events):
                    async for event in events:
                        if isinstance(event, Reader):
                            acknowledger.begin(event.word)
                            continue
                        reconnection.heard()
                        if isinstance(event, Finished):
                            # A closed sink does not know the reason.
                            self.end = (await self._recorded_end() if event.state == states.STOPPED else None) or event
                            return
                        self.sink = acknowledger.sink = event.sink
                        if event.number > self._seen.get(event.stream, 0):
                            yield event
                        self.listening.broken()
                error = connection_ended(self.node.api)
            except SbonError as refusal:
                error = refusal
            if error.code in _PERHAPS_TERMINAL:
                self.end = await self._recorded_end()
            if self.end is None:
                await self._reconnects(reconnection, error)

    async def _reconnects(self, reconnection: Reconnection, error: SbonError) -> None:
        pause_s = reconnection.pause_s(error, time.monotonic())
        if reconnection.tries == 1:
            self.notice(f"lost the node ({error.message}); trying again")
        await self.node.sleep(pause_s)

    def _written(self, frame: Rows, acknowledger: _Acknowledger) -> None:
        self.rows += len(frame.rows)
        self._seen[frame.stream] = frame.number
        acknowledger.written(frame)

    async def _recorded_end(self) -> Finished | None:
        try:
            record = await self.node.ask(endpoints.query(self.query))
        except SbonError:
            return None
        return None if record.state in states.LIVE else Finished(state=record.state, reason=record.reason)


class _Acknowledger:
    """Acknowledgements of a follower, sent beside its reading: a few each second, for any number of frames.

    It retries a failed request: without it the query would wait for the acknowledgement of its last frames. Closing it tries once
    more, so that the next follower begins where this follower ended.
    """

    def __init__(self, node: Transport, query: str, notice: Callable[[str], None], due: Unacknowledged, sink: str) -> None:
        self._node, self._query, self._notice, self._due = node, query, notice, due
        self._reader = ""
        """The word with which the rows began."""
        self.sink = sink
        """The further sink whose rows these are; empty for the query's first one."""
        self._failing = self._over = False
        self._worker = node.worker(f"acknowledge {query}", self._send)

    def begin(self, reader: str) -> None:
        """Rows begin with this word; those that were written out before are acknowledged with it too."""
        self._reader = reader
        self._worker.wake()

    def written(self, frame: Rows) -> None:
        self._due.written(frame.stream, frame.number)
        self._worker.wake()

    async def close(self) -> None:
        self._over = True
        await self._worker.close()

    async def _send(self) -> float:
        numbers = self._due.numbers
        if not numbers:
            return 0.0
        try:
            await self._node.ask(endpoints.acknowledge(self._query, numbers, self._reader, self.sink))
        except SbonError as error:
            if not self._failing and not self._over:
                self._notice(f"cannot acknowledge rows yet: {error.message}")
            self._failing = True
            self._worker.wake()
            return ACKNOWLEDGE_RETRY_S
        self._failing = False
        self._due.sent(numbers)
        return ACKNOWLEDGE_PAUSE_S


class Unacknowledged:
    """The newest frame number of each stream that is written out but not acknowledged; safe for threads."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self._changing = threading.Lock()

    def written(self, stream: str, number: int) -> None:
        """Record that all rows up to frame ``number`` have been written out."""
        with self._changing:
            self.numbers = {**self.numbers, stream: number}

    def sent(self, numbers: Mapping[str, int]) -> None:
        """Record that these numbers have been acknowledged; later numbers stay."""
        with self._changing:
            self.numbers = {stream: number for stream, number in self.numbers.items() if number > numbers.get(stream, 0)}
