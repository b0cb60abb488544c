"""Steps of ants at one node: whom it believes, and how much it remembers."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from sbon_node.net.counters import Counters
from sbon_node.net.transport import Address
from sbon_node.overlay.membership.table import Table
from sbon_node.papers.ants.algorithm.cell import Cell, Pheromones
from sbon_node.papers.ants.algorithm.chain import Chain, Task
from sbon_node.papers.ants.network.service import AntPort, Enforcing
from sbon_node.papers.ants.network.walk import Send, Trail, Trails, Walk
from sbon_node.papers.ants.network.wire import chain_of, load_of, on_wire, state_of
from sbon_node.papers.ants.settings import AntSettings
from sbon_node.placement.model.queueing import Flow, Server, Service
from sbon_protocol.api.operators import Needs
from sbon_protocol.errors import SbonError
from sbon_protocol.messages import Endpoint, Member
from sbon_protocol.papers.ants import (
    AntSite,
    CellState,
    EnforceAnt,
    EnforceReturn,
    RouteAnt,
    RouteReturn,
    ScoutAnt,
    ScoutReturn,
    WithdrawAnt,
)

PLACES = {"s": 0.0, "m": 10.0, "n": 15.0, "d": 20.0}
"""The node under test is m; its neighbours are the others."""


def path_ms(one: str, other: str) -> float:
    return abs(PLACES.get(one, 1e3) - PLACES.get(other, 1e3))


def walk_at_m(dropped: list[str] | None = None, server: Server | None = None, **settings: Any) -> Walk:
    neighbours = {name: path_ms("m", name) for name in PLACES if name != "m"}
    free = Needs(cores=1.0, memory_mb=9e3)
    cell = Cell("m", neighbours, lambda _, __: dict.fromkeys(neighbours, 1.0), server or Server(), free)
    return Walk(cell, AntSettings(**settings), random.Random(1), path_ms, [].append if dropped is None else dropped.append)


def a_chain(*means_ms: float, refused: frozenset[str] = frozenset(), rate_s: float = 20.0) -> Chain:
    tasks = (
        Task(operator=f"o{i}", service=Service(mean_ms=ms), needs=Needs(cores=0.1), refused=refused)
        for i, ms in enumerate(means_ms)
    )
    return Chain(id="q", source="s", destination="d", tasks=tuple(tasks), rate_s=rate_s)


def scout(chain: Chain, path: tuple[str, ...] = ("s",), sites: tuple[AntSite, ...] = (), **fields: Any) -> ScoutAnt:
    values: dict[str, Any] = {"greed": 5, "most_load": 0.9, "threshold_ms": None, "flat": 0.0, "beyond": 0, **fields}
    return ScoutAnt(round=1, number=2, sender="s", chain=on_wire(chain), path=path, sites=sites, **values)


ROUTE = RouteAnt(1, 0, "s", "s", "d", ("s",), 10.0, 1)


# -- routing ants -----------------------------------------------------------------------------------------------------


def test_a_routing_ant_goes_on_and_its_return_reinforces_the_hop_it_took() -> None:
    walk = walk_at_m()
    sent = walk.step(ROUTE, "s", 0.0)
    assert sent is not None
    assert isinstance(sent.ant, RouteAnt)
    assert sent.to in ("n", "d")
    assert (sent.ant.path, sent.ant.sender, sent.ant.age_ms) == (("s", "m"), "m", 10.0 + path_ms("m", sent.to))
    before = walk.cell.table("d", 0.0).phi[sent.to]
    back = walk.step(RouteReturn(1, 0, sent.to, 30.0), sent.to, 0.1)
    assert back == Send("s", RouteReturn(1, 0, "m", 30.0 + path_ms("m", sent.to)))
    assert walk.cell.table("d", 0.1).phi[sent.to] > before
    assert len(walk.trails) == 0


def test_the_destination_sends_a_routing_ant_back() -> None:
    sent = walk_at_m().step(msgspec.structs.replace(ROUTE, destination="m"), "s", 0.0)
    assert sent == Send("s", RouteReturn(1, 0, "m", 0.0))


@pytest.mark.parametrize(
    "ant, sender, at",
    [
        (RouteReturn(2, 0, "d", 1.0), "d", 0.1),
        (RouteReturn(1, 1, "d", 1.0), "d", 0.1),
        (RouteReturn(1, 0, "x", 1.0), "x", 0.1),
        (RouteReturn(1, 0, "s", 1.0), "s", 0.1),
        (RouteReturn(1, 0, "sent to", 1.0), "sent to", 11.0),
    ],
    ids=["another round", "another number", "a stranger to it", "where it came from", "too late"],
)
def test_a_return_is_taken_only_from_where_the_ant_was_sent(ant: RouteReturn, sender: str, at: float) -> None:
    dropped: list[str] = []
    walk = walk_at_m(dropped)
    sent = walk.step(ROUTE, "s", 0.0)
    assert sent is not None
    before = dict(walk.cell.table("d", 0.0).phi)
    assert walk.step(ant, sent.to if sender == "sent to" else sender, at) is None
    assert walk.cell.table("d", 0.0).phi == before
    assert dropped == ["ant-without-trail"]


def test_a_return_is_taken_once() -> None:
    walk = walk_at_m()
    sent = walk.step(ROUTE, "s", 0.0)
    assert sent is not None
    back = RouteReturn(1, 0, sent.to, 30.0)
    assert walk.step(back, sent.to, 0.1) is not None
    phi = dict(walk.cell.table("d", 0.1).phi)
    assert walk.step(back, sent.to, 0.1) is None
    assert walk.cell.table("d", 0.1).phi == phi


def test_a_lie_about_a_trip_cannot_be_shorter_than_half_of_the_known_latency() -> None:
    walk = walk_at_m()
    far = msgspec.structs.replace(ROUTE, destination="far")
    sent = walk.step(far, "s", 0.0)
    assert sent is not None
    back = walk.step(RouteReturn(1, 0, sent.to, 0.0), sent.to, 0.1)
    assert back is not None
    assert isinstance(back.ant, RouteReturn)
    assert back.ant.trip_ms == pytest.approx(path_ms("m", "far") / 2)


@pytest.mark.parametrize(
    "ant, sender",
    [
        (ROUTE, "n"),
        (msgspec.structs.replace(ROUTE, path=()), "s"),
        (msgspec.structs.replace(ROUTE, path=("n", "s")), "s"),
        (scout(a_chain(5.0)), "n"),
        (scout(a_chain(5.0), path=()), "s"),
    ],
)
def test_an_ant_that_did_not_come_by_its_path_dies(ant: RouteAnt | ScoutAnt, sender: str) -> None:
    dropped: list[str] = []
    assert walk_at_m(dropped).step(ant, sender, 0.0) is None
    assert dropped == ["ant-astray"]


def test_an_ant_in_a_circle_continues_where_it_began_unless_it_lost_half_its_life() -> None:
    for age_ms, lives in ((18.0, True), (30.0, False)):
        walk = walk_at_m()
        first = walk.step(ROUTE, "s", 0.0)
        assert first is not None
        again = RouteAnt(1, 0, "n", "s", "d", ("s", "m", "x", "n"), age_ms, 4)
        sent = walk.step(again, "n", 0.1)
        assert (sent is not None) == lives
        if sent is not None:
            assert isinstance(sent.ant, RouteAnt)
            assert sent.ant.path == ("s", "m")
            assert sent.ant.age_ms == pytest.approx(10.0 + path_ms("m", sent.to))


def test_paths_and_steps_are_bounded() -> None:
    dropped: list[str] = []
    walk = walk_at_m(dropped, max_hops=4)
    assert walk.step(msgspec.structs.replace(ROUTE, path=("s", "a", "b", "s")), "s", 0.0) is None
    assert walk.step(msgspec.structs.replace(ROUTE, steps=8), "s", 0.0) is None
    assert walk.step(scout(a_chain(5.0), path=("s", "a", "b", "s")), "s", 0.0) is None
    assert dropped == ["ant-too-far"] * 3


def test_trails_are_bounded_in_number_and_time() -> None:
    trails = Trails(3, 10.0)
    for number in range(5):
        trails.put((number, 0), Trail("s", "d", "d", 1.0, 0.0, float(number)))
    assert len(trails) == 3
    assert trails.get((1, 0), 4.0) is None
    assert trails.get((2, 0), 4.0) is not None
    assert trails.get((2, 0), 13.0) is None
    trails.put((9, 0), Trail("s", "d", "d", 1.0, 0.0, 14.5))
    assert len(trails) == 1


def test_pheromone_evaporates_with_time_alone() -> None:
    table = Pheromones({"a": 1.0, "b": 3.0}, now=0.0, evaporation=100.0)
    for _ in range(20):
        table.reinforce("a", 10.0, 0.0)
    strong = table.phi["a"]
    assert strong > 0.9
    table.evaporate(100.0)
    assert table.phi["a"] == pytest.approx(0.25 + (strong - 0.25) / 2.718281828, rel=1e-6)
    table.evaporate(2000.0)
    assert table.phi == pytest.approx({"a": 0.25, "b": 0.75})


def test_pheromones_stay_with_the_neighbours_that_stay() -> None:
    table = Pheromones({"a": 1.0, "b": 1.0}, now=0.0)
    table.reinforce("a", 10.0, 0.0)
    before = table.phi["a"] / table.phi["b"]
    table.renew({"a": 1.0, "b": 1.0, "c": 2.0})
    assert table.phi["c"] == pytest.approx(0.5)
    assert table.phi["a"] / table.phi["b"] == pytest.approx(before)
    table.renew({"c": 1.0})
    assert table.phi == pytest.approx({"c": 1.0})


# -- scouting ants ----------------------------------------------------------------------------------------------------


def test_a_scout_places_tasks_at_the_cell_and_goes_on() -> None:
    walk = walk_at_m()
    sent = walk.step(scout(a_chain(5.0, 5.0, 5.0), greed=2), "s", 0.0)
    assert sent is not None
    assert isinstance(sent.ant, ScoutAnt)
    (site,) = sent.ant.sites
    assert (site.node, site.first, site.last) == ("m", 0, 2)
    assert site.state is not None
    assert site.state.cores == 1.0


def test_a_scout_with_all_tasks_placed_turns_at_the_destination_and_is_balanced() -> None:
    walk = walk_at_m()
    chain = msgspec.structs.replace(a_chain(5.0, 5.0), destination="m")
    far = AntSite("far", 0, 2, 12.0, 0.0, state_of(walk.cell.load))
    sent = walk.step(scout(chain, sites=(far,)), "s", 0.0)
    assert sent is not None
    assert isinstance(sent.ant, ScoutReturn)
    assert sent.to == "s"
    assert [site.node for site in sent.ant.sites] == ["m"], "this cell is on the way, and far is not"


def test_a_neighbour_is_a_host_only_while_its_state_is_fresh() -> None:
    busy = Server(flows=(Flow(rate_s=90.0, service=Service(mean_ms=10.0)),))
    idle = Cell("n", {}, lambda _, __: {}, Server(), Needs(cores=4.0, memory_mb=9e3)).load
    found = {}
    for told_at, at in ((0.0, 1.0), (0.0, 31.0), (None, 1.0)):
        walk = walk_at_m(server=busy)
        if told_at is not None:
            walk.tell("n", state_of(idle), told_at)
        chain = msgspec.structs.replace(a_chain(1.0), destination="m")
        here = AntSite("m", 0, 1, 500.0, 100.0)
        sent = walk.step(scout(chain, sites=(here,)), "s", at)
        assert sent is not None
        assert isinstance(sent.ant, ScoutReturn)
        found[told_at, at] = sent.ant.sites[0].node
    assert found == {(0.0, 1.0): "n", (0.0, 31.0): "m", (None, 1.0): "m"}


def test_a_running_query_is_quoted_beside_all_load_but_its_own() -> None:
    """Without its own flow the cell is idle; with it there is no capacity for the same again."""
    full, idle = walk_at_m(server=Server(flows=(Flow(rate_s=60.0, service=Service(mean_ms=10.0)),))), walk_at_m()
    chain = a_chain(10.0, rate_s=60.0)
    for query, sites in (("", 0), ("late-1", 1)):
        walk = Walk(full.cell, AntSettings(), random.Random(1), path_ms, beside=lambda query: idle.cell if query else full.cell)
        sent = walk.step(scout(msgspec.structs.replace(chain, query=query)), "s", 0.0)
        assert sent is not None
        assert isinstance(sent.ant, ScoutAnt)
        assert len(sent.ant.sites) == sites
        assert sent.ant.chain.query == query


@pytest.mark.parametrize(
    "sites",
    [
        (AntSite("a", 1, 2, 1.0, 0.0),),
        (AntSite("a", 0, 1, 1.0, 0.0), AntSite("a", 1, 2, 1.0, 0.0)),
        (AntSite("a", 0, 3, 1.0, 0.0),),
        (AntSite("a", 0, 0, 1.0, 0.0),),
    ],
    ids=["not from the first", "a node twice", "more than there are", "none"],
)
def test_scouts_with_impossible_sites_die(sites: tuple[AntSite, ...]) -> None:
    dropped: list[str] = []
    walk = walk_at_m(dropped)
    assert walk.step(scout(a_chain(5.0, 5.0), sites=sites), "s", 0.0) is None
    sent = walk.step(scout(a_chain(5.0, 5.0)), "s", 0.0)
    assert sent is not None
    assert walk.step(ScoutReturn(1, 2, sent.to, on_wire(a_chain(5.0, 5.0)), sites), sent.to, 0.1) is None
    assert dropped == ["ant-malformed"] * 2


def test_failed_scouts_discourage_others_from_the_hop() -> None:
    walk = walk_at_m()
    sent = walk.step(scout(a_chain(5.0)), "s", 0.0)
    assert sent is not None
    before = walk.cell.table("d", 0.0).phi[sent.to]
    back = walk.step(ScoutReturn(1, 2, sent.to, on_wire(a_chain(5.0)), ()), sent.to, 0.1)
    assert back is not None
    assert walk.cell.table("d", 0.1).phi[sent.to] < before


def test_states_and_chains_survive_the_wire() -> None:
    server = Server(flows=(Flow(rate_s=30.0, service=Service(mean_ms=9.0)),))
    cell = Cell("m", {}, lambda _, __: {}, server, Needs(cores=0.5, memory_mb=9e3))
    chain = a_chain(5.0, 2.0, refused=frozenset({"x"}))
    copy, there = load_of("m", state_of(cell.load)), chain_of(on_wire(chain), "q")
    for first, last in ((0, 1), (0, 2), (1, 2)):
        assert copy.quote(there, first, last) == cell.load.quote(chain, first, last)
    assert load_of("x", state_of(cell.load)).quote(there, 0, 1).cost_ms == float("inf")


# -- enforcement ants -------------------------------------------------------------------------------------------------


class Held:
    """Reservations of a node that has ``room`` for some operators."""

    def __init__(self, room: int) -> None:
        self.room, self.held = room, dict[str, str]()

    def reserve(self, leader: str, sender: str, needs: dict[str, Needs], hold_s: float) -> None:
        if len(self.held) + len(needs) > self.room:
            raise SbonError("no-capacity", "nothing free")
        self.held |= dict.fromkeys(needs, leader)

    def release(self, leader: str, operators: tuple[str, ...]) -> None:
        for operator in operators:
            if self.held.get(operator) == leader:
                del self.held[operator]


def enforcement(at: int = 1, own_ms: float = 20.0) -> EnforceAnt:
    sites = (AntSite("a", 0, 1, 20.0, 0.0), AntSite("m", 1, 2, own_ms, 0.0), AntSite("z", 2, 3, 20.0, 0.0))
    return EnforceAnt(7, "a", "s", on_wire(a_chain(5.0, 5.0, 5.0)), sites, at, "late-1", ("b0", "b1", "b2"), 30.0)


def enforcing(held: Held, *flows: Flow) -> Enforcing:
    return Enforcing(walk_at_m(server=Server(flows=flows)).cell, 60.0, held.reserve, held.release)


def test_an_enforcement_ant_reserves_its_site_and_goes_on_once() -> None:
    held = Held(2)
    node = enforcing(held)
    for _ in range(2):
        (sent,) = node.enforce(enforcement(), "a", 0.0)
        assert (sent.to, held.held) == ("z", {"late-1.b1": "s"})
        assert sent.ant == msgspec.structs.replace(enforcement(), sender="m", at=2)
    (booking,) = node.bookings(59.0)
    assert booking.flow.rate_s == 20.0
    assert node.bookings(60.0) == []


def test_an_enforcement_ant_that_is_refused_goes_back_and_undoes() -> None:
    for held, own_ms in ((Held(0), 20.0), (Held(2), 1.0)):
        sent = enforcing(held, Flow(rate_s=50.0, service=Service(mean_ms=10.0))).enforce(enforcement(own_ms=own_ms), "a", 0.0)
        back, answer = sent
        assert back == ("a", WithdrawAnt(7, "m", ()))
        assert answer.to == "s"
        assert isinstance(answer.ant, EnforceReturn)
        assert not answer.ant.accepted
        assert held.held == {}
    held = Held(2)
    node = enforcing(held)
    node.enforce(enforcement(), "a", 0.0)
    assert node.withdraw(WithdrawAnt(8, "z", ())) == []
    assert held.held == {"late-1.b1": "s"}, "only who knows the round undoes it"
    assert node.withdraw(WithdrawAnt(7, "z", ("a",))) == [("a", WithdrawAnt(7, "m", ()))]
    assert held.held == {}
    assert node.bookings(0.0) == []


@pytest.mark.parametrize(
    "ant",
    [
        enforcement(at=0),
        enforcement(at=9),
        msgspec.structs.replace(enforcement(), operators=("b0",)),
        msgspec.structs.replace(enforcement(), sites=enforcement().sites[:2]),
    ],
)
def test_an_impossible_enforcement_ant_reserves_nothing(ant: EnforceAnt) -> None:
    held = Held(9)
    assert enforcing(held).enforce(ant, "a", 0.0) == []
    assert held.held == {}


# -- the port ---------------------------------------------------------------------------------------------------------


class Members:
    """Membership as the port of ants sees it, with the handler that is registered."""

    def __init__(self, table: Table) -> None:
        self.table = table

    def handle(self, kinds: Any, handler: Any) -> None:
        self.handler = handler


def test_ants_come_from_members_at_their_own_address_under_their_own_name() -> None:
    def member(name: str, state: Any = "alive") -> Member:
        return Member(name, Endpoint(f"10.0.0.{len(name)}", 7400), Endpoint("h", 1), 1, state, instance=name)

    table = Table(member("own"), 100)
    for name, state in (("a", "alive"), ("bb", "dead"), ("cccc", "suspect")):
        table.hear(member(name, state), 0.0)
    counters, taken = Counters(lambda: 0.0), list[Any]()
    membership: Any = Members(table)
    port = AntPort(membership, counters, taken.append)
    state = state_of(walk_at_m().cell.load)
    for name, host in (("a", 1), ("bb", 2), ("cccc", 4), ("a", 4), ("zz", 1)):
        membership.handler(CellState(name, state), Address(f"10.0.0.{host}", 7400))
    assert [ant.sender for ant in taken] == ["a", "cccc"]
    assert counters.snapshot()["ant-of-a-stranger"] == 3
    port.close()
    membership.handler(CellState("a", state), Address("10.0.0.1", 7400))
    assert len(taken) == 2
