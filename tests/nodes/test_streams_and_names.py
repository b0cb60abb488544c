"""Streams, names and joining on whole nodes in virtual time: one catalogue for all, one node for each name."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from sbon_lab.simulation.cluster import CONFIG, SimulatedCluster
from sbon_lab.simulation.leak_check import settled
from sbon_node.config.config import NodeSettings
from sbon_node.net.transport import Address
from sbon_protocol.api.streams import StreamInfo
from sbon_protocol.errors import SbonError
from tests.nodes.clusters import NUMBERS, ask, declare, in_cluster, source_at, submitted


async def streams_at(cluster: SimulatedCluster, node: str) -> list[StreamInfo]:
    infos: list[StreamInfo] = await ask(cluster, node, cluster.at(node).daemon.hosting.sources.all())
    return infos


def test_a_stream_in_use_is_not_dropped_by_anybody_until_its_query_is_stopped(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b", rows=100_000, rate=2.0))
        await submitted(cluster, "c", None)
        for node in "abc":
            with pytest.raises(SbonError, match="read by q") as refused:
                await ask(cluster, node, cluster.at(node).daemon.queries.declarations.drop("numbers"))
            assert refused.value.code == "stream-in-use"
        await ask(cluster, "a", cluster.at("a").daemon.queries.lookup.stop("q"))
        await ask(cluster, "c", cluster.at("c").daemon.queries.declarations.drop("numbers"))
        await cluster.until(lambda: not cluster.at("b").daemon.outbox.streams())
        await settled(cluster)
        assert [await streams_at(cluster, node) for node in "abc"] == [[], [], []]

    in_cluster(tmp_path, "abc", test)


def test_names_are_taken_everywhere(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b", rows=100_000, rate=2.0))
        await submitted(cluster, "a", None)
        daemon = cluster.at("c").daemon
        for code, work in (
            ("stream-exists", daemon.queries.declarations.create_stream(NUMBERS)),
            ("source-exists", daemon.hosting.sources.attach(source_at("b"))),
            ("query-exists", submitted(cluster, "b", None)),
        ):
            with pytest.raises(SbonError) as refused:
                await (work if code == "query-exists" else ask(cluster, "c", work))
            assert refused.value.code == code
            assert code != "source-exists" or "another name" in refused.value.hint

    in_cluster(tmp_path, "abc", test)


def test_a_source_is_attached_at_its_named_node_through_any_node(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("c"))
        assert cluster.at("c").daemon.outbox.streams() == [source_at("c").id]
        assert not cluster.at("a").daemon.outbox.streams()
        (info,) = await streams_at(cluster, "b")
        assert [(one.source.node, one.state) for one in info.sources] == [("c", "idle")]
        cases = ((source_at("zoe"), "unknown-node"), (source_at("b", rows=0, rate=0.0), "bad-option"))
        for source, code in cases:
            with pytest.raises(SbonError) as refused:
                await ask(cluster, "a", cluster.at("a").daemon.hosting.sources.attach(source))
            assert refused.value.code == code
        cluster.network.cut("a", "b")
        with pytest.raises(SbonError) as refused:
            await ask(cluster, "a", cluster.at("a").daemon.hosting.sources.attach(source_at("b")))
        assert refused.value.code == "peer-unreachable"

    in_cluster(tmp_path, "abc", test)


def test_the_catalogue_is_one_again_after_a_partition(tmp_path: Path) -> None:
    """Both sides declare streams meanwhile, one of them under the same name and otherwise."""

    async def test(cluster: SimulatedCluster) -> None:
        cluster.network.partition(("a", "b"), ("c", "d"))
        both = msgspec.structs.replace(NUMBERS, name="both")
        for node, declarations in (
            ("a", [NUMBERS, both]),
            ("d", [msgspec.structs.replace(NUMBERS, name="other"), msgspec.structs.replace(both, delay_ms=7)]),
        ):
            for declaration in declarations:
                await ask(cluster, node, cluster.at(node).daemon.queries.declarations.create_stream(declaration))
        await ask(cluster, "a", cluster.at("a").daemon.hosting.sources.attach(source_at("b")))
        await cluster.sleep(120.0)
        assert [one.entry.declaration.name for one in await streams_at(cluster, "b")] == ["both", "numbers"]
        cluster.network.heal()
        known = [[info.entry for info in await streams_at(cluster, node)] for node in "abcd"]
        while any(entries != known[0] for entries in known[1:]):
            await cluster.sleep(5.0)
            known = [[info.entry for info in await streams_at(cluster, node)] for node in "abcd"]
        assert [entry.declaration.name for entry in known[0]] == ["both", "numbers", "other"]
        assert known[0][0].declaration.delay_ms == 0  # of the smaller origin
        assert [source.node for source in known[0][1].sources] == ["b"]

    in_cluster(tmp_path, "abcd", test)


def test_a_second_node_of_a_name_is_refused_and_the_first_stays(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        error = await cluster.refusal("z")
        assert isinstance(error, SbonError)
        assert error.code == "name-taken"
        await cluster.sleep(60.0)
        for node in "ac":
            member = cluster.at(node).daemon.membership.get("b")
            assert member is not None
            assert (member.state, member.address) == ("alive", cluster.nodes["b"].address)

    second = msgspec.structs.replace(CONFIG, node=NodeSettings(name="b"))
    in_cluster(tmp_path, "abc", test, configs={"z": second}, late="z")


def test_joining_an_absent_node_is_refused_with_a_reason(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        error = await cluster.refusal("z")
        assert isinstance(error, SbonError)
        assert (error.code, error.where) == ("join-failed", "10.0.0.77:7400")
        assert error.hint
        with pytest.raises(SbonError) as refused:
            await ask(cluster, "a", cluster.at("a").daemon.membership.join([Address("10.0.0.77", 7400)]))
        assert refused.value.code == "join-failed"
        (reason,) = refused.value.details
        assert reason.startswith("10.0.0.77:7400: ")

    lost = msgspec.structs.replace(CONFIG, node=NodeSettings(join=("10.0.0.77:7400",)))
    in_cluster(tmp_path, "ab", test, configs={"z": lost}, late="z")
