"""Network usage of each query of the suite, against shipping every stream whole (``sbon bench usage``).

Whole daemons in virtual time: a site in each city, the suite's streams at three of them, the consumer at a fourth. Files are
read at full speed, so that frames are as full as possible. Frames are encoded for real, by the simulated engine for
operators' output. Bytes are those that each link carried; latencies are one-way in the emulated area. The same seed gives the
same result.
"""

import asyncio
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, get_args

from sbon_lab.experiments.harness.experiment import Found, Notify, ignore
from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_lab.simulation.loop import VirtualLoop
from sbon_lab.simulation.outcome import Ended, run_cluster
from sbon_lab.simulation.query_run import QueryRun, RunQuery
from sbon_lab.suite.cases import Case, chosen, simulated
from sbon_lab.suite.reference import Reference, differences
from sbon_lab.suite.streams import SITES, SuiteStream, write_streams
from sbon_node.base.logging.output import LogSettings, configure
from sbon_protocol.api.plan import Decompose, Plan
from sbon_protocol.api.queries import QueryInfo
from sbon_protocol.api.strategies import DEFAULT_STRATEGY, check_strategy
from sbon_protocol.errors import SbonError

NODES = dict(zip(SITES, ("new-york", "london", "sao-paulo"), strict=True))
CONSUMER = "singapore"
QUERY = "query"
SETTLE_S = 20.0
"""Seconds in which coordinates settle."""
MAX_TIME_S = 7200.0


class Area(NamedTuple):
    """Sites and the RTTs between them, ``rtt_ms[i][j]`` from ``names[i]`` to ``names[j]``; the first sites form the cluster."""

    names: Sequence[str]
    rtt_ms: Sequence[Sequence[float]]

    def one_way_ms(self, source: str, target: str) -> float:
        return self.rtt_ms[self.names.index(source)][self.names.index(target)] / 2


class Run(NamedTuple):
    """A query from its submission to its end."""

    info: QueryInfo
    found: list[tuple[object, ...]]

    def byte_ms(self, area: Area) -> float:
        return sum(link.bytes * area.one_way_ms(link.source_node, link.target_node) for link in self.info.links)

    def baseline_byte_ms(self, area: Area) -> float:
        """Return the byte-milliseconds of sending each source's frames to the consumer, once."""
        assert self.info.plan is not None
        carried: dict[str, int] = {}
        for link in self.info.links:
            carried[link.stream] = max(carried.get(link.stream, 0), link.bytes)
        sources = [planned.source for planned in self.info.plan.sources]
        return sum(carried.get(source.id, 0) * area.one_way_ms(source.node, self.info.consumer) for source in sources)


def run(
    area: Area,
    names: Sequence[str] = (),
    *,
    strategy: str = DEFAULT_STRATEGY,
    seed: int = 1,
    notify: Notify = ignore,
    found: Found = ignore,
) -> dict[str, Any]:
    """Return ``{"name": "usage", "rows": [...]}``, a row for each query; ``notify`` is called with the next query.

    Raises :class:`SbonError` ``unknown-suite-query``, ``unknown-strategy``.
    """
    check_strategy(strategy)
    configure(LogSettings(level="error"))
    selected, rows = chosen(names) or simulated(), []
    with tempfile.TemporaryDirectory(prefix="sbon-usage-") as folder:
        streams = write_streams(Path(folder))
        reference = Reference(streams)
        for case in selected:
            notify(case.name)
            rows.append(_row(area, case, streams, reference, strategy, seed))
            found(rows[-1])
    return {"name": "usage", "rows": rows}


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the medians as lines of text."""
    rows_undivided, divided = (
        [row for row in rows if row["ratio"] is not None],
        [row for row in rows if row["decomposed_ratio"] is not None],
    )
    wrong, failed = sum(row["wrong"] or 0 for row in rows), sum(bool(row["failed"]) for row in rows)
    return "\n".join(
        [
            f"median of {len(rows_undivided)} queries: {_median(rows_undivided, 'ratio')} of shipping every stream whole",
            f"median of {len(divided)} with aggregates that divide: {_median(divided, 'ratio')} in one piece,"
            f" {_median(divided, 'decomposed_ratio')} divided",
            f"{wrong} wrong rows; {failed} queries without figures",
        ]
    )


def _median(rows: Sequence[Mapping[str, Any]], ratio: str) -> str:
    return f"{statistics.median(row[ratio] for row in rows):.1%}" if rows else "-"


def _row(
    area: Area, case: Case, streams: Mapping[str, SuiteStream], reference: Reference, strategy: str, seed: int
) -> dict[str, Any]:
    """Return a query's figures; ``decomposed_*`` are those with divided aggregates, if they can be divided.

    ``divides_by_default`` says whether they are divided by default. ``wrong`` counts the differences from DuckDB's answer;
    ``failed`` is the reason for missing figures.
    """
    row: dict[str, Any] = {"query": case.name, **dict.fromkeys(COLUMNS), "failed": ""}
    try:
        plans = {how: asyncio.run(_plan(case.sql, streams, how)) for how in get_args(Decompose)}
        run_case = partial(run_query, area, case, streams, strategy=strategy, seed=seed)
        undivided = run_case(decompose="never")
        divides = plans["always"].operators != plans["never"].operators
        divided = run_case(decompose="always") if divides else None
    except SbonError as error:
        return row | {"failed": str(error)}
    expected = reference.answer(case)
    runs = [query_run for query_run in (undivided, divided) if query_run is not None]
    row |= {"operators": len(plans["never"].operators), "rows": len(undivided.found)}
    row |= {"wrong": sum(len(differences(query_run.found, expected, most=len(expected) + 1)) for query_run in runs)}
    shipped = undivided.baseline_byte_ms(area)
    row |= {"baseline_byte_ms": round(shipped), **_usage("", undivided.byte_ms(area), shipped)}
    if divided is not None:
        row |= {"divides_by_default": plans["auto"].operators != plans["never"].operators}
        row |= _usage("decomposed_", divided.byte_ms(area), shipped)
    return row


COLUMNS = (
    "operators",
    "rows",
    "wrong",
    "baseline_byte_ms",
    "byte_ms",
    "ratio",
    "decomposed_byte_ms",
    "decomposed_ratio",
    "divides_by_default",
)


def _usage(prefix: str, byte_ms: float, shipped: float) -> dict[str, Any]:
    return {f"{prefix}byte_ms": round(byte_ms), f"{prefix}ratio": round(byte_ms / shipped, 4) if shipped else None}


def run_query(
    area: Area, case: Case, streams: Mapping[str, SuiteStream], *, decompose: Decompose, strategy: str, seed: int = 1
) -> Run:
    """Run a query. Raise :class:`SbonError` of its submission, or ``query-failed`` if the run broke an invariant."""
    runs: list[Run] = []

    def build(loop: VirtualLoop, root: Path) -> SimulatedCluster:
        def latency(source: str, target: str) -> float:
            return area.one_way_ms(source, target) / 1000

        return SimulatedCluster(loop, seed, area.names, root, latency=latency)

    async def query_run(cluster: SimulatedCluster, root: Path) -> Ended:
        rows = (await _played(case.sql, streams, decompose, strategy).run(cluster, root))[QUERY]
        runs.append(Run(await cluster.answer(CONSUMER, cluster.at(CONSUMER).daemon.queries.lookup.query(QUERY)), rows))
        return Ended(0, "finished")

    outcome = run_cluster(
        build,
        query_run,
        seed=seed,
        max_time_s=MAX_TIME_S,
        replay=f"sbon bench usage -q {case.name} --strategy {strategy} --seed {seed}",
    )
    if outcome.failure:
        raise SbonError("query-failed", outcome.failure)
    return runs[0]


def _played(sql: str, streams: Mapping[str, SuiteStream], decompose: Decompose, strategy: str = DEFAULT_STRATEGY) -> QueryRun:
    return QueryRun(
        queries=(RunQuery(QUERY, sql, strategy, decompose),),
        streams=tuple(stream.declaration for stream in streams.values()),
        sources=tuple(source for stream in streams.values() for source in stream.sources(NODES)),
        consumer=CONSUMER,
        settle_s=SETTLE_S,
    )


async def _plan(sql: str, streams: Mapping[str, SuiteStream], decompose: Decompose) -> Plan:
    query_run = _played(sql, streams, decompose)
    return await query_run.plan(query_run.queries[0])
