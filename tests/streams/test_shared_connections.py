"""Readers of one stream at one node: its frames cross once, and each reader keeps its own position, pace and failures."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sbon_node.net.transport import Address
from sbon_node.streams.links.shared import SharedConnections
from sbon_protocol.errors import ProtocolError
from sbon_protocol.messages import Data, Endpoint, Hello, OpenShared, Repeated, Shared, Subscribe, Subscribed, Welcome
from sbon_protocol.version import SHARED_STREAMS
from tests.streams.conftest import CHECKS
from tests.streams.outboxes import stream_settings

QUICK = {"reconnect_s": 0.001, "reconnect_max_s": 0.002}
HELLO = Hello(version=1, oldest_version=1, cluster="c", node="reader", role="stream")
HERE = Address("127.0.0.1", 7400)
Until = Callable[[Callable[[], object]], Awaitable[None]]


def texts(link: Any) -> list[str]:
    return [frame.payload.decode() for frame in link.inbox.frames(link.inbox.released, link.inbox.received)]


class Node:
    """A node that reads from a host of this release, and all that the host sends to it."""

    def __init__(self, host: Any, *, shares: bool = True) -> None:
        self.host, self.sent = host, list[Any]()
        capabilities = (SHARED_STREAMS,) if shares else ()
        host.welcome = Welcome(version=1, node="host", seen=Endpoint("127.0.0.1", 1), capabilities=capabilities)
        self.connections = SharedConnections(host, host.settings)
        host.serve = self._serve

    async def _serve(self, channel: Any) -> None:
        send = channel.send

        async def watched(frame: Any) -> None:
            self.sent.append(frame)
            await send(frame)

        channel.send = watched
        await self.host.publisher.serve(channel, HELLO, CHECKS)

    def link(self, subscriber: str, stream: str = "s", **more: Any) -> Any:
        return self.host.link(stream, subscriber, peers=self.connections, **more)

    @property
    def payloads(self) -> list[bytes]:
        inner = [frame.message if isinstance(frame, Shared) else frame for frame in self.sent]
        return [message.payload for message in inner if isinstance(message, Data)]


@pytest.fixture
def make_node(make_host: Any) -> Callable[..., Node]:
    def make(*, shares: bool = True, **settings: Any) -> Node:
        return Node(make_host(stream_settings(**QUICK, **settings)), shares=shares)

    return make


async def test_a_frame_crosses_once_for_all_readers_of_a_node(make_node: Any, until: Until) -> None:
    node = make_node()
    host = node.host
    host.source("s")
    links = [node.link(f"q{index}.o1#0") for index in range(4)]
    await until(lambda: host.publisher.connections == 4)
    for number in range(20):
        host.source("s", f"frame {number}")
        await asyncio.sleep(0)
    for link in links:
        await link.wait(19)
        assert texts(link) == [f"frame {number}" for number in range(20)]
    assert node.payloads == [b"frame %d" % number for number in range(20)]
    assert len(host.channels) == 1
    # They divide the bytes that were sent, to the byte, and each has read all.
    size = sum(len(payload) for payload in node.payloads)
    await until(lambda: host.outbox.counts().sent_frames == 80)
    counts = host.outbox.link_counts("s").links.values()
    assert [count.bytes for count in counts] == [size] * 4
    assert sum(count.bytes - count.saved_bytes for count in counts) == size == host.outbox.counts().sent_bytes
    assert max(count.saved_bytes for count in counts) - min(count.saved_bytes for count in counts) <= 20


async def test_a_reader_that_stops_holds_up_no_sibling_and_catches_up(make_node: Any, until: Until) -> None:
    node = make_node(inbox_credit_bytes=4 * 164, shared_window_bytes=5 * 164)
    host = node.host
    host.source("s")
    stopped, sibling = node.link("stopped"), node.link("sibling")
    await until(lambda: host.publisher.connections == 2)
    payloads = [f"{number:100}" for number in range(60)]
    for number, text in enumerate(payloads):
        host.source("s", text)
        await sibling.wait(number)
        sibling.acknowledge(number + 1)
    assert stopped.inbox.received == 4
    assert len(host.channels) == 1
    # As far as the window reaches it gets its frames by number, and beyond that by itself.
    for number in range(1, 61):
        await stopped.wait(number - 1)
        assert stopped.inbox.at(number).payload.decode() == payloads[number - 1]
        stopped.acknowledge(number)
    assert len(node.payloads) in range(60 + 40, 60 + 60)
    assert (stopped.rejected, sibling.rejected, len(host.channels)) == (0, 0, 1)
    await until(lambda: host.outbox.link_counts("s").links["stopped"].acknowledged == 60)
    before = len(node.payloads)
    host.source("s", "both again")
    await stopped.wait(60)
    await sibling.wait(60)
    assert len(node.payloads) == before + 1


async def test_a_link_that_does_not_run_holds_up_no_sibling(make_node: Any, until: Until) -> None:
    node = make_node()
    host = node.host
    host.source("s", "a")
    # This reader has subscribed, and then takes nothing from its channel.
    stuck = await node.connections.open_stream(HERE, stream="s")
    await stuck.send(Subscribe(stream="s", subscriber="stuck", next=1, epoch=0, credit_bytes=1 << 20))
    sibling = node.link("sibling")
    await until(lambda: host.publisher.connections == 2)
    host.source("s", *(str(number) for number in range(200)))
    await until(lambda: host.outbox.link_counts("s").links["stuck"].frames == 201)
    host.source("s", "all are sent to the stuck one")
    await sibling.wait(201)
    assert len(host.channels) == 1
    stuck.close()
    host.source("s", "b")
    await sibling.wait(202)
    assert sibling.reason == ""


async def test_readers_come_and_go_at_any_pace_on_one_connection(make_node: Any, until: Until) -> None:
    rng = random.Random(3)
    node = make_node(inbox_credit_bytes=12 * 164, shared_window_bytes=24 * 164)
    host = node.host
    host.source("s")
    links = {index: node.link(f"reader {index}") for index in range(4)}
    await until(lambda: host.publisher.connections == 4)
    for number in range(300):
        host.source("s", f"{number:100}")
        for index, link in list(links.items()):
            if rng.random() < 0.03 and index and link.state == "connected":
                await link.close(unsubscribe=rng.random() < 0.5)
                links[index] = node.link(f"reader {index}", start_after=link.counts.acknowledged)
            elif rng.random() < 0.4 and link.inbox.received > link.counts.acknowledged:
                link.acknowledge(rng.randrange(link.counts.acknowledged, link.inbox.received) + 1)
        await asyncio.sleep(0.001)
    for link in links.values():
        while link.counts.acknowledged < 300:
            await link.wait(link.counts.acknowledged)
            frames = link.inbox.frames(link.inbox.released, link.inbox.received)
            assert [frame.payload for frame in frames] == [b"%100d" % (frame.number - 1) for frame in frames]
            link.acknowledge(link.inbox.received)
        assert link.rejected == 0
    assert len(host.channels) == 1
    repeated = [frame for frame in node.sent if isinstance(frame, Shared) and isinstance(frame.message, Repeated)]
    assert len(repeated) > 100


async def test_a_later_reader_reads_all_and_then_shares(make_node: Any, until: Until) -> None:
    node = make_node()
    host = node.host
    host.source("s", *"abcdef")
    first = node.link("first")
    await first.wait(5)
    late = node.link("late")
    await late.wait(5)
    assert node.payloads == [text.encode() for text in "abcdef" * 2]
    host.source("s", *"gh")
    await asyncio.gather(first.wait(7), late.wait(7))
    assert texts(late) == texts(first) == list("abcdefgh")
    assert node.payloads[12:] == [b"g", b"h"]


async def test_readers_go_on_after_cuts_restarts_and_moves(make_node: Any, until: Until) -> None:
    node = make_node()
    host = node.host
    host.source("s")
    links = [node.link(name) for name in ("one", "two", "three")]
    for round_ in range(24):
        host.source("s", *(f"{round_}.{index}" for index in range(5)))
        if round_ % 4 == 1:
            host.cut()
        if round_ % 4 == 3:
            host.restart()
            host.serve = node._serve
        if round_ == 10:  # It goes on elsewhere: only what it has received stays.
            await links[2].close()
            links[2] = node.link("three", start_after=0)
        await asyncio.sleep(0)
    for link in links:
        await link.wait(119)
        assert texts(link) == [f"{round_}.{index}" for round_ in range(24) for index in range(5)]
        assert link.rejected == 0


async def test_a_reader_that_is_fenced_or_leaves_ends_alone(make_node: Any, until: Until) -> None:
    node = make_node()
    host = node.host
    host.source("s", "a")
    sibling, fenced, leaver = node.link("sibling"), node.link("fenced", reader_epoch=1), node.link("leaver")
    await asyncio.gather(sibling.wait(0), fenced.wait(0), leaver.wait(0))
    host.outbox.fence("s", "fenced", 2)
    await until(lambda: fenced.state == "failed")
    await leaver.close(unsubscribe=True)
    await until(lambda: set(host.outbox.link_counts("s").links) == {"sibling", "fenced"})
    host.source("s", "b")
    await sibling.wait(1)
    assert (fenced.failure.code, sibling.reason, len(host.channels)) == ("reader-fenced", "", 1)
    await sibling.close()
    await until(lambda: host.publisher.connections == 0)
    await until(lambda: host.channels[0].closed.is_set())
    await node.connections.close()


async def test_a_follower_shares_and_its_subscription_ends_with_it(make_node: Any, until: Until) -> None:
    node = make_node()
    host = node.host
    host.source("s")
    reader, follower = node.link("q.o1#0"), node.link("q.o1#0~1")
    await until(lambda: host.publisher.connections == 2)
    host.source("s", "a")
    await asyncio.gather(reader.wait(0), follower.wait(0))
    assert node.payloads == [b"a"]
    await follower.close()
    await until(lambda: list(host.outbox.link_counts("s").links) == ["q.o1#0"])
    assert reader.reason == ""


@pytest.mark.parametrize("how", ["host", "setting"])
async def test_readers_connect_alone_where_they_cannot_share(make_node: Any, until: Until, how: str) -> None:
    node = make_node(shares=how != "host", **({"shared_window_bytes": 0} if how == "setting" else {}))
    host = node.host
    host.source("s", "a")
    links = [node.link("one"), node.link("two")]
    await asyncio.gather(*(link.wait(0) for link in links))
    assert (node.payloads, len(host.channels)) == ([b"a", b"a"], 2)
    assert not [frame for frame in node.sent if isinstance(frame, Shared)]


# -- peers that break the rules ----------------------------------------------------------------------------------------


def data(number: int, payload: bytes = b"x") -> Data:
    return Data(number=number, epoch=1, rows=1, watermark_ms=0, ended=False, born_ms=0, payload=payload)


async def test_a_host_that_repeats_an_unknown_frame_is_left(make_node: Any, until: Until) -> None:
    node = make_node()
    host = node.host
    host.source("s", "a")
    lies = 0

    async def liar(channel: Any) -> None:
        nonlocal lies
        lies += 1
        if lies > 1:
            await node._serve(channel)
            return
        assert isinstance(await channel.receive(), OpenShared)
        await channel.receive()
        await channel.send(Shared(1, Subscribed(epoch=1, next=1, lineage=host.outbox.lineage("s"))))
        await channel.send(Shared(1, Repeated(number=1, epoch=1)))
        await asyncio.sleep(1000)

    host.serve = liar
    link = node.link("one")
    await link.wait(0)
    assert (texts(link), link.rejected, lies) == (["a"], 1, 2)


async def test_a_host_that_sends_over_the_credit_of_one_reader_loses_that_one(make_node: Any, until: Until) -> None:
    node = make_node(inbox_credit_bytes=200)
    host = node.host
    host.source("s", "a")
    channels = []

    async def liar(channel: Any) -> None:
        if channels:
            await node._serve(channel)
            return
        channels.append(channel)
        await channel.receive()
        for number in (1, 2):
            assert isinstance((await channel.receive()).message, Subscribe)
            await channel.send(Shared(number, Subscribed(epoch=1, next=1, lineage=host.outbox.lineage("s"))))
        for number in range(1, 9):
            await channel.send(Shared(1, data(number)))
        await channel.send(Shared(2, data(1)))
        await asyncio.sleep(1000)

    host.serve = liar
    flooded = await node.connections.open_stream(HERE, stream="s")
    await flooded.send(Subscribe(stream="s", subscriber="one", next=1, epoch=0, credit_bytes=200))
    sibling = node.link("two")
    await sibling.wait(0)
    assert (sibling.rejected, sibling.reason) == (0, "")
    got = [await flooded.receive() for _ in range(4)]
    assert [message.number for message in got[1:]] == [1, 2, 3]
    with pytest.raises(ProtocolError, match="over-credit"):
        await flooded.receive()


@pytest.mark.parametrize("first", [[Shared(1, Repeated(1, 1))], [Subscribe("s", "one", 1, 0, 100)], []])
async def test_a_reader_that_breaks_the_rules_or_is_idle_is_left(
    make_host: Any, channel_pair: Any, until: Until, first: list[Any]
) -> None:
    host = make_host(stream_settings(handshake_s=0.05))
    host.source("s", "a")
    ours, theirs = channel_pair()
    task = asyncio.ensure_future(host.publisher.serve(theirs, HELLO, CHECKS))
    for message in (OpenShared(window_bytes=1000, window_frames=10), *first):
        await ours.send(message)
    await until(lambda: task.done())
    assert isinstance(task.exception(), ProtocolError) == bool(first)
    assert ours.closed.is_set()


async def test_a_reader_cannot_have_the_host_remember_too_much(make_host: Any, channel_pair: Any) -> None:
    host = make_host()
    ours, theirs = channel_pair()
    await ours.send(OpenShared(window_bytes=1, window_frames=1 << 20))
    with pytest.raises(ProtocolError, match="bad-number"):
        await host.publisher.serve(theirs, HELLO, CHECKS)
