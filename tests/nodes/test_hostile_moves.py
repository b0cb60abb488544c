"""Calls that would harm a move, and followers that fail at a bad time: the query gets all rows, or fails with a reason."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_node.engine.copies.settings import MigrationSettings
from sbon_node.hosting.moving.ends import Pursuit
from sbon_protocol.api.states import operator_states
from sbon_protocol.calls import ComponentsDestroyed, DestroyComponents
from sbon_protocol.errors import SbonError
from sbon_protocol.moving import OperatorMove
from tests.nodes.clusters import ask, in_cluster, owner_of
from tests.nodes.test_moved_operators import WINDOWS, check_windows, finished, move, operators, running

NAMES = "abcd"
ROWS, RATE = 90, 2.0
FOLLOW_S = 10.0


def begun(cluster: SimulatedCluster, operator: str) -> asyncio.Task[OperatorMove]:
    return asyncio.create_task(move(cluster, operator, "b", "c"))


async def until_step(cluster: SimulatedCluster, step: str) -> None:
    """Wait until the move at ``b`` is at the step."""
    departures = cluster.at("b").daemon.hosting.moves.departures
    while not any(one.state.step == step for one in departures._known.values()):
        await cluster.clock.sleep(0.0005)


@pytest.mark.one_part_per_commit("steps of a move at which another query ends", parts=16)
@pytest.mark.parametrize("step", ["copying", "following", "settling", "switching"])
def test_the_end_of_another_query_stops_no_move(tmp_path: Path, step: str) -> None:
    """Anyone may say that a query is over of which this node hosts nothing, and name parts of another."""

    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path / "out.csv", WINDOWS)
        operator = operators(cluster)[-1]
        moving = begun(cluster, operator)
        await until_step(cluster, step)
        call = DestroyComponents(query="another-4zgt27", components=(operator,))
        for node in "bc":
            await ask(cluster, "d", cluster.at("d").daemon.context.ask(node, call, ComponentsDestroyed))
        assert (await moving).step == "moved"
        assert await owner_of(cluster, "a", operator) == ("c", 2)
        await finished(cluster)
        check_windows(tmp_path / "out.csv")

    in_cluster(tmp_path, NAMES, test)


@pytest.mark.one_part_per_commit("queries in virtual time", parts=6)
def test_an_operator_goes_on_though_its_follower_has_failed_after_the_switch(tmp_path: Path) -> None:
    """The register names its new host, whose engine starts it again from the checkpoint."""

    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path / "out.csv", WINDOWS)
        operator = operators(cluster)[-1]
        moving = begun(cluster, operator)
        await until_step(cluster, "switching")
        arrivals = cluster.at("c").daemon.hosting.moves.arrivals
        assert arrivals._known[operator].stored.is_ready
        arrivals.engine_state(operator, operator_states.FAILED, "the engine has ended")
        assert (await moving).step == "moved"
        await finished(cluster)
        check_windows(tmp_path / "out.csv")

    in_cluster(tmp_path, NAMES, test)


@pytest.mark.one_part_per_commit("queries in virtual time", parts=6)
def test_a_move_ends_whose_target_breaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of our own at the target is no reason to wait for ever."""

    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path / "out.csv", WINDOWS)
        operator = operators(cluster)[-1]

        async def breaks(*_: object) -> None:
            raise ValueError("planted")

        monkeypatch.setattr(cluster.at("c").daemon.hosting.moves.arrivals._starter, "start", breaks)
        state = await begun(cluster, operator)
        assert (state.step, state.code) == ("given-up", "internal")
        assert "planted" in state.reason
        await finished(cluster)
        check_windows(tmp_path / "out.csv")

    in_cluster(tmp_path, NAMES, test)


@pytest.mark.one_part_per_commit("queries in virtual time", parts=6)
def test_a_move_ends_whose_host_cannot_store_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path / "out.csv", WINDOWS, rows=ROWS, rate=RATE)
        operator = operators(cluster)[-1]
        store = cluster.at("b").daemon.context.store
        honest, is_full = (store.put, store.delete), [True]

        def put(kind: str, key: str, value: object, **options: bool) -> None:
            if kind == "departure" and is_full:
                raise SbonError("disk-full", "no space", where=key)
            honest[0](kind, key, value, **options)  # type: ignore[arg-type]

        def delete(kind: str, key: str) -> None:
            if kind == "departure" and is_full:
                raise SbonError("disk-full", "no space", where=key)
            honest[1](kind, key)  # type: ignore[arg-type]

        monkeypatch.setattr(store, "put", put)
        monkeypatch.setattr(store, "delete", delete)
        state = await begun(cluster, operator)
        assert (state.step, state.code) == ("given-up", "disk-full")
        is_full.clear()
        await cluster.clock.sleep(30)
        assert (await move(cluster, operator, "b", "c", attempt="again")).step == "moved"
        await finished(cluster)
        check_windows(tmp_path / "out.csv", ROWS)

    in_cluster(tmp_path, NAMES, test)


def test_a_target_that_cannot_store_a_follower_holds_no_capacity_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path / "out.csv", WINDOWS)
        operator = operators(cluster)[-1]
        store = cluster.at("c").daemon.context.store
        honest = store.put

        def put(kind: str, key: str, value: object, **options: bool) -> None:
            if kind == "arrival":
                raise SbonError("disk-full", "no space", where=key)
            honest(kind, key, value, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(store, "put", put)
        state = await begun(cluster, operator)
        assert (state.step, state.code) == ("given-up", "disk-full")
        assert operator not in cluster.at("c").daemon.hosting.room.reservations.operators()
        await finished(cluster)
        check_windows(tmp_path / "out.csv")

    in_cluster(tmp_path, NAMES, test)


@pytest.mark.one_part_per_commit("queries in virtual time", parts=6)
def test_a_move_ends_whose_target_never_catches_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pursuit, "is_level", lambda *_: False)

    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path / "out.csv", WINDOWS, rows=ROWS, rate=RATE)
        operator, departures = operators(cluster)[-1], cluster.at("b").daemon.hosting.moves.departures
        departures._driver._migration = MigrationSettings(follow_s=FOLLOW_S)
        began_s, moves = cluster.clock.now(), departures._known
        await move(cluster, operator, "b", "c")
        while not all(one.is_over for one in moves.values()):
            await cluster.clock.sleep(1)
        (refused,) = (one.state for one in moves.values())
        assert (refused.step, refused.code) == ("given-up", "not-level")
        assert FOLLOW_S < cluster.clock.now() - began_s < FOLLOW_S + 30
        assert await owner_of(cluster, "a", operator) == ("b", 1)
        await finished(cluster)
        check_windows(tmp_path / "out.csv", ROWS)

    in_cluster(tmp_path, NAMES, test)
