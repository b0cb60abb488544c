"""A node dies amid a move: the operator goes on at one of the two hosts, and no row is lost or doubled."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_node.hosting.moving.departures import StoredDeparture
from sbon_node.net.peers import Caller, Expected
from sbon_protocol.errors import SbonError
from sbon_protocol.moving import ActivateOperator, MoveHow, MoveOperator
from tests.nodes.clusters import ask, in_cluster, owner_of, state_of, uid_of
from tests.nodes.test_lost import lose_data
from tests.nodes.test_moved_operators import WINDOWS, check_windows, finished, move, operators, running

STEPS: list[tuple[MoveHow, str]] = [
    ("follow", "copying"),
    ("follow", "following"),
    ("follow", "settling"),
    ("follow", "switching"),
    ("stop", "stopping"),
    ("stop", "copying"),
    ("stop", "settling"),
    ("stop", "switching"),
]
AS_WHEN_FOLLOWED = STEPS[5:]
"""Steps of a stopped operator that are those of a followed one."""
ONLY_IN_TEST_ALL = pytest.mark.only_in_test_all("moves in virtual time in which a host dies or an engine starts again")


def begun(cluster: SimulatedCluster, origin: str) -> list[str]:
    """The steps that the moves of a host have reached."""
    return [one.step for one in cluster.at(origin).daemon.hosting.moves.departures.states().values()]


async def until_step(cluster: SimulatedCluster, origin: str, step: str) -> None:
    """Wait for a move at that step; fail if the step was missed."""
    while step not in (reached := begun(cluster, origin)):
        assert not {"moved", "given-up"} & set(reached), f"over before it was seen {step}: {reached}"
        await cluster.clock.sleep(0.0005)


async def moving_at(cluster: SimulatedCluster, tmp_path: Path, step: str, how: MoveHow = "follow") -> str:
    """Move a running query's operator with state from b to c, until that step; return the operator."""
    await running(cluster, tmp_path / "out.csv", WINDOWS)
    operator = operators(cluster)[-1]
    await move(cluster, operator, "b", "c", wait_s=-1.0, how=how)
    await until_step(cluster, "b", step)
    return operator


def hold_handover(cluster: SimulatedCluster, target: str) -> None:
    """Let no handover to a node end until it boots again."""

    async def never(call: ActivateOperator, caller: Caller) -> None:
        await cluster.clock.sleep(3600)

    cluster.at(target).daemon.context.server.handle(ActivateOperator, never)


async def committed(cluster: SimulatedCluster, tmp_path: Path) -> str:
    """Move as :func:`moving_at`, until the register names c."""
    operator = await moving_at(cluster, tmp_path, "switching")
    while (await owner_of(cluster, "a", operator))[0] == "b":
        await cluster.clock.sleep(0.002)
    return operator


@pytest.mark.one_part_per_commit("deaths of hosts at steps of a move", parts=5)
@pytest.mark.parametrize(
    "how, step", [pytest.param(*case, marks=ONLY_IN_TEST_ALL if case in AS_WHEN_FOLLOWED else ()) for case in STEPS]
)
@pytest.mark.parametrize("victim", ["b", "c"], ids=["origin", "target"])
def test_a_host_dies_at_a_step_of_a_move(tmp_path: Path, victim: str, how: MoveHow, step: str) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await moving_at(cluster, tmp_path, step, how)
        cluster.crash(cluster.at(victim))
        await cluster.clock.sleep(3)
        cluster.boot(cluster.at(victim))
        await finished(cluster)
        check_windows(tmp_path / "out.csv")
        await cluster.sleep(120)
        for node in "bc":
            daemon = cluster.at(node).daemon
            assert daemon.hosting.operators.hosted() == ()
            assert list(daemon.hosting.moves.arrivals.components()) == []

    in_cluster(tmp_path, "abcd", test)


@pytest.mark.parametrize(
    "host, step",
    [
        pytest.param("b", "settling", id="origin-settling"),
        pytest.param("b", "switching", id="origin-switching", marks=ONLY_IN_TEST_ALL),
        pytest.param("c", "settling", id="target-settling", marks=ONLY_IN_TEST_ALL),
        pytest.param("c", "switching", id="target-switching"),
    ],
)
def test_an_engine_that_starts_again_while_the_operator_is_frozen_ends_no_move(tmp_path: Path, host: str, step: str) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        operator = await moving_at(cluster, tmp_path, step)
        engine = cluster.at(host).engine
        assert engine is not None
        engine.kill_engine_process()
        assert (await move(cluster, operator, "b", "c")).step == "moved"
        await finished(cluster)
        check_windows(tmp_path / "out.csv")

    in_cluster(tmp_path, "abcd", test)


def test_a_committed_move_is_carried_on_after_both_hosts_have_died(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        hold_handover(cluster, "c")
        operator = await committed(cluster, tmp_path)
        for node in "bc":
            cluster.crash(cluster.at(node))
        await cluster.clock.sleep(1)
        cluster.boot(cluster.at("c"))
        await cluster.clock.sleep(5)
        assert (await state_of(cluster, "a")).state == "running"
        cluster.boot(cluster.at("b"))
        await cluster.clock.sleep(5)
        assert cluster.at("c").daemon.hosting.operators.hosted() == (operator,)
        await finished(cluster)
        check_windows(tmp_path / "out.csv")

    in_cluster(tmp_path, "abcd", test)


def test_a_target_whose_checkpoint_is_gone_says_so(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        hold_handover(cluster, "c")
        operator = await committed(cluster, tmp_path)
        for node in "bc":
            cluster.crash(cluster.at(node))
        folder = cluster.at("c").disk.folder / "operators" / operator
        shutil.rmtree(folder / "commits")
        for node in "cb":
            cluster.boot(cluster.at(node))
        await cluster.clock.sleep(10)
        departures = cluster.at("b").daemon.hosting.moves.departures
        (departure,) = departures._known.values()
        with pytest.raises(SbonError) as refusal:
            await ask(cluster, "b", departures._driver._activate(departure))
        assert refusal.value.code == "checkpoint-mismatch"

    in_cluster(tmp_path, "abcd", test)


def test_a_move_of_an_operator_that_ends_as_it_begins_is_over(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path / "out.csv", WINDOWS)
        operator = operators(cluster)[-1]
        daemon = cluster.at("b").daemon
        call = MoveOperator(query=uid_of(cluster), operator=operator, target="c", attempt="b-c")
        departure = daemon.hosting.moves.departures._begin(call, "")
        port = daemon.hosting.operators.ports.open.pop(operator)
        state = await move(cluster, operator, "b", "c")
        assert (state.step, state.code) == ("given-up", "operator-stopped")
        assert departure.is_over
        daemon.hosting.operators.ports.open[operator] = port
        await finished(cluster)
        check_windows(tmp_path / "out.csv")

    in_cluster(tmp_path, "abcd", test)


def test_a_target_that_fails_between_the_stream_and_the_switch_goes_on_at_the_next_call(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        operator = await moving_at(cluster, tmp_path, "following")
        port = cluster.at("c").daemon.hosting.operators.ports.open[operator]
        honest, failed = port.go_live, []

        def go_live(epoch: int) -> None:
            if not failed:
                failed.append(epoch)
                raise SbonError("disk-error", "planted")
            honest(epoch)

        port.go_live = go_live  # type: ignore[method-assign]
        assert (await move(cluster, operator, "b", "c")).step == "moved"
        assert failed == [2]
        await finished(cluster)
        check_windows(tmp_path / "out.csv")

    in_cluster(tmp_path, "abcd", test)


def test_a_host_that_does_not_learn_whether_it_has_given_the_operator_away_asks(tmp_path: Path) -> None:
    """The change of the register is chosen, and its answer is lost."""

    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path / "out.csv", WINDOWS)
        operator = operators(cluster)[-1]
        owners: Any = cluster.at("b").daemon.ownership.operators
        commit_move = owners.commit_move

        async def answer_lost(*given: Any) -> bool:
            await commit_move(*given)
            raise SbonError("no-majority", "planted")

        owners.commit_move = answer_lost
        assert (await move(cluster, operator, "b", "c")).step == "moved"
        assert (await owner_of(cluster, "a", operator))[0] == "c"
        await finished(cluster)
        check_windows(tmp_path / "out.csv")

    in_cluster(tmp_path, "abcd", test)


def test_a_move_that_a_restart_ends_is_forgotten(tmp_path: Path) -> None:
    """Once the host has claimed its operator, the move of before can never be committed."""

    async def test(cluster: SimulatedCluster) -> None:
        operator = await moving_at(cluster, tmp_path, "settling")
        store = cluster.at("b").daemon.context.store
        while store.get("departure", operator, StoredDeparture) is None:
            await cluster.clock.sleep(0.0005)
        cluster.crash(cluster.at("b"))
        cluster.boot(cluster.at("b"))
        while await owner_of(cluster, "a", operator) == ("b", 1):
            await cluster.clock.sleep(0.5)
        await cluster.clock.sleep(1)
        assert await owner_of(cluster, "a", operator) == ("b", 2)
        assert cluster.at("b").daemon.context.store.get("departure", operator, StoredDeparture) is None
        await finished(cluster)
        check_windows(tmp_path / "out.csv")

    in_cluster(tmp_path, "abcd", test)


def test_a_query_that_is_stopped_amid_a_move_leaves_nothing(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        operator = await moving_at(cluster, tmp_path, "following")
        await ask(cluster, "a", cluster.at("a").daemon.queries.lookup.stop("q"))
        await cluster.sleep(10)
        for node in "bc":
            daemon = cluster.at(node).daemon
            assert daemon.hosting.operators.hosted() == ()
            assert list(daemon.hosting.moves.arrivals.components()) == []
            assert not (daemon.context.data_dir / "operators" / operator).exists()
            subscribers = [name for stream in daemon.outbox.streams() for name in daemon.outbox.link_counts(stream).links]
            assert subscribers == []

    in_cluster(tmp_path, "abcd", test)


def test_a_target_that_lost_its_disk_since_the_move_began_does_not_become_the_host(tmp_path: Path) -> None:
    """It follows as another instance than the register would name, and could never go on."""

    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path / "out.csv", WINDOWS)
        operator = operators(cluster)[-1]
        await lose_data(cluster, "c", at_once=True)
        departures = cluster.at("b").daemon.hosting.moves.departures
        membership = cluster.at("b").daemon.membership
        before, present = Expected("c", "an earlier instance"), membership.expected

        def expected(name: str) -> Expected:
            return before if name == "c" and not departures._known else present(name)

        cluster.at("b").daemon.context.membership.expected = expected  # type: ignore[method-assign]
        refused = await move(cluster, operator, "b", "c")
        assert (refused.step, refused.code) == ("given-up", "not-owner")
        assert await owner_of(cluster, "a", operator) == ("b", 1)
        assert (await move(cluster, operator, "b", "c", attempt="again")).step == "moved"
        await finished(cluster)
        check_windows(tmp_path / "out.csv")

    in_cluster(tmp_path, "abcd", test)


def test_a_query_whose_operator_was_given_to_a_node_that_lost_its_disk_fails(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        hold_handover(cluster, "c")
        await committed(cluster, tmp_path)
        await lose_data(cluster, "c", at_once=True)
        while (info := await state_of(cluster, "a")).state in ("running", "lost", "unreachable"):
            await cluster.clock.sleep(1)
        assert info.state == "failed"
        assert "c does not know" in info.reason or "lost" in info.reason, info.reason
        await cluster.sleep(60)
        assert cluster.at("b").daemon.hosting.operators.hosted() == ()

    in_cluster(tmp_path, "abcd", test)
