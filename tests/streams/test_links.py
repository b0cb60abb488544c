"""A link between a real outbox and a subscriber, over channels that are cut, replaced and lied to (docs/design.md, section 8)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from sbon_node.errors import SbonError
from sbon_node.streams.credit import weight
from sbon_node.streams.frame import FrameDraft
from sbon_node.streams.settings import StreamSettings
from sbon_protocol.errors import ProtocolError
from sbon_protocol.messages import Data, Ended, Hello, Progress, Refused, Subscribe, Subscribed, Unsubscribe

QUICK = {"reconnect_s": 0.001, "reconnect_max_s": 0.002}


def texts(link: Any) -> list[str]:
    return [frame.payload.decode() for frame in link.inbox.frames(link.inbox.released, link.inbox.received)]


def data(number: int, epoch: int = 1, payload: bytes = b"x") -> Data:
    return Data(number=number, epoch=epoch, rows=1, watermark_ms=0, ended=False, born_ms=0, payload=payload)


async def test_frames_arrive_once_and_in_order_through_cuts_and_restarts(make_host: Any, until: Any) -> None:
    host = make_host()
    host.source("s")
    link = host.link("s")
    for round_ in range(20):
        host.source("s", *(f"{round_}.{index}" for index in range(5)))
        if round_ % 4 == 1:
            host.cut()
        if round_ % 4 == 3:
            host.restart()
        await asyncio.sleep(0)
    await link.wait(99)
    assert texts(link) == [f"{round_}.{index}" for round_ in range(20) for index in range(5)]
    assert link.inbox.newest is not None
    assert link.inbox.newest.watermark_ms == 100
    await until(lambda: host.outbox.link_counts("s").links["down"].received == 100)


async def test_acknowledging_releases_memory_and_lets_the_host_trim(make_host: Any, until: Any) -> None:
    host = make_host()
    for text in "abc":
        host.batch("op", text)
    link = host.link("op")
    await link.wait(2)
    assert host.outbox.earliest("op") == 1
    link.acknowledge(2)
    assert texts(link) == ["c"]
    assert link.inbox.held_bytes == weight(b"c")
    await until(lambda: host.outbox.earliest("op") == 3)
    await link.close()
    again = host.link("op", start_after=2)
    await again.wait(2)
    assert texts(again) == ["c"]


async def test_an_acknowledgement_lost_in_a_restart_of_the_subscriber_is_made_good(make_host: Any, until: Any) -> None:
    host = make_host()
    for text in "abc":
        host.batch("op", text)
    first = host.link("op")
    await first.wait(2)
    await first.close()
    assert host.outbox.earliest("op") == 1
    host.link("op", start_after=2)
    await until(lambda: host.outbox.earliest("op") == 3)


async def test_credit_bounds_what_a_subscriber_holds(make_host: Any, until: Any) -> None:
    size = 1000
    host = make_host(StreamSettings(inbox_credit_bytes=3 * (size + 64), **QUICK))
    host.source("s", *("x" * size for _ in range(10)))
    link = host.link("s")
    for acknowledged in range(1, 8):
        await link.wait(acknowledged + 1)
        host.cut()
        await until(lambda: link.state == "connected" and host.channels)
        await asyncio.sleep(0.005)
        assert link.inbox.held_bytes <= 3 * (size + 64)
        assert link.inbox.received == acknowledged + 2
        link.acknowledge(acknowledged)
    await link.wait(9)
    assert link.rejected == 0


async def test_an_absent_subscriber_pauses_the_producer_and_what_it_received_does_not(make_host: Any) -> None:
    host = make_host(StreamSettings(outbox_quota_bytes=3 * 65, **QUICK))
    for text in "abcd":
        host.batch("op", text)
    assert host.outbox.pressure("op")
    host.away = True
    link = host.link("op")
    room = asyncio.ensure_future(host.outbox.wait_room("op"))
    await asyncio.sleep(0.01)
    assert not room.done()
    host.away = False
    await room
    assert link.counts.acknowledged == 0
    assert host.outbox.earliest("op") == 1


async def test_of_two_subscribers_each_goes_at_its_own_pace(make_host: Any, until: Any) -> None:
    host = make_host(StreamSettings(inbox_credit_bytes=2 * 65, **QUICK))
    host.source("s", *"abcdef")
    slow, fast = host.link("s", "slow"), host.link("s", "fast")
    for number in range(1, 7):
        await fast.wait(number - 1)
        fast.acknowledge(number)
    await slow.wait(1)
    assert (slow.inbox.received, fast.inbox.received) == (2, 6)


async def test_a_new_connection_replaces_the_old_one_of_the_same_subscriber(make_host: Any, until: Any) -> None:
    host = make_host()
    host.source("s", "a")
    first = host.link("s")
    await first.wait(0)
    ours = await host.open_stream(None)
    await ours.send(Subscribe(stream="s", subscriber="down", next=1, epoch=0, credit_bytes=1000))
    assert await ours.receive() == Subscribed(epoch=1, next=1)
    await until(lambda: host.channels[0].closed.is_set())
    await until(lambda: first.reason != "" or first.state == "connecting")


async def test_unsubscribing_keeps_nothing(make_host: Any, until: Any) -> None:
    host = make_host()
    host.batch("op", "a")
    link = host.link("op")
    await link.wait(0)
    await link.close(unsubscribe=True)
    await until(lambda: host.outbox.link_counts("op").links == {})
    await until(lambda: host.publisher.connections == 0)
    with pytest.raises(SbonError, match="closed"):
        await link.wait(5)


# -- what cannot be mended, and what can ------------------------------------------------------------------------------


async def test_dropping_a_stream_ends_its_links(make_host: Any) -> None:
    host = make_host()
    host.source("s", "a")
    link = host.link("s")
    await link.wait(0)
    host.outbox.drop_stream("s")
    with pytest.raises(SbonError) as caught:
        await link.wait(1)
    assert (caught.value.code, link.state) == ("stream-dropped", "failed")


async def test_a_link_over_quota_fails_and_its_sibling_goes_on(make_host: Any) -> None:
    settings = StreamSettings(subscription_quota_bytes=4 * 65, live_retention_bytes=0, inbox_credit_bytes=2 * 65, **QUICK)
    host = make_host(settings)
    host.source("live", finite=False)
    slow, fast = host.link("live", "slow"), host.link("live", "fast")
    for number in range(1, 10):
        host.source("live", str(number), finite=False)
        await fast.wait(number - 1)
        fast.acknowledge(number)
    with pytest.raises(SbonError) as caught:
        await slow.wait(100)
    assert (caught.value.code, fast.state) == ("quota", "connected")


@pytest.mark.parametrize("start_after, code", [(1, "not-retained"), (9, "stream-behind")])
async def test_a_number_that_cannot_be_served_fails_the_link(make_host: Any, until: Any, start_after: int, code: str) -> None:
    host = make_host()
    for text in "abcd":
        host.batch("op", text)
    other = host.link("op", "other")
    await other.wait(3)
    other.acknowledge(3)
    await until(lambda: host.outbox.earliest("op") == 4)
    late = host.link("op", "late", start_after=start_after)
    with pytest.raises(SbonError) as caught:
        await late.wait(99)
    assert caught.value.code == code
    assert code in late.counts.failed


async def test_a_link_waits_for_a_host_that_is_away_and_a_stream_that_is_not_there_yet(make_host: Any, until: Any) -> None:
    host = make_host()
    known = False

    def locate() -> Any:
        if not known:
            raise SbonError("node-away", "berlin is away")
        return ("127.0.0.1", 1)

    link = host.link("s", locate=locate)
    await until(lambda: link.reason == "berlin is away")
    known, host.away = True, True
    await until(lambda: link.reason == "nobody listens")
    host.away = False
    await until(lambda: "no such stream" in link.reason)
    assert link.state == "connecting"
    host.source("s", "a")
    await link.wait(0)
    assert (link.state, link.reason) == ("connected", "")


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
async def test_what_a_link_takes_from_its_host(make_host: Any, until: Any, said: list[Any], rejected: int) -> None:
    host = make_host(StreamSettings(inbox_credit_bytes=4000, **QUICK))
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


# -- steps ------------------------------------------------------------------------------------------------------------


async def test_steps_are_called_where_things_have_happened(make_host: Any, until: Callable[..., Any]) -> None:
    steps: list[str] = []
    host = make_host(steps=steps.append)
    host.batch("op", "a")
    link = host.link("op", steps=steps.append)
    await link.wait(0)
    link.acknowledge(1)
    await until(lambda: "trim" in steps)
    await until(lambda: "acknowledge" in steps)
    assert sorted(steps) == sorted(["outbox-write", "publish", "send", "receive", "acknowledge", "trim"])
    assert steps.index("send") < steps.index("trim")
    assert steps.index("receive") < steps.index("acknowledge")
