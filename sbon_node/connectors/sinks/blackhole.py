"""Sink ``blackhole``: counts rows and discards them, to try or measure the rest of a query."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from sbon_node.connectors.sinks.context import SinkContext
from sbon_node.connectors.sinks.delivery_position import DeliveryPosition, DeliveryPositionFile, PositionedSink, letters_of
from sbon_node.model.frames import Frame

FLUSH_S = 0.2


class BlackholeOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the sink ``blackhole``: none."""


class BlackholeSink(PositionedSink):
    """See :class:`sbon_node.connectors.interface.Sink`."""

    wants_flush = False
    flush_after_s = FLUSH_S

    def __init__(self, context: SinkContext, position: DeliveryPosition) -> None:
        super().__init__(
            position, letters_of(context.data_dir, context.component, context.claim, context.settings), context.executor
        )
        self._file = DeliveryPositionFile(context.data_dir, context.claim)
        self._forget()

    def take(self, frame: Frame, unpacked: object = None) -> None:
        if frame.number > self._taken.get(frame.stream, 0):
            self._taken[frame.stream] = frame.number
            self._rows += frame.rows
            if frame.ended:
                self._ends.add(frame.stream)

    async def flush(self) -> Mapping[str, int]:
        if self._taken != self._at.streams:
            await self._store(finished=False)
        return self.positions()

    async def finish(self) -> None:
        if not self._at.finished:
            await self._store(finished=True)

    async def close(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._taken, self._ends, self._rows = self.positions(), set(self._at.ended), 0

    async def _store(self, *, finished: bool) -> None:
        position = self._advanced(self._taken, self._ends, self._rows, refused=0, finished=finished)
        await self._state(self._file, position)
        self._rows = 0


async def open_blackhole(context: SinkContext, options: BlackholeOptions) -> BlackholeSink:
    file = DeliveryPositionFile(context.data_dir, context.claim)
    return BlackholeSink(context, await context.executor(file.make if context.fresh else file.take_up))
