"""A batch's skipped rows, each with the expression that raised an error and Spark's reason."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from pyspark.sql import SparkSession

from sbon_node.engine.spark.analysis.expressions import Expressions
from sbon_node.engine.spark.operators.failure_reports import brief, marked
from sbon_node.engine.spark.operators.on_error import Guard
from sbon_node.streams.skipped import SkippedRow, SkippedRows

logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
"""Disables PySpark's own log line for each error: these are expected."""


class SkippedReader:
    """Reads one operator's skipped rows: at most ``most`` of a batch are kept; the others are only counted."""

    def __init__(self, session: SparkSession, guards: Sequence[Guard], most: int) -> None:
        self.guards = tuple(guards)
        self._most = most
        if guards:
            self._expressions = Expressions(session)

    def of(self, execution: Any) -> SkippedRows | None:
        """Return the skipped rows of an executed batch, or None."""
        metrics = execution.observedMetrics()
        count = 0
        letters: list[SkippedRow] = []
        for guard in self.guards:
            if not metrics.contains(guard.name):
                continue
            metric = metrics.apply(guard.name)
            rows = metric.getSeq(1)
            if rows.isEmpty():
                continue
            count += metric.getLong(0)
            convert = self._expressions.jvm.org.apache.spark.sql.catalyst.CatalystTypeConverters.createToCatalystConverter(
                rows.apply(0).schema()
            )
            for position in range(min(rows.size(), self._most - len(letters))):
                letters.append(self._letter(guard, rows.apply(position), convert))
        return SkippedRows(rows=count, kept=tuple(letters)) if count else None

    def _letter(self, guard: Guard, row: Any, convert: Any) -> SkippedRow:
        """Return a skipped row with its reason, by running the row's expressions again, one after another."""
        expression, reason = guard.name, guard.reason
        if guard.tried:
            internal, seq = convert.apply(row), self._expressions.seq
            projection = self._expressions.catalyst.InterpretedMutableProjection
            for tried in guard.tried:
                try:
                    projection(seq([tried]), guard.columns).apply(internal)
                except Exception as error:  # noqa: BLE001 - whatever it raises is the reason
                    expression, reason = marked(str(error)) or str(tried.sql()), brief(error)
                    break
        else:
            expression = reason.split(" is beyond")[0]
        return SkippedRow(expression=expression, reason=reason, row=str(row.json()))
