"""A replicated source goes on at its backup when its node is lost with its disk: each confirmed row comes out once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sbon_lab.simulation.cluster import NodeDiedError, SimulatedCluster
from sbon_node.connectors.sources.push import Post
from sbon_node.model.records import SourceRegister
from sbon_protocol.api.catalogue import SourceDeclaration
from sbon_protocol.api.states import backup_states
from sbon_protocol.api.streams import Pushed, SourceInfo
from sbon_protocol.calls import OpenSourceBackup, StoreSource, YieldSource
from sbon_protocol.errors import SbonError
from tests.calm_clusters import in_calm_cluster
from tests.nodes.clusters import NUMBERS, ask, state_of, submitted
from tests.nodes.test_moved_operators import delivered

SQL = "SELECT id FROM numbers WHERE id >= 0"
POSTS = 60
ROWS = 3
"""Rows of a post."""
SOURCE = "source/numbers@1/posted"
PATIENCE_S = 120.0
"""Virtual seconds in which a source goes on at its backup, and rows come."""


def posted_at(node: str, **options: Any) -> SourceDeclaration:
    return SourceDeclaration(
        stream="numbers", name="posted", node=node, connector="http", durability="replicated", options=options
    )


def generated_at(node: str, rows: int, rate: float) -> SourceDeclaration:
    options = {"rows": rows, "rate": rate}
    return SourceDeclaration(
        stream="numbers", name="posted", node=node, connector="generator", durability="replicated", options=options
    )


async def declared(cluster: SimulatedCluster, source: SourceDeclaration) -> None:
    daemon = cluster.at("a").daemon
    await ask(cluster, "a", daemon.queries.declarations.create_stream(NUMBERS))
    await ask(cluster, "a", daemon.hosting.sources.attach(source))


async def info_of(cluster: SimulatedCluster, at: str = "a") -> SourceInfo:
    info: SourceInfo = (await ask(cluster, at, cluster.at(at).daemon.hosting.sources.describe("numbers"))).sources[0]
    return info


async def register_of(cluster: SimulatedCluster, at: str = "a") -> SourceRegister:
    registers = cluster.at(at).daemon.hosting.source_backups.registers
    register: SourceRegister = await ask(cluster, at, registers.read(SOURCE))
    return register


async def backed_up(cluster: SimulatedCluster) -> SourceInfo:
    while (info := await info_of(cluster)).backup is None or info.backup.state != backup_states.CURRENT:
        await cluster.clock.sleep(0.2)
    return info


async def body(first: int) -> AsyncIterator[bytes]:
    for number in range(first, first + ROWS):
        yield f'{{"id": {number}, "v": 1.5, "ts": "2026-01-01T00:{number // 60:02d}:{number % 60:02d}Z"}}\n'.encode()


async def push(cluster: SimulatedCluster, number: int) -> Pushed:
    """Post some rows to the node that the catalogue of ``a`` names, again and again until it answers, as ``sbon stream push``."""
    deadline = cluster.clock.now() + PATIENCE_S
    while True:
        assert cluster.clock.now() < deadline, f"post {number} is not answered"
        node = cluster.at("a").daemon.ownership.catalogue.node_of(SOURCE)
        if not cluster.at(node).ready:
            await cluster.clock.sleep(0.5)
            continue
        post = Post("application/x-ndjson", body(number * ROWS), f"post-{number}")
        try:
            pushed: Pushed = await cluster.answer(node, cluster.at(node).daemon.hosting.pushes.push("numbers", "posted", post))
            return pushed
        except (SbonError, NodeDiedError):
            await cluster.clock.sleep(0.5)


def lose(cluster: SimulatedCluster, name: str) -> None:
    """Kill all processes of a node, and delete its disk."""
    node = cluster.at(name)
    cluster.crash(node)
    for process in node.locks.engine_processes:
        process.kill()
    node.wipe()


def check_each_once(path: Path, rows: int) -> None:
    counted = Counter(int(row["id"]) for row in delivered(path))
    assert max(counted.values()) == 1
    assert sorted(counted) == list(range(rows))


async def until_rows(cluster: SimulatedCluster, rows: int) -> None:
    deadline = cluster.clock.now() + PATIENCE_S
    while (info := await state_of(cluster, "a")).rows != rows:
        assert info.state == "running", info.reason
        assert cluster.clock.now() < deadline, f"{info.rows} of {rows} rows came: {info.reason}"
        await cluster.clock.sleep(1.0)


def test_a_post_to_a_dead_node_is_to_come_again_once_the_backup_has_taken_over(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declared(cluster, posted_at("b"))
        await backed_up(cluster)
        lose(cluster, "b")
        at_a = cluster.at("a").daemon
        await cluster.until(lambda: at_a.context.presence.away("b") != "")
        with pytest.raises(SbonError, match="its node b is dead since") as refused:
            await ask(cluster, "a", at_a.hosting.pushes.push("numbers", "posted", Post("application/x-ndjson", body(0))))
        assert refused.value.hint == "post it again once its backup has taken it over, or that node is back"

    in_calm_cluster(tmp_path, "abcd", test)


def test_each_confirmed_post_survives_its_node(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declared(cluster, posted_at("b"))
        backup = (await backed_up(cluster)).backup
        assert backup is not None
        others = [node for node in "cde" if node != backup.node]
        await submitted(cluster, "a", tmp_path / "out.csv", sql=SQL, strategy="consumer", consumer=others[0])
        for number in range(POSTS):
            if number == POSTS // 2:
                lose(cluster, "b")
            pushed = await push(cluster, number)
            assert (pushed.rows, pushed.bad) == (ROWS, 0)
        register = await register_of(cluster)
        assert (register.host, register.epoch) == (backup.node, 2)
        assert register.backup not in ("", "b", backup.node)
        for number in range(POSTS):
            assert (await push(cluster, number)).repeated
        await until_rows(cluster, POSTS * ROWS)
        cluster.boot(cluster.at("b"))
        await cluster.sleep(60.0)
        assert SOURCE not in cluster.at("b").daemon.outbox.streams()
        info = await state_of(cluster, "a")
        assert [source.source.node for source in info.sources] == [backup.node]
        assert info.progress is not None
        assert info.progress.rows_in == POSTS * ROWS
        check_each_once(tmp_path / "out.csv", POSTS * ROWS)

    in_calm_cluster(tmp_path, "abcde", test)


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_node_that_dies_amid_posts_loses_none_that_was_answered(tmp_path: Path, seed: int) -> None:
    """Several clients post at once, and the node dies while their posts are under way."""

    async def client(cluster: SimulatedCluster, numbers: range) -> None:
        for number in numbers:
            await push(cluster, number)

    async def test(cluster: SimulatedCluster) -> None:
        await declared(cluster, posted_at("b"))
        await backed_up(cluster)
        await submitted(cluster, "a", tmp_path / "out.csv", sql=SQL, strategy="consumer", consumer="a")
        clients = [asyncio.ensure_future(client(cluster, range(first, POSTS, 3))) for first in range(3)]
        await cluster.sleep(0.13 * seed)
        assert not all(one.done() for one in clients)
        lose(cluster, "b")
        await asyncio.gather(*clients)
        assert (await register_of(cluster)).epoch == 2
        await until_rows(cluster, POSTS * ROWS)
        check_each_once(tmp_path / "out.csv", POSTS * ROWS)

    in_calm_cluster(tmp_path, "abcde", test, seed=seed)


def test_a_node_that_dies_before_its_own_write_lets_its_backup_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The backup has a post that its node has not, which comes back with its disk: the post counts once."""

    async def test(cluster: SimulatedCluster) -> None:
        await declared(cluster, posted_at("b"))
        await submitted(cluster, "a", tmp_path / "out.csv", sql=SQL, strategy="consumer", consumer="a")
        backup = (await backed_up(cluster)).backup
        assert backup is not None
        await push(cluster, 0)

        def die(*_: object) -> None:
            cluster.crash(cluster.at("b"))
            raise SbonError("disk-full", "it is dead")

        monkeypatch.setattr(cluster.at("b").daemon.outbox, "write_source", die)
        again = asyncio.ensure_future(push(cluster, 1))
        await cluster.sleep(1.0)
        assert not cluster.at("b").alive
        cluster.boot(cluster.at("b"))
        assert (await again).repeated
        assert (await info_of(cluster)).source.node == backup.node
        await push(cluster, 2)
        await until_rows(cluster, 3 * ROWS)
        await cluster.sleep(20.0)
        assert SOURCE not in cluster.at("b").daemon.outbox.streams()
        check_each_once(tmp_path / "out.csv", 3 * ROWS)

    in_calm_cluster(tmp_path, "abcde", test)


def test_a_node_that_was_cut_off_confirms_nothing_and_releases_the_source(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declared(cluster, posted_at("b"))
        await submitted(cluster, "a", tmp_path / "out.csv", sql=SQL, strategy="consumer", consumer="a")
        backup = (await backed_up(cluster)).backup
        assert backup is not None
        await push(cluster, 0)
        others = [name for name in cluster.nodes if name != "b"]
        cluster.network.partition(("b",), others)
        post = Post("application/x-ndjson", body(ROWS), "post-1")
        lonely = asyncio.ensure_future(cluster.answer("b", cluster.at("b").daemon.hosting.pushes.push("numbers", "posted", post)))
        assert not (await push_elsewhere(cluster, 1)).repeated
        await cluster.sleep(15.0)
        assert not lonely.done()
        with pytest.raises(SbonError) as caught:
            await cluster.answer(
                "b", cluster.at("b").daemon.hosting.pushes.push("numbers", "posted", Post("application/x-ndjson", body(9)))
            )
        assert caught.value.code == "source-paused"
        assert "its backup has to store its rows first" in caught.value.message
        cluster.network.rejoin(("b",), others)
        with pytest.raises(SbonError, match="does not run"):
            await lonely
        await cluster.sleep(30.0)
        assert SOURCE not in cluster.at("b").daemon.outbox.streams()
        await until_rows(cluster, 2 * ROWS)
        check_each_once(tmp_path / "out.csv", 2 * ROWS)

    in_calm_cluster(tmp_path, "abcde", test)


async def push_elsewhere(cluster: SimulatedCluster, number: int) -> Pushed:
    """Post once the source has left ``b``."""
    while cluster.at("a").daemon.ownership.catalogue.node_of(SOURCE) == "b":
        await cluster.clock.sleep(0.5)
    return await push(cluster, number)


def test_another_backup_is_chosen_for_a_quiet_source(tmp_path: Path) -> None:
    """Both nodes that have its rows go, one after the other, while nothing is posted."""

    async def test(cluster: SimulatedCluster) -> None:
        await declared(cluster, posted_at("b"))
        await submitted(cluster, "a", tmp_path / "out.csv", sql=SQL, strategy="consumer", consumer="a")
        first = (await backed_up(cluster)).backup
        assert first is not None
        await push(cluster, 0)
        lose(cluster, first.node)
        await cluster.sleep(90.0)
        register = await register_of(cluster)
        assert (register.host, register.epoch) == ("b", 1)
        assert register.backup not in ("", "b", first.node)
        lose(cluster, "b")
        assert (await push(cluster, 0)).repeated
        await push(cluster, 1)
        assert (await register_of(cluster)).host == register.backup
        await until_rows(cluster, 2 * ROWS)
        check_each_once(tmp_path / "out.csv", 2 * ROWS)

    in_calm_cluster(tmp_path, "abcdef", test)


def test_a_detached_source_leaves_nothing(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declared(cluster, posted_at("b"))
        await backed_up(cluster)
        await push(cluster, 0)
        assert [one for node in cluster.nodes.values() for one in node.daemon.hosting.source_backups.keeper.kept()] == [SOURCE]
        await ask(cluster, "a", cluster.at("a").daemon.queries.declarations.detach("numbers", "posted"))
        await cluster.sleep(10.0)
        for node in cluster.nodes.values():
            assert not node.daemon.hosting.source_backups.keeper.kept()
            assert not node.daemon.outbox.backups.names()
            assert SOURCE not in node.daemon.outbox.streams()
        while any(key == SOURCE for node in cluster.nodes.values() for key, _ in node.daemon.ownership.acceptors.accepted()):
            await cluster.sleep(10.0)

    in_calm_cluster(tmp_path, "abcd", test)


def test_a_backup_serves_only_the_host_of_its_source(tmp_path: Path) -> None:
    """Another member asks in the host's place: nothing is opened, stored or given up for it."""

    async def test(cluster: SimulatedCluster) -> None:
        await declared(cluster, posted_at("b"))
        backup = (await backed_up(cluster)).backup
        assert backup is not None
        await push(cluster, 0)
        kept = cluster.at(backup.node).daemon.hosting.source_backups.keeper.stored(SOURCE)
        stranger = next(name for name in "acde" if name != backup.node)
        context = cluster.at(stranger).daemon.context
        lineage = cluster.at("b").daemon.outbox.lineage(SOURCE)
        state = msgspec.to_builtins(kept.stream)
        for call, code in (
            (OpenSourceBackup(SOURCE, 1, lineage), "not-owner"),
            (OpenSourceBackup(SOURCE, 2, lineage), "not-owner"),
            (OpenSourceBackup("source/numbers@1/none", 1, lineage), "unknown-source"),
            (StoreSource(SOURCE, 1, state, 0, b""), "fenced"),
            (YieldSource(SOURCE, 1), "fenced"),
        ):
            with pytest.raises(SbonError) as caught:
                await cluster.answer(stranger, context.call(backup.node, call))
            assert caught.value.code == code, call
        assert cluster.at(backup.node).daemon.hosting.source_backups.keeper.stored(SOURCE) == kept
        assert (await register_of(cluster)).host == "b"

    in_calm_cluster(tmp_path, "abcde", test)


@pytest.mark.parametrize("connector", ["file", "tail", "hostmetrics"])
def test_a_source_bound_to_its_node_cannot_be_replicated(tmp_path: Path, connector: str) -> None:
    source = SourceDeclaration(
        stream="numbers", name="bound", node="a", connector=connector, durability="replicated", options={"path": "x"}
    )

    async def test(cluster: SimulatedCluster) -> None:
        with pytest.raises(SbonError) as caught:
            await declared(cluster, source)
        assert (caught.value.code, caught.value.where) == ("source-bound", "durability")

    in_calm_cluster(tmp_path, "a", test)


@pytest.mark.parametrize("number", range(1, 4))
def test_a_generator_goes_on_where_it_was(tmp_path: Path, number: int) -> None:
    rows = 600

    async def test(cluster: SimulatedCluster) -> None:
        await declared(cluster, generated_at("b", rows, 20.0))
        await submitted(cluster, "a", tmp_path / "out.csv", sql=SQL, strategy="consumer", consumer="a")
        await backed_up(cluster)
        await cluster.sleep(2.7 * number)
        lose(cluster, "b")
        while (info := await state_of(cluster, "a")).state == "running":
            await cluster.clock.sleep(1.0)
        assert info.state == "finished", info.reason
        check_each_once(tmp_path / "out.csv", rows)

    in_calm_cluster(tmp_path, "abcde", test, seed=number)
