"""A link and a host of another epoch, or one that breaks the protocol: what each believes of the other."""

from __future__ import annotations

from typing import Any

import pytest

from sbon_node.model.frames import FrameDraft
from sbon_node.net.transport import ConnectionLostError
from sbon_node.streams.links.credit import weight
from sbon_protocol.errors import ProtocolError
from sbon_protocol.messages import Data, Ended, Hello, Progress, Refused, Subscribe, Subscribed, Unsubscribe
from tests.streams.outboxes import stream_settings

QUICK = {"reconnect_s": 0.001, "reconnect_max_s": 0.002}


def texts(link: Any) -> list[str]:
    return [frame.payload.decode() for frame in link.inbox.frames(link.inbox.released, link.inbox.received)]


def data(number: int, epoch: int = 1, payload: bytes = b"x") -> Data:
    return Data(number=number, epoch=epoch, rows=1, watermark_ms=0, ended=False, born_ms=0, payload=payload)


# -- fencing ----------------------------------------------------------------------------------------------------------


async def test_a_host_below_the_epoch_a_subscriber_has_seen_is_refused(make_host: Any, until: Any) -> None:
    host = make_host()
    host.outbox.open_stream("op", "operator", epoch=2)
    host.outbox.write_batch("op", 0, (), [FrameDraft(payload=b"a", rows=1)])
    host.outbox.publish("op", 0)
    link = host.link("op", epoch=3)
    await until(lambda: "epoch 2 is over" in link.reason)
    assert link.inbox.received == 0
    host.outbox.open_stream("op", "operator", epoch=3)
    await link.wait(0)
    assert link.epoch == 3


async def test_a_subscriber_takes_nothing_from_an_older_epoch(make_host: Any, until: Any) -> None:
    host = make_host()
    rounds = []

    async def stale(channel: Any) -> None:
        rounds.append(await channel.receive())
        if len(rounds) == 1:
            await channel.send(Subscribed(epoch=5, next=1))
            await channel.send(data(1, 5))
            await channel.send(data(2, 4))
        else:
            await channel.send(Subscribed(epoch=4, next=2))
            await channel.send(data(2, 4))
        await channel.closed.wait()

    host.serve = stale
    link = host.link("op")
    await until(lambda: len(rounds) > 2)
    assert link.inbox.received == 1
    assert [(one.next, one.epoch) for one in rounds[:3]] == [(0, 0), (2, 5), (2, 5)]


async def test_a_host_stops_serving_when_a_subscriber_has_seen_a_later_epoch(make_host: Any) -> None:
    host = make_host()
    host.source("s", "a")
    ours = await host.open_stream(None)
    await ours.send(Subscribe(stream="s", subscriber="x", next=1, epoch=1, credit_bytes=1000))
    await ours.receive()
    await ours.receive()
    await ours.send(Progress(received=1, acknowledged=1, credit_bytes=0, epoch=2))
    answer = await ours.receive()
    assert isinstance(answer, Ended)
    assert answer.code == "fenced"
    assert host.outbox.link_counts("s").links["x"].acknowledged == 0


async def test_an_impossible_epoch_fences_no_host(make_host: Any, until: Any) -> None:
    host = make_host()
    host.source("s", "a", "b")
    said: list[int] = []

    async def lies(channel: Any) -> None:
        await channel.receive()
        said.append(1 + (2**62 if len(said) < 2 else 0))
        await channel.send(Subscribed(epoch=said[-1], next=1))
        await channel.send(data(1, said[-1]))
        await channel.closed.wait()

    host.serve = lies
    link = host.link("s")
    await until(lambda: link.inbox.received == 1)
    assert (link.epoch, len(said), link.rejected) == (1, 3, 2)


async def test_a_host_believes_no_subscriber_that_an_absurd_epoch_has_begun(make_host: Any) -> None:
    host = make_host()
    host.source("s", "a")
    liar = await host.open_stream(None)
    await liar.send(Subscribe(stream="s", subscriber="x", next=1, epoch=2**62, credit_bytes=1000))
    with pytest.raises(ConnectionLostError):
        await liar.receive()
    other = await host.open_stream(None)
    await other.send(Subscribe(stream="s", subscriber="x", next=1, epoch=1, credit_bytes=1000))
    assert isinstance(await other.receive(), Subscribed)
    await other.receive()
    await other.send(Progress(received=1, acknowledged=1, credit_bytes=0, epoch=2**62))
    with pytest.raises(ConnectionLostError):
        await other.receive()
    assert host.outbox.link_counts("s").links["x"].acknowledged == 0


# -- peers that misbehave ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said, rejected",
    [
        ([data(1), data(1), data(2)], 0),
        ([data(1), data(3)], 1),
        ([data(1), data(2, payload=bytes(5000))], 1),
        ([data(1), Unsubscribe()], 1),
    ],
    ids=["duplicates are dropped", "a gap is refused", "more than the credit is refused", "what does not belong is refused"],
)
async def test_a_link_accepts_only_valid_frames_of_its_host(make_host: Any, until: Any, said: list[Any], rejected: int) -> None:
    host = make_host(stream_settings(inbox_credit_bytes=4000, **QUICK))
    asked = []

    async def odd(channel: Any) -> None:
        asked.append(await channel.receive())
        await channel.send(Subscribed(epoch=1, next=asked[-1].next or 1))
        for message in said if len(asked) == 1 else [data(asked[-1].next)]:
            await channel.send(message)
        await channel.closed.wait()

    host.serve = odd
    link = host.link("s")
    await link.wait(1)
    assert texts(link)[:2] == ["x", "x"]
    assert link.rejected == rejected
    assert len(asked) == 1 + (rejected > 0)


async def test_duplicates_give_their_credit_back(make_host: Any, until: Any) -> None:
    """Else a host that sends a frame twice would in the end send nothing more."""
    host = make_host(stream_settings(inbox_credit_bytes=4000, **QUICK))
    reports: list[Progress] = []

    async def twice(channel: Any) -> None:
        await channel.receive()
        await channel.send(Subscribed(epoch=1, next=1))
        for message in (data(1), data(1), data(1)):
            await channel.send(message)
        while True:
            reports.append(await channel.receive())

    host.serve = twice
    host.link("s")
    await until(lambda: reports and reports[-1].credit_bytes == 2 * weight(b"x"))
    assert reports[-1].received == 1


async def test_a_link_reports_no_acknowledgement_of_frames_it_has_not_received(make_host: Any, until: Any) -> None:
    """Its operator's checkpoint may be ahead of an inbox that began anew; the host would cut it off for a false report."""
    host = make_host(stream_settings(**QUICK))
    for text in "abcde":
        host.batch("op", text)
    host.away = True
    link = host.link("op")
    link.acknowledge(3)
    host.away = False
    await link.wait(4)
    await until(lambda: host.outbox.link_counts("op").links["down"].acknowledged == 3)
    assert len(host.tasks) == 1, "one connection served all of it"
    assert link.rejected == 0


@pytest.mark.parametrize(
    "messages",
    [
        [Hello(version=1, oldest_version=1, cluster="c", node="n", role="stream")],
        [Subscribe(stream="s", subscriber="x", next=1, epoch=0, credit_bytes=9999), data(1)],
        [
            Subscribe(stream="s", subscriber="x", next=1, epoch=0, credit_bytes=9999),
            Progress(received=7, acknowledged=0, credit_bytes=0, epoch=1),
        ],
        [
            Subscribe(stream="s", subscriber="x", next=1, epoch=0, credit_bytes=0),
            Progress(received=1, acknowledged=1, credit_bytes=0, epoch=1),
        ],
    ],
    ids=["no subscription", "data from a subscriber", "received what is not there", "acknowledged what was not sent"],
)
async def test_a_subscriber_that_breaks_the_protocol_loses_its_connection_only(make_host: Any, messages: list[Any]) -> None:
    host = make_host()
    host.source("s", "a")
    ours = await host.open_stream(None)
    for message in messages:
        await ours.send(message)
    await ours.closed.wait()
    task = host.tasks.pop()
    with pytest.raises(ProtocolError):
        await task
    assert host.publisher.connections == 0
    link = host.link("s")
    await link.wait(0)


async def test_an_unknown_stream_is_refused_by_name(make_host: Any) -> None:
    host = make_host()
    ours = await host.open_stream(None)
    await ours.send(Subscribe(stream="none", subscriber="x", next=1, epoch=0, credit_bytes=1))
    answer = await ours.receive()
    assert isinstance(answer, Refused)
    assert answer.code == "stream-unknown"
