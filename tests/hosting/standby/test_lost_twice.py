"""Both nodes of an operator are lost: its query fails with that reason; while either may return, it waits and says for which."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_protocol.api.queries import QueryInfo
from tests.calm_clusters import in_calm_cluster
from tests.hosting.standby.test_recovery import ROWS, register_of, replicated
from tests.nodes.clusters import ask, declare, source_at, state_of, submitted
from tests.nodes.test_moved_operators import FILTER, WINDOWS, check_windows, finished

SINCE = r"is dead since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"


async def operator_of(cluster: SimulatedCluster, operator: str) -> tuple[QueryInfo, str, str]:
    """The query as it is shown, and the state and reason of one of its operators."""
    info = await state_of(cluster, "a")
    shown = next(one for one in info.operators if one.id == operator)
    return info, shown.state, shown.reason


async def lose(cluster: SimulatedCluster, node: str) -> None:
    """Start a dead node again with an empty disk."""
    cluster.at(node).wipe()
    cluster.boot(cluster.at(node))


async def until_dead(cluster: SimulatedCluster, *nodes: str) -> None:
    membership = cluster.at("a").daemon.membership
    await cluster.until(lambda: all((one := membership.get(node)) is not None and one.state == "dead" for node in nodes))


async def both_dead(cluster: SimulatedCluster, tmp_path: Path) -> tuple[str, str, str]:
    """A query whose host and backup of its last operator are dead; return the operator and the two."""
    operator = await replicated(cluster, tmp_path / "out.csv", WINDOWS)
    register = await register_of(cluster, operator)
    for node in (register.host, register.backup):
        cluster.crash(cluster.at(node))
    await until_dead(cluster, register.host, register.backup)
    await cluster.clock.sleep(60.0)
    info, state, reason = await operator_of(cluster, operator)
    assert (info.state, state) == ("running", "unreachable")
    assert re.fullmatch(f"no answer from {register.host}: it {SINCE}; {register.backup} is its backup, and {SINCE}", reason)
    assert re.match(f"no answer from {register.host}: it {SINCE}", info.reason)
    return operator, register.host, register.backup


@pytest.mark.one_part_per_commit("backups in virtual time", parts=6)
def test_a_query_waits_while_one_of_two_dead_nodes_may_return_and_goes_on(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        operator, host, backup = await both_dead(cluster, tmp_path)
        await lose(cluster, host)
        await cluster.clock.sleep(60.0)
        info, state, reason = await operator_of(cluster, operator)
        assert (info.state, state) == ("running", "unreachable")
        assert re.fullmatch(f"{host} .*loss of its data directory.*; {backup} is its backup, and {SINCE}", reason), reason
        cluster.boot(cluster.at(backup))
        await finished(cluster)
        check_windows(tmp_path / "out.csv", ROWS)

    in_calm_cluster(tmp_path, "abcdefg", test)


@pytest.mark.one_part_per_commit("backups in virtual time", parts=6)
def test_a_query_fails_once_both_nodes_have_lost_their_disks(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        operator, host, backup = await both_dead(cluster, tmp_path)
        await lose(cluster, host)
        await lose(cluster, backup)
        async with cluster.clock.timeout(120.0):
            while (info := await state_of(cluster, "a")).state == "running":
                await cluster.clock.sleep(1.0)
        assert info.state == "failed"
        assert f"{operator} at {host}: both of its nodes are gone: {host} " in info.reason
        assert f"its backup {backup} has lost its data directory" in info.reason
        parts = [one for node in cluster.nodes.values() for one in node.daemon.hosting.destroyer.components()]
        assert parts == []

    in_calm_cluster(tmp_path, "abcdefg", test)


@pytest.mark.one_part_per_commit("backups in virtual time", parts=6)
def test_a_query_of_local_operators_says_for_whom_it_waits_and_since_when(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b", rows=1_000_000, rate=10.0))
        await submitted(cluster, "a", tmp_path / "out.csv", sql=FILTER, strategy="producer")
        while not (await state_of(cluster, "a")).rows:
            await cluster.clock.sleep(0.5)
        cluster.crash(cluster.at("b"))
        await until_dead(cluster, "b")
        await cluster.clock.sleep(70.0)
        info = await state_of(cluster, "a")
        assert info.state == "running"
        assert re.match(f"no answer from b: it {SINCE}", info.reason), info.reason
        assert [re.fullmatch(f"no answer from b: it {SINCE}", one.reason) is not None for one in info.operators] == [True]
        (listed,) = await ask(cluster, "a", cluster.at("a").daemon.queries.lookup.all())
        assert re.fullmatch(f"b {SINCE}", listed.reason), listed.reason
        cluster.boot(cluster.at("b"))
        await cluster.clock.sleep(30.0)
        assert (await state_of(cluster, "a")).reason == ""
        await ask(cluster, "a", cluster.at("a").daemon.queries.lookup.stop("q"))

    in_calm_cluster(tmp_path, "abc", test)
