"""Two queries that need a stream at one node: its frames cross the network once, and both bear the cost."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from sbon_lab.simulation.cluster import CONFIG, SimulatedCluster
from sbon_node.adaptation.look import OptimizerParts
from sbon_protocol.api.usage import LinkUsage, QueryUsage
from tests.nodes.clusters import ask, declare, in_cluster, source_at, state_of, submitted, uid_of

THIRD = "SELECT id, v FROM numbers WHERE id % 3 = 0"
ROWS = 600
ALONE = msgspec.structs.replace(CONFIG, streams=msgspec.structs.replace(CONFIG.streams, shared_window_bytes=0))


@pytest.mark.one_part_per_commit("sinks that share frames", parts=16)
@pytest.mark.parametrize("crashed", [False, True])
@pytest.mark.parametrize("config", [CONFIG, ALONE])
def test_two_sinks_at_a_node_share_the_frames_of_a_shared_operator(tmp_path: Path, config: type, crashed: bool) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a", rows=ROWS, rate=60.0))
        for name in ("first", "second"):
            await submitted(cluster, "c", tmp_path / f"{name}.ndjson", name=name, sql=THIRD)
        await cluster.clock.sleep(3.0)
        if crashed:
            cluster.crash(cluster.at("c"))
            await cluster.clock.sleep(1.0)
            cluster.boot(cluster.at("c"))
        for name in ("first", "second"):
            while (await state_of(cluster, "a", name)).state == "running":
                await cluster.clock.sleep(0.5)
            rows = [json.loads(line)["id"] for line in (tmp_path / f"{name}.ndjson").read_text().splitlines()]
            assert rows == list(range(0, ROWS, 3))

    in_cluster(tmp_path, "abc", test, config=config)


@pytest.mark.one_part_per_commit("shares of the cost of frames", parts=8)
@pytest.mark.parametrize("config, part", [(CONFIG, 0.5), (ALONE, 1.0)])
def test_queries_that_share_frames_share_their_cost(tmp_path: Path, config: type, part: float) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a", rows=6000, rate=60.0))
        for name in ("first", "second"):
            await submitted(cluster, "c", tmp_path / f"{name}.ndjson", name=name, sql=THIRD)
        host, shared = cluster.at("a"), f"{uid_of(cluster, 'first')}.b0"
        await cluster.clock.sleep(10.0)
        usages: list[QueryUsage] = []
        for name in ("first", "second"):
            usages.append(await ask(cluster, "c", cluster.at("c").daemon.queries.lookup.usage(name)))
        lines: list[LinkUsage] = [
            line for usage in usages for line in usage.links if (line.stream, line.target_node) == (shared, "c")
        ]
        counts = host.daemon.outbox.link_counts(shared).links.values()
        assert len(lines) == len(counts) == 2
        for line, count in zip(lines, counts, strict=True):
            assert line.bytes == pytest.approx(part * count.bytes, rel=0.05)
            assert line.byte_ms == pytest.approx(line.bytes * line.latency_ms)
        # The real traffic is that of the frames which both have, once, and some bytes for each number.
        sent = {
            kind: flow
            for (_, direction, kind), flow in host.daemon.context.counters.traffic.snapshot().items()
            if direction == "sent"
        }
        frames = max(count.frames for count in counts)
        assert ("repeated" in sent) == (part < 1)
        if part < 1:
            assert sent["repeated"].messages == pytest.approx(frames, rel=0.05)
            assert sent["repeated"].bytes < 30 * sent["repeated"].messages
        # The baseline is what one consumer would get by itself.
        assert all(line.bytes > 0 for usage in usages for line in usage.baseline)

    in_cluster(tmp_path, "abc", test, config=config)


@pytest.mark.one_part_per_commit("queries in virtual time", parts=6)
def test_the_host_of_a_shared_operator_weighs_the_links_of_all_queries_once_a_node(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a", rows=6000, rate=60.0))
        for name, consumer in (("first", "c"), ("second", "c"), ("third", "b")):
            await submitted(cluster, consumer, tmp_path / f"{name}.ndjson", name=name, sql=THIRD)
        shared = f"{uid_of(cluster, 'first')}.b0"
        await cluster.clock.sleep(20.0)
        daemon = cluster.at("a").daemon
        own = (daemon.context, daemon.hosting.operators, daemon.ownership.record_acceptors)
        parts = OptimizerParts(*own, CONFIG.adaptation, CONFIG.placement)
        links = await ask(cluster, "a", parts.links_of(shared))
        measures = daemon.hosting.operators.ports.described(shared)
        assert measures is not None
        assert measures.bytes_out_s is not None
        sent = {
            (link.vertex.partition("-")[0], link.node): link.bytes_s / measures.bytes_out_s for link in links if not link.reads
        }
        assert sent == pytest.approx({("first", "c"): 0.5, ("second", "c"): 0.5, ("third", "b"): 1.0}, rel=0.01)

    in_cluster(tmp_path, "abc", test)
