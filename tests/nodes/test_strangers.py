"""A node that answers at another's address, or with another data directory, decides nothing about queries."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_protocol.api.subscribers import component_of
from sbon_protocol.calls import ClaimComponent, Claimed, ComponentsDestroyed, DestroyComponents, ReportState
from sbon_protocol.errors import SbonError
from tests.nodes.clusters import ask, declare, in_cluster, source_at, state_of, submitted, uid_of
from tests.nodes.test_descriptions import running
from tests.nodes.test_lost import lose_data


def test_a_stranger_at_the_leaders_address_ends_no_part(tmp_path: Path) -> None:
    """Another node has got the addresses of the record's acceptors while a host restarts."""

    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path)
        kept = (await state_of(cluster, "a")).acceptors
        operator = f"{uid_of(cluster)}.b0"
        stranger = next(node for node in "cde" if node not in kept)
        await cluster.stop("a")
        cluster.crash(cluster.at("b"))
        cluster.boot(cluster.at("b"))
        await cluster.until(lambda: cluster.at("b").created is not None)
        created = cluster.at("b").created
        assert created is not None
        membership = created.context.membership
        known = membership.address_of
        membership.address_of = lambda name: cluster.at(stranger if name in kept else name).address  # type: ignore[method-assign]
        await cluster.sleep(30)
        assert cluster.at("b").daemon.context.counters.snapshot()["wrong-node"] > 1
        membership.address_of = known  # type: ignore[method-assign]
        cluster.boot(cluster.at("a"))
        await cluster.together()
        await cluster.until(lambda: operator in cluster.at("b").outbox.streams())
        rows = (await state_of(cluster, "a")).rows or 0
        while ((await state_of(cluster, "a")).rows or 0) <= rows:
            await cluster.sleep(1)

    in_cluster(tmp_path, "abcde", test)


def test_a_stranger_ends_no_subscription_where_only_the_source_is(tmp_path: Path) -> None:
    """Node ``b`` hosts no component of the query, and learns from its record who may end it."""

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b", rows=400, rate=20.0))
        info = await submitted(cluster, "a", tmp_path / "out.ndjson", consumer="c", strategy="consumer")
        source, outbox = source_at("b").id, cluster.at("b").daemon.outbox
        await cluster.until(lambda: bool(outbox.link_counts(source).links))
        components = (*(one.id for one in info.operators), f"{info.uid}.sink")
        call = DestroyComponents(query=info.uid, components=components)
        stranger = next(node for node in "de" if node not in info.acceptors)
        ended = await ask(cluster, stranger, cluster.at(stranger).daemon.context.ask("b", call, ComponentsDestroyed))
        assert ended == ComponentsDestroyed()
        assert [component_of(name) for name in outbox.link_counts(source).links] == [info.operators[0].id]
        await ask(cluster, "a", cluster.at("a").daemon.queries.lookup.stop("q"))
        await cluster.until(lambda: not outbox.link_counts(source).links)

    in_cluster(tmp_path, "abcde", test)


@pytest.mark.parametrize(
    "call",
    [
        ClaimComponent(query="q", component="q.b0", epoch=1),
        ReportState(query="q", component="q.b0", state="failed"),
    ],
)
def test_an_acceptor_without_the_record_refuses_with_a_code_that_ends_nothing(
    tmp_path: Path, call: ClaimComponent | ReportState
) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        with pytest.raises(SbonError) as refused:
            await ask(cluster, "b", cluster.at("b").daemon.context.ask("a", call, Claimed))
        assert refused.value.code == "record-unknown"

    in_cluster(tmp_path, "ab", test)


def test_a_call_for_an_earlier_instance_of_a_node_is_not_served(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        context = cluster.at("a").daemon.context
        earlier, address = context.membership.expected("b"), cluster.at("b").address
        await lose_data(cluster, "b", at_once=True)
        call = DestroyComponents(query="q", components=("q.b0",))
        with pytest.raises(SbonError, match="another data directory") as refused:
            await ask(cluster, "a", context.peers.call(address, call, expected=earlier))
        assert refused.value.code == "peer-unreachable"
        assert context.membership.expected("b") != earlier
        await ask(cluster, "a", context.peers.call(address, call, expected=context.membership.expected("b")))

    in_cluster(tmp_path, "abc", test)
