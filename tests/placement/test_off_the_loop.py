"""Long computations run outside the event loop and delay no other task."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from sbon_node.base.executors import Computing
from sbon_node.papers.table import STRATEGIES
from sbon_node.placement.model import latency_matrix
from sbon_node.placement.model.problem import Edge, Operator, PlacementProblem
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.strategies.sbon.optimal import optimal
from sbon_protocol.api.operators import Needs
from sbon_protocol.api.strategies import LOOKING_EVERYWHERE, Bounds
from sbon_protocol.errors import SbonError
from tests.placement.conftest import Plane

NAMES = [f"n{number:02d}" for number in range(40)]


class Threaded(Plane):
    """A view like a daemon's: it computes in a thread, and counts the loop's turns meanwhile."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._computing, self.turns, self.most = Computing(), 0, 0

    async def compute(self, work: Any, /) -> Any:
        before = self.turns
        try:
            return await self._computing(work)
        finally:
            self.most = max(self.most, self.turns - before)

    async def others(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.turns += 1


def crowded(max_delay_ms: float | None = None) -> tuple[PlacementProblem, Threaded]:
    """Seven operators on nodes half of which have room for one: with a bound on the delay, a matter of an integer program."""
    rng = random.Random(4)
    capacity = {name: rng.choice([0.0, 1.0]) for name in NAMES}
    view = Threaded({name: (rng.uniform(0, 100), rng.uniform(0, 100)) for name in NAMES}, capacity)
    operators = tuple(Operator(id=f"o{i}", needs=Needs(cores=1.0)) for i in range(7))
    edges = [*(Edge(f"s{i}", f"o{i // 2}", rng.uniform(1e3, 1e4)) for i in range(8))]
    edges += [*(Edge(f"o{i}", f"o{4 + i // 2}", rng.uniform(1e3, 1e4)) for i in range(6)), Edge("o6", "sink", 1e3)]
    pinned = {f"s{i}": NAMES[i] for i in range(8)} | {"sink": NAMES[9]}
    bounds = Bounds(max_delay_ms=max_delay_ms)
    return PlacementProblem(pinned=pinned, operators=operators, edges=tuple(edges), bounds=bounds), view


async def beside_others(name: str, problem: PlacementProblem, view: Threaded) -> Any:
    """Run the strategy while other tasks need the loop."""
    others = asyncio.create_task(view.others())
    try:
        return await STRATEGIES[name](problem, view, PlacementSettings())
    finally:
        others.cancel()


@pytest.mark.parametrize("name", ["optimal", "local-search", "centralized", "ants"])
async def test_others_have_the_loop_while_a_strategy_reckons(name: str) -> None:
    problem, view = crowded(130.0 if name == "optimal" else None)
    placed = await beside_others(name, problem, view)
    assert len(placed.assignments) == 7
    assert view.most >= (3 if name == "optimal" else 1), "turns of the loop during the longest piece of work"


async def test_work_that_is_cancelled_is_over_when_the_call_is() -> None:
    done: list[str] = []
    held = asyncio.Event()
    loop = asyncio.get_running_loop()

    def work() -> None:
        loop.call_soon_threadsafe(held.set)
        asyncio.run(asyncio.sleep(0.05))
        done.append("through")

    running = asyncio.ensure_future(Computing()(work))
    await held.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert done == ["through"]


async def test_an_exhaustive_strategy_refuses_networks_that_are_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, view = crowded()
    view.capacity = dict.fromkeys(NAMES, 7.0)
    monkeypatch.setattr(latency_matrix, "MAX_PAIRS", 1000)
    refused = {}
    for name, strategy in STRATEGIES.items():
        try:
            await strategy(problem, view, PlacementSettings(pool=8))
        except SbonError as refusal:
            refused[name] = refusal
    too_large = {name: refusal.message for name, refusal in refused.items() if refusal.code == "too-large"}
    assert too_large.keys() == set(LOOKING_EVERYWHERE)
    assert [
        text for text in too_large.values() if "latencies between all nodes; of 40 these are more than 1,000" not in text
    ] == []


async def test_a_matrix_is_asked_for_in_parts_and_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    _, view = crowded()
    monkeypatch.setattr(latency_matrix, "PART", 90)
    found = await latency_matrix.all_pairs_ms(view, NAMES, "test")
    assert (found == view.latencies_ms(NAMES, NAMES)).all()


async def test_branches_end_with_their_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """The integer program finds the same."""
    from sbon_node.placement.strategies.sbon import optimal as exact

    problem, view = crowded()
    by_branches = await optimal(problem, view, PlacementSettings())
    monkeypatch.setattr(exact, "MAX_ENTRIES", 1)
    assert (await optimal(problem, view, PlacementSettings())).usage == pytest.approx(by_branches.usage)
