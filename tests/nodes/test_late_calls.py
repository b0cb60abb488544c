"""Calls that arrive after the end of their query: they leave nothing behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_lab.simulation.leak_check import settled
from sbon_node.hosting.sinks.host import EndedQueries
from sbon_node.ownership.consensus.states import Acceptor
from sbon_protocol.api.queries import SinkSpec, Submission
from sbon_protocol.calls import ClaimComponent, DestroyComponents, OpenSink
from sbon_protocol.errors import SbonError
from tests.nodes.clusters import ask, declare, in_cluster, source_at
from tests.nodes.test_lost import lose_data

A, B = Acceptor("a", "1"), Acceptor("b", "1")


def hold_opening(cluster: SimulatedCluster, node: str) -> list[OpenSink]:
    """Let the calls that open sinks at a node be on their way for ever; return them."""
    server: Any = cluster.at(node).daemon.context.server
    held: list[OpenSink] = []

    async def hold(call: OpenSink, caller: object) -> None:
        held.append(call)
        await cluster.sleep(1000.0)

    server.handle(OpenSink, hold)
    return held


async def undone(cluster: SimulatedCluster, path: Path) -> OpenSink:
    """Undo a submission at ``a`` whose sink at ``d`` is not opened in time; return the call, which is still on its way."""
    await declare(cluster, "a", source_at("b"))
    server: Any = cluster.at("d").daemon.context.server
    open_sink = server._handlers["open-sink"]
    held = hold_opening(cluster, "d")

    async def submit() -> None:
        sink = SinkSpec(kind="file", options={"path": str(path)})
        async for _ in cluster.at("a").daemon.submitting.submitter.submit(
            Submission(sql="SELECT id FROM numbers", name="q", consumer="d", sink=sink)
        ):
            pass

    with pytest.raises(SbonError, match="no answer to open-sink"):
        await ask(cluster, "a", submit())
    await settled(cluster)
    server.handle(OpenSink, open_sink)
    (call,) = held
    return call


def results(folder: Path) -> list[Path]:
    return list(folder.glob("out.csv*"))


async def arrive(cluster: SimulatedCluster, call: Any) -> None:
    await ask(cluster, "a", cluster.at("a").daemon.context.call("d", call))


def test_a_late_call_opens_no_sink_of_a_forgotten_query(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        call = await undone(cluster, tmp_path / "out.csv")
        with pytest.raises(SbonError) as refused:
            await arrive(cluster, call)
        assert refused.value.code == "query-over"
        assert cluster.at("d").daemon.hosting.sinks.components() == []
        assert results(tmp_path) == []

    in_cluster(tmp_path, "abcd", test)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_sink_that_is_opened_late_is_closed_with_its_result(tmp_path: Path, restarts: bool) -> None:
    """Its node has not heard of the end, and learns it from an acceptor that has deleted the record: at a check or a restart."""

    async def test(cluster: SimulatedCluster) -> None:
        call = await undone(cluster, tmp_path / "out.csv")
        cluster.crash(cluster.at("d"))
        cluster.boot(cluster.at("d"))
        await cluster.together()
        await arrive(cluster, call)
        assert len(cluster.at("d").daemon.hosting.sinks.components()) == 1
        assert results(tmp_path) != []
        if restarts:
            cluster.crash(cluster.at("d"))
            cluster.boot(cluster.at("d"))
            await cluster.together()
        await settled(cluster)
        assert results(tmp_path) == []

    in_cluster(tmp_path, "abcd", test)


def test_any_acceptor_that_remembers_the_end_is_enough(tmp_path: Path) -> None:
    """The first one in the order of the acceptors has lost its disk since."""

    async def test(cluster: SimulatedCluster) -> None:
        call = await undone(cluster, tmp_path / "out.csv")
        cluster.crash(cluster.at("d"))
        cluster.boot(cluster.at("d"))
        await cluster.together()
        await lose_data(cluster, "a")
        await cluster.together()
        await arrive(cluster, call)
        await settled(cluster)
        assert results(tmp_path) == []

    in_cluster(tmp_path, "abcd", test)


def test_a_claim_of_a_refused_query_is_refused_for_good(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        call = await undone(cluster, tmp_path / "out.csv")
        query = call.sink["query"]
        for acceptor in call.acceptors:
            claim = ClaimComponent(query=query, component=f"{query}.sink", epoch=1)
            with pytest.raises(SbonError) as refused:
                await ask(cluster, "d", cluster.at("d").daemon.context.call(acceptor["node"], claim))
            assert refused.value.code == "query-refused"

    in_cluster(tmp_path, "abcd", test)


def test_only_an_acceptor_keeps_a_sink_from_being_opened(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        call = await undone(cluster, tmp_path / "out.csv")
        query = call.sink["query"]
        cluster.crash(cluster.at("d"))
        cluster.boot(cluster.at("d"))
        await cluster.together()
        (stranger,) = {"a", "b", "c", "d"} - {one["node"] for one in call.acceptors}
        destroy = DestroyComponents(query=query, components=(f"{query}.sink",))
        await ask(cluster, stranger, cluster.at(stranger).daemon.context.call("d", destroy))
        await arrive(cluster, call)
        assert [one.query for one in cluster.at("d").daemon.hosting.sinks.components()] == [query]
        await settled(cluster)

    in_cluster(tmp_path, "abcd", test)


def test_ended_queries_are_bounded() -> None:
    ended = EndedQueries(2)
    for query in ("x", "y", "z"):
        ended.add(query, "a")
    ended.check_not_over("x", (A,), "x.sink")
    for query in ("y", "z"):
        with pytest.raises(SbonError):
            ended.check_not_over(query, (B, A), f"{query}.sink")


def test_a_stranger_takes_back_no_end() -> None:
    ended = EndedQueries(9)
    for node in ("a", "b"):
        ended.add("x", node)
    with pytest.raises(SbonError):
        ended.check_not_over("x", (A,), "x.sink")
    ended.check_not_over("x", (Acceptor("c", "1"),), "x.sink")
