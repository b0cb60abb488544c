"""SAND's coordinators that are away or lie: who takes over, and which bounds hold nevertheless."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from sbon_node.papers.sand.algorithm.by_zones import Proxy
from sbon_node.papers.sand.algorithm.coordinators import Coordinators
from sbon_node.papers.table import STRATEGIES
from sbon_node.placement.settings import PlacementSettings
from sbon_protocol.base import Call
from sbon_protocol.errors import SbonError
from sbon_protocol.papers.sand import (
    MapOperator,
    OperatorPlace,
    PlacedOperators,
)
from tests.papers.sand.trees import SETTINGS, direct_ms, everywhere, points, tree


async def placed(view: Any, problem: Any, settings: PlacementSettings = SETTINGS) -> dict[str, str]:
    return (await STRATEGIES["in-network"](problem, view, settings)).hosts()


def query(plane: Any) -> tuple[Any, Any]:
    """A query whose operators may be anywhere, and a coordinator of it that hosts nothing and is no end."""
    rng = random.Random(21)
    while True:
        view = plane(points(40, rng), capacity=dict.fromkeys(points(40, rng), 1e6))
        problem = tree(view.nodes(), 8, 2, rng)
        if view.owner("o2") not in problem.pinned.values():
            return view, problem


async def test_the_next_owner_takes_over_from_one_that_is_away(plane: Any) -> None:
    view, problem = query(plane)
    expected = await placed(view, problem)
    away = view.owner("o2")
    view.coordinators.away.add(away)
    assert away not in expected.values()
    assert await placed(view, problem) == expected
    reason = (await STRATEGIES["in-network"](problem, view, SETTINGS)).assignments[2].reason
    assert reason.endswith(f"by its coordinator {view.owner('o2', exclude=[away])}")


async def test_a_source_that_is_away_ends_the_placement_with_its_name(plane: Any) -> None:
    view, problem = query(plane)
    source = problem.pinned["s3"]
    view.coordinators.away.add(source)
    with pytest.raises(SbonError) as refused:
        await placed(view, problem)
    assert (refused.value.code, refused.value.where) == ("zone-failed", source)
    assert view.coordinators.counts["AddSubtree"] < 2 * SETTINGS.zone_tries * 15, "a limited number of rounds"


class Liar:
    """A coordinator that changes what the honest one would answer, or send."""

    def __init__(self, honest: Coordinators, lie: Callable[[Any], Any]) -> None:
        self._honest, self._lie = honest, lie
        send = honest._send

        async def sent(node: str, message: Call, within_s: float) -> Any:
            return await send(node, lie(message), within_s)

        honest._send = sent

    async def serve(self, call: Call, caller: str) -> Any:
        return self._lie(await self._honest.serve(call, caller))


def _elsewhere(message: Any) -> Any:
    if isinstance(message, PlacedOperators):
        return PlacedOperators(tuple(OperatorPlace(one.vertex, 999, 2**40) for one in message.placed))
    return message


def _nothing(message: Any) -> Any:
    return PlacedOperators() if isinstance(message, PlacedOperators) else message


def _unsorted(message: Any) -> Any:
    if isinstance(message, MapOperator):
        told = message.configurations
        return msgspec.structs.replace(message, configurations=msgspec.structs.replace(told, leaves=told.leaves[::-1] * 2))
    return message


def _far(message: Any) -> Any:
    if isinstance(message, MapOperator):
        told = msgspec.structs.replace(message.configurations, places=(1000,), costs=(0.0,), delays_ms=(0.0,), place=1000)
        return msgspec.structs.replace(message, configurations=told)
    return message


def _for_another(message: Any) -> Any:
    return msgspec.structs.replace(message, child="o9") if isinstance(message, MapOperator) else message


@pytest.mark.parametrize("lie", [_elsewhere, _nothing, _unsorted, _far, _for_another])
async def test_a_lie_that_shows_costs_a_round(lie: Callable[[Any], Any], plane: Any) -> None:
    view, problem = query(plane)
    expected = await placed(view, problem)
    network, liar = view.coordinators, view.owner("o2")
    network._nodes[liar] = Liar(network.at(liar), lie)
    assert (await placed(view, problem)).keys() == expected.keys()


async def test_no_operator_goes_where_it_may_not(plane: Any) -> None:
    view, problem = query(plane)
    nodes, liar = view.nodes(), view.owner("o2")

    def first(message: Any) -> Any:
        if not isinstance(message, PlacedOperators):
            return message
        return PlacedOperators(tuple(OperatorPlace(one.vertex, 0, 2**40) for one in message.placed))

    view.coordinators._nodes[liar] = Liar(view.coordinators.at(liar), first)
    allowed = {operator: places & (np.arange(len(nodes)) > 0) for operator, places in everywhere(problem, nodes).items()}
    assert nodes[0] not in (await Proxy("in-network", problem, view, SETTINGS).place(nodes, allowed, [])).values()


def _free(message: Any) -> Any:
    """All is free and at once wherever the operator is."""
    if isinstance(message, MapOperator):
        told = message.configurations
        none = (0.0,) * len(told.places)
        return msgspec.structs.replace(message, configurations=msgspec.structs.replace(told, costs=none, delays_ms=none))
    return message


def _dead_end(message: Any) -> Any:
    return PlacedOperators(dead_end="o2") if isinstance(message, PlacedOperators) else message


@pytest.mark.parametrize("lie", [_free, _dead_end])
@pytest.mark.parametrize("ratio", [1.0, 1.1])
async def test_no_lie_breaks_the_bound_on_delay(ratio: float, lie: Callable[[Any], Any], plane: Any) -> None:
    rng, kept = random.Random(5), 0
    for _ in range(10):
        view = plane(points(20, rng), capacity=dict.fromkeys(points(20, rng), 1e6))
        problem = tree(view.nodes(), 8, 2, rng)
        bounds = msgspec.structs.replace(problem.bounds, max_delay_ms=ratio * direct_ms(problem, view))
        bounded = msgspec.structs.replace(problem, bounds=bounds)
        for liar in {view.owner(operator.id) for operator in problem.operators[:5]}:
            view.coordinators._nodes[liar] = Liar(view.coordinators.at(liar), lie)
        kept += (await STRATEGIES["in-network"](bounded, view, SETTINGS)).delay_ms <= bounds.max_delay_ms + 1e-6
    assert kept == 10
