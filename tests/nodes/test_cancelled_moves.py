"""Moves that a user cancels: the operator goes on where it was, unless the move is being committed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_node.hosting.components import HostedOperator
from sbon_node.hosting.moving.arrivals import subscriptions_of
from sbon_node.hosting.moving.departures import Departure
from sbon_node.model.records import MoveLease
from sbon_protocol.api.moves import MoveCancelled, MoveRequest
from sbon_protocol.api.operators import OperatorSpec
from sbon_protocol.api.states.move_states import MoveEvent
from sbon_protocol.errors import SbonError
from sbon_protocol.moving import CancelMove, MoveHow, OperatorMove
from tests.nodes.clusters import ask, in_cluster, owner_of, state_of, uid_of
from tests.nodes.test_moved_operators import WINDOWS, check_windows, finished, move, operators, running
from tests.nodes.test_moves_and_crashes import committed, moving_at, until_step

CANCELLED: list[tuple[MoveHow, str]] = [
    ("follow", "copying"),
    ("follow", "following"),
    ("follow", "settling"),
    ("stop", "stopping"),
]


async def cancelled(cluster: SimulatedCluster, operator: str, at: str = "d") -> MoveCancelled:
    named = operator.rpartition(".")[2]
    return await ask(cluster, at, cluster.at(at).daemon.adaptation.requested.cancel("q", named))


async def refusal_of(cluster: SimulatedCluster, operator: str) -> SbonError:
    with pytest.raises(SbonError) as refused:
        await cancelled(cluster, operator)
    return refused.value


@pytest.mark.one_part_per_commit("steps at which a move is cancelled", parts=2)
@pytest.mark.parametrize("how, step", CANCELLED)
def test_a_cancelled_move_leaves_the_operator_where_it_is(tmp_path: Path, how: MoveHow, step: str) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        operator = await moving_at(cluster, tmp_path, step, how)
        call = CancelMove(query=uid_of(cluster), operator=operator, wait_s=60.0)
        state: OperatorMove = await ask(cluster, "b", cluster.at("b").daemon.context.ask("b", call, OperatorMove))
        assert (state.step, state.code) == ("given-up", "move-cancelled")
        assert await owner_of(cluster, "a", operator) == ("b", 1)
        await cluster.clock.sleep(3)
        target = cluster.at("c").daemon
        assert (target.hosting.operators.hosted(), list(target.hosting.moves.arrivals.components())) == ((), [])
        assert [subscriptions_of(node.daemon.outbox, operator, "b-c") for node in cluster.nodes.values()] == [[]] * 4
        assert (await move(cluster, operator, "b", "c", attempt="again")).step == "moved"
        await finished(cluster)
        check_windows(tmp_path / "out.csv")

    in_cluster(tmp_path, "abcd", test)


def test_a_user_cancels_at_any_node_and_the_one_who_waits_for_the_move_is_told(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path / "out.csv", WINDOWS)
        operator = operators(cluster)[-1]

        async def moved() -> None:
            request = MoveRequest(operator=operator, to="c")
            async for _ in cluster.at("a").daemon.adaptation.requested.move("q", request):
                pass

        mover = asyncio.ensure_future(ask(cluster, "a", moved()))
        await until_begun(cluster)
        assert await cancelled(cluster, operator) == MoveCancelled(query="q", operator=operator, node="b")
        with pytest.raises(SbonError) as given_up:
            await mover
        assert (given_up.value.code, given_up.value.where) == ("move-cancelled", operator)
        assert given_up.value.hint == "it goes on at b"
        assert (await refusal_of(cluster, operator)).code == "move-unknown"
        assert (await state_of(cluster, "d")).state == "running"
        await finished(cluster)
        check_windows(tmp_path / "out.csv")

    in_cluster(tmp_path, "abcd", test)


def test_a_withdrawal_takes_the_place_of_any_event_before_the_commit_and_of_none_after_it() -> None:
    ways = [MoveEvent.BEGUN, MoveEvent.REGISTERED, MoveEvent.PREPARED, MoveEvent.STARTED, MoveEvent.WAITED, MoveEvent.LEVEL]
    ways += [MoveEvent.STOPPED, MoveEvent.SETTLED, MoveEvent.COMMITTED, MoveEvent.HANDED_OVER]
    spec = OperatorSpec(id="q.o1", query="q", fragment="SELECT * FROM in0", inputs=(), schema=())
    for at, event in enumerate(ways):
        departure = Departure(HostedOperator(spec=spec, acceptors=()), MoveLease(attempt="x", target="c", instance="1"))
        for earlier in ways[:at]:
            departure.receive(earlier, 1.0)
        departure.withdraw(SbonError("move-cancelled", "a user has cancelled the move", where="q.o1"))
        departure.receive(event, 1.0)
        withdrawn = ("given-up", "move-cancelled", "a user has cancelled the move")
        committed = event in (MoveEvent.COMMITTED, MoveEvent.HANDED_OVER)
        assert ((departure.state.step, departure.state.code, departure.state.reason) == withdrawn) is not committed, event


async def until_begun(cluster: SimulatedCluster) -> None:
    while not cluster.at("b").daemon.hosting.moves.departures.states():
        await cluster.clock.sleep(0.001)
    await until_step(cluster, "b", "copying")


@pytest.mark.parametrize("fields", [{}, {"attempt": "b-c"}], ids=["the one under way", "by its attempt"])
def test_a_move_that_is_being_committed_is_cancelled_no_more(tmp_path: Path, fields: dict[str, str]) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        operator = await moving_at(cluster, tmp_path, "switching")
        call = CancelMove(query=uid_of(cluster), operator=operator, **fields)
        with pytest.raises(SbonError) as refused:
            await ask(cluster, "b", cluster.at("b").daemon.context.ask("b", call, OperatorMove))
        assert refused.value.code == "move-committed"
        assert (await move(cluster, operator, "b", "c")).step == "moved"
        await finished(cluster)
        check_windows(tmp_path / "out.csv")

    in_cluster(tmp_path, "abcd", test)


def test_a_move_whose_register_has_changed_is_cancelled_no_more(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        operator = await committed(cluster, tmp_path)
        error = await refusal_of(cluster, operator)
        assert (error.code, error.where) == ("move-unknown", operator)
        await finished(cluster)
        check_windows(tmp_path / "out.csv")

    in_cluster(tmp_path, "abcd", test)


def test_a_move_of_another_query_is_not_cancelled(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        operator = await moving_at(cluster, tmp_path, "copying")
        for query, attempt in (("another", ""), ("another", "b-c"), (uid_of(cluster), "b-d")):
            call = CancelMove(query=query, operator=operator, attempt=attempt)
            with pytest.raises(SbonError) as refused:
                await ask(cluster, "d", cluster.at("d").daemon.context.ask("b", call, OperatorMove))
            assert refused.value.code == "move-unknown"
        assert (await move(cluster, operator, "b", "c")).step == "moved"
        await finished(cluster)
        check_windows(tmp_path / "out.csv")

    in_cluster(tmp_path, "abcd", test)
