"""The engine process of tests that share one: the planted, the watched and the counting engine process at once."""

from __future__ import annotations

import sys

from sbon_node.engine.spark import engine_process
from tests.engine import planted_engine
from tests.engine.counting_engine import CountingEngine
from tests.engine.watched_engine import WatchedEngine


class SharedEngine(CountingEngine, WatchedEngine):
    pass


if __name__ == "__main__":
    planted_engine.plant()
    engine_process.EngineProcess = SharedEngine  # type: ignore[misc]
    sys.exit(engine_process.main(sys.argv[1], sys.argv[2]))
