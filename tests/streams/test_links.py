"""A link between a real outbox and a subscriber, over channels that are cut, replaced and lied to (docs/design.md, section 8)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from sbon_node.streams.links.credit import weight
from sbon_protocol.errors import SbonError
from sbon_protocol.messages import Data, Subscribe, Subscribed
from tests.streams.outboxes import stream_settings

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
    assert link.inbox.buffered_bytes == weight(b"c")
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
    host = make_host(stream_settings(inbox_credit_bytes=3 * (size + 64), **QUICK))
    host.source("s", *("x" * size for _ in range(10)))
    link = host.link("s")
    for acknowledged in range(1, 8):
        await link.wait(acknowledged + 1)
        host.cut()
        await until(lambda: link.state == "connected" and host.channels)
        await asyncio.sleep(0.005)
        assert link.inbox.buffered_bytes <= 3 * (size + 64)
        assert link.inbox.received == acknowledged + 2
        link.acknowledge(acknowledged)
    await link.wait(9)
    assert link.rejected == 0


async def test_an_absent_subscriber_pauses_the_producer_and_what_it_received_does_not(make_host: Any) -> None:
    host = make_host(stream_settings(outbox_quota_bytes=3 * 65, **QUICK))
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


async def test_two_subscribers_go_at_their_own_pace(make_host: Any, until: Any) -> None:
    host = make_host(stream_settings(inbox_credit_bytes=2 * 65, **QUICK))
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
    assert await ours.receive() == Subscribed(epoch=1, next=1, lineage=host.outbox.lineage("s"))
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


async def test_a_link_over_quota_fails_and_its_sibling_continues(make_host: Any) -> None:
    settings = stream_settings(subscription_quota_bytes=4 * 65, live_retention_bytes=0, inbox_credit_bytes=2 * 65, **QUICK)
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


# -- steps ------------------------------------------------------------------------------------------------------------


async def test_steps_are_called_where_things_have_happened(make_host: Any, until: Callable[..., Any]) -> None:
    failpoint: list[str] = []
    host = make_host(failpoint=failpoint.append)
    host.batch("op", "a")
    link = host.link("op", failpoint=failpoint.append)
    await link.wait(0)
    link.acknowledge(1)
    await until(lambda: "trim" in failpoint)
    await until(lambda: "acknowledge" in failpoint)
    assert sorted(failpoint) == sorted(["outbox-write", "publish", "send", "receive", "acknowledge", "trim"])
    assert failpoint.index("send") < failpoint.index("trim")
    assert failpoint.index("receive") < failpoint.index("acknowledge")
