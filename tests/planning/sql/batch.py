"""A plan's fragments run by Spark one after another over whole tables: what it computes, without streams or time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from sbon_node.engine.settings import EngineSettings
from sbon_node.engine.spark.analysis import guard
from sbon_node.engine.spark.engine_process import analyse
from sbon_node.engine.spark.jvm.session import Jvm, open_session
from sbon_node.engine.spark.operators.interval_joins import with_bucket, with_equal_buckets
from sbon_node.engine.spark.operators.operator import ddl
from sbon_node.engine.spark.operators.watermarks import MARK, propagate, with_watermark
from sbon_protocol.api.columns import Schema
from sbon_protocol.api.operators import TimeBuckets
from sbon_protocol.api.plan import Plan
from sbon_protocol.errors import SbonError


class Batch:
    """Spark's own analyser and execution for planned queries."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def fenced(self) -> Batch:
        """Return the same in a session of the engine's operators."""
        return Batch(guard.fenced_session(self._session))

    async def analyse(self, fragment: str, inputs: tuple[Schema, ...]) -> Schema:
        return analyse(self._session, fragment, inputs)

    def table(self, rows: pa.Table, schema: Schema) -> DataFrame:
        return self._session.createDataFrame(rows, schema=ddl(schema))

    def run(self, fragment: str, views: Sequence[DataFrame]) -> DataFrame:
        """The output of a fragment over tables."""
        for number, view in enumerate(views):
            view.createOrReplaceTempView(f"in{number}")
        return self._session.sql(fragment)

    def check_stream(self, fragment: str, views: Sequence[tuple[Schema, str]], buckets: Sequence[TimeBuckets] = ()) -> None:
        """Let Spark plan a fragment over streams of these columns, with markers if there is an event time.

        Raises :class:`SbonError` for what its rules for streams refuse. Nothing runs.
        """
        for number, (schema, event_time) in enumerate(views):
            columns = f.from_json(f.col("value").cast("string"), ddl(schema)).alias("row")
            rows = self._session.readStream.format("rate").load().select(columns, (f.col("value") > 0).alias(MARK))
            rows = rows.select("row.*", f"`{MARK}`")
            rows = with_watermark(rows, event_time) if event_time else rows
            with_bucket(rows, number, tuple(buckets)).createOrReplaceTempView(f"in{number}")
        stream = self._session.sql(with_equal_buckets(fragment, tuple(buckets))).select("*")  # analysed: of streams to Spark
        propagate(self._session, stream)
        jvm: Any = self._session._jvm
        sql, execution = jvm.org.apache.spark.sql, stream._jdf.queryExecution()
        try:
            append = sql.streaming.OutputMode.Append()
            sql.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(execution.analyzed(), append)
            plan = jvm.PythonSQLUtils.explainString(execution, "simple")
        except Exception as error:
            raise guard.sql_error(error) from error
        if "AnalysisException" in plan:  # in the place of a plan
            raise SbonError("not-runnable", plan)
        assert "StateStore" in plan or "SymmetricHashJoin" in plan or "MergingSessions" in plan, plan

    def rows(self, plan: Plan, tables: Mapping[str, pa.Table]) -> list[tuple[object, ...]]:
        """The result over a table for each source, by its name."""
        frames = {
            one.source.id: self._session.createDataFrame(tables[one.source.name], schema=ddl(one.schema)) for one in plan.sources
        }
        for operator in plan.operators:
            for view in {one.view for one in operator.inputs}:
                first, *others = (frames[one.stream] for one in operator.inputs if one.view == view)
                for other in others:
                    first = first.unionByName(other)
                with_bucket(first, view, operator.buckets).createOrReplaceTempView(f"in{view}")
            frames[operator.id] = self._session.sql(with_equal_buckets(operator.fragment, operator.buckets))
        return [tuple(row.values()) for output in plan.outputs for row in frames[output].toArrow().to_pylist()]


@contextmanager
def batch_spark() -> Iterator[Batch]:
    """A JVM of its own; what it leaves in the environment would lead later ones to it."""
    before = dict(os.environ)
    jvm = Jvm(EngineSettings(jit="c1"))
    try:
        session = open_session(EngineSettings(jit="c1"))
    finally:
        os.environ.clear()
        os.environ.update(before)
    try:
        yield Batch(session)
    finally:
        session.stop()
        jvm.close()
