"""SAND's coordinators over encoded messages: the placements they agree on, the messages they accept, and what they keep."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import msgspec
import numpy as np
import pytest

from sbon_node.papers.sand.algorithm.by_zones import Proxy
from sbon_node.papers.sand.algorithm.configurations import Configurations, DeadEndError
from sbon_node.papers.sand.algorithm.coordinator import Rule, bits
from sbon_node.papers.sand.algorithm.coordinators import BoundedCache, Coordinators
from sbon_node.papers.sand.algorithm.strategies import RULES, by_convex
from sbon_protocol.base import Call
from sbon_protocol.errors import SbonError
from sbon_protocol.papers.sand import (
    AddSubtree,
    InvalidateMap,
    MapOperator,
    MeasuredPair,
    OperatorConfigurations,
    OperatorMapped,
    OperatorPlace,
    OperatorRemapped,
    PlacedOperators,
    ZoneLink,
    ZoneVertex,
)
from tests.papers.sand.trees import SETTINGS, direct_ms, everywhere, points, tree


@pytest.mark.parametrize("rule", sorted(RULES))
async def test_nodes_know_at_the_end_what_is_placed_on_them(rule: str, plane: Any) -> None:
    """A MAP for each link between operators, and of all notices that an operator is placed one stands."""
    rng, remapped = random.Random(8), 0
    for _ in range(6):
        view = plane(points(60, rng))
        problem = tree(view.nodes(), 8, 2, rng)
        nodes = view.nodes()
        proxy = Proxy(rule, problem, view, SETTINGS)
        hosts = await proxy.place(nodes, everywhere(problem, nodes), [])
        told = {vertex: node for node in nodes for (_, vertex), _ in view.coordinators.at(node).mapped().items()}
        assert told == hosts
        counts = view.coordinators.counts
        assert counts["AddSubtree"] == len({*proxy.coordinators.values(), *(n for v, n in problem.pinned.items() if v[0] == "s")})
        assert counts["MapOperator"] <= 8 + 6
        remapped += counts["OperatorRemapped"]
        nowhere = everywhere(problem, nodes) | {"o6": np.zeros(len(nodes), dtype=np.bool_)}
        with pytest.raises(DeadEndError, match="o6"):
            await proxy.place(nodes, nowhere, [])
    assert remapped


async def test_an_operators_cost_is_that_of_its_links_below(plane: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The root's cost is that of the placement that comes out, moves of what was placed before and all."""
    rng, last = random.Random(9), list[Configurations]()

    def choose(*args: Any) -> Configurations:
        last.append(by_convex(*args))
        return last[-1]

    monkeypatch.setitem(RULES, "in-network", Rule(choose, lambda latency_ms: latency_ms))
    for fanout, sources in ((2, 8), (2, 16), (3, 9)):
        view = plane(points(20, rng))
        problem = tree(view.nodes(), sources, fanout, rng)
        nodes, bound = view.nodes(), 1.5 * direct_ms(problem, view)
        bounded = msgspec.structs.replace(problem, bounds=msgspec.structs.replace(problem.bounds, max_delay_ms=bound))
        hosts = await Proxy("in-network", bounded, view, SETTINGS).place(nodes, everywhere(problem, nodes), [])
        at = {**problem.pinned, **hosts}
        reached: dict[str, float] = {}
        cost = 0.0
        for link in problem.edges[:-1]:
            ms = view.latency_ms(at[link.source], at[link.target])
            cost += link.rate_bytes_s * ms
            reached[link.target] = max(reached.get(link.target, 0.0), reached.get(link.source, 0.0) + ms)
        assert last[-1].cost[last[-1].place] == pytest.approx(cost)
        assert last[-1].delay_ms[last[-1].place] == pytest.approx(reached[problem.operators[-1].id])


async def test_the_measurements_of_the_proxy_count_at_coordinators(plane: Any) -> None:
    view = plane({"a": (0.0, 0.0), "b": (10.0, 0.0), "c": (5.0, 0.0), "consumer": (50.0, 0.0)})
    network = view.coordinators
    zone = ZoneVertex("o", (ZoneLink("s", "a", 1.0),), (), 1.0, False, bits(np.ones(3, dtype=np.bool_)), "o")
    call = AddSubtree("p", 1, "edge+", ("a", "b", "c"), 1, None, (MeasuredPair(0, 2, 70.0),), (zone,))
    await network.at("c").serve(call, "proxy")
    latency_ms = network.at("c")._placements.get("p", 0.0).value._locations.latency_ms
    assert latency_ms[0, 2] == latency_ms[2, 0] == 70.0


ZONE = ZoneVertex("o", (ZoneLink("s", "a", 1.0), ZoneLink("t", "b", 2.0)), (ZoneLink("r", "d"),), 3.0, False, b"\xe0", "o")
SUBTREE = AddSubtree("p", 2, "edge+", ("a", "b", "c"), 2, None, (), (ZONE,))
SOURCE = OperatorConfigurations((0,), (0.0,), (0.0,), 0, (0,))


def replaced(call: Any, **fields: Any) -> Any:
    return msgspec.structs.replace(call, **fields)


async def no_answer(node: str, message: Call, within_s: float) -> PlacedOperators | None:
    return PlacedOperators()


@pytest.mark.parametrize(
    "call, caller, code",
    [
        (replaced(SUBTREE, round=1), "proxy", "bad-zone"),
        (replaced(SUBTREE, round=3), "another", "bad-zone"),
        (replaced(SUBTREE, placement="q", rule="hybrid"), "proxy", "bad-zone"),
        (replaced(SUBTREE, placement="q", proxy=3), "proxy", "bad-zone"),
        (replaced(SUBTREE, placement="q", locations=("a", "a", "b")), "proxy", "bad-zone"),
        (replaced(SUBTREE, placement="q", locations=tuple(f"n{i}" for i in range(900))), "proxy", "too-large"),
        (replaced(SUBTREE, placement="q", measured=(MeasuredPair(0, 3, 1.0),)), "proxy", "bad-zone"),
        (replaced(SUBTREE, placement="q", vertices=(ZONE, ZONE)), "proxy", "bad-zone"),
        (replaced(SUBTREE, placement="q", vertices=(replaced(ZONE, allowed=b"\xff" * 9),)), "proxy", "bad-zone"),
        (replaced(SUBTREE, placement="q", vertices=(replaced(ZONE, children=ZONE.children * 2),)), "proxy", "bad-zone"),
        (replaced(SUBTREE, placement="q", vertices=(replaced(ZONE, root="r"),)), "proxy", "bad-zone"),
        (replaced(SUBTREE, placement="q", vertices=(replaced(ZONE, root="r", readers=()),)), "proxy", "bad-zone"),
        (MapOperator("p", 1, "o", "s", SOURCE, 1.0), "a", "unknown-zone"),
        (MapOperator("q", 2, "o", "s", SOURCE, 1.0), "a", "unknown-zone"),
        (MapOperator("p", 2, "o", "s", SOURCE, 1.0), "b", "bad-zone"),
        (MapOperator("p", 2, "o", "u", SOURCE, 1.0), "a", "bad-zone"),
        (MapOperator("p", 2, "r", "o", SOURCE, 1.0), "a", "bad-zone"),
        (MapOperator("p", 2, "o", "s", replaced(SOURCE, costs=()), 1.0), "a", "bad-zone"),
        (MapOperator("p", 2, "o", "s", replaced(SOURCE, place=1), 1.0), "a", "bad-zone"),
        (MapOperator("p", 2, "o", "s", replaced(SOURCE, leaves=(3,)), 1.0), "a", "bad-zone"),
        (MapOperator("p", 2, "o", "s", replaced(SOURCE, leaves=()), 1.0), "a", "bad-zone"),
        (OperatorRemapped("p", 2, "o", 0, 1.0), "d", "bad-zone"),
    ],
)
async def test_what_does_not_fit_is_refused(call: Any, caller: str, code: str, plane: Any) -> None:
    node = Coordinators("c", SETTINGS, plane(points(3, random.Random(1))), lambda: 0.0, no_answer)
    node._view.points |= {"a": (0.0, 0.0), "b": (9.0, 0.0), "c": (4.0, 0.0)}
    await node.serve(SUBTREE, "proxy")
    with pytest.raises(SbonError) as refused:
        await node.serve(call, caller)
    assert refused.value.code == code
    assert await node.serve(MapOperator("p", 2, "o", "s", SOURCE, 1.0), "a") == PlacedOperators(), "the placement goes on"
    with pytest.raises(SbonError, match="s is placed already"):
        await node.serve(MapOperator("p", 2, "o", "s", SOURCE, 1.0), "a")
    second = replaced(SOURCE, places=(1,), place=1, leaves=(1,))
    answer = await node.serve(MapOperator("p", 2, "o", "t", second, 1.0), "b")
    assert answer is not None
    (at,) = answer.placed
    assert (at.vertex, at.generation) == ("o", 0)
    with pytest.raises(SbonError, match="e does not place a reader of o"):
        await node.serve(OperatorRemapped("p", 2, "o", 0, 1.0), "e")
    moved = await node.serve(OperatorRemapped("p", 2, "o", 0, 1.0), "d")
    assert moved == PlacedOperators((OperatorPlace("o", 0, 1),))


async def test_a_silent_neighbour_is_named_and_the_time_is_shared(plane: Any) -> None:
    now, waited = [0.0], list[float]()

    async def send(node: str, message: Call, within_s: float) -> PlacedOperators | None:
        assert not hasattr(message, "left_s") or message.left_s < within_s
        waited.append(within_s)
        now[0] += within_s
        raise SbonError("peer-unreachable", "no answer", where="10.0.0.1:1")

    view = plane({"a": (0.0, 0.0), "b": (9.0, 0.0), "c": (4.0, 0.0)})
    node = Coordinators("b", SETTINGS, view, lambda: now[0], send)
    await node.serve(SUBTREE, "proxy")
    await node.serve(MapOperator("p", 2, "o", "s", SOURCE, 9.0), "a")
    with pytest.raises(SbonError) as failed:
        await node.serve(MapOperator("p", 2, "o", "t", replaced(SOURCE, places=(1,), place=1, leaves=(1,)), 9.0), "b")
    assert (failed.value.code, failed.value.where) == ("zone-failed", "d")
    assert waited == [9.0]


async def test_a_peer_that_claims_endless_time_gets_that_of_a_round(plane: Any) -> None:
    waited: list[float] = []

    async def send(node: str, message: Call, within_s: float) -> PlacedOperators | None:
        waited.append(within_s)
        assert not hasattr(message, "left_s") or message.left_s < within_s
        return PlacedOperators()

    node = Coordinators("b", SETTINGS, plane({"a": (0.0, 0.0), "b": (9.0, 0.0), "c": (4.0, 0.0)}), lambda: 0.0, send)
    await node.serve(SUBTREE, "proxy")
    for child, caller, at in (("s", "a", 0), ("t", "b", 1)):
        told = replaced(SOURCE, places=(at,), place=at, leaves=(at,))
        await node.serve(MapOperator("p", 2, "o", child, told, 1e12), caller)
    assert waited
    assert max(waited) == SETTINGS.zone_s


async def test_messages_under_way_are_limited(plane: Any) -> None:
    view = plane({"a": (0.0, 0.0), "b": (9.0, 0.0), "c": (4.0, 0.0)})
    settings = msgspec.structs.replace(SETTINGS, zone_messages=1)
    refusals = list[str]()

    async def send(node: str, message: Call, within_s: float) -> PlacedOperators | None:
        with pytest.raises(SbonError) as refused:
            await node_b.serve(OperatorMapped("p", 2, "o", 0, 1.0), "d")
        refusals.append(refused.value.code)
        return PlacedOperators()

    node_b = Coordinators("b", settings, view, lambda: 0.0, send)
    await node_b.serve(SUBTREE, "proxy")
    for child, caller, at in (("s", "a", 0), ("t", "b", 1)):
        told = replaced(SOURCE, places=(at,), place=at, leaves=(at,))
        await node_b.serve(MapOperator("p", 2, "o", child, told, 1.0), caller)
    assert set(refusals) == {"zones-busy"}
    await node_b.serve(OperatorMapped("p", 2, "o", 0, 1.0), "d")


async def test_a_member_whose_messages_end_late_leaves_slots_for_others(plane: Any) -> None:
    view, silence = plane({"a": (0.0, 0.0), "b": (9.0, 0.0), "c": (4.0, 0.0)}), asyncio.Event()
    settings = msgspec.structs.replace(SETTINGS, zone_messages=4, zone_messages_of_peer=3)

    async def send(node: str, message: Call, within_s: float) -> PlacedOperators | None:
        await silence.wait()
        return PlacedOperators()

    node, loud, late = (
        Coordinators("z", settings, view, lambda: 0.0, send),
        "b",
        replaced(SOURCE, places=(1,), place=1, leaves=(1,)),
    )
    for number in range(5):
        await node.serve(replaced(SUBTREE, placement=f"p{number}"), "proxy")
        await node.serve(MapOperator(f"p{number}", 2, "o", "s", SOURCE, 9.0), "a")
    under_way = [asyncio.create_task(node.serve(MapOperator(f"p{n}", 2, "o", "t", late, 9.0), loud)) for n in range(4)]
    await asyncio.wait(under_way, timeout=0.05)
    assert [task.done() for task in under_way] == [False, False, False, True]
    refused = under_way.pop().exception()
    assert isinstance(refused, SbonError)
    assert (refused.code, refused.where) == ("zones-busy", "placement.zone_messages_of_peer")
    await node.serve(OperatorMapped("other", 2, "o", 0, 1.0), "d")
    silence.set()
    await asyncio.gather(*under_way)
    await node.serve(MapOperator("p4", 2, "o", "t", late, 9.0), loud)


async def test_only_the_known_generation_is_invalidated(plane: Any) -> None:
    now = [0.0]
    node = Coordinators("c", SETTINGS, plane(points(3, random.Random(1))), lambda: now[0], no_answer)
    await node.serve(OperatorMapped("p", 2, "o", 3, 1.0), "d")
    await node.serve(InvalidateMap("p", 2, "o", 2), "d")
    assert set(node.mapped()) == {("p", "o")}
    await node.serve(InvalidateMap("p", 2, "o", 3), "d")
    assert not node.mapped()
    await node.serve(OperatorMapped("p", 2, "o", 3, 1.0), "d")
    now[0] = SETTINGS.zones_kept_s
    assert not node.mapped(), "it is forgotten"


def test_a_flood_displaces_nobody_elses() -> None:
    kept: BoundedCache[int, str] = BoundedCache(6, 4, 10.0)
    kept.put(0, "", "honest", 0.0)
    kept.put(1, "", "honest", 1.0)
    for key in range(10, 30):
        kept.put(key, "", "loud", 2.0)
    assert [key for key, _ in kept.items(2.0)] == [0, 1, 26, 27, 28, 29]
    kept.put(2, "", "late", 3.0)
    assert [key for key, _ in kept.items(3.0)] == [0, 1, 27, 28, 29, 2]
    assert [key for key, _ in kept.items(10.0)] == [1, 27, 28, 29, 2]
    kept.put(1, "again", "honest", 10.5)
    assert [key for key, _ in kept.items(12.5)] == [2, 1]
    assert len(kept) == 2
