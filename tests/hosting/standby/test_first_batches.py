"""A replicated operator whose host is lost soon after its start."""

from __future__ import annotations

from pathlib import Path

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_node.hosting.standby.operator import OperatorKeeper
from sbon_protocol.api.catalogue import SourceDeclaration
from tests.calm_clusters import in_calm_cluster
from tests.hosting.standby.test_recovery import register_of
from tests.nodes.clusters import ask, declare, owner_of, source_at, state_of, submitted
from tests.nodes.test_moved_operators import FILTER, operators
from tests.nodes.test_pushes import http_at, push

ROWS = 200


def keeper_at(cluster: SimulatedCluster, node: str) -> OperatorKeeper:
    return cluster.at(node).daemon.hosting.backups.keeper


async def running(cluster: SimulatedCluster, folder: Path) -> tuple[str, str, str]:
    """Start a query that shows rows; return its operator, the host, and the backup."""
    await declare(cluster, "a", source_at("b", rows=ROWS, rate=20.0))
    path = folder / "out.csv"
    await submitted(cluster, "a", path, sql=FILTER, strategy="consumer", consumer="c", durability="replicated")
    while not (await state_of(cluster, "a")).rows:
        await cluster.clock.sleep(0.2)
    (operator,) = operators(cluster)
    register = await register_of(cluster, operator)
    return operator, register.host, register.backup


def test_a_backup_has_the_lineages_and_the_measures_of_an_operator_that_has_never_moved(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        operator, _, backup = await running(cluster, tmp_path)
        stored = keeper_at(cluster, backup)._known[operator].stored
        assert [lineage > 0 for lineage in stored.lineages.values()] == [True]
        assert stored.newest is not None
        assert stored.newest.measures is not None
        assert stored.newest.measures.totals.rows_in > 0

    in_calm_cluster(tmp_path, "abcd", test)


def test_an_operator_that_has_shown_nothing_goes_on_at_its_backup(tmp_path: Path) -> None:
    source = tmp_path / "in.csv"

    async def test(cluster: SimulatedCluster) -> None:
        source.write_text("id,v,ts\n")
        options = {"path": str(source), "from": "beginning"}
        declared = SourceDeclaration(stream="numbers", name="at-b", node="b", connector="tail", options=options)
        await declare(cluster, "a", declared)
        await submitted(cluster, "a", tmp_path / "out.csv", sql=FILTER, strategy="producer", durability="replicated")
        await cluster.sleep(10.0)
        (operator,) = operators(cluster)
        register = await register_of(cluster, operator)
        assert keeper_at(cluster, register.backup)._known[operator].stored.newest is None
        cluster.crash(cluster.at(register.host))
        await cluster.sleep(40.0)
        assert (await owner_of(cluster, "a", operator))[0] == register.backup
        cluster.boot(cluster.at(register.host))
        await cluster.sleep(20.0)
        with source.open("a") as rows:
            rows.writelines(f"{number},1.0,2026-01-01T00:00:{number:02d}Z\n" for number in range(20))
        await cluster.sleep(30.0)
        info = await state_of(cluster, "a")
        assert (info.state, info.rows) == ("running", 10), info.reason

    in_calm_cluster(tmp_path, "abcdef", test)


def test_a_backup_that_has_forgotten_an_operator_before_it_is_named_gets_all_of_it_again(tmp_path: Path) -> None:
    """It replaces another one, and no new rows come, with which it would get all of it as well."""

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", http_at("b"))
        await submitted(cluster, "a", tmp_path / "out.csv", sql=FILTER, strategy="producer", durability="replicated")
        await push(cluster, "b")
        await cluster.sleep(10.0)
        (operator,) = operators(cluster)
        before = await register_of(cluster, operator)
        registers = cluster.at(before.host).daemon.ownership.operators
        set_backup, forgotten = registers.set_backup, list[str]()

        async def forget_first(query: str, operator: str, epoch: int, node: str, instance: str) -> None:
            if not forgotten:
                forgotten.append(node)
                keeper = keeper_at(cluster, node)
                await keeper._forget(keeper._known[operator])
            await set_backup(query, operator, epoch, node, instance)

        registers.set_backup = forget_first
        cluster.crash(cluster.at(before.backup))
        async with cluster.clock.timeout(120.0):
            while not forgotten:
                await cluster.sleep(0.5)
            known = keeper_at(cluster, forgotten[0])._known
            while operator not in known or known[operator].stored.newest is None:
                await cluster.sleep(0.5)
        assert (await register_of(cluster, operator, before.host)).backup == forgotten[0]

    in_calm_cluster(tmp_path, "abcdef", test)


def test_a_backup_is_not_forgotten_after_its_host_has_asked_again(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        operator, _, backup = await running(cluster, tmp_path)
        keeper = keeper_at(cluster, backup)
        kept = keeper._known[operator]
        await ask(cluster, backup, keeper._forget(kept, kept.heard_s - 1.0))
        assert keeper._known[operator] is kept
        await ask(cluster, backup, keeper._forget(kept, kept.heard_s))
        assert operator not in keeper._known

    in_calm_cluster(tmp_path, "abcd", test)
