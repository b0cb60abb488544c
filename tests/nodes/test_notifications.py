"""Events of whole nodes for their listeners: members, placements and states of queries."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_node.base.events import Kind, Listener, Listening, MemberChanged, NodeEvent, OperatorChanged, QueryChanged
from sbon_node.context import Context
from sbon_node.model.records import QueryRecord
from sbon_node.queries.driving import deploy
from sbon_protocol.errors import SbonError
from tests.nodes.clusters import ask, declare, in_cluster, source_at, state_of, submitted


def listening(cluster: SimulatedCluster, at: str, *kinds: Kind) -> Listener:
    return cluster.at(at).daemon.bus.listen(kinds, limit=10_000, wake=lambda: None)


def told(listener: Listener) -> list[NodeEvent]:
    events = []
    while (event := listener.take()) is not None:
        if not isinstance(event, Listening):
            events.append(event)
    return events


def test_states_of_a_query_and_its_operators_are_notified_where_they_are_known(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "b", source_at("b"))
        leader, host = listening(cluster, "a", "placement", "queries"), listening(cluster, "b", "placement", "queries")
        await submitted(cluster, "a", tmp_path / "out.ndjson", strategy="producer")
        while (await state_of(cluster, "a")).state == "running":
            await cluster.sleep(0.5)
        await cluster.until(lambda: not cluster.nodes["b"].operators())
        events = told(leader)
        states = [(e.was, e.state) for e in events if isinstance(e, QueryChanged)]
        assert states == [("", "placing"), ("placing", "running"), ("running", "finished")]
        (placed,) = (e for e in events if isinstance(e, OperatorChanged))
        assert (placed.node, placed.query, placed.change, placed.host, placed.strategy) == ("a", "q", "placed", "b", "producer")
        assert placed.reason
        of_host = told(host)
        assert {(e.operator, e.host) for e in of_host if isinstance(e, OperatorChanged)} == {(placed.operator, "b")}
        changes = [e.change for e in of_host if isinstance(e, OperatorChanged)]
        assert (changes[0], changes[-1]) == ("starting", "ended")
        assert "running" in changes

    in_cluster(tmp_path, "ab", test)


def test_a_refusing_host_is_notified_as_replaced_and_a_refused_submission_as_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserve, refusals = deploy.reserve, iter([True, False])

    async def reserved(context: Context, record: QueryRecord) -> dict[str, SbonError]:
        if next(refusals, True):
            return {operator.id: SbonError("no-capacity", "just taken") for operator in record.plan.operators}
        return await reserve(context, record)

    monkeypatch.setattr(deploy, "reserve", reserved)

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b"))
        listener = listening(cluster, "a", "placement", "queries")
        await submitted(cluster, "a", tmp_path / "out.ndjson", strategy="random")
        first, second = (e for e in told(listener) if isinstance(e, OperatorChanged) and e.strategy)
        assert (first.change, second.change, second.was) == ("placed", "re-placed", first.host)
        with pytest.raises(SbonError, match="no node has capacity"):
            await submitted(cluster, "a", tmp_path / "again.ndjson", name="again", strategy="random", reuse="never")
        ends = [(e.query, e.state) for e in told(listener) if isinstance(e, QueryChanged) and e.query == "again"]
        assert ends == [("again", "placing"), ("again", "refused")]

    in_cluster(tmp_path, "abcd", test)


def test_members_are_notified_as_they_come_and_go(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        listener = listening(cluster, "a", "membership")
        cluster.start("c")
        await cluster.together()
        cluster.crash(cluster.nodes["b"])
        await cluster.until(lambda: cluster.at("a").daemon.membership.others_alive == 1)
        await ask(cluster, "c", cluster.at("c").daemon.adaptation.leaving.leave_and_stop())
        await cluster.until(lambda: cluster.at("a").daemon.membership.others_alive == 0)
        changes = [
            (e.member, e.change, e.state) for e in told(listener) if isinstance(e, MemberChanged) and e.change != "updated"
        ]
        assert changes == [
            ("c", "joined", "alive"),
            ("b", "suspected", "suspect"),
            ("b", "died", "dead"),
            ("c", "left", "left"),
        ]

    in_cluster(tmp_path, "ab", test, late="c")
