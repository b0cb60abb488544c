"""In virtual time, too, an operator is followed at another node and both come to rest where they have emitted the same."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from sbon_node.engine.settings import EngineSettings
from sbon_node.errors import SbonError
from sbon_node.hosting.moving.ends import Frozen, Origin, Target
from sbon_node.simulation.cluster import SimulatedCluster
from sbon_node.streams.port import Following, NodePort, PortInput
from tests.workflow.clusters import ask, declare, in_cluster, source_at, state_of, submitted

WINDOWS = "SELECT count(*) AS n, sum(id) AS ids FROM numbers GROUP BY window(ts, '200 milliseconds')"
SETTINGS = EngineSettings()


class Followed:
    """A query whose operator runs at ``b``, and a follower of it at ``c``."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._old: Any = cluster.at("b").daemon
        self._new: Any = cluster.at("c").daemon
        specs = [hosted.spec for hosted in self._old._operators._hosted.values()]
        self.spec = next((spec for spec in specs if spec.has_state), specs[0])
        self.operator = self.spec.id
        context = self._old.context
        self.origin = Origin(
            self.operator,
            engine=self._old.engine,
            port=self._old._operators.ports.open[self.operator],
            outbox=context.outbox,
            copies=context.data_dir / "copies",
            executor=context.executor,
            settings=SETTINGS,
        )

    async def follow(self) -> Target:
        prepared = await ask(self._cluster, "b", self.origin.prepare())
        context = self._new.context
        inputs = [
            PortInput(
                stream=one.stream,
                locate=lambda node=one.node: context.membership.address_of(node),  # type: ignore[misc]
                ahead_ms=one.ahead_ms,
                lag_ms=one.lag_ms,
            )
            for one in self.spec.inputs
        ]
        self.port = NodePort(
            self.operator,
            inputs,
            outbox=context.outbox,
            peers=context.peers,
            clock=context.clock,
            settings=context.stream_settings,
            rng=random.Random(1),
            epoch=self.spec.epoch,
            following=Following("2", prepared.tail),
        )
        target = Target(
            self.spec,
            engine=self._new.engine,
            port=self.port,
            outbox=context.outbox,
            checkpoint=context.data_dir / "operators" / self.operator,
            clock=context.clock,
            executor=context.executor,
            settings=SETTINGS,
        )
        await ask(self._cluster, "c", target.follow(prepared.folder, prepared.manifest))
        await ask(self._cluster, "b", self.origin.followed())
        while not target.is_level():
            cut = self.origin.cut()
            assert cut is not None
            target.reach(cut)
            await self._cluster.clock.sleep(0.05)
        return target

    async def give_up(self) -> None:
        self.origin.thaw()
        await ask(self._cluster, "c", self._new.engine.destroy(self.operator))
        await ask(self._cluster, "c", self.port.close(unsubscribe=True))


async def running(cluster: SimulatedCluster, path: Path, sql: str) -> None:
    await declare(cluster, "a", source_at("b", rows=600, rate=40.0))
    await submitted(cluster, "a", path, sql=sql, strategy="producer")
    while not (await state_of(cluster, "a")).rows:
        await cluster.clock.sleep(0.2)


async def finished(cluster: SimulatedCluster) -> int:
    while (info := await state_of(cluster, "a")).state == "running":
        await cluster.clock.sleep(1)
    assert info.state == "finished", info.reason
    return info.rows or 0


@pytest.mark.parametrize("sql", ["SELECT id FROM numbers WHERE v >= 0", WINDOWS], ids=["filter", "windows"])
@pytest.mark.parametrize("seed", range(4))
def test_a_follower_comes_to_rest_where_its_host_does_and_is_given_up(tmp_path: Path, sql: str, seed: int) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path / "out.csv", sql)
        followed = Followed(cluster)
        target = await followed.follow()
        frozen = await ask(cluster, "b", followed.origin.freeze())
        await ask(cluster, "c", target.settle(frozen))
        before = frozen.stream.tail
        assert before.rows == followed.port.discarded.rows > 0
        await cluster.clock.sleep(5)
        assert cluster.at("b").daemon.outbox.latest(followed.operator) == before.last
        await followed.give_up()
        await finished(cluster)
        assert len(list((tmp_path / "out.csv").open())) > before.rows + 5

    in_cluster(tmp_path, "abc", test, seed=seed)


def test_a_host_held_before_its_last_batch_has_emitted_less_than_its_follower(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path / "out.csv", WINDOWS)
        followed = Followed(cluster)
        target = await followed.follow()
        engine: Any = cluster.at("b").engine
        while (cut := await ask(cluster, "b", engine.hold(followed.operator, 30.0))).is_settled:
            engine.release(followed.operator)
            await cluster.clock.sleep(0.03)
        stream = cluster.at("b").daemon.outbox.handover.export(followed.operator)
        with pytest.raises(SbonError) as refusal:
            await ask(cluster, "c", target.settle(Frozen(cut=cut, stream=stream)))
        assert refusal.value.code == "not-aligned"
        engine.release(followed.operator)
        await followed.give_up()
        await finished(cluster)

    in_cluster(tmp_path, "abc", test)


def test_a_frozen_host_whose_engine_starts_again_has_emitted_nothing_more(tmp_path: Path) -> None:
    """The engine runs a batch without rows then, so the numbers of batches differ and the stream is the same."""

    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path / "out.csv", WINDOWS)
        followed = Followed(cluster)
        target = await followed.follow()
        frozen = await ask(cluster, "b", followed.origin.freeze())
        await ask(cluster, "c", target.settle(frozen))
        engine: Any = cluster.at("b").engine
        engine.kill_engine_process()
        while cluster.at("b").daemon.outbox.visible_batch(followed.operator) == frozen.stream.tail.batch:
            await cluster.clock.sleep(0.1)
        stream, frames = followed.origin.stream()
        assert (stream.tail.last, stream.tail.rows) == (frozen.stream.tail.last, frozen.stream.tail.rows)
        cluster.at("c").daemon.outbox.handover.take(followed.operator, stream, frames)
        await ask(cluster, "c", target.go_live(frozen, stream, followed.spec.epoch + 1))
        assert cluster.at("c").daemon.outbox.latest(followed.operator) == frozen.stream.tail.last

    in_cluster(tmp_path, "abc", test)
