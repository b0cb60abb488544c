"""What a sink has taken and not delivered yet, and how far that goes: the same for every sink that holds rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from sbon_node.connectors import frames
from sbon_node.errors import SbonError
from sbon_node.streams.frame import Frame


@dataclass(frozen=True, slots=True)
class HeldRows:
    """The rows of one frame; there is at least one."""

    stream: str
    number: int
    rows: pa.Table


class Held:
    """Frames in the order they were taken; ``taken`` and ``ended`` are what will be delivered when all of it is."""

    def __init__(self, schema: pa.Schema, streams: Mapping[str, int], ended: Iterable[str]) -> None:
        self._schema = schema
        self.reset(streams, ended)

    def reset(self, streams: Mapping[str, int], ended: Iterable[str]) -> None:
        """Back to what has been delivered: the rest will be sent again."""
        self.taken, self.ended = dict(streams), set(ended)
        self.clear()

    def clear(self) -> None:
        """All of it has been delivered."""
        self.frames: list[HeldRows] = []
        self.rows = self.bytes = 0

    def drop(self, count: int) -> None:
        """The first ``count`` frames have been delivered."""
        for one in self.frames[:count]:
            self.rows -= one.rows.num_rows
            self.bytes -= one.rows.nbytes
        del self.frames[:count]

    def ended_by(self, streams: Mapping[str, int]) -> set[str]:
        """Those that have ended once ``streams`` are delivered: whose last frame is, since nothing comes after it to say so."""
        return {stream for stream in self.ended if streams.get(stream) == self.taken.get(stream)}

    def take(self, frame: Frame) -> None:
        """See :meth:`sbon_node.connectors.interface.Sink.take`."""
        if frame.number <= self.taken.get(frame.stream, 0):
            return
        rows = decoded(frame, self._schema)
        self.taken[frame.stream] = frame.number
        if frame.ended:
            self.ended.add(frame.stream)
        if rows.num_rows:
            self.frames.append(HeldRows(frame.stream, frame.number, rows))
            self.rows += rows.num_rows
            self.bytes += rows.nbytes


def decoded(frame: Frame, schema: pa.Schema) -> pa.Table:
    """The rows of a frame; raises ``bad-frame`` for what is none, or of other columns."""
    try:
        rows = frames.decode(frame.payload, schema)
    except frames.BadPayloadError as error:
        raise SbonError("bad-frame", f"frame {frame.number} cannot be read: {error}", where=frame.stream) from error
    if rows.num_rows != frame.rows:
        raise SbonError("bad-frame", f"frame {frame.number} has {rows.num_rows} rows, not {frame.rows}", where=frame.stream)
    return rows
