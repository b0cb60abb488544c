"""Operators that stop, are copied and start elsewhere: how stream processors move operators that have nothing prepared."""

import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median

from sbon_lab.migration.feed import Feed
from sbon_lab.migration.kinds import Kind
from sbon_lab.migration.moving import Host, MovingOperator
from sbon_node.base.clock import Clock
from sbon_node.engine.settings import EngineSettings
from sbon_protocol.api.operators import StateProvider, TimeBuckets

PATIENCE_S = 900.0
FRAMES_BETWEEN = 5


async def stop_copy_start(
    kind: Kind,
    feed: Feed,
    settings: EngineSettings,
    *,
    moves: int,
    state_provider: StateProvider,
    buckets: tuple[TimeBuckets, ...],
    notify: Callable[[str], None],
) -> tuple[list[float], float, int]:
    """Move an operator between two warm engines in this process; return the gaps in seconds, the usual gap, and the wrong rows.

    Two more moves come first, and do not count. With state at the beginning the rows are not compared: its operator would
    have to release all of it.
    """
    with tempfile.TemporaryDirectory(prefix="sbon-peer-") as folder:
        clock = Clock.real()
        hosts = [Host(name, Path(folder) / name, clock, settings) for name in ("first", "second")]
        operator = MovingOperator(
            "moving",
            kind,
            Path(folder) / "moving",
            hosts[0],
            feed,
            clock,
            patience_s=PATIENCE_S,
            state_provider=state_provider,
            buckets=buckets,
        )
        try:
            notify("stop, copy, start: the state")
            await operator.open()
            await _more(operator)
            lasts = []
            for number in range(moves + 2):
                notify(f"stop, copy, start: move {number - 1} of {moves}" if number > 1 else "stop, copy, start: the first moves")
                lasts.append(await operator.stop_copy_start(hosts[(number + 1) % 2]))
                await _more(operator, lasts[-1])
            wrong = 0 if feed.state_bytes else sum(await operator.end())
            gaps_s, usual_s = _gaps(operator, lasts)
            return gaps_s[2:], usual_s, wrong
        finally:
            await operator.close()
            for host in hosts:
                await host.engine.close()


async def _more(operator: MovingOperator, beyond: int = 0) -> None:
    """Wait for some frames with rows beyond the frame of that number."""

    def newer() -> int:
        return sum(arrival.rows > 0 and arrival.number > beyond for arrival in operator.arrivals)

    upto = newer() + FRAMES_BETWEEN
    await operator.until(lambda: newer() >= upto)


def _gaps(operator: MovingOperator, lasts: list[int]) -> tuple[list[float], float]:
    """Return the gap of each move, and the median of the others."""
    gaps_s: list[float] = []
    others_s: list[float] = []
    for before, after in pairwise([arrival for arrival in operator.arrivals if arrival.rows]):
        is_move = any(before.number <= last < after.number for last in lasts)
        (gaps_s if is_move else others_s).append(after.at_s - before.at_s)
    return gaps_s, median(others_s)
