"""Draining: a node moves its operators away and leaves; with what cannot move it stays, and takes nothing on any more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sbon_lab.simulation.cluster import CONFIG, NodeDiedError, SimulatedCluster
from sbon_node.net.peers import Caller
from sbon_protocol.api.moves import DrainStep, NodeDrained
from sbon_protocol.api.queries import QueryInfo
from sbon_protocol.calls import AskNode, NodeAnswer
from sbon_protocol.errors import SbonError
from sbon_protocol.moving import MoveOperator, OperatorMove
from tests.calm_clusters import CALM, in_calm_cluster
from tests.nodes.clusters import (
    NUMBERS,
    ask,
    declare,
    in_hurried_cluster,
    owner_of,
    source_at,
    state_of,
    submitted,
)
from tests.nodes.test_moved_operators import FILTER, WINDOWS, check_filtered, check_windows

ROWS, LONGER = 800, 1200
PINNED = "has the source source/numbers@1/at-b"


async def refusal(work: Awaitable[Any]) -> SbonError:
    with pytest.raises(SbonError) as caught:
        await work
    return caught.value


async def drain(cluster: SimulatedCluster, name: str, *, dry_run: bool = False) -> tuple[NodeDrained, list[DrainStep]]:
    """The end of a drain, and the steps before."""

    async def events() -> list[DrainStep | NodeDrained]:
        return [event async for event in cluster.at(name).daemon.operations.drain(dry_run=dry_run)]

    *steps, end = await ask(cluster, name, events())
    assert isinstance(end, NodeDrained)
    return end, steps


async def running(cluster: SimulatedCluster, tmp_path: Path, strategy: str, rows: int = 1_000_000) -> None:
    await declare(cluster, "a", source_at("b", rows=rows, rate=10.0))
    await submitted(cluster, "a", tmp_path / "out.csv", strategy=strategy)
    while (await state_of(cluster, "a")).rows == 0:
        await cluster.clock.sleep(0.5)


@pytest.mark.parametrize(
    "strategy, node, reasons",
    [
        ("producer", "a", ("hosts q.sink of query q",)),
        ("producer", "b", ("has source/numbers@1/at-b, which q.b0 reads", PINNED)),
        ("consumer", "b", ("has source/numbers@1/at-b, which q.b0 reads", PINNED)),
    ],
)
def test_a_node_stays_drained_with_every_part_that_cannot_move(
    tmp_path: Path, strategy: str, node: str, reasons: tuple[str, ...]
) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path, strategy)
        end, _ = await drain(cluster, node)
        assert (end.has_left, end.stays) == (False, reasons)
        assert cluster.at(node).daemon.operations.status().drained
        assert cluster.at(node).daemon.operations.status().operators == ()
        await ask(cluster, "a", cluster.at("a").daemon.queries.lookup.stop("q"))

    in_calm_cluster(tmp_path, "abc", test)


def test_a_node_leaves_once_its_last_source_is_dropped(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b"))
        end, _ = await drain(cluster, "b")
        assert (end.has_left, end.stays) == (False, (PINNED,))
        await ask(cluster, "a", cluster.at("a").daemon.queries.declarations.drop("numbers"))
        while cluster.at("b").daemon.operations.metrics_snapshot().sources:
            await cluster.clock.sleep(0.1)
        assert (await drain(cluster, "b"))[0].has_left
        await left(cluster, "b")

    in_calm_cluster(tmp_path, "ab", test)


async def left(cluster: SimulatedCluster, name: str) -> None:
    while (member := cluster.at("a").daemon.membership.get(name)) is not None and member.state != "left":
        await cluster.clock.sleep(0.1)


async def two_queries_at(cluster: SimulatedCluster, tmp_path: Path, host: str) -> list[str]:
    """Run a count over windows and a filter, whose last operators are at ``host``; return these."""
    await declare(cluster, "a", source_at("b", rows=ROWS, rate=40.0))
    moved = []
    for name, sql in (("w", WINDOWS), ("f", FILTER)):
        query = await submitted(cluster, "a", tmp_path / f"{name}.csv", name=name, sql=sql, strategy="producer")
        while not (await state_of(cluster, "a", name)).rows:
            await cluster.clock.sleep(0.2)
        moved.append(query.operators[-1].id)
        call = MoveOperator(query=query.uid, operator=moved[-1], target=host, attempt=f"to-{name}", wait_s=9.0)
        state = await ask(cluster, "a", cluster.at("a").daemon.context.ask("b", call, OperatorMove))
        assert state.step == "moved"
    return moved


async def check_all_rows(cluster: SimulatedCluster, tmp_path: Path) -> None:
    for name in "wf":
        while (await state_of(cluster, "a", name)).state == "running":
            await cluster.clock.sleep(1)
    check_windows(tmp_path / "w.csv", ROWS)
    check_filtered(tmp_path / "f.csv", ROWS)


@pytest.mark.one_part_per_commit("nodes in operation", parts=6)
def test_a_node_moves_the_operators_of_its_queries_away_and_leaves(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        operators = await two_queries_at(cluster, tmp_path, "c")
        end, steps = await drain(cluster, "c", dry_run=True)
        assert ({step.operator for step in steps}, {step.step for step in steps}) == (set(operators), {"planned"})
        assert (end.stays, end.has_left, cluster.at("c").daemon.operations.status().drained) == ((), False, False)
        planned = {step.operator: step.target for step in steps}
        end, steps = await drain(cluster, "c")
        assert (end.has_left, set(end.moved), end.stays) == (True, set(operators), ())
        assert {step.operator: step.target for step in steps if step.step == "moved"} == planned
        assert {step.step for step in steps} >= {"waiting", "copying", "moved"}
        await left(cluster, "c")
        cluster.crash(cluster.at("c"))
        for operator in operators:
            assert (await owner_of(cluster, "a", operator))[0] == planned[operator]
        await check_all_rows(cluster, tmp_path)

    in_calm_cluster(tmp_path, "abcd", test)


@pytest.mark.one_part_per_commit("nodes in operation", parts=6)
def test_operators_go_elsewhere_when_their_target_dies(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        operators = await two_queries_at(cluster, tmp_path, "c")
        for node in "ab":  # They have the consumer and the source: the query would wait for them.
            cluster.at(node).daemon.context.server.handle(AskNode, full)

        async def target_dies() -> str:
            while True:
                for node in "de":
                    if list(cluster.at(node).daemon.hosting.moves.arrivals.components()):
                        cluster.crash(cluster.at(node))
                        return node
                await cluster.clock.sleep(0.001)

        dying = asyncio.create_task(target_dies())
        end, steps = await drain(cluster, "c")
        victim = await dying
        assert (end.has_left, set(end.moved)) == (True, set(operators))
        assert any(step.target == victim and step.reason for step in steps)
        assert {(await owner_of(cluster, "a", operator))[0] for operator in operators} == {"d", "e"} - {victim}
        await check_all_rows(cluster, tmp_path)

    in_calm_cluster(tmp_path, "abcde", test)


@pytest.mark.one_part_per_commit("nodes in operation", parts=6)
def test_the_only_target_may_be_away_for_a_while(tmp_path: Path) -> None:
    """It dies amid the first move. The drain asks it again once it is back, rather than leave the operators where they are."""

    async def test(cluster: SimulatedCluster) -> None:
        await two_queries_at(cluster, tmp_path, "c")
        for node in "ab":
            cluster.at(node).daemon.context.server.handle(AskNode, full)

        async def dies() -> None:
            arrivals = cluster.at("d").daemon.hosting.moves.arrivals
            while not list(arrivals.components()):
                await cluster.clock.sleep(0.001)
            cluster.crash(cluster.at("d"))
            await cluster.clock.sleep(2.0)
            cluster.boot(cluster.at("d"))

        dying = asyncio.create_task(dies())
        end, steps = await drain(cluster, "c")
        await dying
        assert any(step.step == "waiting" and step.target == "d" and step.reason for step in steps)
        assert (end.has_left, end.stays) == (True, ())
        assert end.moved
        assert {(await owner_of(cluster, "a", operator))[0] for operator in end.moved} == {"d"}
        await check_all_rows(cluster, tmp_path)

    in_calm_cluster(tmp_path, "abcd", test)


@pytest.mark.one_part_per_commit("nodes in operation", parts=6)
def test_a_drain_goes_on_without_its_caller_and_a_later_one_watches_it(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        operators = await two_queries_at(cluster, tmp_path, "c")

        async def begun() -> None:
            async for step in cluster.at("c").daemon.operations.drain():
                if isinstance(step, DrainStep) and step.step == "copying":
                    return

        await ask(cluster, "c", begun())
        end, steps = await drain(cluster, "c")
        assert (end.has_left, set(end.moved)) == (True, set(operators))
        assert steps[-1].step == "moved"
        await left(cluster, "c")
        await check_all_rows(cluster, tmp_path)

    in_calm_cluster(tmp_path, "abcd", test)


@pytest.mark.one_part_per_commit("nodes in operation", parts=6)
def test_a_node_that_dies_amid_its_drain_is_drained_again(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        operators = await two_queries_at(cluster, tmp_path, "c")

        async def dies() -> None:
            departures = cluster.at("c").daemon.hosting.moves.departures
            while all(departures.under_way(operator) is None for operator in operators):
                await cluster.clock.sleep(0.001)
            cluster.crash(cluster.at("c"))

        dying = asyncio.create_task(dies())
        with pytest.raises(NodeDiedError):
            await drain(cluster, "c")
        await dying
        cluster.boot(cluster.at("c"))
        while not cluster.at("c").ready:
            await cluster.clock.sleep(0.1)
        assert cluster.at("c").daemon.operations.status().drained
        end, _ = await drain(cluster, "c")
        assert (end.has_left, end.stays) == (True, ())
        await left(cluster, "c")
        await check_all_rows(cluster, tmp_path)

    in_calm_cluster(tmp_path, "abcd", test)


@pytest.mark.one_part_per_commit("nodes in operation", parts=6)
def test_a_query_may_end_amid_a_drain(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        _, other = await two_queries_at(cluster, tmp_path, "c")

        async def stopped() -> None:
            await cluster.clock.sleep(0.5)
            await ask(cluster, "a", cluster.at("a").daemon.queries.lookup.stop("w"))

        stopping = asyncio.create_task(stopped())
        end, _ = await drain(cluster, "c")
        await stopping
        assert (end.has_left, other in end.moved) == (True, True)
        while (await state_of(cluster, "a", "f")).state == "running":
            await cluster.clock.sleep(1)
        check_filtered(tmp_path / "f.csv", ROWS)

    in_calm_cluster(tmp_path, "abcd", test)


async def full(call: AskNode, caller: Caller) -> NodeAnswer:
    return NodeAnswer(False, "it is full", (), 0.0, 0.0, 0.0, 0.0)


def test_an_operator_that_nobody_takes_stays_with_every_reason(tmp_path: Path) -> None:
    engine = msgspec.structs.replace(CONFIG.engine, max_operators=0)
    no_room = msgspec.structs.replace(CALM, engine=engine)

    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path, "producer", rows=ROWS)
        why = "a: 0 of 0 places are taken"
        for dry_run in (True, False):
            end, steps = await drain(cluster, "b", dry_run=dry_run)
            assert end.stays[0] == f"hosts q.b0 of query q: {why}"
        assert steps[-1].reason == why
        await ask(cluster, "a", cluster.at("a").daemon.queries.lookup.stop("q"))

    in_calm_cluster(tmp_path, "ab", test, configs={"a": no_room})


def test_a_drained_node_takes_nothing_on_and_a_restart_changes_nothing(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await ask(
            cluster,
            "a",
            cluster.at("a").daemon.queries.declarations.create_stream(msgspec.structs.replace(NUMBERS, name="others")),
        )
        source = msgspec.structs.replace(source_at("c"), stream="others")
        await ask(cluster, "c", cluster.at("c").daemon.hosting.sources.attach(source))
        for _ in range(2):  # once more is no harm
            assert not (await drain(cluster, "c"))[0].has_left
        cluster.crash(cluster.nodes["c"])
        cluster.boot(cluster.nodes["c"])
        while not cluster.nodes["c"].ready:
            await cluster.clock.sleep(0.1)
        await cluster.together()
        assert cluster.at("c").daemon.operations.status().drained
        (reason,) = cluster.at("c").daemon.operations.readiness().reasons
        assert (reason.code, reason.weight) == ("drained", "impaired")
        await declare(cluster, "a", source_at("b", rows=50))
        daemon = cluster.at("c").daemon
        assert (await refusal(ask(cluster, "c", daemon.hosting.sources.attach(source_at("c"))))).code == "node-drained"
        assert (await refusal(submitted(cluster, "c", tmp_path / "c.csv", name="q1"))).code == "node-drained"
        elsewhere = await refusal(submitted(cluster, "a", tmp_path / "a.csv", name="q2", consumer="c"))
        assert elsewhere.code == "node-drained"
        # Operators go elsewhere, by whatever strategy.
        for number, strategy in enumerate(("random", "hybrid", "optimal", "auto")):
            name = f"n{number}"
            query: QueryInfo = await submitted(cluster, "a", tmp_path / f"{name}.csv", name=name, strategy=strategy)
            assert "c" not in {operator.node for operator in query.operators}
            while (await state_of(cluster, "a", name)).state != "finished":
                await cluster.clock.sleep(0.5)
            assert len((tmp_path / f"{name}.csv").read_text().splitlines()) == 51
        assert cluster.at("c").daemon.operations.status().operators == ()

    in_calm_cluster(tmp_path, "abc", test)


@pytest.mark.one_part_per_commit("drained hosts of shared operators", parts=8)
@pytest.mark.parametrize("over", ["stopped", "running"])
def test_a_shared_operator_moves_away_for_its_readers(tmp_path: Path, over: str) -> None:
    """Also once its own query is over: the query that reads it has all rows, and nothing stays behind."""

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b", rows=LONGER, rate=40.0))
        owner = await submitted(cluster, "a", tmp_path / "own.csv", name="own", sql=WINDOWS, strategy="producer")
        last = owner.operators[-1].id
        while not (await state_of(cluster, "a", "own")).rows:
            await cluster.clock.sleep(0.2)
        call = MoveOperator(query=owner.uid, operator=last, target="c", attempt="to-c", wait_s=9.0)
        assert (await ask(cluster, "a", cluster.at("a").daemon.context.ask("b", call, OperatorMove))).step == "moved"
        rows = (await state_of(cluster, "a", "own")).rows or 0
        while ((await state_of(cluster, "a", "own")).rows or 0) <= rows:  # it reads at c
            await cluster.clock.sleep(0.2)
        reader = await submitted(cluster, "d", tmp_path / "w.csv", name="w", sql=WINDOWS, consumer="d")
        assert last in [one.id for one in reader.shared]
        if over == "stopped":
            await ask(cluster, "a", cluster.at("a").daemon.queries.lookup.stop("own"))
            await cluster.clock.sleep(2.0)
        end, _ = await drain(cluster, "c")
        assert (end.has_left, end.moved, end.stays) == (True, (last,), ())
        await left(cluster, "c")
        while (await state_of(cluster, "d", "w")).state == "running":
            await cluster.clock.sleep(1)
        check_windows(tmp_path / "w.csv", LONGER)
        while over == "running" and (await state_of(cluster, "a", "own")).state == "running":
            await cluster.clock.sleep(1)
        while any(cluster.at(name).daemon.hosting.operators.hosted() for name in "abd"):
            await cluster.clock.sleep(1)

    in_hurried_cluster(tmp_path, "abcd", test)
