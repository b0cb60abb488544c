"""Cores of SWIM over a toy network: they detect crashes, and suspect no live node."""

from __future__ import annotations

import heapq
from collections.abc import Callable

import msgspec
import pytest

from sbon_node.overlay.membership.detector.instructions import Happened, Instruction, Send
from sbon_node.overlay.membership.detector.swim import Swim
from sbon_protocol.messages import MemberState, Rumour
from tests.overlay.membership.cores import address, core, member


class ToyNetwork:
    """Cores that tick every 100 ms; a datagram takes 100 ms and carries rumours of the core's queue, as packets do."""

    def __init__(self, names: str, seed: int = 1) -> None:
        self.now, self.seed = 0.0, seed
        self.cores: dict[str, Swim] = {}
        self.events: list[tuple[float, str, str, str]] = []
        self.cut: Callable[[str, str], bool] = lambda a, b: False
        self._flying: list[tuple[float, int, str, str, Send, tuple[Rumour, ...]]] = []
        self._number = 0
        for name in names:
            self.add(name, names)

    def add(self, name: str, known: str, incarnation: int = 1) -> None:
        others = "".join(other for other in known if other != name)
        self.cores[name] = core(name, others, incarnation=incarnation, seed=self.seed)

    def follow(self, name: str, out: list[Instruction]) -> None:
        for instruction in out:
            if isinstance(instruction, Happened):
                self.events.append((self.now, name, instruction.change, instruction.name))
            if isinstance(instruction, Send):
                swim = self.cores[name]
                due = swim.gossip.due()[:6]
                swim.gossip.sent(due, len(swim.table) + 1)
                first = () if instruction.first is None else (instruction.first,)
                self._number += 1
                to = instruction.to.host.removeprefix("host-")
                heapq.heappush(
                    self._flying, (self.now + 0.1, self._number, name, to, instruction, (*first, *instruction.carries, *due))
                )

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds * 10)):
            self.now = round(self.now + 0.1, 1)
            while self._flying and self._flying[0][0] <= self.now + 1e-9:
                _, _, source, to, send, rumours = heapq.heappop(self._flying)
                if to in self.cores and source in self.cores and not self.cut(source, to):
                    swim = self.cores[to]
                    self.follow(to, swim.take_rumours(rumours, self.now))
                    if send.message is not None:
                        self.follow(to, swim.received(send.message, address(source), self.now))
            for name in sorted(self.cores):
                self.follow(name, self.cores[name].tick(self.now))

    def states(self, of: str) -> dict[str, tuple[str, int]]:
        found = {}
        for name, swim in self.cores.items():
            row = swim.table.get(of)
            if row is not None:
                found[name] = (row.member.state, row.member.incarnation)
        return found

    def announce(self, name: str, state: MemberState) -> None:
        """Leave as the service does: two other nodes receive the update, and the node is gone."""
        gone = msgspec.structs.replace(self.cores[name].table.own, state=state)
        del self.cores[name]
        for other in sorted(self.cores)[:2]:
            self.follow(other, self.cores[other].take_rumours((gone,), self.now))


EIGHT = "abcdefgh"


@pytest.mark.one_part_per_commit("seeds of clusters of members", parts=2)
@pytest.mark.parametrize("seed", range(5))
def test_no_member_is_suspected_while_all_is_well(seed: int) -> None:
    net = ToyNetwork(EIGHT, seed)
    net.run(120)
    assert net.events == []


@pytest.mark.one_part_per_commit("seeds of clusters of members", parts=2)
@pytest.mark.parametrize("seed", range(5))
def test_a_crash_is_found_by_all_within_ten_seconds(seed: int) -> None:
    net = ToyNetwork(EIGHT, seed)
    net.run(20)
    del net.cores["d"]
    net.run(10)
    assert set(net.states("d").values()) == {("dead", 1)}
    assert {(change, name) for _, _, change, name in net.events} == {("suspected", "d"), ("died", "d")}


@pytest.mark.one_part_per_commit("seeds of clusters of members", parts=6)
@pytest.mark.parametrize("seed", range(20))
def test_a_false_suspicion_is_refuted(seed: int) -> None:
    net = ToyNetwork(EIGHT, seed)
    net.run(5)
    net.follow("a", net.cores["a"].take_rumours((member("d", "suspect"),), net.now))
    net.run(30)
    assert set(net.states("d").values()) == {("alive", 2)}
    assert "died" not in [change for _, _, change, _ in net.events]


def test_one_cut_path_makes_no_member_suspect() -> None:
    net = ToyNetwork(EIGHT)
    net.cut = lambda a, b: {a, b} == {"a", "d"}
    net.run(120)
    assert net.events == []


@pytest.mark.parametrize("state, change", [("left", "left"), ("away", "went-away")])
def test_leaving_and_going_away_spread_without_suspicion(state: MemberState, change: str) -> None:
    net = ToyNetwork(EIGHT)
    net.run(5)
    net.announce("d", state)
    net.run(20)
    assert set(net.states("d").values()) == {(state, 1)}
    assert sorted(net.events, key=lambda e: e[1]) == [
        (at, name, change, "d") for at, name, _, _ in sorted(net.events, key=lambda e: e[1])
    ]
    assert len(net.events) == 7


@pytest.mark.one_part_per_commit("seeds of clusters of members", parts=2)
@pytest.mark.parametrize("incarnation", [1, 2], ids=["counted-too-low", "counted-on"])
@pytest.mark.parametrize("crashed_for_s", [1, 30], ids=["before-it-is-found", "after-it-is-dead"])
def test_a_node_that_comes_back_is_taken_for_its_new_life(incarnation: int, crashed_for_s: int) -> None:
    net = ToyNetwork(EIGHT)
    net.run(5)
    net.follow("a", net.cores["a"].take_rumours((member("d", version=50),), net.now))
    del net.cores["d"]
    net.run(crashed_for_s)
    net.add("d", "", incarnation)
    net.follow("a", net.cores["a"].take_rumours(tuple(net.cores["d"].table.everyone()), net.now))
    net.follow("d", net.cores["d"].take_rumours(tuple(net.cores["a"].table.everyone()), net.now))
    net.run(30)
    found = net.states("d")
    assert {state for state, _ in found.values()} == {"alive"}
    assert {life for _, life in found.values()} == {net.cores["d"].table.own.incarnation}
    assert net.cores["d"].table.own.incarnation > 1
    assert len(found) == 7
