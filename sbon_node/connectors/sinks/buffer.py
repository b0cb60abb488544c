"""Shared base of sinks that hold rows, deliver them together, and store the delivery position."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import msgspec
import pyarrow as pa

from sbon_node.connectors.formats import frames
from sbon_node.connectors.interface import BadRow
from sbon_node.connectors.sinks import file_formats
from sbon_node.connectors.sinks.context import SinkContext
from sbon_node.connectors.sinks.delivery_position import DEAD_LETTERS, DeliveryPosition, DeliveryPositionFile
from sbon_node.connectors.sources.dead_letters import DeadLetters
from sbon_node.model.frames import Frame
from sbon_protocol.errors import SbonError


@dataclass(frozen=True, slots=True)
class BufferedRows:
    """The rows of a frame; at least one row."""

    stream: str
    number: int
    rows: pa.Table


@dataclass(frozen=True, slots=True)
class Refused:
    """Row ``index`` of a frame, which the receiver refused."""

    stream: str
    number: int
    index: int
    rows: pa.Table
    reason: str


class Buffer:
    """Frames in the order taken. ``taken`` and ``ended`` are the positions and ended streams after delivery of all frames."""

    def __init__(self, schema: pa.Schema, streams: Mapping[str, int], ended: Iterable[str]) -> None:
        self._schema = schema
        self.reset(streams, ended)

    def reset(self, streams: Mapping[str, int], ended: Iterable[str]) -> None:
        """Return to the delivered position; the undelivered frames will be sent again."""
        self.taken, self.ended = dict(streams), set(ended)
        self.clear()

    def clear(self) -> None:
        """Drop all frames, which have been delivered."""
        self.frames: list[BufferedRows] = []
        self.rows = self.bytes = 0

    def drop(self, count: int) -> None:
        """Drop the first ``count`` frames, which have been delivered."""
        for frame in self.frames[:count]:
            self.rows -= frame.rows.num_rows
            self.bytes -= frame.rows.nbytes
        del self.frames[:count]

    def ended_by(self, streams: Mapping[str, int]) -> set[str]:
        """Return the streams that have ended once ``streams`` are delivered; no frame after the last one reports the end."""
        return {stream for stream in self.ended if streams.get(stream) == self.taken.get(stream)}

    def take(self, frame: Frame, unpacked: pa.Table | None = None) -> None:
        """See :meth:`sbon_node.connectors.interface.Sink.take`."""
        if frame.number <= self.taken.get(frame.stream, 0):
            return
        rows = decoded(frame, self._schema, unpacked)
        self.taken[frame.stream] = frame.number
        if frame.ended:
            self.ended.add(frame.stream)
        if rows.num_rows:
            self.frames.append(BufferedRows(frame.stream, frame.number, rows))
            self.rows += rows.num_rows
            self.bytes += rows.nbytes


def decoded(frame: Frame, schema: pa.Schema, unpacked: pa.Table | None = None) -> pa.Table:
    """Return the rows of a frame; raise ``bad-frame`` for an invalid frame or other columns."""
    try:
        rows = frames.decode(frame.payload, schema, unpacked)
    except frames.BadPayloadError as error:
        raise SbonError("bad-frame", f"frame {frame.number} cannot be read: {error}", where=frame.stream) from error
    if rows.num_rows != frame.rows:
        raise SbonError("bad-frame", f"frame {frame.number} has {rows.num_rows} rows, not {frame.rows}", where=frame.stream)
    return rows


class BufferedSink(ABC):
    """A :class:`~sbon_node.connectors.interface.Sink` that buffers rows and reports the stored position; subclasses deliver."""

    max_buffered_bytes: ClassVar[int]
    """Bytes of held rows that trigger a delivery."""

    def __init__(self, context: SinkContext, stored: DeliveryPosition) -> None:
        self._context, self._executor, self._at = context, context.executor, stored
        max_bytes, max_text = context.settings.dead_letter_max_bytes, context.settings.dead_letter_text_bytes
        folder, name = context.data_dir / DEAD_LETTERS, f"{context.component}.{context.claim}"
        self._letters = DeadLetters(folder, name, max_bytes=max_bytes, max_text=max_text)
        self._buffer = Buffer(context.schema, stored.streams, stored.ended)

    @abstractmethod
    async def _deliver(self, *, finished: bool) -> None:
        """Deliver the held rows, store the delivery position, and drop the rows. Raises :class:`SbonError`."""

    def take(self, frame: Frame, unpacked: pa.Table | None = None) -> None:
        self._buffer.take(frame, unpacked)

    @property
    def wants_flush(self) -> bool:
        return self._buffer.bytes >= self.max_buffered_bytes

    async def flush(self) -> Mapping[str, int]:
        if self._buffer.taken != self._at.streams:
            await self._deliver(finished=False)
        return self.positions()

    async def finish(self) -> None:
        if not self._at.finished:
            await self._deliver(finished=True)

    async def close(self) -> None:
        """Close the sink; undelivered rows will be sent again."""
        self._buffer.reset(self._at.streams, self._at.ended)

    def positions(self) -> dict[str, int]:
        return dict(self._at.streams)

    @property
    def ended(self) -> frozenset[str]:
        return frozenset(self._at.ended)

    @property
    def rows(self) -> int:
        return self._at.rows

    @property
    def refused(self) -> int:
        return self._at.refused

    @property
    def dead_letters(self) -> str:
        return str(self._letters.path) if self._at.refused else ""

    def _advanced(
        self, streams: dict[str, int], ended: Iterable[str], rows: int, *, refused: int, finished: bool
    ) -> DeliveryPosition:
        """Return the position to store after delivery of ``rows`` more rows, which exclude the ``refused`` ones."""
        return msgspec.structs.replace(
            self._at,
            streams=dict(sorted(streams.items())),
            ended=tuple(sorted(ended)),
            rows=self._at.rows + rows,
            refused=self._at.refused + refused,
            letters=self._letters.length,
            finished=finished,
        )

    async def _state(self, file: DeliveryPositionFile, position: DeliveryPosition) -> None:
        """Store the position, even if cancelled meanwhile, so that the sink always reports the stored position."""

        def store() -> None:
            file.store(position)
            self._at = position

        await self._executor(store)

    async def _write_letters(self, refused: Sequence[Refused]) -> None:
        """Write dead letters after the stored length. This overwrites letters that an earlier attempt wrote beyond it."""
        if not refused:
            return
        bad_rows = [
            BadRow(one.index + 1, _as_json(one.rows, one.index), f"frame {one.number} of {one.stream}: {one.reason}")
            for one in refused
        ]

        def write() -> None:
            self._letters.open(self._at.letters)
            self._letters.write(bad_rows)

        await self._executor(write)


def _as_json(rows: pa.Table, index: int) -> str:
    return file_formats.text("ndjson", rows.slice(index, 1)).decode("utf-8", "replace").rstrip("\n")
