"""A backup takes no place of an operator, and goes on with its operator though its node has none left."""

from __future__ import annotations

from pathlib import Path

import msgspec

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_protocol.api.durability import REPLICATED
from tests.calm_clusters import CALM, in_calm_cluster
from tests.nodes.clusters import declare, plain, source_at, state_of, submitted

ROWS = 2000
TWO_PLACES = msgspec.structs.replace(CALM, engine=msgspec.structs.replace(CALM.engine, max_operators=2))
DIVISORS = {"q2": 2, "q3": 3, "q5": 5}


def held(cluster: SimulatedCluster, node: str) -> tuple[int, list[tuple[str, str]]]:
    """Return the taken places of a node, and what holds capacity there, as its status shows them."""
    capacity = cluster.at(node).daemon.operations.status().capacity
    assert capacity is not None
    return capacity.taken, [(plain(one.operator), one.use) for one in capacity.held]


def test_nodes_full_of_operators_keep_backups_and_go_on_with_them(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b", rows=ROWS, rate=4.0))
        operators = {}
        for name, divisor in DIVISORS.items():
            sql = f"SELECT id FROM numbers WHERE id % {divisor} = 0"
            path = tmp_path / f"{name}.csv"
            info = await submitted(cluster, "a", path, name=name, sql=sql, strategy="producer", durability=REPLICATED)
            (operators[name],) = (operator.id for operator in info.plan.operators)
            while not (await state_of(cluster, "a", name)).rows:
                await cluster.clock.sleep(0.2)

        q2, q3, q5 = (plain(operator) for operator in operators.values())
        assert held(cluster, "a") == (1, [(q2, "backup"), (q3, "backup"), (q5, "operator")])
        assert held(cluster, "b") == (2, [(q2, "operator"), (q3, "operator"), (q5, "backup")])

        cluster.crash(cluster.at("b"))
        while held(cluster, "a") != (3, [(q2, "operator"), (q3, "operator"), (q5, "operator")]):
            await cluster.sleep(0.5)
        hosted = cluster.at("a").daemon.hosting.operators
        while not all(hosted.is_running(operator) for operator in operators.values()):
            await cluster.sleep(0.5)

    in_calm_cluster(tmp_path, "ab", test, configs={"a": TWO_PLACES, "b": TWO_PLACES})
