"""The watched engine process with nothing between fragments and Spark: what an engine process would be without its guard."""

from __future__ import annotations

import sys
from typing import Any

from pyspark.sql import SparkSession

from sbon_node.engine.spark.analysis import guard
from sbon_node.engine.spark.jvm import session
from tests.engine import watched_engine


def unchecked(*_: Any) -> None:
    pass


def unfenced(root: SparkSession) -> SparkSession:
    return root.newSession()


if __name__ == "__main__":
    guard.check, guard.fenced_session = unchecked, unfenced
    session.CONF["spark.sql.runSQLOnFiles"] = "true"
    sys.exit(watched_engine.main())
