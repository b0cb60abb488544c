"""Operators move to other nodes while their queries run: no row is lost or doubled, and readers go on at the new host."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_node.base.events import Listener, OperatorChanged
from sbon_protocol.api.moves import Moved, MoveRequest, Moving
from sbon_protocol.api.queries import MoveInfo
from sbon_protocol.errors import SbonError
from sbon_protocol.moving import MoveHow, MoveOperator, OperatorMove
from tests.nodes.clusters import ask, declare, in_cluster, owner_of, source_at, state_of, submitted, uid_of
from tests.nodes.test_notifications import listening, told

ROWS = 400
ONLY_IN_TEST_ALL = pytest.mark.only_in_test_all("seeds of moves in virtual time")
FILTER = "SELECT id FROM numbers WHERE id % 2 = 0"
WINDOWS = "SELECT count(*) AS n, sum(id) AS ids FROM numbers GROUP BY window(ts, '200 milliseconds')"


async def running(cluster: SimulatedCluster, path: Path, sql: str, *, rows: int = ROWS, rate: float = 40.0) -> None:
    await declare(cluster, "a", source_at("b", rows=rows, rate=rate))
    await submitted(cluster, "a", path, sql=sql, strategy="producer")
    while not (await state_of(cluster, "a")).rows:
        await cluster.clock.sleep(0.2)


def operators(cluster: SimulatedCluster) -> list[str]:
    """The operators of the query, the one with state last."""
    specs = [one.spec for node in cluster.nodes.values() for one in node.daemon.hosting.operators.stored()]
    return [spec.id for spec in sorted(specs, key=lambda spec: (spec.has_state, spec.id))]


async def move(
    cluster: SimulatedCluster,
    operator: str,
    origin: str,
    target: str,
    *,
    attempt: str = "",
    wait_s: float = 60.0,
    how: MoveHow = "follow",
) -> OperatorMove:
    """Move an operator, and wait for the end."""
    call = MoveOperator(
        query=uid_of(cluster),
        operator=operator,
        target=target,
        attempt=attempt or f"{origin}-{target}",
        wait_s=min(5.0, max(0.0, wait_s)),
        how=how,
    )
    context = cluster.at("a").daemon.context
    deadline = cluster.clock.now() + wait_s
    while True:
        state: OperatorMove = await ask(cluster, "a", context.ask(origin, call, OperatorMove))
        if state.step in ("moved", "given-up") or cluster.clock.now() >= deadline:
            return state


async def finished(cluster: SimulatedCluster) -> None:
    while (info := await state_of(cluster, "a")).state == "running":
        await cluster.clock.sleep(1)
    assert info.state == "finished", info.reason


def delivered(path: Path) -> list[dict[str, str]]:
    with path.open() as lines:
        return list(csv.DictReader(lines))


def check_filtered(path: Path, rows: int = ROWS) -> None:
    counted = Counter(int(row["id"]) for row in delivered(path))
    assert max(counted.values()) == 1
    assert len(counted) == rows // 2
    assert all(id_ % 2 == 0 and 0 <= id_ <= rows for id_ in counted)


def check_windows(path: Path, rows: int = ROWS) -> None:
    assert sum(int(row["n"]) for row in delivered(path)) == rows


def changes(listener: Listener) -> list[tuple[str, str, str, str]]:
    """The begins and ends of moves that a host has published."""
    events = [event for event in told(listener) if isinstance(event, OperatorChanged) and event.change.startswith("mov")]
    return [(event.change, event.host, event.was, event.target) for event in events]


@pytest.mark.one_part_per_commit("queries in virtual time", parts=6)
def test_an_operator_stops_for_a_move_only_once_the_target_has_an_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path / "out.csv", WINDOWS)
        engine, frozen = cluster.at("c").daemon.hosting.engine, list[int]()
        assert engine.status == "idle"
        origin = cluster.at("b").daemon.hosting.engine
        hold = origin.hold

        def held(operator: str) -> None:
            frozen.append(engine.starts)
            hold(operator)

        monkeypatch.setattr(origin, "hold", held)
        state = await move(cluster, operators(cluster)[-1], "b", "c", how="stop")
        assert state.step == "moved", state
        assert frozen[0] == 1
        await finished(cluster)
        check_windows(tmp_path / "out.csv")

    in_cluster(tmp_path, "abcd", test)


@pytest.mark.one_part_per_commit("ways to move", parts=8)
@pytest.mark.parametrize("how", ["follow", "stop"])
@pytest.mark.parametrize("seed", [pytest.param(seed, marks=ONLY_IN_TEST_ALL if seed else ()) for seed in range(2)])
def test_an_operator_with_state_moves_and_returns(tmp_path: Path, seed: int, how: MoveHow) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path / "out.csv", WINDOWS)
        operator = operators(cluster)[-1]
        for origin, target, epoch in (("b", "c", 2), ("c", "b", 3)):
            state = await move(cluster, operator, origin, target, how=how)
            assert state.step == "moved", state
            assert state.pause_ms > 0
            assert await owner_of(cluster, "a", operator) == (target, epoch)
            assert operator not in cluster.at(origin).daemon.outbox.streams()
            assert operator in cluster.at(target).daemon.hosting.operators.hosted()
            await cluster.clock.sleep(1)
        await finished(cluster)
        check_windows(tmp_path / "out.csv")

    in_cluster(tmp_path, "abcd", test, seed=seed)


def test_an_operator_takes_its_state_provider_along(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b", rows=ROWS, rate=40.0))
        await submitted(cluster, "a", tmp_path / "out.csv", sql=WINDOWS, strategy="producer", state_provider="rocksdb")
        while not (await state_of(cluster, "a")).rows:
            await cluster.clock.sleep(0.2)
        operator = operators(cluster)[-1]
        assert (await move(cluster, operator, "b", "c")).step == "moved"
        (spec,) = [one.spec for one in cluster.at("c").daemon.hosting.operators.stored()]
        assert spec.state_provider == "rocksdb"
        explained = await ask(cluster, "d", cluster.at("d").daemon.queries.explainer.query("q"))
        assert [one.state_provider for one in explained.components if one.state_mb is not None] == ["rocksdb"]
        await finished(cluster)
        check_windows(tmp_path / "out.csv")

    in_cluster(tmp_path, "abcd", test)


@pytest.mark.one_part_per_commit("queries in virtual time", parts=6)
def test_each_operator_of_a_chain_moves(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path / "out.csv", WINDOWS)
        for operator, target in zip(operators(cluster), "cd", strict=False):
            assert (await move(cluster, operator, "b", target)).step == "moved"
        await finished(cluster)
        check_windows(tmp_path / "out.csv")

    in_cluster(tmp_path, "abcd", test)


def test_any_node_moves_an_operator_and_reports_the_steps(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path / "out.csv", WINDOWS)
        operator = operators(cluster)[-1]
        request = MoveRequest(operator=operator.rpartition(".")[2], to="c")

        async def steps(request: MoveRequest) -> list[Moving | Moved]:
            return [event async for event in cluster.at("d").daemon.adaptation.requested.move("q", request)]

        *_, moved = await ask(cluster, "d", steps(request))
        assert (moved.operator, moved.origin, moved.node) == (operator, "b", "c")
        assert moved.copied_bytes > 0
        info = await state_of(cluster, "d")
        assert {one.id: one.node for one in info.operators}[operator] == "c"
        assert {link.target_node for link in info.links if link.target == operator} == {"c"}
        for wrong, code in ((request, "already-there"), (MoveRequest(operator="b9", to="b"), "operator-unknown")):
            with pytest.raises(SbonError) as refusal:
                await ask(cluster, "d", steps(wrong))
            assert refusal.value.code == code
        await ask(cluster, "a", cluster.at("a").daemon.queries.lookup.stop("q"))
        await cluster.sleep(1)
        assert [node.daemon.hosting.operators.hosted() for node in cluster.nodes.values()] == [()] * 4

    in_cluster(tmp_path, "abcd", test)


def test_a_move_under_way_is_shown_and_its_begin_and_end_are_notified(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path / "out.csv", WINDOWS)
        operator = operators(cluster)[-1]
        listener = listening(cluster, "b", "placement")
        await move(cluster, operator, "b", "c", wait_s=-1.0)
        steps = dict[str, MoveInfo]()
        while (shown := {one.id: one for one in (await state_of(cluster, "d")).operators}[operator]).node == "b":
            if shown.move is not None:
                steps[shown.move.step] = shown.move
        assert (shown.node, shown.move) == ("c", None)
        assert {one.target for one in steps.values()} == {"c"}
        assert list(steps) == sorted(steps, key=["copying", "starting", "following", "settling", "switching"].index)
        assert 0 < (copied := steps["following"].progress).copied_bytes == copied.total_bytes
        assert changes(listener) == [("moving", "b", "", "c"), ("moved", "c", "b", "c")]
        await finished(cluster)
        check_windows(tmp_path / "out.csv")

    in_cluster(tmp_path, "abcd", test)


def test_a_move_that_the_target_refuses_is_given_up_with_its_reason(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path / "out.csv", WINDOWS)
        operator = operators(cluster)[-1]
        with pytest.raises(SbonError) as refusal:
            await move(cluster, operator, "b", "b")
        assert refusal.value.code == "already-there"
        with pytest.raises(SbonError) as refusal:
            await move(cluster, operator, "c", "d")
        assert refusal.value.code == "operator-unknown"

        async def drain() -> None:
            cluster.at("c").daemon.context.drained.mark(1)

        await ask(cluster, "c", drain())
        listener = listening(cluster, "b", "placement")
        state = await move(cluster, operator, "b", "c", attempt="drained")
        assert changes(listener) == [("moving", "b", "", "c"), ("move-given-up", "b", "", "c")]
        assert (state.step, state.code) == ("given-up", "node-drained"), state
        assert await owner_of(cluster, "a", operator) == ("b", 1)
        await finished(cluster)
        check_windows(tmp_path / "out.csv")

    in_cluster(tmp_path, "abcd", test)
