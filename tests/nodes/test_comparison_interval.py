"""Intervals of catalogue comparisons: long while nothing happens, short after a change."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_lab.simulation.loop import VirtualLoop, run
from sbon_node.base.clock import Clock
from sbon_node.ownership.catalogue import SLOWEST, ComparisonInterval
from tests.nodes.clusters import NUMBERS, ask, in_cluster

NODES = "abcdef"


def test_pauses_grow_while_nothing_happens_and_are_cut_short_when_something_does() -> None:
    async def main(loop: VirtualLoop, rng: random.Random) -> list[float]:
        pace, ends = ComparisonInterval(Clock(), rng, 4.0), [loop.time()]
        for _ in range(6):
            await pace.pause()
            ends.append(loop.time())
        loop.call_later(3.0, pace.stir)
        for _ in range(2):
            await pace.pause()
            ends.append(loop.time())
        return [late - early for early, late in pairwise(ends)]

    pauses = run(main, seed=3, max_time_s=1000)
    for pause, middle in zip(pauses, (4, 8, 16, 32, 4 * SLOWEST, 4 * SLOWEST), strict=False):
        assert 0.5 * middle <= pause <= 1.5 * middle
    assert 3 + 2 <= pauses[6] <= 3 + 6
    assert 2 <= pauses[7] <= 6


def test_a_node_that_missed_a_stream_learns_of_it_soon_although_nodes_were_idle(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        async def known_at(name: str) -> list[str]:
            return [
                stream.entry.declaration.name
                for stream in await ask(cluster, name, cluster.at(name).daemon.hosting.sources.all())
            ]

        await cluster.sleep(200)
        cluster.network.partition(("a", "b", "c", "d"), ("e", "f"))
        await ask(cluster, "a", cluster.at("a").daemon.queries.declarations.create_stream(NUMBERS))
        cluster.network.heal()
        assert await known_at("e") == []
        began = cluster.loop.time()
        while not all([await known_at(name) for name in NODES]):
            await cluster.sleep(0.5)
        assert cluster.loop.time() - began < 15, "the pauses of those who had been at rest were 20 to 60 s long"

    in_cluster(tmp_path, NODES, test)
