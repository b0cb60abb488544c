"""An engine process that makes snapshots of state all the time, and soon deletes old files."""

from __future__ import annotations

import sys

from sbon_node.engine.spark import engine_process
from sbon_node.engine.spark.jvm import session

OFTEN = {
    "spark.sql.streaming.stateStore.maintenanceInterval": "200ms",
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "2",
    "spark.sql.streaming.minBatchesToRetain": "3",
}

if __name__ == "__main__":
    session.CONF.update(OFTEN)
    sys.exit(engine_process.main(sys.argv[1], sys.argv[2]))
