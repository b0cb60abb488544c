"""Only the host of an operator or sink, by its register, reads in its place; one that is fenced claims its sink anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_node.net.peers import Caller
from sbon_node.ownership.store.query_keys import operator_key
from sbon_protocol.api.durability import REPLICATED
from sbon_protocol.api.subscribers import input_of
from sbon_protocol.calls import FenceReader, ReaderPosition
from sbon_protocol.errors import SbonError
from sbon_protocol.messages import Refused, Subscribe
from tests.calm_clusters import in_calm_cluster
from tests.hosting.standby.test_replicated_sources import check_each_once, lose
from tests.hosting.standby.test_sink_failover import ROWS, Other, begun, check_rows, other
from tests.nodes.clusters import ask, declare, owner_of, source_at, state_of, submit
from tests.nodes.test_moved_operators import finished, move

__all__ = ["other"]

ALL = "SELECT id FROM numbers WHERE id >= 0"


def test_only_the_host_of_an_operator_or_sink_reads_in_its_place(tmp_path: Path, other: Other) -> None:
    """Neither by a request nor by a subscription; not the host itself in an epoch that its register does not name."""

    async def test(cluster: SimulatedCluster) -> None:
        sink = await begun(cluster, "table")
        stream = (await state_of(cluster, "a")).operators[0].id

        async def refusal(caller: str, subscriber: str, epoch: int, of: str = stream) -> str:
            call = FenceReader(stream=of, subscriber=subscriber, reader_epoch=epoch)
            with pytest.raises(SbonError) as refused:
                await ask(cluster, caller, cluster.at(caller).daemon.context.ask("b", call, ReaderPosition))
            return refused.value.code

        for caller in "abcd":
            assert await refusal(caller, sink, 1) == "not-owner"
            assert await refusal(caller, sink, 2) == "not-owner"
        assert await refusal("e", sink, 2) == "not-owner"
        assert await refusal("e", sink, 0) == "reader-fenced"
        assert await refusal("e", stream, 1) == "not-owner"
        assert await refusal("e", "unknown.sink", 1) == "record-unknown"
        assert await refusal("e", sink, 1, of="unknown") == "stream-unknown"

        known, check_host = cluster.at("b").daemon.membership, cluster.at("b").daemon.hosting.reader_positions.check_host
        host = Caller(*known.expected("e"), known.address_of("e"))
        await ask(cluster, "b", check_host(sink, 1, host))
        with pytest.raises(SbonError) as refused:
            await ask(cluster, "b", check_host(sink, 1, host._replace(instance="another disk")))
        assert refused.value.code == "not-owner"

        context = cluster.at("d").daemon.context
        source = next(one for one in cluster.at("b").daemon.outbox.streams() if one != stream)
        for read, subscriber, epoch, code in (
            (stream, sink, 1, "not-owner"),
            (stream, sink, 2, "not-owner"),
            (source, input_of(stream, 0), 1, "not-owner"),
            (source, "unknown.b0", 2, "record-unknown"),
        ):
            channel = await context.peers.open_stream(context.membership.address_of("b"))
            opening = {"stream": read, "subscriber": subscriber, "next": 1, "epoch": 1, "credit_bytes": 1 << 20}
            await channel.send(Subscribe(**opening, reader_epoch=epoch))
            answer = await channel.receive()
            assert isinstance(answer, Refused)
            assert answer.code == code
            channel.close()

        await finished(cluster)
        assert (await owner_of(cluster, "a", sink)) == ("e", 1)
        check_rows(other, "table")

    in_calm_cluster(tmp_path, "abcde", test)


def test_a_former_host_reads_nothing_where_its_fence_is_not_stored(tmp_path: Path, other: Other) -> None:
    """The stream's host is lost before its backup hears of the sink's next epoch."""

    async def test(cluster: SimulatedCluster) -> None:
        sink = await begun(cluster, "hook", durability=REPLICATED)
        query, stream = sink.rpartition(".")[0], (await state_of(cluster, "a")).operators[0].id
        host = "d" if (await owner_of(cluster, "d", stream))[0] == "c" else "c"
        assert (await move(cluster, stream, "b", host)).step == "moved"
        await cluster.clock.sleep(5.0)
        await ask(cluster, "a", cluster.at("a").daemon.ownership.operators.take_over_sink(query, sink, "e", 1))
        lose(cluster, host)
        while (await owner_of(cluster, "a", stream))[1] == 2:
            await cluster.clock.sleep(0.1)
        posts = other.posters["e"]
        assert posts > 0
        await finished(cluster)
        assert other.posters["e"] == posts
        check_rows(other, "hook")

    in_calm_cluster(tmp_path, "abcde", test)


@pytest.mark.one_part_per_commit("kinds of sinks", parts=2)
@pytest.mark.parametrize("kind", ["table", "hook"])
def test_a_host_that_is_fenced_at_a_stream_claims_its_sink_and_goes_on(tmp_path: Path, other: Other, kind: str) -> None:
    """The stream knows a later epoch than the sink's register, which still names this host."""

    async def test(cluster: SimulatedCluster) -> None:
        sink = await begun(cluster, kind)
        stream = (await state_of(cluster, "a")).operators[0].id
        cluster.at("b").daemon.outbox.fence(stream, sink, 3)
        await finished(cluster)
        assert (await owner_of(cluster, "a", sink)) == ("e", 3)
        check_rows(other, kind)

    in_calm_cluster(tmp_path, "abcde", test)


def test_a_reader_hears_that_its_register_has_no_majority_and_reads_on_later(tmp_path: Path) -> None:
    """The stream's host is restarted while two of the three nodes that keep the register are away."""

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b", rows=ROWS, rate=20.0))
        await ask(cluster, "a", submit(cluster, "a", tmp_path / "out.csv", sql=ALL, strategy="consumer", consumer="e"))
        while not (info := await state_of(cluster, "a")).rows:
            await cluster.clock.sleep(0.2)
        (operator,) = info.operators
        assert operator.node == "e"
        found = await ask(cluster, "e", cluster.at("e").daemon.ownership.registers.find(operator_key(operator.id)))
        away = [one.node for one in found.configuration.members if one.node not in ("b", "e")][:2]
        assert len(away) == 2
        for name in away:
            cluster.crash(cluster.at(name))
        await cluster.clock.sleep(30.0)
        cluster.crash(cluster.at("b"))
        cluster.boot(cluster.at("b"))
        (link,) = cluster.at("e").daemon.hosting.operators.links()
        await cluster.clock.sleep(30.0)
        assert f"too few of the nodes that keep the register of {operator.id} answer" in link.reason
        for name in away:
            cluster.boot(cluster.at(name))
        await cluster.together()
        await finished(cluster)
        check_each_once(tmp_path / "out.csv", ROWS)

    in_calm_cluster(tmp_path, "abcdefgh", test)
