"""A replicated operator goes on at its backup when its host is lost, and every row comes out once."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_lab.simulation.faults.plan import AtTime, Fault
from sbon_node.hosting.standby.settings import BackupSettings
from sbon_node.model.records import OperatorRegister
from sbon_protocol.api.durability import REPLICATED, Durability
from sbon_protocol.api.queries import SinkRequest, SinkSpec
from sbon_protocol.api.states.backup_states import BEHIND, CURRENT
from tests.calm_clusters import in_calm_cluster
from tests.nodes.clusters import ask, declare, owner_of, source_at, state_of, submitted
from tests.nodes.test_moved_operators import FILTER, WINDOWS, check_filtered, check_windows, finished, move, operators

ROWS, LONG = 500, 1000
"""Of a source with 20 rows a second."""
CHECKS = {FILTER: check_filtered, WINDOWS: check_windows}
KINDS = pytest.mark.one_part_per_commit("kinds of operators with a backup", parts=2)


async def replicated(
    cluster: SimulatedCluster,
    path: Path,
    sql: str,
    host: str = "c",
    durability: Durability = REPLICATED,
    rows: int = ROWS,
) -> str:
    """Start a query whose last operator runs at ``host``, away from source and sink; return the operator."""
    await declare(cluster, "a", source_at("b", rows=rows, rate=20.0))
    await submitted(cluster, "a", path, sql=sql, strategy="producer", durability=durability)
    while not (await state_of(cluster, "a")).rows:
        await cluster.clock.sleep(0.2)
    operator = operators(cluster)[-1]
    backup = (await register_of(cluster, operator)).backup
    if backup == host:
        host = next(node for node in "cde" if node != backup)
    state = await move(cluster, operator, "b", host)
    assert state.step == "moved", state
    await cluster.clock.sleep(3.0)
    return operator


async def register_of(cluster: SimulatedCluster, operator: str, at: str = "a") -> OperatorRegister:
    registers = cluster.at(at).daemon.ownership.operators
    register: OperatorRegister = await ask(cluster, at, registers.read(operator.rpartition(".")[0], operator))
    return register


async def until_owner(cluster: SimulatedCluster, operator: str, node: str) -> None:
    """Wait until the operator is at the node; fail if its query ends before, or if it goes elsewhere."""
    before = (await owner_of(cluster, "a", operator))[0]
    while (owner := (await owner_of(cluster, "a", operator))[0]) != node:
        assert owner == before
        assert (await state_of(cluster, "a")).state == "running"
        await cluster.sleep(0.5)


async def until_more_rows(cluster: SimulatedCluster) -> None:
    """Wait until the query has shown more rows; fail if it ends before."""
    before = (await state_of(cluster, "a")).rows
    while (info := await state_of(cluster, "a")).rows == before:
        assert info.state == "running"
        await cluster.sleep(0.5)


@KINDS
@pytest.mark.parametrize("sql", [FILTER, WINDOWS])
def test_a_replicated_query_runs_with_a_backup_for_each_operator(tmp_path: Path, sql: str) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        operator = await replicated(cluster, tmp_path / "out.csv", sql)
        register = await register_of(cluster, operator)
        assert register.backup not in ("", register.host)
        backups = cluster.at(register.host).daemon.hosting.operators.ports.backups
        infos = []
        for _ in range(40):  # A batch may be on its way.
            infos.append(backups.info(operator))
            await cluster.clock.sleep(0.013)
        assert {info.node for info in infos if info is not None} == {register.backup}
        assert CURRENT in {info.state for info in infos if info is not None}
        await finished(cluster)
        CHECKS[sql](tmp_path / "out.csv", ROWS)
        deadline = cluster.clock.now() + 70.0
        while [one for node in cluster.nodes.values() for one in node.daemon.hosting.backups.keeper.components()]:
            assert cluster.clock.now() < deadline
            await cluster.clock.sleep(1.0)
        folders = [node.daemon.context.data_dir / "copies" for node in cluster.nodes.values()]
        assert not [copy for folder in folders if folder.exists() for copy in folder.iterdir()]

    in_calm_cluster(tmp_path, "abcde", test)


@KINDS
@pytest.mark.parametrize("sql", [FILTER, WINDOWS])
def test_a_lost_host_is_followed_by_its_backup(tmp_path: Path, sql: str) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        operator = await replicated(cluster, tmp_path / "out.csv", sql)
        register = await register_of(cluster, operator)
        cluster.crash(cluster.at(register.host))
        await until_owner(cluster, operator, register.backup)
        await until_more_rows(cluster)
        await finished(cluster)
        CHECKS[sql](tmp_path / "out.csv", ROWS)

    in_calm_cluster(tmp_path, "abcde", test)


def test_a_host_whose_engine_does_not_start_yields_to_the_backup(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        operator = await replicated(cluster, tmp_path / "out.csv", WINDOWS)
        register = await register_of(cluster, operator)
        engine = cluster.at(register.host).engine
        assert engine is not None
        engine.is_broken = True
        engine.kill_engine_process()
        broke_s = cluster.clock.now()
        await until_owner(cluster, operator, register.backup)
        assert cluster.clock.now() - broke_s > BackupSettings().yield_after_s
        (shown,) = [one for one in (await state_of(cluster, "a")).operators if one.id == operator]
        assert shown.past_moves[-1].reason == "the engine of its host did not run it"
        await finished(cluster)
        check_windows(tmp_path / "out.csv", ROWS)
        assert operator not in cluster.at(register.host).daemon.hosting.operators.hosted()

    in_calm_cluster(tmp_path, "abcde", test)


@pytest.mark.one_part_per_commit("moments in which a host dies while a sink is added", parts=2)
@pytest.mark.parametrize("after_s", [0.1, 0.2])
def test_a_sink_added_while_a_host_dies_has_all_rows_or_is_refused(tmp_path: Path, after_s: float) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        operator = await replicated(cluster, tmp_path / "out.csv", FILTER)
        register = await register_of(cluster, operator)
        sink = SinkSpec(kind="file", options={"path": str(tmp_path / "more.csv")})
        request = SinkRequest(sink=sink, consumer="a", begin="now")
        adding = cluster.call("a", cluster.at("a").daemon.queries.sinks.add("q", request))
        await cluster.clock.sleep(after_s)
        assert not adding.done()
        cluster.crash(cluster.at(register.host))
        await cluster.until(adding.done)
        assert (adding.exception() is None) == (after_s > 0.1)
        await until_owner(cluster, operator, register.backup)
        await cluster.clock.sleep(2.0)
        if adding.exception() is None:
            info = adding.result()
        else:
            info = await ask(cluster, "a", cluster.at("a").daemon.queries.sinks.add("q", request))
        await finished(cluster)
        rows = (tmp_path / "out.csv").read_text().splitlines()[1:]
        assert (tmp_path / "more.csv").read_text().splitlines()[1:] == rows[info.begins_after :]

    in_calm_cluster(tmp_path, "abcde", test)


def test_nothing_is_shown_that_the_backup_has_not_stored(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        operator = await replicated(cluster, tmp_path / "out.csv", FILTER)
        register = await register_of(cluster, operator)
        cluster.network.cut(register.host, register.backup)
        await cluster.sleep(1.0)
        outbox = cluster.at(register.host).daemon.outbox
        before = (await state_of(cluster, "a")).rows, outbox.visible_batch(operator)
        await cluster.sleep(8.0)
        assert ((await state_of(cluster, "a")).rows, outbox.visible_batch(operator)) == before
        assert outbox.newest(operator) > before[1]
        info = cluster.at(register.host).daemon.hosting.operators.ports.backups.info(operator)
        assert info is not None
        assert info.state == BEHIND
        cluster.network.heal(register.host, register.backup)
        await finished(cluster)
        check_filtered(tmp_path / "out.csv", ROWS)

    in_calm_cluster(tmp_path, "abcde", test)


@pytest.mark.one_part_per_commit("changes of hosts and backups", parts=2)
def test_a_host_that_was_cut_off_finds_its_successor(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        operator = await replicated(cluster, tmp_path / "out.csv", WINDOWS)
        register = await register_of(cluster, operator)
        others = [name for name in cluster.nodes if name != register.host]
        cluster.network.partition((register.host,), others)
        await until_owner(cluster, operator, register.backup)
        shown = cluster.at(register.host).daemon.outbox.visible_batch(operator)
        cluster.network.rejoin((register.host,), others)
        while operator in cluster.at(register.host).daemon.hosting.operators.hosted():
            assert (await state_of(cluster, "a")).state == "running"
            await cluster.sleep(0.5)
        assert shown <= cluster.at(register.backup).daemon.outbox.visible_batch(operator)
        assert [name for name, node in cluster.nodes.items() if operator in node.daemon.hosting.operators.hosted()] == [
            register.backup
        ]
        await finished(cluster)
        check_windows(tmp_path / "out.csv", ROWS)

    in_calm_cluster(tmp_path, "abcde", test)


@KINDS
@pytest.mark.parametrize("sql", [FILTER, WINDOWS])
def test_readers_leave_a_paused_host_for_its_successor(tmp_path: Path, sql: str) -> None:
    """Connections to a paused process stay open, and nothing comes of them."""

    async def test(cluster: SimulatedCluster) -> None:
        operator = await replicated(cluster, tmp_path / "out.csv", sql)
        register = await register_of(cluster, operator)
        cluster.fault_injector.arm([Fault(AtTime(0.0), "pause", register.host, down_s=45.0)])
        await until_owner(cluster, operator, register.backup)
        await until_more_rows(cluster)
        await finished(cluster)
        CHECKS[sql](tmp_path / "out.csv", ROWS)

    in_calm_cluster(tmp_path, "abcde", test)


def test_a_backup_that_comes_back_without_its_disk_is_replaced(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        operator = await replicated(cluster, tmp_path / "out.csv", FILTER)
        before = await register_of(cluster, operator)
        node = cluster.at(before.backup)
        cluster.crash(node)
        node.wipe()
        cluster.boot(node)
        named = before
        while (named.backup, named.backup_instance) == (before.backup, before.backup_instance):
            assert (await state_of(cluster, "a")).state == "running"
            await cluster.sleep(0.5)
            named = await register_of(cluster, operator)
        await cluster.sleep(3.0)
        cluster.crash(cluster.at(before.host))
        await until_owner(cluster, operator, named.backup)
        await finished(cluster)
        check_filtered(tmp_path / "out.csv", ROWS)

    in_calm_cluster(tmp_path, "abcde", test)


@pytest.mark.one_part_per_commit("changes of hosts and backups", parts=2)
def test_another_backup_is_chosen_when_one_is_gone(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        operator = await replicated(cluster, tmp_path / "out.csv", WINDOWS, rows=LONG)
        register = await register_of(cluster, operator)
        cluster.crash(cluster.at(register.backup))
        while (replaced := await register_of(cluster, operator)).backup in ("", register.backup):
            await cluster.sleep(1.0)
        await cluster.sleep(5.0)
        assert (replaced.host, replaced.epoch) == (register.host, register.epoch)
        assert replaced.backup != register.host
        cluster.crash(cluster.at(register.host))
        await until_owner(cluster, operator, replaced.backup)
        await finished(cluster)
        check_windows(tmp_path / "out.csv", LONG)

    in_calm_cluster(tmp_path, "abcdef", test)
