"""Ants as datagrams between whole nodes in virtual time."""

from __future__ import annotations

import asyncio
import itertools
import math
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from sbon_lab.simulation.cluster import CONFIG, SimulatedCluster
from sbon_lab.simulation.network.paths import NetworkQuality
from sbon_node.config.config import Config
from sbon_node.overlay.space.coordinate import Coordinate
from sbon_node.papers.ants.algorithm.chain import next_chain
from sbon_node.papers.ants.algorithm.colony import Scouted
from sbon_node.papers.ants.algorithm.scouting import Site
from sbon_node.papers.ants.network.leader import AntLeader
from sbon_node.papers.ants.network.service import AntService
from sbon_node.papers.ants.network.wire import on_wire
from sbon_node.papers.ants.plug_in import Ants
from sbon_node.papers.ants.settings import AntSettings
from sbon_node.placement.model.problem import Edge, Operator, PlacementProblem
from sbon_node.placement.model.queueing import Flow, Service
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placing import LiveNetworkView
from sbon_protocol.api.operators import Needs
from sbon_protocol.api.placement import Placement
from sbon_protocol.errors import SbonError
from sbon_protocol.papers.ants import Ant, EnforceAnt, RouteAnt, ScoutAnt
from tests.nodes.clusters import ask, in_warm_cluster

RNG = random.Random(3)
NODES = {f"n{number:02d}": (RNG.uniform(0, 60), RNG.uniform(0, 60)) for number in range(12)}
"""Nodes in a plane; milliseconds."""
EAGER = AntSettings(explore_s=1.0, tell_s=2.0)
CONFIGURED = msgspec.structs.replace(CONFIG, ants=EAGER)


def apart_ms(one: str, other: str) -> float:
    return math.dist(NODES[one], NODES[other])


def service_of(cluster: SimulatedCluster, node: str) -> AntService:
    return cluster.at(node).daemon.paper(Ants).service


def in_plane(
    tmp_path: Path,
    test: Callable[[SimulatedCluster], Awaitable[None]],
    *,
    loss: float = 0.0,
    config: Config = CONFIGURED,
) -> None:
    """Runs ``test`` on these nodes at rest, which know their distances."""
    coordinates = {node: Coordinate(vector=(2 * x, 2 * y, 0.0), height=0.0, error=0.1) for node, (x, y) in NODES.items()}
    in_warm_cluster(
        tmp_path,
        coordinates,
        test,
        config=config,
        latency=lambda one, other: apart_ms(one, other) / 1000,
        quality=NetworkQuality(loss=loss),
    )


def hop_ms(cluster: SimulatedCluster, one: str, other: str) -> float:
    """The time of a hop: waiting at the first node, and the link."""
    return service_of(cluster, one).cell.waiting_ms + apart_ms(one, other)


def walked_ms(cluster: SimulatedCluster, source: str, destination: str) -> float:
    """The time of the way along the strongest pheromone; infinite if it runs in a circle."""
    way, now = [source], cluster.loop.time()
    while way[-1] != destination:
        phi = service_of(cluster, way[-1]).cell.table(destination, now).phi
        way.append(max(phi, key=phi.__getitem__))
        if len(way) > len(NODES):
            return math.inf
    return sum(hop_ms(cluster, one, other) for one, other in itertools.pairwise(way))


def shortest_ms(cluster: SimulatedCluster) -> dict[tuple[str, str], float]:
    """The time of the shortest way over the cells' neighbours, from each node to each."""
    ms = {(one, other): 0.0 if one == other else math.inf for one in NODES for other in NODES}
    for one in NODES:
        ms.update({(one, other): hop_ms(cluster, one, other) for other in service_of(cluster, one).cell.neighbours})
    for via, one, other in itertools.product(NODES, NODES, NODES):
        ms[one, other] = min(ms[one, other], ms[one, via] + ms[via, other])
    return ms


@pytest.mark.one_part_per_commit("losses of messages of ants", parts=2)
@pytest.mark.parametrize("loss", [0.0, 0.1])
def test_cells_converge_to_the_shortest_ways_round_a_busy_node(tmp_path: Path, loss: float) -> None:
    hub = min(NODES, key=lambda node: sum(apart_ms(node, other) for other in NODES))
    pairs = [pair for pair in itertools.permutations(NODES, 2) if hub not in pair]

    async def test(cluster: SimulatedCluster) -> None:
        busy = Flow(rate_s=90.0, service=Service(mean_ms=10.0, scv=1.0))
        at_hub = service_of(cluster, hub)
        at_hub._room.flows = lambda query: [busy]
        await cluster.sleep(5.0)
        assert at_hub.cell.waiting_ms == pytest.approx(90.0)
        first = sum(min(walked_ms(cluster, *pair), 500.0) for pair in pairs)
        await cluster.sleep(115.0)
        shortest = shortest_ms(cluster)
        walked = {pair: walked_ms(cluster, *pair) for pair in pairs}
        assert sum(math.isinf(ms) for ms in walked.values()) <= 0.02 * len(pairs)
        reached = sum(min(ms, 500.0) for ms in walked.values())
        best = sum(shortest[pair] for pair in pairs)
        assert reached < first
        assert reached < (1.15 + loss) * best  # Fewer ants arrive, so the same time teaches less.
        cells = [service_of(cluster, node).cell for node in NODES]
        assert all(1 <= len(cell.neighbours) <= 6 for cell in cells)

    in_plane(tmp_path, test, loss=loss)


def problem_between(source: str, consumer: str, tasks: int = 3, cores: float = 0.1) -> PlacementProblem:
    names = ["p", *(f"q-1.b{number}" for number in range(tasks)), "consumer"]
    edges = tuple(Edge(one, other, 5000.0, 20.0) for one, other in itertools.pairwise(names))
    needs = Needs(cores=cores, memory_mb=10.0)
    operators = tuple(Operator(id=name, needs=needs, rows_s=20.0, row_core_ms=5.0) for name in names[1:-1])
    return PlacementProblem(pinned={"p": source, "consumer": consumer}, operators=operators, edges=edges)


async def placed(cluster: SimulatedCluster, leader: str, problem: PlacementProblem) -> Placement:
    context = cluster.at(leader).daemon.context
    ants = AntLeader(context, service_of(cluster, leader))
    placement: Placement = await ask(cluster, leader, ants.place(problem, LiveNetworkView(context), PlacementSettings()))
    return placement


def promised(cluster: SimulatedCluster) -> dict[str, tuple[str, ...]]:
    """Reserved operators by node, where there are any."""
    each = {node: cluster.at(node).daemon.hosting.operators.promised() for node in NODES}
    return {node: operators for node, operators in each.items() if operators}


@pytest.mark.one_part_per_commit("losses of messages of ants", parts=2)
@pytest.mark.parametrize("loss", [0.0, 0.1])
def test_a_leader_far_away_has_a_chain_reserved_where_latency_is_least(tmp_path: Path, loss: float) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await cluster.sleep(10.0)
        problem = problem_between("n02", "n04")
        placement = await placed(cluster, "n07", problem)
        hosts = placement.hosts()
        assert promised(cluster) == {node: tuple(o for o in hosts if hosts[o] == node) for node in sorted(set(hosts.values()))}
        stops = ["n02", *dict.fromkeys(hosts.values()), "n04"]
        assert sum(apart_ms(*hop) for hop in itertools.pairwise(stops)) < 1.05 * apart_ms("n02", "n04")
        (booked,) = {flow.rate_s for node in set(hosts.values()) for flow in service_of(cluster, node).booked()}
        assert booked == 20.0
        assert placement.assignments[0].reason.startswith("least latency by queueing")

    in_plane(tmp_path, test, loss=loss)


def test_tasks_avoid_a_node_that_others_have_booked(tmp_path: Path) -> None:
    """Both ends have no capacity: the first query takes the best node between them, the second another."""
    small = msgspec.structs.replace(CONFIGURED, control=msgspec.structs.replace(CONFIG.control, cores=0.35))

    async def test(cluster: SimulatedCluster) -> None:
        await cluster.sleep(10.0)
        first = await placed(cluster, "n02", problem_between("n02", "n04"))
        await cluster.sleep(3.0)
        again = problem_between("n02", "n04")
        renamed = msgspec.json.decode(msgspec.json.encode(again).replace(b"q-1", b"q-2"), type=PlacementProblem)
        second = await placed(cluster, "n02", renamed)
        together = [*first.hosts().values(), *second.hosts().values()]
        assert max(together.count(node) for node in together) <= 3
        assert len(set(together)) >= 2

    in_plane(tmp_path, test, config=small)


def test_nothing_stays_reserved_if_no_node_has_capacity(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await cluster.sleep(4.0)
        with pytest.raises(SbonError) as refused:
            await placed(cluster, "n02", problem_between("n02", "n04", cores=5.0))
        assert refused.value.code == "no-capacity"
        assert promised(cluster) == {}

    in_plane(tmp_path, test)


def test_a_site_that_refuses_undoes_the_sites_before(tmp_path: Path) -> None:
    brief = msgspec.structs.replace(CONFIGURED, control=msgspec.structs.replace(CONFIG.control, reservation_s=15.0))

    async def test(cluster: SimulatedCluster) -> None:
        await cluster.sleep(4.0)
        context = cluster.at("n02").daemon.context
        ants = AntLeader(context, service_of(cluster, "n02"))
        chain = next_chain(problem_between("n02", "n04"), {})
        assert chain is not None
        two = tuple(Site(node=n, first=i, last=e, own_ms=99.0, others_ms=0.0) for n, i, e in (("n01", 0, 1), ("n03", 1, 3)))
        good = Scouted(chain, two, 0.0, 0.0)
        round_ = await ask(cluster, "n02", ants.enforce(good))
        assert round_ is not None
        assert promised(cluster) == {"n01": ("q-1.b0",), "n03": ("q-1.b1", "q-1.b2")}
        await cluster.sleep(20.0)
        assert promised(cluster) == {}, "reservations end by themselves"
        cheap = (two[0], msgspec.structs.replace(two[1], own_ms=0.001))
        assert await ask(cluster, "n02", ants.enforce(Scouted(chain, cheap, 0.0, 0.0))) is None
        await cluster.sleep(1.0)
        assert promised(cluster) == {}

    in_plane(tmp_path, test, config=brief)


def test_a_lost_enforcement_is_sent_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await cluster.sleep(4.0)
        port, lost = service_of(cluster, "n02").port, list[str]()
        send = port.send

        def lose_the_first(node: str, ant: Ant) -> None:
            if isinstance(ant, EnforceAnt) and not lost:
                lost.append(node)
            else:
                send(node, ant)

        monkeypatch.setattr(port, "send", lose_the_first)
        ants = AntLeader(cluster.at("n02").daemon.context, service_of(cluster, "n02"))
        chain = next_chain(problem_between("n02", "n04"), {})
        assert chain is not None
        sites = (Site(node="n01", first=0, last=3, own_ms=99.0, others_ms=0.0),)
        assert await ask(cluster, "n02", ants.enforce(Scouted(chain, sites, 0.0, 0.0))) is not None
        assert lost == ["n01"]
        assert promised(cluster) == {"n01": ("q-1.b0", "q-1.b1", "q-1.b2")}

    in_plane(tmp_path, test)


def test_operators_that_will_move_count_at_their_new_hosts_before_they_are_there(tmp_path: Path) -> None:
    """Two queries want the same idle node: each alone fits there, both do not, and the second gives up all it has booked."""

    def report(query: str) -> Scouted:
        chain = next_chain(problem_between("n02", "n04", cores=0.3), {})
        assert chain is not None
        tasks = tuple(msgspec.structs.replace(task, operator=f"{query}.b{number}") for number, task in enumerate(chain.tasks))
        chain = msgspec.structs.replace(chain, id=query, query=query, rate_s=60.0, tasks=tasks)
        sites = tuple(Site(node=n, first=i, last=e, own_ms=40.0, others_ms=0.0) for n, i, e in (("n06", 0, 1), ("n05", 1, 3)))
        return Scouted(chain, sites, 0.0, 0.0)

    async def test(cluster: SimulatedCluster) -> None:
        await cluster.sleep(4.0)
        ants = AntLeader(cluster.at("n02").daemon.context, service_of(cluster, "n02"))
        present = {f"{query}.b{number}": "n01" for query in ("q", "r") for number in range(3)}
        assert await ask(cluster, "n02", ants.claim([report("q")], present | {"q.b0": "n06"})) is not None
        flows = {node: service_of(cluster, node).booked() for node in ("n05", "n06")}
        assert [len(flows[node]) for node in ("n05", "n06")] == [1, 0], "the operator at n06 stays there, and is measured"
        assert flows["n05"][0].rate_s * flows["n05"][0].service.mean_ms == pytest.approx(600.0)
        assert service_of(cluster, "n05").booked("q") == [], "a query is not in its own way"
        assert promised(cluster) == {}, "each move reserves by itself"
        assert await ask(cluster, "n02", ants.claim([report("r")], present)) is None
        await cluster.sleep(1.0)
        assert service_of(cluster, "n06").booked() == []
        assert len(service_of(cluster, "n05").booked()) == 1

    in_plane(tmp_path, test)


def test_a_flood_of_ants_is_dropped_and_the_others_still_pass(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await cluster.sleep(4.0)
        victim, service = "n05", service_of(cluster, "n05")
        stranger, liar = service_of(cluster, "n06").port, service_of(cluster, "n09").port

        async def flood(seconds: float) -> None:
            for number in range(int(seconds * 2000)):
                ant = RouteAnt(7, number, "n09", victim, "n04", (), 0.0, 0)
                liar.send(victim, ant)
                stranger.send(victim, ant)
                if number % 20 == 0:
                    await asyncio.sleep(0.01)

        before = service.walk.trails
        await ask(cluster, "n09", flood(1.0))
        await cluster.sleep(0.5)
        counted = cluster.at(victim).daemon.context.counters.snapshot()
        assert counted["ant-of-a-stranger"] == 2000, "ants of n09 that n06 sends"
        assert counted["ant-dropped"] > 2000 - EAGER.burst_of_one - EAGER.ants_s
        assert len(before) <= EAGER.max_trails
        assert (await placed(cluster, victim, problem_between("n05", "n04"))).hosts()
        others = [node for node in NODES if node not in (victim, "n09")]
        assert all(cluster.at(node).daemon.membership.is_alive(victim) for node in others)

    in_plane(tmp_path, test)


def test_ants_to_invented_destinations_displace_no_pheromones(tmp_path: Path) -> None:
    chain = on_wire(next_chain(problem_between("n09", "n04"), {}) or pytest.fail("no chain"))

    async def test(cluster: SimulatedCluster) -> None:
        await cluster.sleep(4.0)
        victim, service = "n05", service_of(cluster, "n05")
        liar = service_of(cluster, "n09").port
        for number in range(20):
            invented = msgspec.structs.replace(chain, source="n09", destination=f"invented-{number}")
            scout = ScoutAnt(7, number, "n09", invented, 1, 0.9, None, 0.0, 0, ("n09",), ())
            liar.send(victim, scout)
            liar.send(victim, RouteAnt(8, number, "n09", "n09", f"invented-{number}", ("n09",), 1.0, 1))
        await cluster.sleep(1.0)
        assert service.cell.destinations
        assert set(service.cell.destinations) <= set(NODES)
        assert cluster.at(victim).daemon.context.counters.snapshot()["ant-astray"] == 40

    in_plane(tmp_path, test)
