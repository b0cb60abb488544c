"""Bounds of the catalogue: separate for present and dropped entries; dropped ones are kept for long."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_node.node import Node
from sbon_node.ownership.catalogue import MAX_TOMBSTONES, PUSHED_LEAP, TOMBSTONE_S, check_entry
from sbon_protocol.api.catalogue import CatalogEntry, SourceDeclaration, StreamDeclaration
from sbon_protocol.calls import PushCatalogue
from sbon_protocol.errors import SbonError
from tests.nodes.clusters import NUMBERS, ask, in_cluster, source_at

DAY_MS = 86_400_000


def named(name: str) -> StreamDeclaration:
    return msgspec.structs.replace(NUMBERS, name=name)


def dropped(name: str, at_ms: int) -> CatalogEntry:
    return CatalogEntry(declaration=named(name), version=7, origin="b", dropped=True, dropped_ms=at_ms)


async def tell(cluster: SimulatedCluster, entries: Iterable[CatalogEntry]) -> None:
    """``b`` tells ``a``."""
    await ask(cluster, "b", cluster.nodes["b"].daemon.context.call("a", PushCatalogue(entries=tuple(entries))))


async def version_of(cluster: SimulatedCluster, name: str) -> int:
    """The version under which ``a`` declares it: 1 where it remembers nothing of the name."""
    daemon = cluster.nodes["a"].daemon
    await ask(cluster, "a", daemon.queries.declarations.create_stream(named(name)))
    version: int = (await ask(cluster, "a", daemon.hosting.sources.describe(name))).entry.version
    await ask(cluster, "a", daemon.queries.declarations.drop(name))
    return version


def test_dropped_names_take_no_room_from_those_that_stand(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        daemon = cluster.nodes["a"].daemon
        for number in range(12):
            await ask(cluster, "a", daemon.queries.declarations.create_stream(named(f"s{number}")))
            await ask(cluster, "a", daemon.queries.declarations.drop(f"s{number}"))
        for name in ("x", "y", "z"):
            await ask(cluster, "a", daemon.queries.declarations.create_stream(named(name)))
        with pytest.raises(SbonError) as caught:
            await ask(cluster, "a", daemon.queries.declarations.create_stream(named("s1")))
        assert caught.value.code == "too-many-streams"
        told = [CatalogEntry(declaration=named(name), origin="b") for name in ("more", "s2")]
        await tell(cluster, told)
        assert sorted(info.entry.declaration.name for info in await ask(cluster, "a", daemon.hosting.sources.all())) == [
            "x",
            "y",
            "z",
        ]

    in_cluster(tmp_path, "ab", test, max_streams=3)


def test_a_dropped_stream_is_forgotten_after_its_time_and_not_before(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        at_ms = cluster.clock.wall_ms() - int(TOMBSTONE_S * 1000)
        await tell(cluster, [dropped("old", at_ms - 1), dropped("young", at_ms + DAY_MS)])
        assert await version_of(cluster, "old") == 1
        assert await version_of(cluster, "young") == 8

    in_cluster(tmp_path, "ab", test)


def test_too_many_dropped_names_forget_the_oldest(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        now_ms = cluster.clock.wall_ms()
        await tell(cluster, (dropped(f"s{n}", now_ms - n) for n in range(MAX_TOMBSTONES + 2)))
        assert await version_of(cluster, f"s{MAX_TOMBSTONES + 1}") == 1
        assert await version_of(cluster, "s0") == 8

    in_cluster(tmp_path, "ab", test)


STANDS = CatalogEntry(declaration=NUMBERS, version=2)


@pytest.mark.parametrize(
    "entry",
    [
        msgspec.structs.replace(STANDS, dropped=True),
        msgspec.structs.replace(STANDS, dropped_ms=1),
        msgspec.structs.replace(STANDS, sources=(source_at("a"),)),
    ],
    ids=["dropped, but when?", "stands, and was dropped", "source of another version"],
)
def test_entries_that_contradict_themselves_are_refused(entry: CatalogEntry) -> None:
    with pytest.raises(SbonError) as caught:
        check_entry(entry)
    assert caught.value.code == "bad-entry"


@pytest.mark.parametrize("leap", [2**53 - 1, 2**53, PUSHED_LEAP + 1])
def test_no_message_takes_a_name_away_for_good(tmp_path: Path, leap: int) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        daemon = cluster.nodes["a"].daemon
        await ask(cluster, "a", daemon.queries.declarations.create_stream(named("s")))
        now_ms = cluster.clock.wall_ms()
        await tell(cluster, [msgspec.structs.replace(dropped("s", now_ms), version=leap + 1 - (leap == 2**53))])
        assert (await ask(cluster, "a", daemon.hosting.sources.describe("s"))).entry.version == 1
        assert daemon.context.counters.snapshot()["catalogue-entry-refused"] == 1
        # One within the bound does drop it: then it can be declared again, for everybody.
        await tell(cluster, [msgspec.structs.replace(dropped("s", now_ms), version=PUSHED_LEAP)])
        await ask(cluster, "a", daemon.queries.declarations.create_stream(named("s")))
        for node in "ab":
            assert (
                await ask(cluster, node, cluster.nodes[node].daemon.hosting.sources.describe("s"))
            ).entry.version == PUSHED_LEAP + 1

    in_cluster(tmp_path, "ab", test)


@pytest.mark.parametrize("turn", [2**53, PUSHED_LEAP + 1])
def test_no_message_takes_the_name_of_a_source_away_for_good(tmp_path: Path, turn: int) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        daemon = cluster.nodes["a"].daemon
        await ask(cluster, "a", daemon.queries.declarations.create_stream(NUMBERS))
        source = source_at("a")
        detached = CatalogEntry(declaration=NUMBERS, origin="b", detached={source.name: turn})
        await tell(cluster, [detached, CatalogEntry(declaration=NUMBERS, origin="b", sources=(_turned(source, turn),))])
        await ask(cluster, "a", daemon.hosting.sources.attach(source))
        assert [
            one.turn
            for one in (await ask(cluster, "b", cluster.nodes["b"].daemon.hosting.sources.describe("numbers"))).entry.sources
        ] == [1]

    in_cluster(tmp_path, "ab", test)


def test_no_message_takes_the_epochs_of_a_source_away_for_good(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        daemon = cluster.nodes["a"].daemon
        await ask(cluster, "a", daemon.queries.declarations.create_stream(NUMBERS))
        for epoch in (PUSHED_LEAP + 2, PUSHED_LEAP + 1):
            source = msgspec.structs.replace(source_at("b"), durability="replicated", epoch=epoch)
            await tell(cluster, [CatalogEntry(declaration=NUMBERS, origin="b", sources=(source,))])
            sources = (await ask(cluster, "a", daemon.hosting.sources.describe("numbers"))).entry.sources
            assert [one.epoch for one in sources] == ([epoch] if epoch <= PUSHED_LEAP + 1 else [])

    in_cluster(tmp_path, "ab", test)


async def _accepted(daemon: Node, entry: CatalogEntry) -> None:
    daemon.ownership.catalogue._accept(entry)


def _turned(source: SourceDeclaration, turn: int) -> SourceDeclaration:
    return msgspec.structs.replace(source, turn=turn)


def test_a_node_that_missed_thousands_of_versions_catches_up(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        daemon = cluster.nodes["a"].daemon
        await ask(cluster, "a", daemon.queries.declarations.create_stream(named("s")))
        # Stands for as many drops and new declarations while b was away.
        entry = msgspec.structs.replace(daemon.ownership.catalogue.entry("s"), version=50 * PUSHED_LEAP)
        await ask(cluster, "a", _accepted(daemon, entry))
        waited_s = 0
        while cluster.nodes["b"].daemon.ownership.catalogue.entry("s").version != entry.version and waited_s < 600:
            await asyncio.sleep(1)
            waited_s += 1
        assert waited_s < 600

    in_cluster(tmp_path, "ab", test)


def test_a_name_that_has_no_version_left_is_not_said_to_be_declared(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        daemon = cluster.nodes["a"].daemon
        now_ms = cluster.clock.wall_ms()
        await ask(cluster, "a", _accepted(daemon, msgspec.structs.replace(dropped("s", now_ms), version=2**53)))
        with pytest.raises(SbonError) as caught:
            await ask(cluster, "a", daemon.queries.declarations.create_stream(named("s")))
        assert caught.value.code == "stream-name-used-up"

    in_cluster(tmp_path, "ab", test)
