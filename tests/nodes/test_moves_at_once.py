"""One operator of a query moves at a time, wherever its others run; nobody is held up by a host that died amid a move."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from tests.nodes.clusters import ask, in_cluster, owner_of, uid_of
from tests.nodes.test_moved_operators import WINDOWS, check_windows, finished, move, operators, running
from tests.nodes.test_moves_and_crashes import until_step

ROWS, RATE = 80, 2.0
ONLY_IN_TEST_ALL = pytest.mark.only_in_test_all("seeds of moves in virtual time")


async def apart(cluster: SimulatedCluster, path: Path) -> tuple[str, str]:
    """Start a query with a filter at ``d`` and windows at ``b``; return both operators."""
    await running(cluster, path, WINDOWS, rows=ROWS, rate=RATE)
    first, last = operators(cluster)
    assert (await move(cluster, first, "b", "d")).step == "moved"
    return first, last


def test_another_operator_of_the_query_waits_for_its_turn(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        first, last = await apart(cluster, tmp_path / "out.csv")
        await move(cluster, last, "b", "c", wait_s=-1.0)
        registers = cluster.at("a").daemon.ownership.operators
        while (await ask(cluster, "a", registers.read(uid_of(cluster), last))).move is None:
            await cluster.clock.sleep(0.002)
        refused = await move(cluster, first, "d", "a", attempt="early")
        assert (refused.step, refused.code) == ("given-up", "move-under-way")
        assert "on its way from b to c" in refused.reason
        assert (await move(cluster, last, "b", "c")).step == "moved"
        assert (await move(cluster, first, "d", "a", attempt="late")).step == "moved"
        await finished(cluster)
        check_windows(tmp_path / "out.csv", ROWS)

    in_cluster(tmp_path, "abcd", test)


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=ONLY_IN_TEST_ALL if seed else ()) for seed in range(4)])
def test_of_two_that_begin_at_the_same_time_at_most_one_moves(tmp_path: Path, seed: int) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        first, last = await apart(cluster, tmp_path / "out.csv")
        both = await asyncio.gather(move(cluster, first, "d", "a"), move(cluster, last, "b", "c"))
        assert [state.code for state in both if state.step == "given-up"] in (["move-under-way"], ["move-under-way"] * 2)
        again = await move(cluster, last, "b", "c", attempt="again") if both[1].step == "given-up" else both[1]
        assert again.step == "moved", again
        await finished(cluster)
        check_windows(tmp_path / "out.csv", ROWS)

    in_cluster(tmp_path, "abcd", test, seed=seed)


def test_a_host_that_died_amid_a_move_holds_up_no_other(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        first, last = await apart(cluster, tmp_path / "out.csv")
        assert (await move(cluster, last, "b", "c")).step == "moved"
        await move(cluster, last, "c", "b", wait_s=-1.0)
        await until_step(cluster, "c", "following")
        cluster.crash(cluster.at("c"))
        while cluster.at("d").daemon.membership.is_alive("c"):
            await cluster.clock.sleep(1)
        register = await ask(cluster, "a", cluster.at("a").daemon.ownership.operators.read(first.rpartition(".")[0], last))
        assert register.move is not None
        assert (await move(cluster, first, "d", "a")).step == "moved"
        assert await owner_of(cluster, "a", first) == ("a", 3)
        cluster.boot(cluster.at("c"))
        await finished(cluster)
        check_windows(tmp_path / "out.csv", ROWS)

    in_cluster(tmp_path, "abcd", test)
