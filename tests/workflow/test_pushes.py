"""Posts to nodes in virtual time: other nodes name the source's node, and lagging readers stop them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sbon_node.connectors.sources.push import Post, Pushed
from sbon_node.errors import SbonError
from sbon_node.model.catalogue import SourceDeclaration
from sbon_node.simulation.cluster import CONFIG, SimulatedCluster
from sbon_node.streams.settings import StreamSettings
from tests.workflow.clusters import ask, declare, in_cluster, source_at


def http_at(node: str, name: str = "posts") -> SourceDeclaration:
    return SourceDeclaration(stream="numbers", name=name, node=node, connector="http")


async def body(count: int) -> AsyncIterator[bytes]:
    yield b"".join(b'{"id": %d, "v": 0.5, "ts": "2020-01-01T00:00:00Z"}\n' % i for i in range(count))


async def push(cluster: SimulatedCluster, at: str, source: str = "", count: int = 10, stream: str = "numbers") -> Pushed:
    post = Post("application/x-ndjson", body(count))
    answer: Any = await ask(cluster, at, cluster.at(at).daemon.push(stream, source, post))
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
        await ask(cluster, "a", cluster.at("a").daemon.attach_source(http_at("b")))
        elsewhere = await refused(cluster, "a")
        assert elsewhere.code == "source-elsewhere"
        assert "is at b" in elsewhere.message
        assert "http://" in elsewhere.hint
        assert (await push(cluster, "b")).rows == 10
        await ask(cluster, "a", cluster.at("a").daemon.attach_source(http_at("b", "more")))
        assert (await refused(cluster, "b")).code == "ambiguous-source"
        assert (await push(cluster, "b", "more", 7)).source == "more"
        info = await ask(cluster, "a", cluster.at("a").daemon.stream("numbers"))
        assert {s.source.name: s.rows for s in info.sources} == {"at-a": 0, "posts": 10, "more": 7}

    in_cluster(tmp_path, "ab", test)


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
