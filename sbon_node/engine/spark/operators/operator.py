"""One operator in the engine process: a streaming query from its views to its end, after which Spark keeps nothing of it."""

import os
import threading
import time
from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import DataType, StructType

from sbon_node.engine.arrow.compile import read_plans
from sbon_node.engine.arrow.evaluate import ReadPlan, encoded
from sbon_node.engine.checkpoint import BatchLog
from sbon_node.engine.settings import EngineSettings
from sbon_node.engine.spark.analysis import guard
from sbon_node.engine.spark.jvm.footprint import CpuTimes
from sbon_node.engine.spark.jvm.release import Batches, Sessions, end_monitors, forget_listener
from sbon_node.engine.spark.messages import Done, Ended, Start
from sbon_node.engine.spark.operators.blocks import BlockedJoin
from sbon_node.engine.spark.operators.failure_reports import why_ended
from sbon_node.engine.spark.operators.interval_joins import (
    PAIRS,
    blocked_join,
    ddl_of_blocks,
    over_pairs,
    pairs,
    with_bucket,
    with_equal_buckets,
)
from sbon_node.engine.spark.operators.on_error import SHARED_EXPRESSIONS, Guard, SkippedReader, tolerant
from sbon_node.engine.spark.operators.output import Output
from sbon_node.engine.spark.operators.source import PartitionedSource, SimpleSource
from sbon_node.engine.spark.operators.watermarks import MARK, begin_first_batch, gives_at_once, propagate, with_watermark
from sbon_node.engine.spark.wire import JVM_LOST, Feed, FeedError, FeedLostError
from sbon_node.engine.state_provider import settings_of
from sbon_node.streams.skipped import SkippedRows
from sbon_protocol.api.columns import Schema
from sbon_protocol.api.operators import OperatorSpec

INITIALIZING, INITIALIZING_S = "Initializing sources", 60.0
"""Spark's status of a query whose readers still start, and the longest wait for them."""


class Operator:
    """One streaming query in a session of its own, so that its views are its own."""

    def __init__(self, sessions: Sessions, cpu_times: CpuTimes, settings: EngineSettings, command: Start) -> None:
        spec = command.spec
        self._sessions, self._cpu_times, self._id, self._run = sessions, cpu_times, spec.id, command.run
        self._session = session = sessions.take()
        self._stopping, self._started = False, threading.Event()
        self._query: StreamingQuery | None = None
        self._output: Output | None = None
        self._skipped: SkippedReader | None = None
        self._batches: Batches | None = None
        try:
            guard.check(session, spec.fragment, len(spec.views()))
            for name, setting in settings_of(spec.state_provider, settings.rocksdb_mb).items():
                session.conf.set(name, setting)
            plans = read_plans(spec)
            fragment, guards = _fragment(session, spec, plans, settings)
            self._skipped = SkippedReader(session, guards, settings.skipped_rows)
            log = BatchLog(Path(command.checkpoint), fsync=command.fsync)
            propagated = propagate(session, fragment)
            at_once = spec.has_state and gives_at_once(fragment)
            grouped = plans[0] is not None and plans[0].grouping is not None  # By the readers.
            per_batch = spec.fragment if spec.groups_per_batch and not grouped else ""
            callbacks = (self._tell_end, self._dropped_rows, self._skipped_rows, self._spent_s)
            self._output = Output(
                spec, log, settings.frame_bytes, *callbacks, propagated=propagated, at_once=at_once, per_batch=per_batch
            )
            self._batches = Batches(session, self._output)
            writer = fragment.writeStream.foreachBatch(self._batches).option("checkpointLocation", command.checkpoint)
            is_new = spec.has_state and not log.offsets()
            self._query = writer.queryName(spec.id).outputMode("append").start()
            cpu_times.watch(self._query)
            self._started.set()
            watch = threading.Thread(target=self._watch, args=(self._query, is_new), name=f"end of {spec.id}", daemon=True)
            watch.start()
        except BaseException:
            self.stop()
            raise

    @property
    def is_starting(self) -> bool:
        """Whether the processes of its readers are still starting."""
        query = self._query
        return query is not None and query.isActive and query.status["message"] == INITIALIZING

    def stop(self) -> None:
        """Stop the query, and report its last commits."""
        self._stopping = True
        if self._query is not None:
            _wait_for_readers(self._query)
            self._query.stop()
            forget_listener(self._query)
        self._release()

    def _release(self) -> None:
        """Report all that is left to report; then remove every trace of the query from Spark and from this process."""
        if self._output is not None:
            self._output.close()
        if self._batches is not None:
            self._batches.release()
        if self._query is not None:
            self._cpu_times.forget(self._query)
        self._query = self._output = self._skipped = None
        self._sessions.give_back(self._session)

    def _dropped_rows(self) -> int:
        """Return the late rows that Spark has dropped in the current batch; with markers there are none."""
        self._started.wait()
        assert self._query is not None
        return dropped_rows(self._query._jsq.streamingQuery().lastExecution().executedPlan())

    def _skipped_rows(self) -> SkippedRows | None:
        """Return the rows that the current batch has skipped for errors in expressions."""
        self._started.wait()
        if self._skipped is None or not self._skipped.guards:
            return None
        assert self._query is not None
        return self._skipped.of(self._query._jsq.streamingQuery().lastExecution())

    def _spent_s(self) -> float:
        """Return the processor time of the JVM for the query so far."""
        self._started.wait()
        assert self._query is not None
        return self._cpu_times.spent_s(self._query)

    def _watch(self, query: StreamingQuery, is_new: bool) -> None:
        """Let a query begin, ``is_new`` if it has state and no checkpoint; report its end."""
        try:
            if is_new:
                self._begin(query)
            _wait_for_readers(query)
            end_monitors(self._session)
            query.awaitTermination()
            self._tell_end(RuntimeError("the query ended"))
        except Exception as error:  # noqa: BLE001 - whatever Spark raises is the reason
            self._tell_end(error)

    def _begin(self, query: StreamingQuery) -> None:
        begin_first_batch(query)
        if (output := self._output) is not None:
            output.begin_run(self._run)

    def _tell_end(self, error: Exception) -> None:
        """Report the query's end and its reason to the node; with a ``code`` if it would recur, or is known to pass."""
        output = self._output
        if self._stopping or output is None:
            return
        check_jvm(self._session)
        end = output.refusal or why_ended(error)
        try:
            Feed("output").call(Ended(operator=self._id, run=self._run, code=end.code, reason=str(end)), Done)
        except FeedError:
            return  # The node has stopped it meanwhile.
        except FeedLostError:
            os._exit(1)


def _wait_for_readers(query: StreamingQuery) -> None:
    """Wait for the readers: a query that is stopped before would leave their processes behind."""
    deadline = time.monotonic() + INITIALIZING_S
    while query.isActive and query.status["message"] == INITIALIZING and time.monotonic() < deadline:
        time.sleep(0.02)


def _fragment(
    session: SparkSession, spec: OperatorSpec, plans: Sequence[ReadPlan | None], settings: EngineSettings
) -> tuple[DataFrame, tuple[Guard, ...]]:
    """Return an allowed operator's output over its inputs as views, and the guards that skip rows.

    Of an operator that groups per batch, returns the rows or groups that its readers give.
    """
    views, join = spec.views(), blocked_join(spec)
    source = SimpleSource if spec.reader == "simple" else PartitionedSource
    _register(session, source)
    read: list[DataFrame] = []
    for inputs, plan in zip(views, plans, strict=True):
        tables = [_rows_of(session, source.name(), spec, position, plan, settings.poll_s, join) for position, _ in inputs]
        read.append(reduce(DataFrame.union, tables))
    fragment = _over_pairs(spec, plans, join, read) if join is not None else _over_views(spec, read)
    if spec.groups_per_batch:
        return session.table("in0"), ()
    if spec.on_error == "fail":
        session.conf.unset(SHARED_EXPRESSIONS)
    else:
        session.conf.set(SHARED_EXPRESSIONS, "false")
    return tolerant(session, session.sql(fragment), spec.on_error, settings.skipped_rows)


def _over_views(spec: OperatorSpec, read: Sequence[DataFrame]) -> str:
    """Make a view of the rows of each, and return the fragment over these views."""
    for number, rows in enumerate(read):
        with_bucket(rows, number, spec.buckets).createOrReplaceTempView(f"in{number}")
    return with_equal_buckets(spec.fragment, spec.buckets)


def _over_pairs(spec: OperatorSpec, plans: Sequence[ReadPlan | None], join: BlockedJoin, read: Sequence[DataFrame]) -> str:
    """Make a view of the pairs of a join in blocks, and return the fragment over it."""
    views = spec.views()
    schemas = [views[view][0][1].schema if (plan := plans[view]) is None else plan.columns for view in join.views]
    left, right = (DataType.fromDDL(ddl(schema)) for schema in schemas)
    assert isinstance(left, StructType)
    assert isinstance(right, StructType)
    pairs(join, (read[join.views[0]], read[join.views[1]]), (left, right)).createOrReplaceTempView(PAIRS)
    return over_pairs(spec.fragment)


def _register(session: SparkSession, source: type[SimpleSource] | type[PartitionedSource]) -> None:
    """Register the reader with the session.

    A reused session knows it already, and Spark looks for a taken name in the thread's active session, whichever that is.
    """
    java: Any = session._jsparkSession
    jvm: Any = session._jvm
    if not java.sessionState().dataSourceManager().dataSourceExists(source.name()):
        jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(java)
        session.dataSource.register(source)


def _rows_of(
    session: SparkSession,
    source: str,
    spec: OperatorSpec,
    position: int,
    plan: ReadPlan | None,
    wait_s: float,
    join: BlockedJoin | None,
) -> DataFrame:
    """Return one input as a stream of rows, or of blocks of rows, with its watermark if the operator has state."""
    input_spec = spec.inputs[position]
    mark = f", `{MARK}` boolean" if input_spec.event_time else ""
    options: dict[str, Any] = {
        "operator": spec.id,
        "position": position,
        "wait": wait_s,
        "event_time": input_spec.event_time,
        "lag": input_spec.lag_ms,
        "plan": "" if plan is None else encoded(plan),
    }
    schema = input_spec.schema if plan is None else spec.schema if plan.grouping is not None else plan.columns
    columns = ddl(schema) if join is None else ddl_of_blocks(input_spec.event_time)
    if join is not None:
        options["span"] = join.span_us
    rows = session.readStream.format(source).schema(columns + mark).options(**options).load()
    return with_watermark(rows, input_spec.event_time) if input_spec.event_time else rows


def ddl(schema: Schema) -> str:
    quoted = ((column.name.replace("`", "``"), column.type) for column in schema)
    return ", ".join(f"`{name}` {type_}" for name, type_ in quoted)


def check_jvm(session: SparkSession) -> None:
    """End this process if its JVM does not answer any more: then the failure was not an operator's."""
    try:
        session._jvm.System.currentTimeMillis()
    except Exception:  # noqa: BLE001 - however it shows
        os._exit(JVM_LOST)


def dropped_rows(plan: Any) -> int:
    """Return the rows dropped by the state operators of an executed plan."""
    metric = plan.metrics().get("numRowsDroppedByWatermark")
    own = int(metric.get().value()) if metric.isDefined() else 0
    children = plan.children()
    return own + sum(dropped_rows(children.apply(position)) for position in range(children.size()))
