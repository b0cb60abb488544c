"""Sink ``follow``: results for a follower of the query, which acknowledges each frame itself.

The sink stores nothing: frames stay in the links' inboxes until they are acknowledged, and the links' credit bounds them.
"""

import math
from collections.abc import AsyncGenerator, Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from sbon_node.base.clock import Clock
from sbon_node.base.executors import Executor, in_thread
from sbon_node.connectors.formats import frames
from sbon_node.connectors.formats.json_values import values_of
from sbon_node.connectors.sinks.newest import NewestRows
from sbon_node.model.frames import Frame
from sbon_node.streams.links.credit import weight
from sbon_node.streams.links.link import Link
from sbon_node.streams.outbox.signals import Signal
from sbon_node.streams.payload import is_large
from sbon_protocol.api.delivery import Finished, Rows, Sample
from sbon_protocol.api.states import query_states
from sbon_protocol.errors import SbonError


class Follower(NamedTuple):
    """The reader of a query: at this node by a secret ``word``, or at another ``node``, whose relay has the word.

    Followers of equal words are others if their ``reading`` differs.
    """

    word: str
    reading: Hashable
    node: str = ""
    instance: str = ""


IsReader = Callable[[Follower], bool]
"""Says whether a follower is the one that acknowledges."""


class Turn:
    """The follower whose turn it is to read a query. A turn with a limit ends by itself if its follower falls silent."""

    def __init__(self, query: str, clock: Clock) -> None:
        self._query, self._clock = query, clock
        self._follower: Follower | None = None
        self._last: Follower | None = None
        """The follower before this one; it may have written rows that it has not acknowledged yet."""
        self._until = clock.now()
        """When the turn ends, or the last one has ended."""
        self._requests = 0

    @property
    def idle_s(self) -> float:
        """Seconds since the last turn has ended; 0 while a follower has its turn."""
        now = self._clock.now()
        return max(0.0, now - self._until) if self._follower is None or now >= self._until else 0.0

    @property
    def recent(self) -> tuple[Follower, ...]:
        """The follower whose turn it is, and the one before."""
        return tuple(one for one in (self._follower, self._last) if one is not None)

    def begin(self, follower: Follower, for_s: float = math.inf) -> int:
        """Begin or continue the follower's turn; return the number of this request. Raises ``already-followed``."""
        self.extend(follower, for_s)
        self._requests += 1
        return self._requests

    def extend(self, follower: Follower, for_s: float) -> None:
        """Let the turn last ``for_s`` seconds from now at least. Raises ``already-followed``."""
        now = self._clock.now()
        if self._follower == follower:
            self._until = max(self._until, now + for_s)
        elif self._follower is None or now >= self._until:
            self._last = self._follower or self._last
            self._follower, self._until = follower, now + for_s
        else:
            message, hint = "another follower reads the query", "end the other one first"
            raise SbonError("already-followed", message, where=self._query, hint=hint)

    def limit(self, follower: Follower, for_s: float) -> None:
        """Let the follower's turn last no longer than ``for_s`` seconds from now."""
        if self._follower == follower:
            self._until = min(self._until, self._clock.now() + for_s)

    def end(self, follower: Follower, request: int | None = None) -> None:
        """End the follower's turn, unless it has made another request since ``request``."""
        if self._follower == follower and request in (None, self._requests):
            self._follower, self._last, self._until = None, follower, self._clock.now()


MAX_FRAMES = 1024
"""Most frames that a follower at another node takes at once."""


Events = AsyncGenerator[Rows | Finished, None]


class Taken(NamedTuple):
    """The next frames for a follower at another node; ``end`` once no frame is left."""

    frames: list[Frame]
    end: Finished | None


class FollowSink:
    """Follower's view of ``links``, none of which has been started.

    ``ended`` are the streams whose last frame was acknowledged before. ``rows`` counts the rows of earlier runs too.
    """

    def __init__(
        self,
        query: str,
        links: Sequence[Link],
        news: Signal,
        clock: Clock,
        ended: Iterable[str] = (),
        rows: int = 0,
        executor: Executor = in_thread,
    ) -> None:
        self.query, self.rows = query, rows
        self._links = {link.stream: link for link in links}
        self._clock, self._executor = clock, executor
        self._news = news
        self._last: dict[str, int] = dict.fromkeys(ended, 0)
        self._turn = Turn(query, clock)
        self._newest = NewestRows()
        self._over: Finished | None = None

    @property
    def links(self) -> tuple[Link, ...]:
        return tuple(self._links.values())

    @property
    def idle_s(self) -> float:
        """Seconds since a follower has had its turn; 0 while one has."""
        return self._turn.idle_s

    def sample(self) -> Sample | None:
        """Return a sample of the follower's newest rows, else of the first waiting rows."""
        if self._newest.sample() is None:
            waiting = (frame for stream in self._links if (frame := self._next(stream, 0)) is not None and frame.rows)
            first = next((frame for frame in waiting if not is_large(frame.payload)), None)
            if first is not None:
                with suppress(SbonError):  # the follower gets the error
                    self._newest.saw_values(*_read(first))
        return self._newest.sample()

    async def run(self) -> None:
        """Run until the follower has acknowledged the end of every stream. Raises the error that ends a link for good."""
        for stream, link in self._links.items():
            if stream not in self._last:
                link.start()
        try:
            while not self._complete():
                for stream, link in self._links.items():
                    if stream not in self._last:
                        link.check()
                await self._news.wait()
        except SbonError as error:
            self._end(Finished(state=query_states.FAILED, reason=str(error)))
            raise
        self._end(Finished(state=query_states.FINISHED))

    async def close(self, *, unsubscribe: bool = False) -> None:
        self._end(Finished(state=query_states.STOPPED))
        for link in self._links.values():
            await link.close(unsubscribe=unsubscribe)

    async def follow(self, after: Mapping[str, int], word: str = "") -> Events:
        """Yield frames after these numbers; 0 or none means all that are held. The follower is known by its ``word`` later.

        Frames without rows are included, since they need an acknowledgement too. Ends with a :class:`Finished`. Raises
        ``already-followed``, ``unknown-stream``, ``not-retained``.
        """
        at = self._beginnings(after)
        follower = Follower(word, object())
        self._turn.begin(follower)
        try:
            while True:
                next_frame = self._next_of(at)
                if next_frame is not None:
                    at[next_frame.stream] = next_frame.number
                    followed = await rows_of(next_frame, self._clock, self._executor)
                    self._newest.saw_values(followed.columns, followed.rows)
                    yield followed
                elif self._over is not None:
                    yield self._over
                    return
                else:
                    await self._news.wait()
        finally:
            self._turn.end(follower)

    async def frames_after(
        self, follower: Follower, after: Mapping[str, int], *, wait_s: float, turn_s: float, max_bytes: int
    ) -> Taken:
        """Return the frames after these numbers for a follower at another node: the first, and more up to ``max_bytes``.

        Waits up to ``wait_s`` seconds for them. The follower keeps its turn for ``turn_s`` seconds longer; an interrupted request
        ends it. Raises as :meth:`follow` does.
        """
        at = self._beginnings(after)
        request = self._turn.begin(follower, wait_s + turn_s)
        try:
            with suppress(TimeoutError):
                async with self._clock.timeout(wait_s):
                    while self._next_of(at) is None and self._over is None:
                        await self._news.wait()
        except BaseException:
            self._turn.end(follower, request)
            raise
        self._turn.limit(follower, turn_s)
        found = self._next_frames(at, max_bytes)
        if found and not is_large(found[-1].payload):
            self._newest.saw(found[-1].payload)
        return Taken(found, None if found else self._over)

    def hold(self, follower: Follower, turn_s: float) -> None:
        """Extend the turn of a follower at another node, who is busy with its rows. Raises ``already-followed``."""
        self._turn.extend(follower, turn_s)

    def end_turn(self, follower: Follower) -> None:
        """Let others follow: this follower has gone."""
        self._turn.end(follower)

    def check_reader(self, is_reader: IsReader) -> None:
        """Raise ``not-the-reader`` unless it holds for the follower whose turn it is, or was last."""
        if not any(is_reader(one) for one in self._turn.recent):
            hint = "acknowledge with the word of the reader event, once the rows are read again"
            raise SbonError("not-the-reader", "only who reads the rows acknowledges them", where=self.query, hint=hint)

    def acknowledge(self, numbers: Mapping[str, int]) -> None:
        """Accept that the follower has durably taken all frames up to these. Raises ``unknown-stream``, ``not-received``."""
        self.ends(numbers)
        self.rows = self.rows_with(numbers)
        for stream, number in numbers.items():
            self._links[stream].acknowledge(number)
        self._news.notify()

    def rows_with(self, numbers: Mapping[str, int]) -> int:
        """Return the rows that the follower has with these frames, which must have arrived (:meth:`ends`); each counts once."""
        more = 0
        for stream, number in numbers.items():
            inbox = self._links[stream].inbox
            if number > inbox.released:
                more += sum(frame.rows for frame in inbox.frames(inbox.released, number))
        return self.rows + more

    def ends(self, numbers: Mapping[str, int]) -> frozenset[str]:
        """Return the streams whose end the follower has with these frames.

        The ends must be stored with the acknowledgement, since no later frame repeats them. Raises the errors of
        :meth:`acknowledge`.
        """
        for stream, number in numbers.items():
            link = self._link(stream, "numbers")
            if number > link.inbox.received:
                message = f"frame {number} was acknowledged, and {link.inbox.received} have come"
                raise SbonError("not-received", message, where=stream)
        self._note_ends()
        return frozenset(s for s, last in self._last.items() if last == 0 or numbers.get(s, 0) >= last)

    def _link(self, stream: str, where: str) -> Link:
        link = self._links.get(stream)
        if link is None:
            raise SbonError("unknown-stream", f"{self.query} takes no stream {stream!r}", where=where)
        return link

    def _complete(self) -> bool:
        self._note_ends()
        return all(stream in self._last and link.inbox.released >= self._last[stream] for stream, link in self._links.items())

    def _note_ends(self) -> None:
        for stream, link in self._links.items():
            newest = link.inbox.newest
            if stream not in self._last and newest is not None and newest.ended:
                self._last[stream] = newest.number

    def _end(self, how: Finished) -> None:
        self._over = self._over or how
        self._news.notify()

    def _beginnings(self, after: Mapping[str, int]) -> dict[str, int]:
        for stream, number in after.items():
            link = self._link(stream, "after")
            if 0 < number < link.inbox.released:
                message = f"frames up to {link.inbox.released} were acknowledged, {number + 1} is asked for"
                raise SbonError("not-retained", message, where=stream)
        return {stream: after.get(stream, 0) for stream in self._links}

    def _next_of(self, at: Mapping[str, int]) -> Frame | None:
        return next((frame for stream in at if (frame := self._next(stream, at[stream])) is not None), None)

    def _next_frames(self, at: Mapping[str, int], max_bytes: int) -> list[Frame]:
        at, found, size = dict(at), list[Frame](), 0
        while len(found) < MAX_FRAMES and (frame := self._next_of(at)) is not None:
            size += weight(frame.payload)
            if found and size > max_bytes:
                break
            found.append(frame)
            at[frame.stream] = frame.number
        return found

    def _next(self, stream: str, after: int) -> Frame | None:
        inbox = self._links[stream].inbox
        after = max(after, inbox.released)
        return inbox.frames(after, after + 1)[0] if inbox.received > after else None


async def rows_of(frame: Frame, clock: Clock, executor: Executor) -> Rows:
    """Return the frame's rows for a follower, now. Raises ``bad-frame``."""
    columns, rows = _read(frame) if not is_large(frame.payload) else await executor(partial(_read, frame))
    delay_ms = max(0, clock.wall_ms() - frame.born_ms) if frame.born_ms else 0
    return Rows(
        stream=frame.stream, number=frame.number, columns=columns, rows=rows, watermark_ms=frame.watermark_ms, delay_ms=delay_ms
    )


def _read(frame: Frame) -> tuple[tuple[str, ...], tuple[tuple[Any, ...], ...]]:
    """Return the frame's columns, and its rows as Python values. Raises :class:`SbonError` ``bad-frame``."""
    if not frame.payload:
        return (), ()
    try:
        table = frames.decode(frame.payload)
    except frames.BadPayloadError as error:
        raise SbonError("bad-frame", f"frame {frame.number} cannot be read: {error}", where=frame.stream) from error
    return tuple(table.column_names), tuple(zip(*(values_of(column) for column in table.columns), strict=True))
