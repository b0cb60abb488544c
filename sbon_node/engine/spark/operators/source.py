"""The Spark data source for an operator's inputs (pyspark.sql.datasource); an offset is an :class:`InputOffset`.

The simple reader long-polls: ``read`` returns at the first news, which makes a trickle of rows fast and an idle query cheap.
The partitioned reader runs in executors, which makes high rates cheap and each batch slower. Both return whole Arrow batches.
"""

import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    InputPartition,
    SimpleDataSourceStreamReader,
)
from pyspark.sql.types import StructType

import sbon_node.base.arrow_without_pandas  # noqa: F401 - before Arrow converts a value
from sbon_node.engine.arrow.evaluate import decoded, read
from sbon_node.engine.spark.messages import Done, Fetch, Fetched, Poll, Polled, Spent
from sbon_node.engine.spark.operators.blocks import as_records, blocks
from sbon_node.engine.spark.operators.watermarks import conform, marker
from sbon_node.engine.spark.wire import Feed
from sbon_node.model.frames import NO_WATERMARK_MS, InputOffset
from sbon_node.model.schema import to_arrow
from sbon_node.streams.payload import unpack


def start_of(position: int) -> dict[str, Any]:
    """Return the offset before the first frame of an input."""
    return {"frame": 0, "watermark_ms": NO_WATERMARK_MS, "ended": False, "incarnation": 0, "input": position}


class SimpleSource(DataSource):
    """A source for low rates.

    Options: ``operator``, ``position`` (which input), ``wait`` (seconds to wait for news); ``event_time`` and ``lag`` if
    markers carry the watermark; ``plan`` if a :class:`ReadPlan` comes before Spark; ``span`` if it gives blocks of rows whose
    times lie within these microseconds.
    """

    @classmethod
    def name(cls) -> str:
        return "sbon_simple"

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:
        return SimpleReader(dict(self.options), schema)


class PartitionedSource(DataSource):
    """A source for high rates, with the same options."""

    @classmethod
    def name(cls) -> str:
        return "sbon_partitioned"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return PartitionedReader(dict(self.options), schema)


class _Input:
    """One input of one operator, read from the node."""

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        self.operator, self.position, self.wait_s = options["operator"], int(options["position"]), float(options["wait"])
        self.event_time, self.lag_ms = options.get("event_time", ""), int(options.get("lag", 0))
        self._span_us = int(options.get("span", 0))
        self.schema = arrow_schema(schema)
        self._plan = decoded(options["plan"]) if options.get("plan") else None
        self._feed: Feed | None = None
        self._counted_s, self._fetched = time.process_time(), False

    def _spent_s(self) -> float:
        """Return the processor time of this process since it last returned it."""
        before, self._counted_s = self._counted_s, time.process_time()
        return self._counted_s - before

    def poll(self, after: dict[str, Any]) -> dict[str, Any]:
        since = msgspec.convert(after, InputOffset)
        spent_s = self._spent_s()  # A poll without rows before it is no work for rows.
        cpu_s, self._fetched = spent_s if self._fetched else 0.0, False
        poll = Poll(operator=self.operator, position=self.position, after=since, wait_s=self.wait_s, cpu_s=cpu_s)
        upto = self.feed.call(poll, Polled).offset
        offset: dict[str, Any] = {**msgspec.to_builtins(upto), "input": self.position}
        # Spark compares the text: without news it must be identical.
        return after if offset == after else offset

    def batches(self, after: dict[str, Any], upto: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        """Yield the rows between two offsets, then the marker of the second one, if the operator has state.

        A first batch without news has a marker too: Spark takes an input without one for one at 1970, ever after.
        """
        if upto["frame"] > after["frame"]:
            yield from self._rows(after["frame"], upto["frame"])
        if self.event_time:
            yield marker(self.schema, self.event_time, msgspec.convert(upto, InputOffset), self.lag_ms)

    def _rows(self, after: int, upto: int) -> Iterator[pa.RecordBatch]:
        for batch in self._read(after, upto):
            if self._span_us:
                yield as_records([*blocks(batch, self.event_time, self._span_us)], self.schema, self.event_time)
            else:
                yield conform(batch, self.schema)

    def _read(self, after: int, upto: int) -> Iterator[pa.RecordBatch]:
        fetch = Fetch(operator=self.operator, position=self.position, after=after, upto=upto)
        self._fetched = True
        payloads = [payload for payload in self.feed.call(fetch, Fetched).payloads if payload]
        if self._plan is None:
            yield from (unpack(payload) for payload in payloads)
            return
        declared = to_arrow(self._plan.columns)
        yield from read(self._plan, (conform(unpack(payload, declared.names), declared) for payload in payloads))

    def report_spent(self) -> None:
        """Report the processor time of this process since the input was opened here."""
        self.feed.call(Spent(operator=self.operator, cpu_s=self._spent_s()), Done)

    @property
    def feed(self) -> Feed:
        if self._feed is None:
            self._feed = Feed("reader")
        return self._feed

    def close(self) -> None:
        if self._feed is not None:
            self._feed.close()
            self._feed = None


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema that Spark expects of a reader in a UTC session."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")


class SimpleReader(SimpleDataSourceStreamReader):
    """Reads where the query is planned."""

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        self._input = _Input(options, schema)

    def initialOffset(self) -> dict[str, Any]:
        return start_of(self._input.position)

    def read(self, start: dict[str, Any]) -> tuple[Iterator[pa.RecordBatch], dict[str, Any]]:
        end = self._input.poll(start)
        # Spark refuses rows without a further offset here, and reads those of a first batch between its offsets.
        return iter(()) if end == start else self.readBetweenOffsets(start, end), end

    def readBetweenOffsets(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        # Spark copies the iterator and pickles it, so it must be a list's.
        return iter(list(self._input.batches(start, end)))


class _Frames(InputPartition):
    def __init__(self, after: dict[str, Any], upto: dict[str, Any]) -> None:
        super().__init__((after["frame"], upto["frame"]))
        self.after, self.upto = after, upto


class PartitionedReader(DataSourceStreamReader):
    """Reads Arrow batches in the executors."""

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        self._options, self._schema = options, schema
        self._input: _Input | None = None
        self._last: dict[str, Any] | None = None

    def initialOffset(self) -> dict[str, Any]:
        return start_of(int(self._options["position"]))

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:
        after = start or self._last or self.initialOffset()
        if self._input is None:
            self._input = _Input(self._options, self._schema)
        self._last = self._input.poll(after)
        return self._last

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [_Frames(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Frames)
        reader = _Input(self._options, self._schema)
        try:
            yield from reader.batches(partition.after, partition.upto)
            reader.report_spent()
        finally:
            reader.close()

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_schema": self._schema, "_input": None, "_last": None}
