"""A node is not missed by accident: it does not leave, and no stream is dropped, while a query may need it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_protocol.errors import SbonError
from tests.nodes.clusters import ask, declare, in_cluster, plain, source_at, state_of, submitted


async def running(cluster: SimulatedCluster, strategy: str, tmp_path: Path) -> None:
    """``a`` keeps the record and the sink, ``b`` the source, and with the strategy ``producer`` the operator."""
    await declare(cluster, "a", source_at("b", rows=1_000_000, rate=10.0))
    await submitted(cluster, "a", tmp_path / "out.csv", strategy=strategy)
    while not (await state_of(cluster, "a")).rows:
        await cluster.clock.sleep(0.5)


async def refusal(cluster: SimulatedCluster, name: str, work: object) -> SbonError:
    with pytest.raises(SbonError) as caught:
        await ask(cluster, name, work)
    return caught.value


@pytest.mark.parametrize(
    "strategy, node, needed",
    [
        ("producer", "a", ("hosts q.sink of query q",)),
        ("producer", "b", ("hosts q.b0 of query q", "has source/numbers@1/at-b, which q.b0 reads")),
        ("consumer", "b", ("has source/numbers@1/at-b, which q.b0 reads",)),
        ("producer", "c", ()),
    ],
)
def test_a_node_leaves_only_when_nothing_needs_it(tmp_path: Path, strategy: str, node: str, needed: tuple[str, ...]) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, strategy, tmp_path)
        if needed:
            error = await refusal(cluster, node, cluster.nodes[node].daemon.adaptation.leaving.leave_and_stop())
            assert (error.code, tuple(map(plain, error.details))) == ("node-in-use", needed)
            await ask(cluster, "a", cluster.nodes["a"].daemon.queries.lookup.stop("q"))
        await ask(cluster, node, cluster.nodes[node].daemon.adaptation.leaving.leave_and_stop())

    in_cluster(tmp_path, "abc", test)


@pytest.mark.one_part_per_commit("queries in virtual time", parts=6)
def test_a_record_with_hosts_to_notify_goes_to_another_node(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, "producer", tmp_path)
        cluster.crash(cluster.nodes["b"])
        await ask(cluster, "a", cluster.nodes["a"].daemon.queries.lookup.stop("q"))
        await ask(cluster, "a", cluster.nodes["a"].daemon.adaptation.leaving.leave_and_stop())
        cluster.crash(cluster.nodes["a"])
        cluster.boot(cluster.nodes["b"])
        await cluster.until(lambda: cluster.nodes["b"].ready)
        await cluster.sleep(90)
        assert not cluster.nodes["b"].operators()
        assert (await state_of(cluster, "b")).state == "stopped"

    in_cluster(tmp_path, "abc", test)


def test_a_record_with_hosts_to_notify_keeps_the_last_node(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, "producer", tmp_path)
        cluster.crash(cluster.nodes["b"])
        await ask(cluster, "a", cluster.nodes["a"].daemon.queries.lookup.stop("q"))
        await cluster.until(lambda: "b" not in cluster.nodes["a"].daemon.membership.alive())
        error = await refusal(cluster, "a", cluster.nodes["a"].daemon.adaptation.leaving.leave_and_stop())
        assert plain(error.details[0]) == "keeps the record of query q; some nodes do not know of its end yet"

    in_cluster(tmp_path, "ab", test)


def test_a_leader_that_is_forced_to_leave_ends_its_queries(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, "producer", tmp_path)
        await ask(cluster, "a", cluster.nodes["a"].daemon.adaptation.leaving.leave_and_stop(force=True))
        assert cluster.nodes["b"].daemon.operations.status().operators == ()

    in_cluster(tmp_path, "abc", test)


def test_a_host_that_is_forced_to_leave_fails_its_queries(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, "producer", tmp_path)
        await ask(cluster, "b", cluster.nodes["b"].daemon.adaptation.leaving.leave_and_stop(force=True))
        info = await state_of(cluster, "a")
        assert (info.state, plain(info.reason)) == ("failed", "q.b0 at b: b has left the cluster")

    in_cluster(tmp_path, "abc", test)


@pytest.mark.one_part_per_commit("silences of members", parts=3)
@pytest.mark.parametrize("silence", ["cut", "died", "went away"])
def test_a_stream_is_not_dropped_while_a_member_cannot_be_asked(tmp_path: Path, silence: str) -> None:
    """``b`` may be the only acceptor of a query that reads it: ``a`` cannot know."""

    async def test(cluster: SimulatedCluster) -> None:
        daemon = cluster.nodes["a"].daemon
        await declare(cluster, "a", source_at("b", rows=1_000_000, rate=10.0))
        await submitted(cluster, "b", None)
        if silence == "cut":
            cluster.network.cut("a", "b", both=True)
        elif silence == "died":
            cluster.crash(cluster.nodes["b"])
            await cluster.until(lambda: "b" not in daemon.membership.alive())
        else:
            await cluster.stop("b")
        error = await refusal(cluster, "a", daemon.queries.declarations.drop("numbers"))
        assert (error.code, error.message) == ("peer-unreachable", "no answer from b: a query there may read it")
        if silence == "cut":
            cluster.network.heal("a", "b")
        else:
            cluster.boot(cluster.nodes["b"])
        await cluster.together()
        error = await refusal(cluster, "a", daemon.queries.declarations.drop("numbers"))
        assert (error.code, error.message) == ("stream-in-use", "numbers is read by q")
        await ask(cluster, "a", daemon.queries.lookup.stop("q"))
        await ask(cluster, "a", daemon.queries.declarations.drop("numbers"))

    in_cluster(tmp_path, "ab", test)


def test_a_stream_is_in_use_though_the_submitter_of_its_query_is_silent(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        daemon = cluster.nodes["a"].daemon
        await declare(cluster, "a", source_at("b", rows=1_000_000, rate=10.0))
        await submitted(cluster, "c", None)
        cluster.crash(cluster.nodes["c"])
        error = await refusal(cluster, "a", daemon.queries.declarations.drop("numbers"))
        assert (error.code, error.message) == ("stream-in-use", "numbers is read by q")

    in_cluster(tmp_path, "abc", test)


def test_a_departed_node_is_not_asked(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b"))
        await ask(cluster, "c", cluster.nodes["c"].daemon.adaptation.leaving.leave_and_stop())
        cluster.crash(cluster.nodes["c"])
        daemon = cluster.nodes["a"].daemon
        await cluster.until(lambda: any((m.name, m.state) == ("c", "left") for m in daemon.operations.distances.members()))
        await ask(cluster, "a", daemon.queries.declarations.drop("numbers"))
        assert await ask(cluster, "a", daemon.hosting.sources.all()) == []

    in_cluster(tmp_path, "abc", test)
