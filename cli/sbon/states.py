"""States of queries and sources that programs look at; docs/states.md has all, with their meanings."""

from __future__ import annotations

from typing import Final

PLACING: Final = "placing"
RUNNING: Final = "running"
PAUSED: Final = "paused"
FINISHED: Final = "finished"
STOPPED: Final = "stopped"
FAILED: Final = "failed"
UNREACHABLE: Final = "unreachable"
LOST: Final = "lost"

LIVE: Final = frozenset({PLACING, RUNNING})
"""States of a query that is not over."""
