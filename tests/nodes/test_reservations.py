"""Strangers that reserve room under ever new names do not keep it from members."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_lab.simulation.process import Process
from sbon_node.net.counters import Counters
from sbon_node.net.peers import Identity, Peers
from sbon_node.net.settings import NetSettings
from sbon_protocol.calls import ReserveOperator
from sbon_protocol.errors import SbonError
from tests.nodes.clusters import ask, in_cluster


def room(operator: str) -> ReserveOperator:
    return ReserveOperator(query="q", operator=operator, cores=0.0, memory_mb=0.0, bandwidth_bytes_s=0.0, hold_s=300.0)


def test_strangers_share_one_share(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        context = cluster.at("a").daemon.context
        target = cluster.at("b").daemon.context.membership.get("b")
        assert target is not None
        transport = cluster.network.transport(Process("m#1"), "m", "10.9.9.9")

        async def attack(number: int) -> None:
            identity = Identity("sbon", f"mallory-{number}", "f" * 16)
            peers = Peers(transport, cluster.clock, identity, NetSettings(), Counters(cluster.clock.now))
            with suppress(SbonError):
                await peers.call(target.address, room(f"mallory.{number}"))
            await peers.close()

        for number in range(40):
            await attack(number)
        promised = cluster.at("b").daemon.hosting.operators.promised()
        assert promised
        assert all(one.startswith("mallory.") for one in promised)
        await cluster.clock.sleep(20.0)
        await ask(cluster, "a", context.call("b", room("mine.b0")))
        assert "mine.b0" in cluster.at("b").daemon.hosting.operators.promised()

    in_cluster(tmp_path, "ab", test)
