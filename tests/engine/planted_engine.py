"""Faults in an engine process: operators whose names begin with ``alone.`` or ``plain.`` take out markers by a lesser filter."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from sbon_node.engine.spark.operators import operator as operators
from sbon_node.engine.spark.operators.watermarks import DELAY_MS, MARK
from sbon_protocol.api.operators import OperatorSpec

_rows_of, _with_watermark = operators._rows_of, operators.with_watermark


def planted(session: Any, source: str, spec: OperatorSpec, *more: Any) -> DataFrame:
    operators.with_watermark = {"alone": alone, "plain": plain}.get(spec.id.partition(".")[0], _with_watermark)
    return _rows_of(session, source, spec, *more)


def alone(rows: DataFrame, event_time: str) -> DataFrame:
    """Spark pushes it below the watermark, which markers then never reach."""
    return rows.withWatermark(event_time, f"{DELAY_MS} milliseconds").filter(~f.col(f"`{MARK}`")).drop(MARK)


def plain(rows: DataFrame, event_time: str) -> DataFrame:
    """It stays above the watermark itself, and lets what is above it pass below."""
    is_marker = f.col(f"`{MARK}`") & f.col(f"`{event_time}`").isNotNull()
    return rows.withWatermark(event_time, f"{DELAY_MS} milliseconds").filter(~is_marker).drop(MARK)


def plant() -> None:
    operators._rows_of = planted
