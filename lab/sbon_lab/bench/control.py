"""Cost of registers on three nodes: time of a submission, and traffic at rest (``sbon bench control``).

Whole daemons in virtual time, a site in each city, whose latencies are those between the cities. Computation takes no virtual
time, except the simulated engine's. Each query has a register for its record, and one for its name if its user chose one. The
same seed gives the same result.

Before there were registers, a submission's p50 was ``BEFORE_MS`` here, with the cities of :mod:`sbon.local.wide_area` and seed 1
(the program of that time, which kept a record at one node, in the same cluster). Registers add one thing to the traffic at rest:
the hosts' questions whether their queries live. So a run that asks once a day gives the traffic without them.
"""

import statistics
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from sbon_lab.bench.usage import CONSUMER, Area
from sbon_lab.experiments.harness.experiment import Found, Notify, Row, ignore
from sbon_lab.simulation.cluster import CONFIG, SimulatedCluster
from sbon_lab.simulation.loop import VirtualLoop
from sbon_lab.simulation.outcome import Ended, run_cluster
from sbon_node.base.logging.output import LogSettings, configure
from sbon_node.engine.settings import EngineSettings
from sbon_protocol.api.catalogue import SourceDeclaration, StreamDeclaration
from sbon_protocol.api.columns import Column
from sbon_protocol.api.queries import Submission
from sbon_protocol.errors import SbonError

STREAM = StreamDeclaration(
    name="numbers", schema=(Column("id", "bigint"), Column("v", "double"), Column("ts", "timestamp")), event_time="ts"
)
SQL = "SELECT id, v FROM numbers WHERE v >= 0"
SETTLE_S = 20.0
REST_S = 120.0
LATE_S = 1.0
"""Time for messages of a submission or a stop that nobody waits for."""
MAX_TIME_S = 36_000.0
BEFORE_MS = 575.0
MOST_TIMES = 1.3
"""Aim for the p50 of a submission: at most so many times ``BEFORE_MS``, and two round trips."""
A_DAY_S = 86_400.0
MOST_BYTES_S = 100.0
"""Aim for what a node at rest sends more with registers."""


class Measured(NamedTuple):
    """Seconds of each submission, and bytes a second that a node sends at rest, before any query and with all of them.

    ``submit_bytes`` and ``stop_bytes`` are what all nodes send for a query that is submitted or stopped.
    """

    submit_s: list[float]
    submit_bytes: list[float]
    stop_bytes: list[float]
    idle_bytes_s: float
    rest_bytes_s: float


def run(area: Area, *, queries: int = 100, seed: int = 1, notify: Notify = ignore, found: Found = ignore) -> dict[str, Any]:
    """Return ``{"name": "control", "rows": [...]}``, a row for queries without names and one for queries with names."""
    configure(LogSettings(level="error"))
    notify("queries that are not checked")
    quiet = _measured(area, queries, seed, named=False, orphan_check_s=A_DAY_S)
    round_trip_s = statistics.median(area.rtt_ms[area.names.index(CONSUMER)]) / 1000
    limit_s = MOST_TIMES * BEFORE_MS / 1000 + 2 * round_trip_s
    rows = []
    for kind, named in (("records", False), ("records and names", True)):
        notify("queries with names" if named else "queries without names")
        rows.append(_row(kind, queries, _measured(area, queries, seed, named=named), quiet, limit_s))
        found(rows[-1])
    return {"name": "control", "rows": rows}


def _row(kind: str, queries: int, measured: Measured, quiet: Measured, limit_s: float) -> Row:
    more_bytes_s = measured.rest_bytes_s - quiet.rest_bytes_s
    return {
        "registers": kind,
        "queries": queries,
        "submit_p50_ms": round(1000 * statistics.median(measured.submit_s), 3),
        "submit_limit_ms": round(1000 * limit_s, 3),
        "submit_bytes": round(statistics.median(measured.submit_bytes)),
        "stop_bytes": round(statistics.median(measured.stop_bytes)),
        "idle_bytes_s": round(measured.idle_bytes_s, 1),
        "rest_bytes_s": round(measured.rest_bytes_s, 1),
        "more_bytes_s": round(more_bytes_s, 1),
        "within": statistics.median(measured.submit_s) <= limit_s and more_bytes_s <= MOST_BYTES_S,
    }


def _measured(area: Area, queries: int, seed: int, *, named: bool, orphan_check_s: float = 60.0) -> Measured:
    found: list[Measured] = []
    config = msgspec.structs.replace(
        CONFIG,
        engine=EngineSettings(max_operators=2 * queries),
        control=msgspec.structs.replace(CONFIG.control, cores=4096.0, memory_mb=1e8, orphan_check_s=orphan_check_s),
    )

    def build(loop: VirtualLoop, root: Path) -> SimulatedCluster:
        def latency(source: str, target: str) -> float:
            return area.one_way_ms(source, target) / 1000

        return SimulatedCluster(loop, seed, area.names, root, latency=latency, config=config)

    async def play(cluster: SimulatedCluster, root: Path) -> Ended:
        cluster.start()
        await cluster.together()
        await cluster.sleep(SETTLE_S)
        await cluster.answer(CONSUMER, _declare(cluster))
        idle = await _sent_bytes_s(cluster)
        names = [f"query-{number}" if named else "" for number in range(queries)]
        submitted = [await _sent_bytes(cluster, _submit(cluster, name)) for name in names]
        await cluster.sleep(SETTLE_S)
        rest = await _sent_bytes_s(cluster)
        uids = [info.uid for info in await cluster.answer(CONSUMER, cluster.at(CONSUMER).daemon.queries.lookup.all())]
        stopped = [await _sent_bytes(cluster, cluster.at(CONSUMER).daemon.queries.lookup.stop(uid)) for uid in uids]
        took_s, submit_bytes = [took for took, _ in submitted], [sent for _, sent in submitted]
        found.append(Measured(took_s, submit_bytes, [sent for _, sent in stopped], idle, rest))
        return Ended(0, "finished")

    outcome = run_cluster(build, play, seed=seed, max_time_s=MAX_TIME_S, replay=f"sbon bench control --seed {seed}")
    if outcome.failure:
        raise SbonError("query-failed", outcome.failure)
    return found[0]


async def _declare(cluster: SimulatedCluster) -> None:
    daemon = cluster.at(CONSUMER).daemon
    await daemon.queries.declarations.create_stream(STREAM)
    # No row comes while the queries are measured: what travels is control traffic.
    options = {"rows": 1, "rate": 1 / MAX_TIME_S}
    await daemon.hosting.sources.attach(
        SourceDeclaration(stream="numbers", name="quiet", node=CONSUMER, connector="generator", options=options)
    )


async def _submit(cluster: SimulatedCluster, name: str) -> None:
    async for _ in cluster.at(CONSUMER).daemon.submitting.submitter.submit(
        Submission(sql=SQL, name=name, strategy="consumer", reuse="never")
    ):
        pass


async def _sent_bytes(cluster: SimulatedCluster, work: Coroutine[Any, Any, object]) -> tuple[float, float]:
    """Return the seconds of ``work``, and the bytes that all nodes send for it: more than in as long a time afterwards."""
    before, began = _sent(cluster), cluster.loop.time()
    await cluster.answer(CONSUMER, work)
    took_s = cluster.loop.time() - began
    await cluster.sleep(LATE_S)
    done = _sent(cluster)
    await cluster.sleep(took_s + LATE_S)
    return took_s, 2 * done - before - _sent(cluster)


async def _sent_bytes_s(cluster: SimulatedCluster) -> float:
    """Return the bytes a second that a node sends on average, over some minutes."""
    before = _sent(cluster)
    await cluster.sleep(REST_S)
    return (_sent(cluster) - before) / REST_S / len(cluster.nodes)


def _sent(cluster: SimulatedCluster) -> int:
    traffic = [cluster.network.traffic(name) for name in cluster.nodes]
    return sum(one.datagram_bytes_sent + one.stream_bytes_sent for one in traffic)
