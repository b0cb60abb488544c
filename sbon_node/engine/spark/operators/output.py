"""Output of a batch: collected as Arrow, cut into frames, and stored in the node before Spark commits the batch."""

import threading
import time
from collections.abc import Callable, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame

import sbon_node.base.arrow_without_pandas  # noqa: F401 - before Arrow converts a value
from sbon_node.engine.checkpoint import BatchLog
from sbon_node.engine.promise import batch_promise, joined_promise
from sbon_node.engine.spark.messages import Begun, Committed, Done, OutputFrame, Write
from sbon_node.engine.spark.wire import Feed, FeedError, FeedLostError, MessageTooLargeError
from sbon_node.model.frames import MAX_ROW_BYTES, InputOffset
from sbon_node.streams.payload import pack
from sbon_node.streams.skipped import SkippedRows
from sbon_protocol.api.operators import OperatorSpec
from sbon_protocol.errors import SbonError

COMMIT_POLL_S = 0.003
ONLY_LATER = "leave such rows out with WHERE, or join and aggregate in queries of their own"
SMALLER = "make the join or the columns narrower, or lower streams.batch_span_bytes, and submit the query again"
CODEC = pa.Codec("zstd", 1)


class Output:
    """Receives an operator's batches. ``on_failure`` gets a commit that the node refused or could not receive.

    ``spent_s`` returns the processor time that the JVM has spent on the operator.

    ``propagated``: Spark computes watermarks node by node; ``at_once``: its joins' state gives no rows without later input
    (:mod:`.watermarks`).
    """

    def __init__(
        self,
        spec: OperatorSpec,
        log: BatchLog,
        frame_bytes: int,
        on_failure: Callable[[Exception], None],
        dropped_rows: Callable[[], int],
        skipped: Callable[[], SkippedRows | None] = lambda: None,
        spent_s: Callable[[], float] = lambda: 0.0,
        *,
        propagated: bool = False,
        at_once: bool = False,
        per_batch: str = "",
    ) -> None:
        self._operator, self._has_state = spec.id, spec.has_state
        self._log, self._frame_bytes, self._on_failure, self._dropped_rows = log, frame_bytes, on_failure, dropped_rows
        self._per_batch = per_batch
        self._skipped, self._propagated = skipped, propagated
        self._spent_s, self._counted_s = spent_s, 0.0
        self._lags_ms = [i.lag_ms if i.event_time else None for i in spec.inputs] if at_once else None
        self._feed = Feed("output")
        self._commits = Feed("output")
        self._stopped = threading.Event()
        self._watcher: threading.Thread | None = None
        self.refusal: SbonError | None = None
        """The reason why a batch's output cannot be stored, in any engine."""

    def begin_run(self, run: int) -> None:
        """Let the node answer the readers of this run: its first batch has its watermark."""
        self._feed.call(Begun(operator=self._operator, run=run), Done)

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Store a batch's output, as ``foreachBatch`` function; return once the node has it, so that Spark may commit."""
        started, cpu_s = time.monotonic(), time.thread_time()
        self._wait_commit()
        table = self._rows(batch).toArrow()
        offsets = self._log.read_offsets(number)
        if self._has_state:
            self._check_none_dropped(number)
        watermark_ms, ended = self._promise(number, offsets)
        try:
            frames = cut(table, self._frame_bytes) or [OutputFrame(b"", 0)]
        except SbonError as error:
            self.refusal = error
            raise
        self._store(
            Write(
                operator=self._operator,
                batch=number,
                offsets=offsets,
                frames=tuple(frames),
                watermark_ms=watermark_ms,
                ended=ended,
                batch_ms=(time.monotonic() - started) * 1000,
                skipped=self._skipped(),
                cpu_s=time.thread_time() - cpu_s + self._newly_spent_s(),
            )
        )
        self._watcher = threading.Thread(target=self._watch, args=(number,), name=f"commit of {number}", daemon=True)
        self._watcher.start()

    def _newly_spent_s(self) -> float:
        before, self._counted_s = self._counted_s, self._spent_s()
        return max(0.0, self._counted_s - before)

    def _rows(self, batch: DataFrame) -> DataFrame:
        """Return the batch's output: the batch itself, or the result of the fragment to run on each batch by itself."""
        if not self._per_batch:
            return batch
        batch.createOrReplaceTempView("in0")
        return batch.sparkSession.sql(self._per_batch)

    def _promise(self, number: int, offsets: Sequence[InputOffset]) -> tuple[int, bool]:
        """Return the watermark of the batch's output, and whether it has ended."""
        if self._lags_ms is not None:
            return joined_promise(offsets, self._lags_ms)
        return batch_promise(offsets, self._log.read_watermark(number) if self._has_state else None)

    def _store(self, write: Write) -> None:
        """Hand a batch to the node. Raises :class:`SbonError` ``output-too-large``: another attempt would give as much."""
        try:
            self._feed.call(write, Done)
        except MessageTooLargeError as error:
            problem = f"the output of batch {write.batch} is too large: {error}"
            self.refusal = SbonError("output-too-large", problem, where=self._operator, hint=SMALLER)
            raise self.refusal from error

    def _check_none_dropped(self, number: int) -> None:
        """Reject a batch with dropped late rows: the watermark excluded such rows, so the result would be wrong."""
        dropped = self._dropped_rows()
        if not dropped:
            return
        if self._propagated and self._log.read_watermark(number) <= 0:
            message = f"{dropped} rows are of 1970-01-01T00:00:00Z or before, which an outer join below other joins or aggregates"
            self.refusal = SbonError("unsupported-event-time", f"{message} does not take", where=self._operator, hint=ONLY_LATER)
        else:
            self.refusal = SbonError("broken-invariant", f"{dropped} rows came after the watermark", where=self._operator)
        raise self.refusal

    def close(self) -> None:
        """Report the last commit; call after the query has stopped."""
        self._stopped.set()
        self._wait_commit()
        self._feed.close()
        self._commits.close()

    def _wait_commit(self) -> None:
        if self._watcher is not None:
            self._watcher.join()
            self._watcher = None

    def _watch(self, number: int) -> None:
        """Watch for a batch's commit file: batch b+1 may never come, so it cannot serve as sign of the commit."""
        while not self._log.is_committed(number):
            if self._stopped.is_set():
                return
            time.sleep(COMMIT_POLL_S)
        try:
            self._log.sync()
            self._commits.call(Committed(operator=self._operator, batch=number), Done)
        except (OSError, FeedError, SbonError) as error:
            self._on_failure(error)
        except FeedLostError:
            return  # The engine process ends without its node, or by its command.


def cut(table: pa.Table, frame_bytes: int) -> list[OutputFrame]:
    """Return the frames of a table: each about ``frame_bytes`` before compression, in the table's order.

    They leave out Spark's metadata of columns, such as those of watermarks, which would be refused where they are read.

    Raises :class:`SbonError` ``row-too-large``: without the error the row would be missing downstream unnoticed.
    """
    plain = pa.schema([pa.field(field.name, field.type, field.nullable) for field in table.schema])
    table, frames = pa.Table.from_arrays(table.columns, schema=plain), []
    spans = [(0, table.num_rows)] if table.num_rows else []
    while spans:
        start, rows = spans.pop()
        piece = table.slice(start, rows)
        if rows == 1 and piece.nbytes > MAX_ROW_BYTES:
            raise SbonError("row-too-large", f"a row of {piece.nbytes:,} bytes is over the limit of {MAX_ROW_BYTES:,}")
        if rows > 1 and piece.nbytes > 2 * frame_bytes:
            half = rows // 2
            spans += [(start + half, rows - half), (start, half)]
            continue
        (batch,) = piece.combine_chunks().to_batches()
        frames.append(OutputFrame(pack(batch, CODEC), rows))
    return frames
