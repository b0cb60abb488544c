"""Undelivered frames of a sink and the position they reach, for all buffering sinks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from sbon_node.connectors.formats import frames
from sbon_node.model.frames import Frame
from sbon_protocol.errors import SbonError


@dataclass(frozen=True, slots=True)
class BufferedRows:
    """The rows of a frame; at least one row."""

    stream: str
    number: int
    rows: pa.Table


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
        """Return the streams that have ended once ``streams`` are delivered.

        A stream ends with its last frame, since no later frame can report the end.
        """
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
