"""Ends of drains that cannot move all: in time, with true reasons, and with nothing left under way."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sbon_lab.simulation.cluster import CONFIG, SimulatedCluster
from sbon_node.model.records import MoveLease
from sbon_node.ownership.store.query_keys import operator_key
from sbon_protocol.api.catalogue import SourceDeclaration
from sbon_protocol.errors import SbonError
from sbon_protocol.moving import MoveOperator, OperatorMove
from tests.adaptation.test_draining import check_all_rows, drain, left, refusal, running, two_queries_at
from tests.calm_clusters import CALM, in_calm_cluster
from tests.nodes.clusters import ask, declare, state_of, submitted

ROWS = 1200
PINNED = "has the source source/numbers@1/at-b"


def test_a_drain_ends_in_time_and_gives_the_moves_up(tmp_path: Path) -> None:
    hurried = msgspec.structs.replace(CALM, migration=msgspec.structs.replace(CONFIG.migration, drain_s=0.2))

    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path, "producer", rows=ROWS)
        end, steps = await drain(cluster, "b")
        (step,) = [step for step in steps if step.step == "stays"]
        target = step.target
        assert end.stays[0] == f"hosts q.b0 of query q: it has not moved within 0.2 s; at last: copying to {target}"
        moves = cluster.at("b").daemon.hosting.moves
        assert moves.departures.under_way(step.operator) is None
        await cluster.clock.sleep(1)
        assert cluster.at("b").daemon.hosting.operators.hosted() == (step.operator,)
        assert list(cluster.at(target).daemon.hosting.moves.arrivals.components()) == []
        await ask(cluster, "a", cluster.at("a").daemon.queries.lookup.stop("q"))

    in_calm_cluster(tmp_path, "abc", test, configs={"b": hurried})


@pytest.mark.one_part_per_commit("nodes in operation", parts=6)
def test_a_failure_of_the_drains_own_ends_all_its_moves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        operators = await two_queries_at(cluster, tmp_path, "c")
        daemon = cluster.at("c").daemon
        choose, departures = daemon.adaptation.targets.choose, daemon.hosting.moves.departures

        async def fails(query: str, operator: str, refused: Any) -> str:
            if operator != operators[1]:
                return await choose(query, operator, refused)
            while departures.under_way(operators[0]) is None:
                await cluster.clock.sleep(0.001)
            raise RuntimeError("a bug")

        monkeypatch.setattr(daemon.adaptation.targets, "choose", fails)
        error = await refusal(drain(cluster, "c"))
        assert (error.code, error.message) == ("internal", "RuntimeError: a bug")
        assert departures.under_way(operators[0]) is None
        monkeypatch.undo()
        await cluster.clock.sleep(5)
        assert daemon.hosting.operators.hosted() == tuple(sorted(operators))
        end, _ = await drain(cluster, "c")
        assert (end.has_left, set(end.moved)) == (True, set(operators))
        await check_all_rows(cluster, tmp_path)

    in_calm_cluster(tmp_path, "abcd", test)


@pytest.mark.one_part_per_commit("nodes in operation", parts=6)
def test_an_operator_stays_whose_move_a_user_cancels(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        operators = await two_queries_at(cluster, tmp_path, "c")
        draining = asyncio.ensure_future(drain(cluster, "c"))
        departures = cluster.at("c").daemon.hosting.moves.departures
        while departures.under_way(operators[0]) is None:
            await cluster.clock.sleep(0.001)
        assert (await ask(cluster, "a", cluster.at("a").daemon.adaptation.requested.cancel("w", operators[0]))).node == "c"
        end, _ = await draining
        assert (end.has_left, end.moved) == (False, (operators[1],))
        assert end.stays[0].endswith("a user has cancelled the move")
        end, _ = await drain(cluster, "c")
        assert (end.has_left, end.moved) == (True, (operators[0],))
        await check_all_rows(cluster, tmp_path)

    in_calm_cluster(tmp_path, "abcd", test)


async def stays_soon(cluster: SimulatedCluster) -> str:
    """Drain b; return why its operator stays, which is known long before the time of the drain is over."""
    begun_s = cluster.clock.now()
    end, steps = await drain(cluster, "b")
    assert cluster.clock.now() < begun_s + 60 < begun_s + CONFIG.migration.drain_s
    (reason,) = {step.reason for step in steps if step.step == "stays"}
    assert f"hosts q.b0 of query q: {reason}" in end.stays
    return reason


def test_an_operator_that_cannot_move_stays_with_its_own_reason(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path, "producer", rows=ROWS)
        (operator,) = cluster.at("b").daemon.hosting.operators.hosted()
        cluster.at("b").daemon.hosting.reports.report(operator, "quarantined", "it killed the engine")
        assert await stays_soon(cluster) == "it is quarantined: it killed the engine"
        await ask(cluster, "a", cluster.at("a").daemon.queries.lookup.stop("q"))

    in_calm_cluster(tmp_path, "abc", test)


def test_an_operator_without_a_batch_stays_with_that_reason(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        silent = SourceDeclaration(stream="numbers", name="posts", node="b", connector="http")
        await declare(cluster, "a", silent)
        await submitted(cluster, "a", tmp_path / "out.csv", strategy="producer")
        await cluster.clock.sleep(5)
        assert await stays_soon(cluster) == "it has committed no batch yet"
        await ask(cluster, "a", cluster.at("a").daemon.queries.lookup.stop("q"))

    in_calm_cluster(tmp_path, "abc", test)


def test_failures_of_this_node_do_not_count_against_targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path, "producer", rows=ROWS)
        owners, tried = cluster.at("b").daemon.ownership.operators, list[str]()

        async def unknown(query: str, operator: str, epoch: int, lease: MoveLease) -> None:
            tried.append(lease.target)
            raise SbonError("record-unknown", "no node that answers has a register of it", where=operator)

        monkeypatch.setattr(owners, "begin_move", unknown)
        assert await stays_soon(cluster) == "no node that answers has a register of it"
        assert (len(tried), len(set(tried))) == (CONFIG.migration.drain_tries, 1)
        await ask(cluster, "a", cluster.at("a").daemon.queries.lookup.stop("q"))

    in_calm_cluster(tmp_path, "abc", test)


@pytest.mark.one_part_per_commit("nodes in operation", parts=6)
def test_an_operator_stays_whose_register_has_lost_its_majority(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path, "producer")
        (operator,) = cluster.at("b").daemon.hosting.operators.hosted()
        state = await ask(cluster, "b", cluster.at("b").daemon.ownership.registers.read(operator_key(operator)))
        lost = sorted(one.node for one in state.configuration.acceptors if one.node != "b")[-2:]
        for node in lost:
            cluster.crash(cluster.at(node))
        membership = cluster.at("b").daemon.membership
        while not all((member := membership.get(node)) is not None and member.state == "dead" for node in lost):
            await cluster.clock.sleep(0.5)
        reason = await stays_soon(cluster)
        assert reason.endswith(f"answer or agree; not there: {', '.join(lost)}")
        for node in lost:
            cluster.boot(cluster.at(node))
        await cluster.clock.sleep(10)
        await ask(cluster, "a", cluster.at("a").daemon.queries.lookup.stop("q"))

    in_calm_cluster(tmp_path, "abcdef", test)


@pytest.mark.one_part_per_commit("nodes in operation", parts=6)
def test_a_drain_reports_the_move_of_a_user_and_hosts_tell_who_moved_an_operator(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        operators = await two_queries_at(cluster, tmp_path, "c")
        context = cluster.at("a").daemon.context
        uid = operators[0].rpartition(".")[0]
        call = MoveOperator(query=uid, operator=operators[0], target="d", attempt="a-user", how="stop")
        await ask(cluster, "a", context.ask("c", call, OperatorMove))
        end, steps = await drain(cluster, "c")
        assert (end.has_left, set(end.moved)) == (True, set(operators))
        assert any(step.reason.startswith("it moves to d already: ") for step in steps)
        (moved,) = (step for step in steps if step.step == "moved" and step.operator == operators[0])
        assert moved.target == "d"
        shown = {name: (await state_of(cluster, "a", name)).operators[-1] for name in "wf"}
        assert [one.reason for one in shown["w"].past_moves] == ["a user moved it"] * 2
        assert [one.reason for one in shown["f"].past_moves] == ["a user moved it", "c was drained"]
        await check_all_rows(cluster, tmp_path)

    in_calm_cluster(tmp_path, "abcd", test)


def test_a_node_that_is_stopped_right_after_its_drain_has_left(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        assert (await drain(cluster, "c"))[0].has_left
        daemon = cluster.at("c").daemon
        assert not daemon.adaptation.leaving.left.is_set()  # It still answers those that watch the drain.
        await ask(cluster, "c", daemon.close())
        own = daemon.membership.get("c")
        assert own is not None
        assert own.state == "left"
        await left(cluster, "c")

    in_calm_cluster(tmp_path, "abc", test)
