"""What each query of the suite costs the network, against shipping every stream whole (``sbon bench bill``).

Whole daemons in virtual time: a site in each city, the suite's streams at three of them, the consumer at a fourth. Frames are
encoded for real, by the simulated engine where operators make them; bytes are what each link carried, latencies those of the
emulated area, one way. One seed, one result.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sbon_node.control.report import QueryInfo
from sbon_node.errors import SbonError
from sbon_node.experiments.suite.cases import Case, cases
from sbon_node.experiments.suite.reference import Reference, differences
from sbon_node.experiments.suite.streams import SITES, SuiteStream, write_streams
from sbon_node.log import LogSettings, configure
from sbon_node.placement.strategies import DEFAULT_STRATEGY
from sbon_node.simulation.cluster import SimulatedCluster
from sbon_node.simulation.loop import VirtualLoop
from sbon_node.simulation.outcome import Ended, run_cluster
from sbon_node.simulation.play import QUERY, QueryPlay

NODES = dict(zip(SITES, ("new-york", "london", "sao-paulo"), strict=True))
CONSUMER = "singapore"
REPLAY_S = 10.0
"""In which every file is read, whatever the time between its rows."""
SETTLE_S = 20.0
"""In which coordinates find their places."""
MAX_TIME_S = 7200.0


class Area(NamedTuple):
    """Sites and the round trips between them, ``rtt_ms[i][j]`` from ``names[i]`` to ``names[j]``; the first are the cluster."""

    names: Sequence[str]
    rtt_ms: Sequence[Sequence[float]]

    def one_way_ms(self, source: str, target: str) -> float:
        return self.rtt_ms[self.names.index(source)][self.names.index(target)] / 2


class Run(NamedTuple):
    """One query, from its submission to its end."""

    info: QueryInfo
    found: list[tuple[object, ...]]

    def byte_ms(self, area: Area) -> float:
        return sum(link.bytes * area.one_way_ms(link.source_node, link.target_node) for link in self.info.links)

    def whole_byte_ms(self, area: Area) -> float:
        """As if each source's frames went to the consumer, once."""
        assert self.info.plan is not None
        carried: dict[str, int] = {}
        for link in self.info.links:
            carried[link.stream] = max(carried.get(link.stream, 0), link.bytes)
        sources = [planned.source for planned in self.info.plan.sources]
        return sum(carried.get(one.id, 0) * area.one_way_ms(one.node, self.info.consumer) for one in sources)


def chosen(names: Sequence[str]) -> list[Case]:
    """The suite's queries of these names, or all of them; raises :class:`SbonError` ``unknown-query``."""
    known = {case.name: case for case in cases()}
    for name in names:
        if name not in known:
            raise SbonError("unknown-query", f"the suite has no query {name!r}", where="--queries", hint=", ".join(known))
    return [known[name] for name in names] if names else list(known.values())


def run(
    area: Area, names: Sequence[str] = (), *, seed: int = 1, told: Callable[[str], None] = lambda text: None
) -> dict[str, Any]:
    """``{"name": "bill", "rows": [...]}``, a row for each query; ``told`` hears which is next."""
    configure(LogSettings(level="error"))
    asked, rows = chosen(names), []
    with tempfile.TemporaryDirectory(prefix="sbon-bill-") as folder:
        streams = write_streams(Path(folder))
        reference = Reference(streams)
        for case in asked:
            told(case.name)
            rows.append(_row(area, case, streams, reference, seed))
    return {"name": "bill", "rows": rows}


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """The medians, in a line for people."""
    ratios = [row["ratio"] for row in rows if row["ratio"] is not None]
    wrong, failed = sum(row["wrong"] or 0 for row in rows), sum(bool(row["failed"]) for row in rows)
    median = f"{statistics.median(ratios):.1%} of shipping every stream whole" if ratios else "no figures"
    return f"median of {len(ratios)} queries: {median}; {wrong} wrong rows, {failed} queries failed"


def _row(area: Area, case: Case, streams: Mapping[str, SuiteStream], reference: Reference, seed: int) -> dict[str, Any]:
    """``wrong`` are the differences from DuckDB's answer; without figures, ``failed`` is why there are none."""
    row: dict[str, Any] = dict.fromkeys(("operators", "rows", "wrong", "whole_byte_ms", "byte_ms", "ratio"))
    try:
        ran = run_query(area, case.sql, streams, seed=seed)
    except SbonError as error:
        return {"query": case.name, **row, "failed": str(error)}
    assert ran.info.plan is not None
    usage, whole = ran.byte_ms(area), ran.whole_byte_ms(area)
    expected = reference.answer(case)
    row |= {"operators": len(ran.info.plan.operators), "rows": len(ran.found)}
    row |= {"wrong": len(differences(ran.found, expected, most=len(expected) + 1))}
    row |= {"whole_byte_ms": round(whole), "byte_ms": round(usage), "ratio": round(usage / whole, 4) if whole else None}
    return {"query": case.name, **row, "failed": ""}


def run_query(
    area: Area, sql: str, streams: Mapping[str, SuiteStream], *, seed: int = 1, strategy: str = DEFAULT_STRATEGY
) -> Run:
    """Raises :class:`SbonError`: of its submission, or ``query-failed`` where the run did not hold what it has to."""
    play = QueryPlay(
        sql=sql,
        streams=tuple(stream.declaration for stream in streams.values()),
        sources=tuple(source for stream in streams.values() for source in stream.sources(NODES, seconds=REPLAY_S)),
        consumer=CONSUMER,
        strategy=strategy,
        settle_s=SETTLE_S,
    )
    found: list[Run] = []

    def build(loop: VirtualLoop, root: Path) -> SimulatedCluster:
        def latency(source: str, target: str) -> float:
            return area.one_way_ms(source, target) / 1000

        return SimulatedCluster(loop, seed, area.names, root, latency=latency)

    async def ran(cluster: SimulatedCluster, root: Path) -> Ended:
        rows = await play.run(cluster, root / "rows")
        found.append(Run(await cluster.answer(CONSUMER, cluster.at(CONSUMER).daemon.query(QUERY)), rows))
        return Ended(0, "finished")

    outcome = run_cluster(build, ran, seed=seed, max_time_s=MAX_TIME_S, replay="sbon bench bill")
    if outcome.failure:
        raise SbonError("query-failed", outcome.failure)
    return found[0]
