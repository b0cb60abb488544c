"""A live source keeps what the frozen reader of a moving operator has yet to read, whatever its quota."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec

from sbon_lab.simulation.cluster import CONFIG, SimulatedCluster
from sbon_lab.simulation.engine.engine_process import EngineTimes
from sbon_lab.simulation.loop import VirtualLoop, run
from sbon_node.streams.settings import StreamSettings
from sbon_protocol.api.catalogue import SourceDeclaration
from sbon_protocol.moving import OperatorMove
from tests.nodes.clusters import UNHURRIED, ask, declare, state_of, submitted
from tests.nodes.test_moved_operators import move, operators
from tests.nodes.test_moves_and_crashes import until_step

SETTLE_S = 30.0
QUOTA_BYTES = 50_000
QUOTA = StreamSettings(live_retention_bytes=20_000, subscription_quota_bytes=QUOTA_BYTES)
LIVE = SourceDeclaration(stream="numbers", name="live", node="a", connector="generator", options={"rate": 200})
TIMES = EngineTimes(notice_death=(2 * SETTLE_S, 2 * SETTLE_S))


async def given_up(cluster: SimulatedCluster, operator: str, *, wait_s: float) -> OperatorMove:
    """Move the operator to a node whose engine dies as both settle; return the move's end."""
    await move(cluster, operator, "c", "d", wait_s=-1.0)
    await until_step(cluster, "c", "settling")
    target = cluster.at("d").engine
    assert target is not None
    target.kill_engine_process()
    return await move(cluster, operator, "c", "d", wait_s=wait_s)


async def reading(loop: VirtualLoop, tmp_path: Path, streams: StreamSettings) -> tuple[SimulatedCluster, str]:
    """Return a cluster that reads a live source, and the operator that reads it."""
    engine = msgspec.structs.replace(CONFIG.engine, settle_s=SETTLE_S)
    config = msgspec.structs.replace(UNHURRIED, streams=streams, engine=engine)
    cluster = SimulatedCluster(loop, 1, "abcd", tmp_path, config=config, times=TIMES)
    cluster.start()
    await cluster.together()
    await declare(cluster, "a", LIVE)
    await submitted(cluster, "a", None, consumer="c", strategy="consumer", name="q")
    await loop.clock().sleep(5)
    (operator,) = operators(cluster)
    return cluster, operator


def test_a_reader_that_is_frozen_for_the_longest_time_loses_nothing(tmp_path: Path) -> None:
    """The engine of the target has died, so the old host waits as long as it may, gives up, and reads on."""

    async def main(loop: VirtualLoop, rng: random.Random) -> None:
        cluster, operator = await reading(loop, tmp_path, QUOTA)
        outbox = cluster.at("a").daemon.outbox
        stream = outbox._streams[LIVE.id]
        before = stream.visible.upto
        refused = await given_up(cluster, operator, wait_s=3 * SETTLE_S)
        assert (refused.step, refused.code) == ("given-up", "not-settled")
        assert stream.visible.upto - before > QUOTA_BYTES
        await loop.clock().sleep(30)
        (link,) = [one for one in (await state_of(cluster, "a")).links if one.stream == LIVE.id]
        assert (link.failed, link.dropped) == ("", 0)
        assert list(outbox.link_counts(LIVE.id).links) == [f"{operator}#0"]
        assert stream.visible.last - outbox.link_counts(LIVE.id).links[f"{operator}#0"].acknowledged < 20
        assert (await ask(cluster, "a", cluster.at("a").daemon.hosting.sources.describe("numbers"))).sources[0].dropped == 0
        cluster.verify()

    run(main, seed=1, max_time_s=3600.0)


def test_a_move_is_given_up_whose_operator_is_frozen_for_too_much_of_a_live_source(tmp_path: Path) -> None:
    async def main(loop: VirtualLoop, rng: random.Random) -> None:
        quota = msgspec.structs.replace(QUOTA, follower_quota_bytes=QUOTA_BYTES)
        cluster, operator = await reading(loop, tmp_path, quota)
        began_s = loop.time()
        refused = await given_up(cluster, operator, wait_s=3 * SETTLE_S)
        assert (refused.step, refused.code) == ("given-up", "follower-behind")
        assert loop.time() - began_s < SETTLE_S
        await loop.clock().sleep(30)
        (link,) = [one for one in (await state_of(cluster, "a")).links if one.stream == LIVE.id]
        assert (link.failed, link.dropped) == ("", 0)
        cluster.verify()

    run(main, seed=1, max_time_s=3600.0)
