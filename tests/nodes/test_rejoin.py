"""A node rejoins its cluster through any known member, after any time alone."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import CapturingLogger

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_lab.simulation.loop import VirtualLoop, run
from sbon_node.base.clock import Clock
from sbon_node.base.store import RecordStore
from sbon_node.net.transport import Address
from sbon_node.overlay.membership.settings import MembershipSettings
from sbon_node.overlay.rejoin import Rejoin
from sbon_protocol.errors import SbonError

SETTINGS = MembershipSettings(join_timeout_s=20.0, rejoin_s=1.0, rejoin_max_s=30.0, remembered_peers=3)


class Scripted:
    """Members as the test says; nodes in ``answering`` can be joined, ``refusing`` refuse with a code."""

    def __init__(self) -> None:
        self.members: dict[str, Address] = {}
        self.answering: set[Address] = set()
        self.refusing: dict[Address, str] = {}
        self.tried: list[tuple[float, Address]] = []

    @property
    def others_alive(self) -> int:
        return len(self.members)

    def is_alive(self, name: str) -> bool:
        return name in self.members

    def address_of(self, name: str) -> Address:
        return self.members[name]

    async def join(self, seeds: Sequence[Address]) -> int:
        for seed in seeds:
            self.tried.append((CLOCK.now(), seed))
            if seed in self.refusing:
                raise SbonError(self.refusing[seed], "refused")
            if seed in self.answering:
                self.members[f"n{seed.host.rsplit('.', 1)[1]}"] = seed
                return 2
        raise SbonError("join-failed", "no node answers")


CLOCK = Clock()


def at(number: int) -> Address:
    return Address(f"10.0.0.{number}", 7400)


class Lives:
    """One data directory, and the node's lives on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def live(
        self, others: Scripted, seeds: Sequence[Address], during: Callable[[Rejoin], Coroutine[Any, Any, None]]
    ) -> None:
        store = RecordStore(self.folder / "node.db")
        rejoin = Rejoin(others, store=store, clock=CLOCK, rng=random.Random(1), seeds=seeds, settings=SETTINGS)
        try:
            await during(rejoin)
        finally:
            await rejoin.close()
            store.close()

    async def meet(self, *numbers: int) -> None:
        """Simulate a life in which these members joined and died again."""
        others = Scripted()

        async def meeting(rejoin: Rejoin) -> None:
            for number in numbers:
                others.members[f"n{number}"] = at(number)
                rejoin.member_changed(f"n{number}", "joined")
                del others.members[f"n{number}"]
                rejoin.member_changed(f"n{number}", "died")

        await self.live(others, [], meeting)


def in_virtual_time(body: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run(lambda loop, rng: body(), seed=1)


def test_it_tries_all_it_has_met_with_growing_pauses_until_it_has_found_one(tmp_path: Path) -> None:
    async def body() -> None:
        lives, others = Lives(tmp_path), Scripted()
        await lives.meet(1, 2)

        async def alone(rejoin: Rejoin) -> None:
            await rejoin.start()
            await CLOCK.sleep(300)
            assert {address for _, address in others.tried} == {at(1), at(2)}
            times = sorted({time for time, _ in others.tried})
            pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
            assert pauses[:5] == pytest.approx([1, 2, 4, 8, 16])
            assert pauses[5:] == pytest.approx([30] * len(pauses[5:]))
            others.answering.add(at(2))
            await CLOCK.sleep(30)
            assert list(others.members) == ["n2"]
            others.members.clear()
            rejoin.member_changed("n2", "died")
            await CLOCK.sleep(2)
            assert list(others.members) == ["n2"]

        await lives.live(others, [], alone)

    in_virtual_time(body)


def test_it_logs_why_an_address_cannot_be_joined_once_for_each_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logged = CapturingLogger()
    monkeypatch.setattr("sbon_node.overlay.rejoin.log", logged)

    async def body() -> None:
        lives, others = Lives(tmp_path), Scripted()
        await lives.meet(1, 2)

        async def alone(rejoin: Rejoin) -> None:
            await rejoin.start()
            await CLOCK.sleep(300)
            others.refusing[at(1)] = "wrong-cluster"
            await CLOCK.sleep(300)
            said = [(call.kwargs["address"], call.kwargs["reason"]) for call in logged.calls if call.method_name == "info"]
            assert sorted(said) == [(str(at(1)), "no node answers"), (str(at(1)), "refused"), (str(at(2)), "no node answers")]

        await lives.live(others, [], alone)

    in_virtual_time(body)


def test_whom_it_remembers_and_does_not_see_it_asks_now_and_then_though_it_has_found_others(tmp_path: Path) -> None:
    """Otherwise nodes that restart together, and each know a few others, may stay islands."""

    async def body() -> None:
        lives, others = Lives(tmp_path), Scripted()
        await lives.meet(1, 2)
        others.answering.add(at(2))

        async def on_an_island(rejoin: Rejoin) -> None:
            await rejoin.start()
            await CLOCK.sleep(300)
            assert list(others.members) == ["n2"]
            looks = [time for time, address in others.tried if time > 0]
            assert {address for time, address in others.tried if time > 0} == {at(1)}
            assert [later - earlier for earlier, later in itertools.pairwise(looks)] == pytest.approx([30] * (len(looks) - 1))
            others.answering.add(at(1))
            await CLOCK.sleep(31)
            assert sorted(others.members) == ["n1", "n2"]
            count = len(others.tried)
            await CLOCK.sleep(300)
            assert len(others.tried) == count

        await lives.live(others, [], on_an_island)

    in_virtual_time(body)


def test_departed_peers_are_forgotten_and_the_list_is_bounded(tmp_path: Path) -> None:
    async def body() -> None:
        lives, others = Lives(tmp_path), Scripted()
        await lives.meet(1, 2, 3, 4)

        async def leaving(rejoin: Rejoin) -> None:
            rejoin.member_changed("n3", "left")
            await rejoin.start()
            assert {address for _, address in others.tried} == {at(2), at(4)}

        await lives.live(others, [], leaving)

    in_virtual_time(body)


def test_a_remembered_address_may_be_another_clusters_now(tmp_path: Path) -> None:
    async def body() -> None:
        lives, others = Lives(tmp_path), Scripted()
        await lives.meet(1, 2)
        others.refusing[at(1)] = "wrong-cluster"
        others.answering.add(at(2))
        await lives.live(others, [], lambda rejoin: rejoin.start())
        assert list(others.members) == ["n2"]

    in_virtual_time(body)


@pytest.mark.parametrize("met, code", [((), "join-failed"), ((), "wrong-cluster"), ((), "name-taken"), ((1,), "name-taken")])
def test_a_start_is_refused_by_seeds_and_by_the_owner_of_the_name(tmp_path: Path, met: tuple[int, ...], code: str) -> None:
    async def body() -> None:
        lives, others = Lives(tmp_path), Scripted()
        await lives.meet(*met)
        if code != "join-failed":
            others.refusing[at(1)] = code
        with pytest.raises(SbonError) as refused:
            await lives.live(others, [] if met else [at(1)], lambda rejoin: rejoin.start())
        assert refused.value.code == code

    in_virtual_time(body)


@pytest.mark.one_part_per_commit("nodes restarted while cut off", parts=2)
@pytest.mark.parametrize("restarted", ["a", "c"])
def test_a_node_restarted_while_cut_off_finds_the_cluster_without_its_seed(tmp_path: Path, restarted: str) -> None:
    async def main(loop: VirtualLoop) -> None:
        cluster = SimulatedCluster(loop, 5, ["a", "b", "c"], tmp_path)
        cluster.start()
        await cluster.together()
        others = [name for name in cluster.nodes if name != restarted]
        for other in others:
            cluster.network.cut(restarted, other)
        await cluster.until(lambda: not cluster.at(restarted).daemon.membership.alive())
        cluster.crash(cluster.at(restarted))
        if restarted != "a":
            cluster.crash(cluster.at("a"))  # its only seed, for good
        cluster.boot(cluster.at(restarted))
        await CLOCK.sleep(400)
        assert cluster.at(restarted).daemon.membership.alive() == []
        for other in others:
            cluster.network.heal(restarted, other)
        living = len([name for name in cluster.nodes if cluster.at(name).alive])
        assert living == (3 if restarted == "a" else 2)
        await cluster.until(lambda: len(cluster.at(restarted).daemon.membership.alive()) == living - 1)
        cluster.verify()

    run(lambda loop, rng: main(loop), seed=5)
