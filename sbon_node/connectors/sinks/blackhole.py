"""Sink ``blackhole``: counts rows and discards them, to try or measure the rest of a query."""

import msgspec

from sbon_node.connectors.sinks.buffer import BufferedSink
from sbon_node.connectors.sinks.context import SinkContext
from sbon_node.connectors.sinks.delivery_position import DeliveryPositionFile
from sbon_node.model.frames import Frame

FLUSH_S = 0.2


class BlackholeOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the sink ``blackhole``: none."""


class BlackholeSink(BufferedSink):
    """See :class:`sbon_node.connectors.interface.Sink`. It buffers no rows, only their count."""

    wants_flush = False
    flush_after_s = FLUSH_S

    def take(self, frame: Frame, unpacked: object = None) -> None:
        if frame.number > self._buffer.taken.get(frame.stream, 0):
            self._buffer.taken[frame.stream] = frame.number
            self._buffer.rows += frame.rows
            if frame.ended:
                self._buffer.ended.add(frame.stream)

    async def _deliver(self, *, finished: bool) -> None:
        buffer = self._buffer
        position = self._advanced(buffer.taken, buffer.ended, buffer.rows, refused=0, finished=finished)
        await self._state(DeliveryPositionFile(self._context.data_dir, self._context.claim), position)
        buffer.clear()


async def open_blackhole(context: SinkContext, options: BlackholeOptions) -> BlackholeSink:
    file = DeliveryPositionFile(context.data_dir, context.claim)
    return BlackholeSink(context, await context.executor(file.make if context.fresh else file.take_up))
