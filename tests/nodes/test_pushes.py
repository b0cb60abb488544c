"""Posts to nodes in virtual time: other nodes pass them on to the source's node, and lagging readers stop them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sbon_lab.simulation.cluster import CONFIG, SimulatedCluster
from sbon_node.connectors.sources.push import Post
from sbon_node.streams.settings import StreamSettings
from sbon_protocol.api.catalogue import SourceDeclaration
from sbon_protocol.api.streams import Pushed
from sbon_protocol.calls import MAX_POST_HOPS, PostRows, RowsPosted
from sbon_protocol.errors import SbonError
from tests.nodes.clusters import ask, declare, in_cluster, source_at


def http_at(node: str, name: str = "posts") -> SourceDeclaration:
    return SourceDeclaration(stream="numbers", name=name, node=node, connector="http")


async def body(count: int) -> AsyncIterator[bytes]:
    yield b"".join(b'{"id": %d, "v": 0.5, "ts": "2020-01-01T00:00:00Z"}\n' % i for i in range(count))


async def push(
    cluster: SimulatedCluster, at: str, source: str = "", count: int = 10, stream: str = "numbers", key: str = ""
) -> Pushed:
    post = Post("application/x-ndjson", body(count), key)
    answer: Any = await ask(cluster, at, cluster.at(at).daemon.hosting.pushes.push(stream, source, post))
    assert isinstance(answer, Pushed)
    return answer


async def refused(*args: Any, **more: Any) -> SbonError:
    with pytest.raises(SbonError) as caught:
        await push(*args, **more)
    return caught.value


def test_a_post_goes_to_the_source_of_the_node_asked(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a"))
        assert (await refused(cluster, "a")).code == "unknown-source"
        assert (await refused(cluster, "a", stream="nothing")).code == "unknown-stream"
        await ask(cluster, "a", cluster.at("a").daemon.hosting.sources.attach(http_at("b")))
        assert (await push(cluster, "a", key="k")).rows == 10
        assert (await push(cluster, "b", key="k")).repeated
        assert (await refused(cluster, "a", count=5, key="k")).code == "key-reused"
        assert (await refused(cluster, "a", key="k" * 256)).where == "Idempotency-Key"
        assert (await push(cluster, "b")).rows == 10
        await ask(cluster, "a", cluster.at("a").daemon.hosting.sources.attach(http_at("b", "more")))
        for node in "ab":
            assert (await refused(cluster, node)).code == "ambiguous-source"
        assert (await push(cluster, "a", "more", 7)).source == "more"
        info = await ask(cluster, "a", cluster.at("a").daemon.hosting.sources.describe("numbers"))
        assert {s.source.name: s.rows for s in info.sources} == {"at-a": 0, "posts": 20, "more": 7}

    in_cluster(tmp_path, "ab", test)


def test_a_post_is_passed_on_within_bounds(tmp_path: Path) -> None:
    """Of size, of memory and of hops; where the source's node does not answer, the client is told whether to repeat the post."""

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", http_at("b"))
        assert (await push(cluster, "c", count=100)).rows == 100
        large = await refused(cluster, "c", count=90_000)
        assert (large.code, "4,194,304 bytes" in large.message) == ("post-too-large", True)
        moved = cluster.at("b").daemon.ownership.catalogue._entries["numbers"]
        for node, at in (("b", "c"), ("c", "b")):  # Each believes the other to have the source.
            sources = (msgspec.structs.replace(moved.sources[0], node=at),)
            cluster.at(node).daemon.ownership.catalogue._entries["numbers"] = msgspec.structs.replace(moved, sources=sources)
        cluster.at("b").daemon.hosting.sources._runners.clear()
        lost = await refused(cluster, "a")
        assert (lost.code, lost.message, "http://" in lost.hint) == (
            "source-elsewhere",
            "the source numbers/posts that takes rows is at b",
            True,
        )
        cluster.crash(cluster.at("b"))
        silent = await refused(cluster, "a")
        assert (silent.code, "may be stored" in silent.message, silent.hint) == (
            "post-unknown",
            True,
            "post it again, though its rows may then be there twice",
        )
        await cluster.until(lambda: cluster.at("a").daemon.context.presence.away("b") != "")
        dead = await refused(cluster, "a")
        assert (dead.code, dead.hint) == ("source-stopped", "post it again once that node is back")
        assert dead.message.startswith("its node b is dead since")
        call = PostRows("numbers", "posts", "application/x-ndjson", b"", "", MAX_POST_HOPS)
        with pytest.raises(SbonError, match="its node b is dead since") as last:  # a dead node is no place to post to
            await ask(cluster, "a", cluster.at("a").daemon.context.ask("c", call, RowsPosted))
        assert last.value.code == "source-stopped"

    in_cluster(tmp_path, "abc", test)


def test_posts_are_refused_while_every_reader_is_far_behind(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", http_at("a"))
        outbox = cluster.at("a").daemon.outbox
        (name,) = outbox.streams()
        outbox.subscribe(name, "far behind", 0)
        taken = 0
        while not outbox.pressure(name):
            taken += (await push(cluster, "a", count=1000)).rows
        assert (await refused(cluster, "a")).code == "source-behind"
        outbox.acknowledge(name, "far behind", outbox.latest(name))
        assert (await push(cluster, "a")).rows == 10
        assert outbox.link_counts(name).rows == taken + 10

    config = msgspec.structs.replace(CONFIG, streams=StreamSettings(outbox_quota_bytes=20_000))
    in_cluster(tmp_path, "a", test, configs={"a": config})
