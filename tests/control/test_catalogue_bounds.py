"""The catalogue is bounded: what stands and what was dropped apart; and what was dropped is forgotten only after a long time."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from sbon_node.control.catalogue import MAX_TOMBSTONES, TOMBSTONE_S, check_entry
from sbon_node.errors import SbonError
from sbon_node.query.catalog import CatalogEntry, StreamDeclaration
from sbon_node.simulation.cluster import SimulatedCluster
from sbon_protocol.calls import PushCatalogue
from tests.control.clusters import NUMBERS, ask, in_cluster, source_at

DAY_MS = 86_400_000


def named(name: str) -> StreamDeclaration:
    return msgspec.structs.replace(NUMBERS, name=name)


def dropped(name: str, at_ms: int) -> CatalogEntry:
    return CatalogEntry(declaration=named(name), version=7, origin="b", dropped=True, dropped_ms=at_ms)


async def tell(cluster: SimulatedCluster, entries: Iterable[CatalogEntry]) -> None:
    """``b`` tells ``a``."""
    await ask(cluster, "b", cluster.nodes["b"].daemon.context.tell("a", PushCatalogue(entries=tuple(entries))))


async def version_of(cluster: SimulatedCluster, name: str) -> int:
    """The version under which ``a`` declares it: 1 where it remembers nothing of the name."""
    daemon = cluster.nodes["a"].daemon
    await ask(cluster, "a", daemon.create_stream(named(name)))
    version: int = (await ask(cluster, "a", daemon.stream(name))).entry.version
    await ask(cluster, "a", daemon.drop_stream(name))
    return version


def test_dropped_names_take_no_room_from_those_that_stand(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        daemon = cluster.nodes["a"].daemon
        for number in range(12):
            await ask(cluster, "a", daemon.create_stream(named(f"s{number}")))
            await ask(cluster, "a", daemon.drop_stream(f"s{number}"))
        for name in ("x", "y", "z"):
            await ask(cluster, "a", daemon.create_stream(named(name)))
        with pytest.raises(SbonError) as caught:
            await ask(cluster, "a", daemon.create_stream(named("s1")))
        assert caught.value.code == "too-many-streams"
        told = [CatalogEntry(declaration=named(name), origin="b") for name in ("more", "s2")]
        await tell(cluster, told)
        assert sorted(info.entry.declaration.name for info in await ask(cluster, "a", daemon.streams())) == ["x", "y", "z"]

    in_cluster(tmp_path, "ab", test, max_streams=3)


def test_what_was_dropped_is_forgotten_after_its_time_and_not_before(tmp_path: Path) -> None:
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
