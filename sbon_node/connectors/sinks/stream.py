"""Sink ``stream``: the result becomes a stream of the catalogue, which other queries read."""

from typing import ClassVar

import pyarrow as pa

from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sinks.buffer import BufferedSink
from sbon_node.connectors.sinks.context import SinkContext
from sbon_node.connectors.sinks.delivery_position import DeliveryPosition
from sbon_node.connectors.sinks.results import ResultStreams, StreamSinkOptions
from sbon_node.connectors.sources.result import ResultPosition, ResultSource
from sbon_node.model.frames import NO_WATERMARK_MS, Frame
from sbon_node.planning.sql.syntax.lexical import check_name
from sbon_protocol.errors import BrokenInvariantError

BUFFERED_BYTES = 1 << 20


class StreamSink(BufferedSink):
    """See :class:`sbon_node.connectors.interface.Sink`. The stream's watermark is the least of those of the ``inputs``."""

    max_buffered_bytes: ClassVar[int] = BUFFERED_BYTES
    flush_after_s = 0.0

    def __init__(self, context: SinkContext, stream: str, source: ResultSource) -> None:
        super().__init__(context, source.at.delivery)
        self._stream, self._source = stream, source
        self._watermarks = {stream: source.at.watermarks.get(stream, NO_WATERMARK_MS) for stream in context.inputs}

    def take(self, frame: Frame, unpacked: pa.Table | None = None) -> None:
        super().take(frame, unpacked)
        self._watermarks[frame.stream] = max(self._watermarks[frame.stream], frame.watermark_ms)

    async def _deliver(self, *, finished: bool) -> None:
        if not self._source.is_open:
            self._source = await _results(self._context).source(self._context.query, self._stream, self._context.columns)
        buffer = self._buffer
        delivery = DeliveryPosition(
            streams=dict(buffer.taken), ended=tuple(sorted(buffer.ended)), rows=self._at.rows + buffer.rows, finished=finished
        )
        tables = [frame.rows for frame in buffer.frames]
        table = pa.concat_tables(tables) if tables else self._context.schema.empty_table()
        (rows,) = table.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]
        position = ResultPosition(delivery=delivery, watermarks=dict(self._watermarks))
        if self._source.at.delivery != delivery:  # It was stored already if the source was closed just then.
            await self._source.put(rows, min(self._watermarks.values()), position)
        self._at = delivery
        buffer.clear()


def check_stream_sink(options: StreamSinkOptions, settings: ConnectorSettings) -> None:
    check_name(options.stream)


async def open_stream_sink(context: SinkContext, options: StreamSinkOptions) -> StreamSink:
    results = _results(context)
    if context.fresh:
        await results.make(context.query, options, context.columns)
    return StreamSink(context, options.stream, await results.source(context.query, options.stream, context.columns))


async def withdraw_stream_sink(context: SinkContext, options: StreamSinkOptions, delivered: bool) -> None:
    if delivered:
        await _results(context).drop(context.query, options.stream, context.columns)
    else:
        _results(context).end(context.query, options.stream, context.schema)


def _results(context: SinkContext) -> ResultStreams:
    if context.results is None:
        raise BrokenInvariantError(f"{context.component} has no catalogue")
    return context.results
