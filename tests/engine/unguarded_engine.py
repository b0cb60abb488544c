"""The watched engine process with nothing between fragments and Spark: what an engine process would be without its guard."""

from __future__ import annotations

import sys
from typing import Any

from pyspark.sql import SparkSession

from sbon_node.engine.spark.analysis import guard
from sbon_node.engine.spark.jvm import session
from sbon_node.engine.spark.operators import operator
from sbon_protocol.api.operators import OperatorSpec
from tests.engine import watched_engine


def unchecked(*_: Any) -> None:
    pass


def unfenced(root: SparkSession) -> SparkSession:
    return root.newSession()


def unread(spec: OperatorSpec) -> list[None]:
    """Let readers pass all rows on: what they read of a fragment has to be SQL as the planner writes it."""
    return [None] * len(spec.views())


if __name__ == "__main__":
    guard.check, guard.fenced_session = unchecked, unfenced
    operator.read_plans = unread
    session.CONF["spark.sql.runSQLOnFiles"] = "true"
    sys.exit(watched_engine.main())
