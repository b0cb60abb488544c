"""Shared base of sinks that hold rows, deliver them together, and store the delivery position."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import pyarrow as pa

from sbon_node.connectors.sinks.buffer import Buffer
from sbon_node.connectors.sinks.context import SinkContext
from sbon_node.connectors.sinks.delivery_position import DeliveryPosition, PositionedSink, letters_of
from sbon_node.model.frames import Frame


class BufferedSink(PositionedSink, ABC):
    """A :class:`sbon_node.connectors.interface.Sink` that buffers; subclasses implement the delivery."""

    max_buffered_bytes: ClassVar[int]
    """Bytes of held rows that trigger a delivery."""

    def __init__(self, context: SinkContext, stored: DeliveryPosition) -> None:
        super().__init__(
            stored, letters_of(context.data_dir, context.component, context.claim, context.settings), context.executor
        )
        self._context = context
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
