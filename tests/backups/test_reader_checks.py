"""Only the host of an operator or sink, by its register, reads in its place; one that is fenced claims its sink anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbon_node.errors import SbonError
from sbon_node.model.durability import REPLICATED
from sbon_node.model.subscribers import input_of
from sbon_node.simulation.cluster import SimulatedCluster
from sbon_protocol.failover import FenceReader, ReaderPosition
from sbon_protocol.messages import Refused, Subscribe
from tests.backups.test_replicated_sources import lose
from tests.backups.test_sink_failover import Other, begun, check_rows, other
from tests.workflow.clusters import ask, in_cluster, owner_of, state_of
from tests.workflow.test_moved_operators import finished, move

__all__ = ["other"]


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
        assert await refusal("e", stream, 1) == "not-owner"
        assert await refusal("e", "unknown.sink", 1) == "record-unknown"
        assert await refusal("e", sink, 1, of="unknown") == "stream-unknown"

        context = cluster.at("d").daemon.context
        source = next(one for one in cluster.at("b").daemon.outbox.streams() if one != stream)
        for read, subscriber, epoch in ((stream, sink, 1), (stream, sink, 2), (source, input_of(stream, 0), 1)):
            channel = await context.peers.open_stream(context.membership.address_of("b"))
            opening = {"stream": read, "subscriber": subscriber, "next": 1, "epoch": 1, "credit_bytes": 1 << 20}
            await channel.send(Subscribe(**opening, reader_epoch=epoch))
            answer = await channel.receive()
            assert isinstance(answer, Refused)
            assert answer.code == "not-owner"
            channel.close()

        await finished(cluster)
        assert (await owner_of(cluster, "a", sink)) == ("e", 1)
        check_rows(other, "table")

    in_cluster(tmp_path, "abcde", test)


def test_a_former_host_reads_nothing_where_its_fence_is_not_stored(tmp_path: Path, other: Other) -> None:
    """The stream's host is lost before its backup hears of the sink's next epoch."""

    async def test(cluster: SimulatedCluster) -> None:
        sink = await begun(cluster, "hook", durability=REPLICATED)
        query, stream = sink.rpartition(".")[0], (await state_of(cluster, "a")).operators[0].id
        host = "d" if (await owner_of(cluster, "d", stream))[0] == "c" else "c"
        assert (await move(cluster, stream, "b", host)).step == "moved"
        await cluster.clock.sleep(5.0)
        await ask(cluster, "a", cluster.at("a").daemon._operator_registers.take_over_sink(query, sink, "e", 1))
        lose(cluster, host)
        while (await owner_of(cluster, "a", stream))[1] == 2:
            await cluster.clock.sleep(0.1)
        posts = other.posters["e"]
        assert posts > 0
        await finished(cluster)
        assert other.posters["e"] == posts
        check_rows(other, "hook")

    in_cluster(tmp_path, "abcde", test)


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

    in_cluster(tmp_path, "abcde", test)
