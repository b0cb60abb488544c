"""Live sources never wait: a reader that stays away too long loses rows, which the query reports."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest

from sbon_lab.simulation.cluster import CONFIG, SimulatedCluster
from sbon_lab.simulation.loop import VirtualLoop, run
from sbon_node.streams.settings import StreamSettings
from sbon_protocol.api.catalogue import SourceDeclaration
from tests.nodes.clusters import ask, declare, state_of, submitted

SETTINGS = StreamSettings(live_retention_bytes=20_000, subscription_quota_bytes=100_000)
LIVE = SourceDeclaration(stream="numbers", name="live", node="a", connector="generator", options={"rate": 200})


@pytest.mark.one_part_per_commit("queries in virtual time", parts=6)
def test_a_consumer_away_too_long_loses_rows_that_are_counted_and_its_query_fails(tmp_path: Path) -> None:
    async def main(loop: VirtualLoop, rng: random.Random) -> None:
        cluster = SimulatedCluster(loop, 1, ("a", "b", "c"), tmp_path, config=msgspec.structs.replace(CONFIG, streams=SETTINGS))
        cluster.start()
        await cluster.together()
        await declare(cluster, "a", LIVE)
        await submitted(cluster, "b", None, consumer="c", strategy="consumer")
        source = cluster.at("a").daemon

        async def dropped() -> int:
            return int((await ask(cluster, "a", source.hosting.sources.describe("numbers"))).sources[0].dropped)

        await loop.clock().sleep(20)
        assert await dropped() == 0
        cluster.crash(cluster.at("c"))
        while not (lost := await dropped()):
            await loop.clock().sleep(1)
        (link,) = (await state_of(cluster, "b")).links
        assert (link.stream, link.source_node, link.failed, link.dropped) == (LIVE.id, "a", "quota", lost)
        cluster.boot(cluster.at("c"))
        while (info := await state_of(cluster, "b")).state == "running":
            await loop.clock().sleep(1)
        assert info.state == "failed"
        assert f"fell behind its retained frames, and {lost:,} rows were dropped" in info.reason
        assert await dropped() == lost
        report = (await ask(cluster, "a", source.hosting.sources.describe("numbers"))).sources[0]
        assert (report.state, lost < report.rows) == ("running", True)
        cluster.verify()

    run(main, seed=1, max_time_s=3600.0)
