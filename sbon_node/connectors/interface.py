"""The interface of all connectors, sources and sinks; docs/connectors.md shows how to write another.

A source is a ``msgspec.Struct`` of its options and a class with the members of :class:`Source`. The runner handles late rows,
frames, watermarks, positions, dead letters, pauses and backpressure (it stops reading the source meanwhile). A sink is likewise a
struct and a class with the members of :class:`Sink`.

Both run on the node's event loop, so a step may block it only briefly. Both read the time only from the clock they are given, so
the same code runs in virtual time.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import pyarrow as pa

import sbon_node.base.arrow_without_pandas  # noqa: F401 - before Arrow converts a value
from sbon_node.model.frames import Frame

AWAY = "endpoint-unreachable"
"""Code of the :class:`sbon_protocol.errors.SbonError` for an endpoint that is away or temporarily refuses.

Nothing is lost; the runner retries with growing pauses.
"""

MAY_BE_MENDED = frozenset({AWAY, "file-not-found", "file-unreadable", "bad-header", "missing-columns", "type-mismatch"})
"""Codes of errors that somebody may repair at the source's input without notifying the node.

They are :data:`AWAY` and the errors of a file's present content, which somebody may rewrite. Any other ends the source as failed.
"""

Origin = Callable[[int], tuple[int, str]]
"""Maps the chunk's row ``i`` to its line number (or row number, from 1) and text. Called only for rows that are refused later."""


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that could not be read: its line (from 1, header included), text and reason."""

    line: int
    text: str
    reason: str


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows in the stream's Arrow schema, and the position after them.

    The connector defines ``position``; :meth:`Source.open` receives it again, and reading from it must yield exactly the rows
    that followed. ``due_s`` is for rows that are replayed at a pace: seconds on the source's own time line, of which only
    differences count. ``watermark_ms`` is for rows whose event times were checked before: no row that follows is earlier.
    """

    rows: pa.RecordBatch
    position: bytes
    origin: Origin
    bad: tuple[BadRow, ...] = ()
    due_s: float | None = None
    watermark_ms: int | None = None


class Source(Protocol):
    """A reader of a stream's rows. Every method raises :class:`~sbon_protocol.errors.SbonError` for errors of the user."""

    @property
    def finite(self) -> bool:
        """Whether the source ends by itself.

        Finite sources begin with their first subscription and wait for slow subscribers. Live sources begin at once, and drop
        rows older than the retention.
        """
        ...

    @property
    def waits(self) -> bool:
        """Whether the source begins with its first subscriber and pauses while subscribers lag.

        Finite sources do. A live source should, if its rows remain available later.
        """
        ...

    def check(self) -> None:
        """Check the options at attachment; raise errors visible then (missing file, missing column)."""
        ...

    async def open(self, position: bytes | None) -> None:
        """Go to ``position``, or to the beginning.

        May be called again after :meth:`close`. :meth:`open` and :meth:`read` may raise the errors of :data:`MAY_BE_MENDED`: the
        runner then closes the source, pauses, and opens it again at the position of its last chunk.
        """
        ...

    async def read(self) -> Chunk | None:
        """Wait for the next rows and return them; ``None`` from the source's end on. Cancelling it loses nothing."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Receipt:
    """Outcome of a chunk: counts of stored and late rows, and the refused rows."""

    position: bytes
    rows: int
    late: int
    bad: tuple[BadRow, ...]


@runtime_checkable
class Measured(Protocol):
    """A finite source that knows how much of it has been read."""

    @property
    def share(self) -> float | None:
        """Return the share that has been read, from 0 to 1; None if unknown."""
        ...


@runtime_checkable
class Confirmed(Protocol):
    """A source that confirms its rows to their sender once they are durable."""

    def stored(self, receipts: Sequence[Receipt]) -> None:
        """Confirm that frames and position of these chunks are stored. The chunks are the next in reading order."""
        ...


class Sink(Protocol):
    """A receiver of a query's results: a stream of frames per branch of the query.

    ``flush`` and ``finish`` may raise :class:`SbonError` ``disk-full`` or :data:`AWAY`: nothing is lost then,
    and the runner repeats the call later. It takes no further frames meanwhile.
    """

    def positions(self) -> dict[str, int]:
        """Return the last durably delivered frame of each stream, as stored."""
        ...

    @property
    def ended(self) -> frozenset[str]:
        """Return the streams whose last frame has been durably delivered, as stored."""
        ...

    @property
    def rows(self) -> int:
        """Rows durably delivered, restarts included."""
        ...

    @property
    def refused(self) -> int:
        """Rows that the receiver refused. The file :attr:`dead_letters` holds them up to its size limit."""
        ...

    @property
    def dead_letters(self) -> str:
        """Path of the file of refused rows; empty if none was refused."""
        ...

    def take(self, frame: Frame, unpacked: pa.Table | None = None) -> None:
        """Take the next frame of its stream into memory; ignore a frame taken before.

        ``unpacked`` holds the rows of a frame that is too large to unpack here. Raises ``bad-frame`` for another schema.
        """
        ...

    @property
    def wants_flush(self) -> bool:
        """Whether the sink holds so many rows that :meth:`flush` must come before the next frame."""
        ...

    @property
    def flush_after_s(self) -> float:
        """Seconds for which taken frames may wait for more before a flush."""
        ...

    async def flush(self) -> Mapping[str, int]:
        """Deliver all taken frames durably. Returns :meth:`positions`, up to which frames may now be acknowledged."""
        ...

    async def finish(self) -> None:
        """Complete the result after all inputs have ended and everything is flushed."""
        ...

    async def close(self) -> None:
        """Release files and connections. Unflushed frames are dropped, since they will be sent again."""
        ...
