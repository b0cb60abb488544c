"""Ended queries: their parts have ended too, and descriptions say so from then on."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_node.queries.describing.describe import as_terminal
from sbon_protocol.api.catalogue import SourceDeclaration
from sbon_protocol.api.queries import QueryInfo
from sbon_protocol.calls import ComponentsDestroyed, DestroyComponents
from tests.nodes.clusters import ask, declare, in_cluster, source_at, state_of, submitted


async def states(cluster: SimulatedCluster, info: QueryInfo) -> set[str]:
    """Return the states of the query's operators, as shown and as explained."""
    explained = await ask(cluster, "a", cluster.at("a").daemon.queries.explainer.query("q"))
    return {one.state for one in info.operators} | {part.state for part in explained.components if part.kind == "operator"}


def test_all_components_of_a_finished_query_are_over(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b"), source_at("c"))
        await submitted(cluster, "a", tmp_path / "out.ndjson", consumer="d", strategy="producer")
        while (info := await state_of(cluster, "a")).state == "running":
            await cluster.sleep(0.5)
        assert (info.state, info.rows, await states(cluster, info)) == ("finished", 200, {"over"})
        assert info.delivery is not None
        assert (info.delivery.state, info.delivery.rows) == ("finished", 200)
        assert all(one.stats is not None and one.stats.rows_out == 100 for one in info.operators)

    in_cluster(tmp_path, "abcd", test)


def test_components_of_a_stopped_query_are_over_and_missing_answers_are_listed(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b", rows=10_000), source_at("c", rows=10_000))
        await submitted(cluster, "a", tmp_path / "out.ndjson", consumer="d", strategy="producer")
        await cluster.sleep(5.0)
        await cluster.stop("b")
        stopped = await ask(cluster, "a", cluster.at("a").daemon.queries.lookup.stop("q"))
        cluster.boot(cluster.at("b"))
        await cluster.together()
        info = await state_of(cluster, "d")
        assert msgspec.structs.replace(info, version=stopped.version) == stopped
        assert (info.state, await states(cluster, info)) == ("stopped", {"over"})
        at_b, at_c = sorted(info.operators, key=lambda one: one.node)
        assert re.fullmatch(r"no answer from b: it is away since .* UTC at its end", at_b.reason)
        assert at_b.stats is None
        assert at_c.reason == ""
        assert at_c.stats is not None
        assert at_c.stats.rows_out > 0
        assert info.delivery is not None
        assert (info.delivery.state, info.delivery.rows) == ("over", info.rows)

    in_cluster(tmp_path, "abcd", test)


def test_an_unanswered_request_is_awaited_once(tmp_path: Path) -> None:
    """Stopping takes no longer without the source's node, which is called twice, than without the consumer's."""

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b", rows=10_000))
        took_s = {}
        for silent in "cb":
            query = f"without-{silent}"
            await submitted(cluster, "a", None, name=query, consumer="c", strategy="consumer")
            cluster.network.cut("a", silent, both=True)
            before_s = cluster.clock.now()
            assert (await ask(cluster, "a", cluster.at("a").daemon.queries.lookup.stop(query))).state == "stopped"
            took_s[silent] = cluster.clock.now() - before_s
            cluster.network.heal()
            await cluster.together()
        assert took_s["b"] < took_s["c"] + 1.0

    in_cluster(tmp_path, "abcd", test)


def test_a_query_that_has_the_name_of_one_that_is_over_is_not_ended_with_it(tmp_path: Path) -> None:
    """``b`` was away when the first query stopped, and learns of it when the second runs there."""

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", SourceDeclaration(stream="numbers", name="posted", node="b", connector="http"))
        daemon = cluster.at("a").daemon
        await submitted(cluster, "a", None, consumer="c", strategy="consumer")
        cluster.network.cut("a", "b", both=True)
        await ask(cluster, "a", daemon.queries.lookup.stop("q"))
        cluster.network.heal()
        await cluster.together()
        await cluster.sleep(10.0)  # Until the connections are new.
        await submitted(cluster, "a", None, consumer="c", strategy="producer")
        await cluster.sleep(120.0)
        info = await state_of(cluster, "a")
        assert (info.state, info.reason) == ("running", "")
        assert [(one.node, one.state) for one in info.operators] == [("b", "running")]

    in_cluster(tmp_path, "abc", test, retry_s=60.0)


def test_an_operator_that_failed_keeps_its_state_and_reason_when_its_query_is_over(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b", rows=10_000), source_at("c", rows=10_000))
        running = await submitted(cluster, "a", tmp_path / "out.ndjson", consumer="d", strategy="producer")
        failed, other = running.operators
        failed = msgspec.structs.replace(failed, state="failed", reason="DIVIDE_BY_ZERO")
        info = as_terminal(msgspec.structs.replace(running, state="failed", operators=(failed, other)))
        assert [(one.state, one.reason) for one in info.operators] == [("failed", "DIVIDE_BY_ZERO"), ("over", other.reason)]

    in_cluster(tmp_path, "abcd", test)


def test_operators_of_another_leader_are_left_alone(tmp_path: Path) -> None:
    """A node that keeps no copy of the record may not end what ``b`` runs."""

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b", rows=10_000))
        info = await submitted(cluster, "a", tmp_path / "out.ndjson", consumer="c", strategy="producer")
        call = DestroyComponents(query=info.uid, components=(info.operators[0].id,))
        other = next(node for node in "cde" if node not in info.acceptors)
        await ask(cluster, other, cluster.at(other).daemon.context.ask("b", call, ComponentsDestroyed))
        assert [one.state for one in (await state_of(cluster, "a")).operators] == ["running"]

    in_cluster(tmp_path, "abcde", test)
