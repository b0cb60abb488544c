"""The simulated cluster of the pictures in docs/concepts.md: whole daemons, latencies of cities, a fixed seed."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sbon.local.wide_area import CITIES, rtt_between_ms
from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_lab.simulation.loop import VirtualLoop
from sbon_lab.simulation.outcome import Ended, run_cluster
from sbon_node.base.logging.output import LogSettings, configure
from sbon_protocol.api.catalogue import SourceDeclaration, StreamDeclaration
from sbon_protocol.api.columns import Column
from sbon_protocol.api.explanations import Explanation, PlacementExplanation
from sbon_protocol.api.queries import QuerySpec

SEED = 1
PLACES = CITIES | {
    "chicago": (41.88, -87.63),
    "dubai": (25.20, 55.27),
    "hong-kong": (22.32, 114.17),
    "johannesburg": (-26.20, 28.05),
    "lagos": (6.52, 3.38),
    "madrid": (40.42, -3.70),
    "mexico-city": (19.43, -99.13),
    "mumbai": (19.08, 72.88),
    "nairobi": (-1.29, 36.82),
    "santiago": (-33.45, -70.67),
    "stockholm": (59.33, 18.07),
    "sydney": (-33.87, 151.21),
    "tokyo": (35.68, 139.69),
}
"""Degrees north and east."""
MOMENTS_S = (0.5, 1, 1.5, 2, 3, 4, 5, 7, 10, 15, 20, 30, 45, 60)
"""Times at which coordinates are recorded, after the start of all nodes."""
CONSUMER = "mumbai"
SOURCES = {"trades": ("frankfurt", "johannesburg"), "quotes": ("singapore",)}
RATES = {"trades": 200.0, "quotes": 200.0}
SQL = """\
SELECT window(t.ts, '1 minute').start AS minute, t.symbol, avg(t.price - q.bid) AS spread
FROM trades t JOIN quotes q ON t.symbol = q.symbol AND q.ts BETWEEN t.ts - INTERVAL 1 SECOND AND t.ts
WHERE t.size > 500 AND q.bid > 500
GROUP BY window(t.ts, '1 minute'), t.symbol"""


class World(NamedTuple):
    """``places`` [moments, nodes, dimensions] of the ``nodes``, heights last; ``rtt_ms`` [nodes, nodes]."""

    nodes: list[str]
    rtt_ms: npt.NDArray[np.float64]
    places: npt.NDArray[np.float64]
    plan: Explanation
    placement: PlacementExplanation

    def errors(self) -> npt.NDArray[np.float64]:
        """Median relative error of the estimates for all pairs, at each moment."""
        upper = np.triu_indices(len(self.nodes), 1)
        found = []
        for places in self.places:
            vectors, heights = places[:, :-1], places[:, -1]
            apart = np.linalg.norm(vectors[:, None] - vectors[None], axis=2) + heights[:, None] + heights[None]
            found.append(np.median(np.abs(apart - self.rtt_ms)[upper] / self.rtt_ms[upper]))
        return np.array(found)


def world() -> World:
    """Raises :class:`RuntimeError` where a check of the simulation fails."""
    configure(LogSettings(level="error"))
    nodes = sorted(PLACES)
    rtt_ms = np.array([[rtt_between_ms(PLACES[a], PLACES[b]) if a != b else 0.0 for b in nodes] for a in nodes])
    found: list[World] = []

    def build(loop: VirtualLoop, root: Path) -> SimulatedCluster:
        def latency_s(source: str, target: str) -> float:
            return float(rtt_ms[nodes.index(source), nodes.index(target)]) / 2000

        return SimulatedCluster(loop, SEED, nodes, root, latency=latency_s)

    async def play(cluster: SimulatedCluster, root: Path) -> Ended:
        cluster.start()
        await cluster.together()
        begun, places = cluster.loop.time(), []
        for moment in MOMENTS_S:
            await cluster.sleep(max(0.0, begun + moment - cluster.loop.time()))
            members = {name: cluster.at(name).daemon.operations.status() for name in nodes}
            places.append([[*members[name].coordinate, members[name].height] for name in nodes])
        daemon = cluster.at(CONSUMER).daemon
        await cluster.answer(CONSUMER, declare(cluster))
        question = QuerySpec(sql=SQL)
        plan = await cluster.answer(CONSUMER, daemon.queries.explainer.plan(question))
        placement = await cluster.answer(CONSUMER, daemon.queries.placement_explainer.plan(question))
        found.append(World(nodes, rtt_ms, np.array(places), plan, placement))
        return Ended(0, "explained")

    outcome = run_cluster(build, play, seed=SEED, max_time_s=3600.0, replay="make pictures")
    if outcome.failure:
        raise RuntimeError(outcome.failure)
    return found[0]


async def declare(cluster: SimulatedCluster) -> None:
    daemon = cluster.at(CONSUMER).daemon
    for name, nodes in SOURCES.items():
        value = ("price", "size") if name == "trades" else ("bid",)
        columns = (Column("ts", "timestamp"), Column("symbol", "string"), *(Column(one, "double") for one in value))
        await daemon.queries.declarations.create_stream(StreamDeclaration(name=name, schema=columns, event_time="ts"))
        rules = {"symbol": {"kind": "choice", "values": [f"S{n}" for n in range(50)]}}
        rules |= {one: {"kind": "uniform", "min": 0.0, "max": 1000.0} for one in value}
        for node in nodes:
            options = {"rate": RATES[name], "columns": rules}
            await daemon.hosting.sources.attach(
                SourceDeclaration(
                    stream=name, name=node, node=node, connector="generator", options=options, rows_s=RATES[name], row_bytes=60.0
                )
            )
