"""A host trusts no peer: it checks every fragment that it receives."""

from __future__ import annotations

from pathlib import Path

import msgspec

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_lab.simulation.leak_check import leaks
from sbon_protocol.api.columns import Column
from sbon_protocol.api.operators import InputSpec, Needs, OperatorSpec
from sbon_protocol.calls import DestroyComponents, InstantiateOperator, ReserveOperator
from sbon_protocol.errors import SbonError
from tests.nodes.clusters import ask, declare, in_cluster, source_at
from tests.planning.sql.test_refusals import BYPASSES

NEEDS = Needs(cores=0.1, memory_mb=100.0)
OPERATOR = "hostile.b0"


async def send(cluster: SimulatedCluster, fragment: str) -> None:
    """Node a reserves room at b as its own submissions do, then has it run the fragment."""
    context = cluster.at("a").daemon.context
    inputs = (InputSpec(stream="numbers@at-a", node="a", schema=(Column("id", "bigint"),)),)
    spec = OperatorSpec(id=OPERATOR, query="hostile", fragment=fragment, inputs=inputs, schema=(), needs=NEEDS)
    room = ReserveOperator(query="hostile", operator=OPERATOR, hold_s=60.0, **msgspec.structs.asdict(NEEDS))
    await ask(cluster, "a", context.call("b", room))
    acceptors = (msgspec.to_builtins(cluster.at("a").daemon.ownership.acceptors.me),)
    await ask(cluster, "a", context.call("b", InstantiateOperator(spec=msgspec.to_builtins(spec), acceptors=acceptors)))


async def withdraw(cluster: SimulatedCluster) -> None:
    gone = DestroyComponents(query="hostile", components=(OPERATOR,))
    await ask(cluster, "a", cluster.at("a").daemon.context.call("b", gone))


async def traces(cluster: SimulatedCluster) -> list[str]:
    """Return what b keeps beyond the reserved capacity, and all of it once the capacity is free; its engine is idle until first
    called."""
    engine = cluster.at("b").engine
    assert engine is not None
    kept = [one for one in await leaks(cluster) if " free of " not in one]
    kept += [] if engine.status == "idle" else [f"the engine is {engine.status}"]
    await withdraw(cluster)
    return kept + await leaks(cluster)


def test_a_host_refuses_what_a_peer_may_not_send_and_keeps_nothing_of_it(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a"))
        wrong = []
        for fragment, expected in BYPASSES:
            try:
                await send(cluster, fragment)
                code = "runs"
            except SbonError as error:
                code = error.code
            if left := await traces(cluster):
                wrong.append(f"{fragment}: left {left}")
            if code != expected:
                wrong.append(f"{fragment}: {code}, not {expected}")
        assert wrong == []

        await send(cluster, "SELECT id FROM in0 WHERE id > 0")  # a permitted fragment runs
        assert cluster.at("b").operators() == [OPERATOR]
        await withdraw(cluster)

    in_cluster(tmp_path, "ab", test)
