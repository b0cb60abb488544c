"""A view created at one node is read at every other, and nothing of it stays once it is dropped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_protocol.api.catalogue import ViewDeclaration
from sbon_protocol.errors import SbonError
from tests.nodes.clusters import NUMBERS, ask, declare, in_cluster, source_at, state_of, submitted

FEW = "SELECT id, ts FROM numbers WHERE id % 3 = 0"
FEWER = "SELECT id AS number FROM few WHERE id > 50"


async def create(cluster: SimulatedCluster, node: str, name: str, sql: str, *, replace: bool = False) -> None:
    view = ViewDeclaration(name=name, sql=sql, replace=replace)
    await ask(cluster, node, cluster.at(node).daemon.queries.declarations.create_view(view))


async def refused(cluster: SimulatedCluster, node: str, work: object) -> SbonError:
    with pytest.raises(SbonError) as refusal:
        await ask(cluster, node, work)
    return refusal.value


async def finished(cluster: SimulatedCluster, name: str) -> None:
    while (info := await state_of(cluster, "a", name)).state == "running":
        await cluster.clock.sleep(0.5)
    assert info.state == "finished"


def test_every_node_reads_a_view_and_dropping_it_disturbs_no_query(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a", rows=100, rate=20.0))
        await create(cluster, "a", "few", FEW)
        await cluster.until(lambda: "few" in cluster.at("b").daemon.ownership.catalogue.entries)
        await create(cluster, "b", "fewer", FEWER)
        info = await ask(cluster, "b", cluster.at("b").daemon.hosting.sources.describe("fewer"))
        declaration = info.entry.declaration
        assert ([(one.name, one.type) for one in declaration.schema], declaration.event_time) == ([("number", "bigint")], "")
        await cluster.until(lambda: "fewer" in cluster.at("c").daemon.ownership.catalogue.entries)
        path = tmp_path / "out.ndjson"
        await submitted(cluster, "c", path, sql="SELECT number FROM fewer", name="read")
        for name, reader in (("few", "fewer"), ("numbers", "few")):
            error = await refused(cluster, "c", cluster.at("c").daemon.queries.declarations.drop(name))
            assert (error.code, error.where) == ("stream-in-use", "stream")
            assert f"{name} is read by the view {reader}" in str(error)
        for name in ("fewer", "few"):
            await ask(cluster, "c", cluster.at("c").daemon.queries.declarations.drop(name))
        await finished(cluster, "read")
        assert sorted(json.loads(line)["number"] for line in path.read_text().splitlines()) == list(range(51, 100, 3))
        again = cluster.at("c").daemon
        error = await refused(cluster, "c", submitted(cluster, "c", None, sql="SELECT number FROM fewer", name="gone"))
        assert error.code == "unknown-stream"
        await create(cluster, "c", "called", "SELECT id AS few FROM numbers")
        await create(cluster, "c", "few", FEW)
        await ask(cluster, "c", again.queries.declarations.drop("few"))
        await ask(cluster, "c", again.queries.declarations.drop("called"))
        await ask(cluster, "c", again.queries.declarations.drop("numbers"))

    in_cluster(tmp_path, "abc", test)


def test_bad_views_leave_nothing(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        daemon = cluster.at("a").daemon
        await declare(cluster, "a", source_at("a", rows=10))
        await create(cluster, "a", "few", FEW)
        for name, sql, code, where in (
            ("few", FEW, "stream-exists", "name"),
            ("numbers", FEW, "stream-exists", "name"),
            ("select", FEW, "bad-name", "name"),
            ("v", "SELECT no FROM numbers", "unknown-column", "line 1, column 8"),
            ("v", "SELECT id FROM v", "unknown-stream", "line 1, column 16"),
            ("v", "DROP STREAM numbers", "not-a-select", "line 1, column 1"),
        ):
            error = await refused(cluster, "a", daemon.queries.declarations.create_view(ViewDeclaration(name=name, sql=sql)))
            assert (error.code, error.where) == (code, where), name
        error = await refused(cluster, "a", daemon.queries.declarations.create_stream(NUMBERS))
        assert error.message == "the stream 'numbers' exists already"
        source = {"stream": "few", "name": "s", "node": "a", "connector": "generator", "options": {"rows": 1}}
        attached = type(source_at("a"))(**source)  # type: ignore[arg-type]
        assert (await refused(cluster, "a", daemon.hosting.sources.attach(attached))).code == "is-a-view"
        assert set(daemon.ownership.catalogue.entries) == {"numbers", "few"}

    in_cluster(tmp_path, "a", test)


def test_a_view_is_replaced_in_one_change_or_stays(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a", rows=10))
        await create(cluster, "a", "few", FEW, replace=True)
        catalogue = cluster.at("b").daemon.ownership.catalogue
        await cluster.until(lambda: "few" in catalogue.entries)
        seen: list[str] = []
        catalogue.listen(lambda entry: seen.append("" if entry.dropped else entry.declaration.sql))
        for name, sql, code, where in (
            ("few", "SELECT no FROM numbers", "unknown-column", "line 1, column 8"),
            ("few", "SELECT id FROM few", "unknown-stream", "line 1, column 16"),
            ("numbers", FEW, "not-a-view", "name"),
        ):
            error = await refused(cluster, "a", create(cluster, "a", name, sql, replace=True))
            assert (error.code, error.where) == (code, where), sql
        await create(cluster, "a", "few", "SELECT id AS number FROM numbers", replace=True)
        await cluster.until(lambda: seen != [])
        assert seen == ["SELECT id AS number FROM numbers"]
        await create(cluster, "b", "fewer", "SELECT number FROM few WHERE number > 5")
        await cluster.until(lambda: "fewer" in cluster.at("a").daemon.ownership.catalogue.entries)
        read = await refused(cluster, "a", create(cluster, "a", "few", FEW, replace=True))
        assert (read.code, "few is read by the view fewer" in read.message) == ("stream-in-use", True)
        assert cluster.at("a").daemon.ownership.catalogue.entry("few").declaration.sql == seen[0]

    in_cluster(tmp_path, "ab", test)
