"""Queries placed by coordinators of which some die, are cut off or lie: another takes over, or the query is refused whole."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sbon_lab.simulation.cluster import CONFIG, SimulatedCluster
from sbon_node.config.config import Config
from sbon_node.ownership.queries import LIVE
from sbon_node.papers.sand.plug_in import Sand
from sbon_node.placement.settings import PlacementSettings
from sbon_protocol.calls import CALLS
from sbon_protocol.errors import SbonError
from sbon_protocol.papers.sand import AddSubtree, MapOperator, OperatorPlace, PlacedOperators
from tests.nodes.clusters import declare, in_cluster, source_at, state_of, submitted
from tests.nodes.test_moved_operators import WINDOWS

ENDS = "abcd"
"""The nodes of the sources, of the submission and of the consumer."""
NAMES = "abcdefghij"
SEED = 4
"""Seed with which all operators have coordinators that are no ends."""

Handler = Callable[[Any, Any], Awaitable[Any]]


def intercept(cluster: SimulatedCluster, kind: type, serve: Callable[[str, Handler, Any, Any], Awaitable[Any]]) -> None:
    """Let ``serve`` answer a kind of call at all nodes that are no ends: it takes node, handler, call and caller."""
    method = next(name for name, (call, _) in CALLS.items() if call is kind)
    for name in set(NAMES) - set(ENDS):
        server: Any = cluster.at(name).daemon.context.server
        handler = server._handlers[method]

        async def served(call: Any, caller: Any, name: str = name, handler: Handler = handler) -> Any:
            return await serve(name, handler, call, caller)

        server._handlers[method] = served


async def finished(cluster: SimulatedCluster, tmp_path: Path) -> list[str]:
    """Submit a query over two sources, let it run to its end, and return the reasons of its operators' places."""
    await declare(cluster, "a", source_at("a"), source_at("b"))
    info = await submitted(cluster, "c", tmp_path / "out.ndjson", consumer="d", strategy="in-network+", sql=WINDOWS)
    assert info.placement is not None
    reasons = [one.reason for one in info.placement.assignments]
    while (info := await state_of(cluster, "c")).state in LIVE:
        await cluster.sleep(0.5)
    assert info.state == "finished"
    rows = [json.loads(line) for line in (tmp_path / "out.ndjson").read_text().splitlines()]
    assert sum(row["n"] for row in rows) == 200
    return reasons


def by_coordinators(strategy_s: float = 20.0, tries: int = 4) -> dict[str, Config]:
    placement = PlacementSettings(zone_s=strategy_s, zone_tries=tries)
    return dict.fromkeys(NAMES, msgspec.structs.replace(CONFIG, placement=placement))


@pytest.mark.one_part_per_commit("deaths of coordinators", parts=8)
@pytest.mark.parametrize("kind", [AddSubtree, MapOperator])
def test_a_coordinator_dies_between_messages(tmp_path: Path, kind: type) -> None:
    died = list[str]()

    async def die(name: str, handler: Handler, call: Any, caller: Any) -> Any:
        if died:
            return await handler(call, caller)
        if kind is MapOperator:
            answer = await handler(call, caller)
            if died:  # Another coordinator has died meanwhile.
                return answer
        died.append(name)
        cluster_of[0].loop.call_soon(cluster_of[0].crash, cluster_of[0].at(name))
        return await cluster_of[0].clock.sleep(1000)

    cluster_of = list[SimulatedCluster]()

    async def test(cluster: SimulatedCluster) -> None:
        cluster_of.append(cluster)
        intercept(cluster, kind, die)
        reasons = await finished(cluster, tmp_path)
        (name,) = died
        assert not any(reason.endswith(f"coordinator {name}") for reason in reasons)
        cluster.boot(cluster.at(name))
        await cluster.sleep(5)

    in_cluster(tmp_path, NAMES, test, seed=SEED)


@pytest.mark.one_part_per_commit("queries in virtual time", parts=6)
def test_a_coordinator_is_cut_off_from_the_sources(tmp_path: Path) -> None:
    cut = list[str]()

    async def test(cluster: SimulatedCluster) -> None:
        async def cut_off(name: str, handler: Handler, call: Any, caller: Any) -> Any:
            answer = await handler(call, caller)
            if not cut:
                cut.append(name)
                cluster.network.cut("a", name)
                cluster.network.cut("b", name)
            return answer

        intercept(cluster, AddSubtree, cut_off)
        reasons = await finished(cluster, tmp_path)
        (name,) = cut
        assert not any(reason.endswith(f"coordinator {name}") for reason in reasons)
        cluster.network.heal()
        await cluster.sleep(5)

    in_cluster(tmp_path, NAMES, test, seed=SEED, configs=by_coordinators())


@pytest.mark.one_part_per_commit("queries in virtual time", parts=6)
def test_a_query_whose_coordinators_stay_away_is_refused_whole(tmp_path: Path) -> None:
    """With a single try: the refusal names the node, nothing is reserved or placed, and nodes soon forget what they were told."""
    silent = list[str]()

    async def test(cluster: SimulatedCluster) -> None:
        async def be_silent(name: str, handler: Handler, call: Any, caller: Any) -> Any:
            silent.append(name)
            await cluster.clock.sleep(1000)

        intercept(cluster, MapOperator, be_silent)
        await declare(cluster, "a", source_at("a"), source_at("b"))
        before = cluster.clock.now()
        with pytest.raises(SbonError) as refused:
            await submitted(cluster, "c", tmp_path / "out.ndjson", consumer="d", strategy="in-network+", sql=WINDOWS)
        assert (refused.value.code, refused.value.where in silent) == ("zone-failed", True)
        assert cluster.clock.now() - before < 6.0
        for name in NAMES:
            operators = cluster.at(name).daemon.hosting.operators
            assert (operators.hosted(), operators._reservations.operators()) == ((), ())
        await cluster.sleep(PlacementSettings().zones_kept_s)
        assert not any(cluster.at(name).daemon.paper(Sand).table.mapped() for name in NAMES)

    in_cluster(tmp_path, NAMES, test, seed=SEED, configs=by_coordinators(4.0, 1))


def _elsewhere(answer: PlacedOperators) -> PlacedOperators:
    return PlacedOperators(tuple(OperatorPlace(one.vertex, 77, 2**40) for one in answer.placed))


def _dead_end(answer: PlacedOperators) -> PlacedOperators:
    return PlacedOperators(dead_end=answer.placed[-1].vertex) if answer.placed else answer


def _nobody(answer: PlacedOperators) -> PlacedOperators:
    return PlacedOperators()


@pytest.mark.one_part_per_commit("lies of coordinators", parts=3)
@pytest.mark.parametrize("lie", [_elsewhere, _dead_end, _nobody])
def test_a_lying_coordinator_does_not_stop_a_query(tmp_path: Path, lie: Callable[[PlacedOperators], PlacedOperators]) -> None:
    liars: dict[str, None] = {}

    async def test(cluster: SimulatedCluster) -> None:
        async def answer(name: str, handler: Handler, call: Any, caller: Any) -> Any:
            liars[name] = None
            return lie(await handler(call, caller)) if next(iter(liars)) == name else await handler(call, caller)

        intercept(cluster, MapOperator, answer)
        await finished(cluster, tmp_path)
        assert liars

    in_cluster(tmp_path, NAMES, test, seed=SEED)
