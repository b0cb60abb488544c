"""Half a joint move: the neighbour has moved, and the operator that was to follow it cannot."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from sbon_lab.simulation.cluster import CONFIG, SimulatedCluster
from sbon_node.config.config import Config
from sbon_protocol.calls import ReserveOperator
from tests.adaptation.test_joint_moves import JOINT, QUALITY, apart, both, latency_s
from tests.adaptation.test_optimizer import adapting
from tests.calm_clusters import CALM
from tests.nodes.clusters import ask, in_cluster, owner_of, state_of
from tests.nodes.test_cancelled_moves import cancelled
from tests.nodes.test_moved_operators import check_windows, finished

ROWS = 2600
LONGER = 4000
"""Rows of a query that outlasts a restart, after which an operator is measured anew."""
NEVER = msgspec.structs.replace(JOINT, period_s=86_400.0)


def proposing_at_c(answering: str, config: Config = CALM) -> dict[str, Config]:
    """Configurations in which the nodes ``answering`` decide nothing, but answer proposals.

    With d among them c proposes: the aggregate at d moves first, and the filter at c is to follow it.
    """
    return {**adapting("abcd", JOINT, config), **adapting(answering, NEVER, config)}


NARROW = {
    name: msgspec.structs.replace(config, engine=msgspec.structs.replace(CONFIG.engine, max_operators=2))
    for name, config in proposing_at_c("d").items()
}
"""Each node has room for two operators."""


async def half_way(cluster: SimulatedCluster, operators: tuple[str, str]) -> tuple[str, str]:
    """Return the operator that moves first and the one that is to follow it, once the copy of the first is under way."""
    hosts = dict(zip(operators, "cd", strict=True))
    while True:
        await cluster.clock.sleep(0.05)
        for operator, node in hosts.items():
            if cluster.at(node).daemon.hosting.moves.departures.under_way(operator) is not None:
                (other,) = set(operators) - {operator}
                return operator, other


async def until_at(cluster: SimulatedCluster, hosts: dict[str, str]) -> None:
    """Wait until the operators are at these hosts; fail if the query ends before."""
    while {one.id: one.node for one in await both(cluster)} != hosts:
        assert (await state_of(cluster, "a")).state == "running"
        await cluster.clock.sleep(0.5)


async def occupy(cluster: SimulatedCluster, node: str, operator: str) -> None:
    """Reserve room for an operator of another query."""
    room = ReserveOperator(query="p", operator=operator, cores=0.0, memory_mb=0.0, bandwidth_bytes_s=0.0, hold_s=600.0)
    await ask(cluster, "c", cluster.at("c").daemon.context.call(node, room))


@pytest.mark.one_part_per_commit("replacements in virtual time", parts=6)
def test_the_neighbour_moves_on_where_the_operator_cannot_follow(tmp_path: Path) -> None:
    """No host near the source has room any more, and the neighbour does not return to the host that it has left."""

    async def test(cluster: SimulatedCluster) -> None:
        moved, stayed = await half_way(cluster, await apart(cluster, tmp_path / "out.csv", rows=ROWS))
        await cluster.clock.sleep(0.3)  # b has room for one of the two
        for node, operator in (("b", "other0"), ("a", "other1"), ("a", "other2")):
            await occupy(cluster, node, operator)
        await cluster.clock.sleep(10)
        operators = {one.id: one for one in await both(cluster)}
        assert (operators[moved].node, operators[stayed].node) == ("b", "c")
        (joint,) = (one for one in operators[stayed].decisions if one.code == "together")
        assert joint.outcome == "given-up: b: 2 of 2 places are taken (held by 1 operator, 1 reservation)"
        assert operators[stayed].decisions[-1].verdict == "stays"
        await until_at(cluster, {moved: "c", stayed: "c"})
        assert await owner_of(cluster, "a", moved) == ("c", 4)
        await finished(cluster)
        check_windows(tmp_path / "out.csv", ROWS)

    in_cluster(tmp_path, "abcd", test, configs=NARROW, latency=latency_s, quality=QUALITY)


def test_an_operator_stays_if_its_neighbour_has_not_moved(tmp_path: Path) -> None:
    """A user cancels the neighbour's move: alone, the operator would be farther from it."""

    async def test(cluster: SimulatedCluster) -> None:
        moving, stays = await half_way(cluster, await apart(cluster, tmp_path / "out.csv"))
        before = {one.id: one.node for one in await both(cluster)}
        await cancelled(cluster, moving, at="a")
        await cluster.clock.sleep(1)
        after = {one.id: one for one in await both(cluster)}
        assert {name: one.node for name, one in after.items()} == before
        joint = next(one for one in after[stays].decisions if one.code == "together")
        assert "cancelled" in joint.outcome
        assert cluster.at(before[stays]).daemon.hosting.moves.departures.under_way(stays) is None

    in_cluster(tmp_path, "abcd", test, configs=adapting("abcd", JOINT), latency=latency_s, quality=QUALITY)


@pytest.mark.one_part_per_commit("replacements in virtual time", parts=6)
def test_an_operator_whose_host_dies_before_it_follows_goes_on(tmp_path: Path) -> None:
    """The neighbour, whose host decides nothing, stays where it has moved to."""

    async def test(cluster: SimulatedCluster) -> None:
        moved, stayed = await half_way(cluster, await apart(cluster, tmp_path / "out.csv", rows=LONGER))
        while await owner_of(cluster, "a", moved) != ("b", 3):
            await cluster.clock.sleep(0.2)
        dead = cluster.at((await owner_of(cluster, "a", stayed))[0])
        cluster.crash(dead)
        await cluster.clock.sleep(5)
        cluster.boot(dead)
        await until_at(cluster, {moved: "b", stayed: "b"})
        assert {one.id: one.state for one in await both(cluster)}[moved] == "running"
        await finished(cluster)
        check_windows(tmp_path / "out.csv", LONGER)

    in_cluster(tmp_path, "abcd", test, configs=proposing_at_c("bd"), latency=latency_s, quality=QUALITY)
