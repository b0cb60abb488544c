"""The one interface of all connectors, sources and sinks alike; docs/connectors.md shows how to write another.

A source is a ``msgspec.Struct`` of its options and a class with the members of :class:`Source`. The runner does the rest: late
rows, frames, watermarks, positions, dead letters, pauses and back-pressure (a source is simply not read meanwhile). A sink
likewise, with :class:`Sink`.

Both run on the node's event loop, so a step may block it only briefly, and neither knows what time it is but through what it is
given: the same code runs in virtual time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import pyarrow as pa

from sbon_node.streams.frame import Frame

AWAY = "endpoint-unreachable"
"""The code of an :class:`sbon_node.errors.SbonError` that a source or sink raises where what it talks to is away, or refuses for
the time being: nothing is lost, and it is tried again, with growing pauses."""

MAY_BE_MENDED = frozenset({AWAY, "file-not-found", "file-unreadable", "bad-header", "missing-columns", "type-mismatch"})
"""Codes of what somebody may mend where a source reads, without a word to its node: those of :data:`AWAY`, and those that tell of
a file as it is found just now, since it may be put there, or be written anew, meanwhile. Any other ends the source as failed."""

Origin = Callable[[int], tuple[int, str]]
"""Line number (or row number, from 1) and text of the chunk's row ``i``: asked only for rows that are refused later."""


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that could not be read: its line (from 1, the header included), its text and why."""

    line: int
    text: str
    reason: str


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some rows, in the stream's Arrow schema, and where reading goes on after them.

    ``position`` is the connector's own; it comes back in :meth:`Source.open`, and reading on from it must give exactly the rows
    that followed. ``due_s`` is for what is replayed at a pace: seconds on the source's own time line, of which only differences
    count.
    """

    rows: pa.RecordBatch
    position: bytes
    origin: Origin
    bad: tuple[BadRow, ...] = ()
    due_s: float | None = None


class Source(Protocol):
    """Where rows are born. Every method raises :class:`sbon_node.errors.SbonError` for what the user must mend."""

    @property
    def finite(self) -> bool:
        """Whether it ends by itself. Finite sources begin when first subscribed to and wait for slow subscribers; live ones begin
        at once, and forget what is older than the retention."""
        ...

    @property
    def waits(self) -> bool:
        """Whether it begins with its first subscriber, and is not read on while subscribers have not received what there is.
        Finite sources do; so should a live one whose rows can be had later just as well."""
        ...

    def check(self) -> None:
        """Called when the source is attached: whatever can be refused then, is (file not there, column missing)."""
        ...

    async def open(self, position: bytes | None) -> None:
        """Goes to ``position``, or to the beginning. May be called again after :meth:`close`. May raise what is
        :data:`MAY_BE_MENDED`, as may :meth:`read`: it is then closed, and opened again after a pause at the position of the last
        chunk it gave."""
        ...

    async def read(self) -> Chunk | None:
        """The next rows, waited for where need be; ``None`` once the source has ended, and ever after. Cancelling it loses
        nothing."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Receipt:
    """What has become of a chunk: how many rows are stored in frames, how many were late, and which were refused."""

    position: bytes
    rows: int
    late: int
    bad: tuple[BadRow, ...]


@runtime_checkable
class Confirmed(Protocol):
    """A source that answers for its rows: it is told when they are durable."""

    def stored(self, receipts: Sequence[Receipt]) -> None:
        """Frames and position of these chunks, the next ones in the order they were read, are stored."""
        ...


class Sink(Protocol):
    """Where results go. It takes the frames of several streams, one for each branch of the query.

    ``flush`` and ``finish`` may raise :class:`sbon_node.errors.SbonError` ``disk-full`` or :data:`AWAY`: nothing is lost then,
    and the call is repeated later. Nothing more is taken meanwhile.
    """

    def positions(self) -> dict[str, int]:
        """The last frame of each stream that has been durably delivered, as stored."""
        ...

    @property
    def ended(self) -> frozenset[str]:
        """The streams whose last frame has been durably delivered, as stored."""
        ...

    @property
    def rows(self) -> int:
        """Rows durably delivered, restarts included."""
        ...

    @property
    def refused(self) -> int:
        """Rows that were refused at the other end, and are in the file of :attr:`dead_letters` as far as it has room."""
        ...

    @property
    def dead_letters(self) -> str:
        """The file of rows that were refused; empty where none was."""
        ...

    def take(self, frame: Frame) -> None:
        """Takes the next frame of its stream, in memory; one it has taken already is ignored. Raises ``bad-frame`` where its
        rows are not of the sink's schema."""
        ...

    @property
    def wants_flush(self) -> bool:
        """Whether so much is held that nothing more should be taken before :meth:`flush`."""
        ...

    @property
    def flush_after_s(self) -> float:
        """Seconds what has been taken may wait for more before it is flushed."""
        ...

    async def flush(self) -> Mapping[str, int]:
        """Delivers durably what was taken; returns :meth:`positions`, up to which frames may now be acknowledged."""
        ...

    async def finish(self) -> None:
        """All inputs have ended and everything is flushed: completes what was delivered."""
        ...

    async def close(self) -> None:
        """Lets go of files and connections; what is not flushed is dropped, for it will be sent again."""
        ...
