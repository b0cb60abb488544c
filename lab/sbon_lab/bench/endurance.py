"""Short queries in sequence on the same engine, which must be unchanged after each (``sbon bench endurance``).

A filter, the same filter read by executors, a window and a join take turns, each from start to end over the benchmark's two
sites: outbox, link, engine, outbox, link. Threads, descriptors and heap are those of the idle engine process and its JVM, the
heap after a full collection. The first queries load and compile classes, so the first hundred are compared with the last.
"""

import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import uvloop

from sbon_lab.bench.sites import Ours
from sbon_lab.bench.work import AGGREGATE, FILTER, JOIN, Pass, Work, aggregate_passes, filter_passes, join_passes
from sbon_lab.experiments.harness.experiment import Found, Notify, Row, ignore
from sbon_node.base.clock import Clock
from sbon_node.base.logging.output import LogSettings, configure
from sbon_node.engine.interface import Footprint
from sbon_node.engine.settings import EngineSettings
from sbon_node.engine.spark.jvm.archive import make_archive

SPAN = 100
"""Number of first queries compared with as many last ones; half of all if there are fewer."""
GROWING = ("threads", "descriptors", "heap_mb")
MAX_GROWTH = 0.05
_LOOK_EVERY = 5
_ROWS = {"filter": 500, "partitioned": 500, "window": 11_000, "join": 400}


class Kind(NamedTuple):
    work: Work
    reader: Literal["simple", "partitioned"]
    passes: Callable[[int, int, int], list[Pass]]


KINDS = {
    "filter": Kind(FILTER, "simple", filter_passes),
    "partitioned": Kind(FILTER, "partitioned", filter_passes),
    "window": Kind(AGGREGATE, "simple", aggregate_passes),
    "join": Kind(JOIN, "simple", join_passes),
}


def run(queries: int, *, seed: int = 1, notify: Notify = ignore, found: Found = ignore) -> dict[str, Any]:
    """Return ``{"name": "endurance", "rows": [...]}``, a row for each ``metric``.

    A row has the medians over the ``first`` and the ``last`` queries, the growth ``grown`` (a share of the first), and
    whether that is ``within`` the limit. ``found`` gets the medians of every :data:`SPAN` queries meanwhile.
    """
    configure(LogSettings(level="warning"))
    make_archive(EngineSettings())
    times, looks = uvloop.run(_queries(queries, seed, notify, found))
    span = min(SPAN, queries // 2)
    rows = [_row("query_s", times[:span], times[-span:])]
    for metric in GROWING:
        first = [getattr(look, metric) for number, look in looks if number <= span]
        last = [getattr(look, metric) for number, look in looks if number > queries - span]
        rows.append(_row(metric, first, last))
    return {"name": "endurance", "rows": rows}


def _row(metric: str, first: list[float], last: list[float]) -> dict[str, Any]:
    before, after = statistics.median(first), statistics.median(last)
    grown = after / before - 1
    return {
        "metric": metric,
        "first": round(before, 3),
        "last": round(after, 3),
        "grown": round(grown, 4),
        "within": grown <= MAX_GROWTH,
    }


async def _queries(queries: int, seed: int, notify: Notify, found: Found) -> tuple[list[float], list[tuple[int, Footprint]]]:
    """Return each query's seconds, and the footprints with the number of queries before each."""
    clock = Clock.real()
    times: list[float] = []
    looks: list[tuple[int, Footprint]] = []
    passes = {name: kind.passes(seed, _ROWS[name], 1)[0] for name, kind in KINDS.items()}
    names = list(KINDS)
    with tempfile.TemporaryDirectory(prefix="sbon-bench-") as folder:
        ours = Ours(Path(folder), clock)
        async with ours.running():
            for number in range(1, queries + 1):
                name = names[number % len(names)]
                notify(f"query {number} of {queries}")
                began_s = clock.now()
                await _query(ours, f"{name}-{number}", KINDS[name], passes[name])
                times.append(clock.now() - began_s)
                if number % _LOOK_EVERY == 0 or number == queries:
                    looks.append((number, await ours.footprint()))
                if number % SPAN == 0:
                    found(_so_far(number, times, looks))
    return times, looks


def _so_far(number: int, times: Sequence[float], looks: Sequence[tuple[int, Footprint]]) -> Row:
    lately = [look for at, look in looks if at > number - SPAN]
    counts = {name: statistics.median(getattr(look, name) for look in lately) for name in GROWING}
    return {"queries": number, "query_s": round(statistics.median(times[-SPAN:]), 3), **counts}


async def _query(ours: Ours, operator: str, kind: Kind, rows: Pass) -> None:
    flow = await ours.start(operator, kind.reader, kind.work)
    await flow.arrive(rows.drafts)
    await flow.outputs.wait(rows.out)
    await ours.stop(operator)
