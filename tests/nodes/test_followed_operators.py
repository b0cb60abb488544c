"""In virtual time, too, an operator is followed at another node and both come to rest where they have emitted the same."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_node.engine.copies.settings import MigrationSettings
from sbon_node.engine.settings import EngineSettings
from sbon_node.hosting.moving.ends import Frozen, Origin, Target
from sbon_node.model.records import MoveLease
from sbon_node.streams.outbox.copies import StreamState
from sbon_node.streams.port import Following, NodePort, PortInput
from sbon_protocol.errors import BrokenInvariantError, SbonError
from tests.nodes.clusters import ask, declare, in_cluster, source_at, state_of, submitted

WINDOWS = "SELECT count(*) AS n, sum(id) AS ids FROM numbers GROUP BY window(ts, '200 milliseconds')"
SETTINGS = EngineSettings()
ONLY_IN_TEST_ALL = pytest.mark.only_in_test_all("seeds of moves in virtual time")


class Followed:
    """A query whose operator runs at ``b``, and a follower of it at ``c``."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._old: Any = cluster.at("b").daemon
        self._new: Any = cluster.at("c").daemon
        specs = [one.spec for one in self._old.hosting.operators.stored()]
        self.spec = next((spec for spec in specs if spec.has_state), specs[0])
        self.operator = self.spec.id
        context = self._old.context
        self.origin = Origin(
            self.operator,
            engine=self._old.hosting.engine,
            port=self._old.hosting.operators.ports.open[self.operator],
            outbox=context.outbox,
            copies=context.data_dir / "copies",
            executor=context.executor,
            settings=SETTINGS,
            migration=MigrationSettings(),
        )

    async def follow(self) -> Target:
        prepared = await ask(self._cluster, "b", self.origin.prepare())
        context = self._new.context
        lease = MoveLease(attempt="2", target="c", instance=self._old.membership.expected("c").instance)
        registers, spec = self._old.ownership.operators, self.spec
        await ask(self._cluster, "b", registers.begin_move(spec.query, spec.id, spec.epoch, lease))
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
            peers=context.connections,
            clock=context.clock,
            settings=context.stream_settings,
            rng=random.Random(1),
            epoch=self.spec.epoch,
            following=Following("2", prepared.tail),
        )
        target = Target(
            self.spec,
            engine=self._new.hosting.engine,
            port=self.port,
            outbox=context.outbox,
            checkpoint=context.data_dir / "operators" / self.operator,
            clock=context.clock,
            executor=context.executor,
            settings=SETTINGS,
            migration=MigrationSettings(),
        )
        await ask(self._cluster, "c", target.follow(prepared.folder, prepared.manifest))
        await ask(self._cluster, "b", self.origin.followed())
        while not target.reach(self.origin.position()):
            await self._cluster.clock.sleep(0.05)
        return target

    async def settle(self, target: Target) -> Frozen:
        """Let the host stop, and the follower come to rest where it has."""
        target.repeat(self.origin.halt())
        frozen = await ask(self._cluster, "b", self.origin.freeze())
        await ask(self._cluster, "c", target.settle(frozen))
        return frozen

    async def give_up(self) -> None:
        self.origin.thaw()
        await ask(self._cluster, "c", self._new.hosting.engine.destroy(self.operator))
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
@pytest.mark.parametrize("seed", [pytest.param(seed, marks=ONLY_IN_TEST_ALL if seed else ()) for seed in range(4)])
def test_a_follower_comes_to_rest_where_its_host_does_and_is_given_up(tmp_path: Path, sql: str, seed: int) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path / "out.csv", sql)
        followed = Followed(cluster)
        target = await followed.follow()
        frozen = await followed.settle(target)
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
        while True:
            target.repeat(followed.origin.halt())
            frozen = await ask(cluster, "b", followed.origin.freeze())
            if not frozen.cut.is_settled:
                break
            followed.origin.thaw()
            await cluster.clock.sleep(0.03)
        engine: Any = cluster.at("c").engine
        followed.port.limit(frozen.cut.frames, rests=True)
        while (cut := engine.cut(followed.operator)).frames != frozen.cut.frames or not cut.is_settled:
            await cluster.clock.sleep(0.03)
        with pytest.raises(SbonError) as refusal:
            await ask(cluster, "c", target.settle(frozen))
        assert refusal.value.code == "not-aligned"
        await followed.give_up()
        await finished(cluster)

    in_cluster(tmp_path, "abc", test)


def handed_over(cluster: SimulatedCluster, operator: str) -> StreamState:
    """Give node c the frames that b retains, and return the stream."""
    outbox = cluster.at("b").daemon.outbox
    stream = outbox.handover.export(operator)
    cluster.at("c").daemon.outbox.handover.take(operator, stream, outbox.read(operator, stream.trimmed, 2**30))
    return stream


def test_a_frozen_host_and_its_follower_emit_nothing_when_their_engines_start_again(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path / "out.csv", WINDOWS)
        followed = Followed(cluster)
        target = await followed.follow()
        frozen = await followed.settle(target)
        for node in "bc":
            engine: Any = cluster.at(node).engine
            engine.kill_engine_process()
        await cluster.clock.sleep(10)
        stream = handed_over(cluster, followed.operator)
        assert stream.tail == frozen.stream.tail
        await ask(cluster, "c", target.go_live(frozen, stream, followed.spec.epoch + 1))
        assert cluster.at("c").daemon.outbox.latest(followed.operator) == frozen.stream.tail.last

    in_cluster(tmp_path, "abc", test)


def test_a_stream_that_grew_at_its_frozen_host_is_not_adopted(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path / "out.csv", WINDOWS)
        followed = Followed(cluster)
        target = await followed.follow()
        frozen = await followed.settle(target)
        stream = handed_over(cluster, followed.operator)
        for grown in (replace(stream.tail, batch=stream.tail.batch + 1), replace(stream.tail, rows=stream.tail.rows + 1)):
            with pytest.raises(BrokenInvariantError, match="at its frozen host"):
                await ask(cluster, "c", target.go_live(frozen, replace(stream, tail=grown), followed.spec.epoch + 1))
        await followed.give_up()
        await finished(cluster)

    in_cluster(tmp_path, "abc", test)
