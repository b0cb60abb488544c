"""When an outbox holds its producer back and wakes who waits, over real files."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sbon_node.streams.outbox.outbox import Outbox
from sbon_node.streams.port import Published
from sbon_protocol.errors import SbonError
from tests.streams.outboxes import SETTINGS, publish, stream_settings, texts


def test_frames_not_yet_received_hold_the_producer_back(path: Path) -> None:
    box = Outbox(path, stream_settings(outbox_quota_bytes=3 * 65))
    box.open_stream("op", "operator")
    publish(box, "op", *"abc")
    assert not box.pressure("op")
    publish(box, "op", "d")
    assert box.pressure("op")
    box.subscribe("op", "one", 0)
    box.subscribe("op", "two", 0)
    box.received("op", "one", 4)
    assert box.pressure("op")
    box.received("op", "two", 1)
    assert not box.pressure("op")
    assert box.earliest("op") == 1
    box.close()


def test_rows_are_awaited_once_a_reader_has_received_all_of_them(path: Path) -> None:
    outbox = Outbox(path, stream_settings())
    published = Published(outbox, "op")
    assert not published.is_awaited(), "there is no stream"
    outbox.open_stream("op", "operator")
    assert not published.is_awaited(), "nobody reads it"
    for reader in ("near", "far"):
        outbox.subscribe("op", reader, 0)
    publish(outbox, "op", *"ab")
    outbox.received("op", "far", 1)
    assert not published.is_awaited()
    outbox.received("op", "near", 2)
    assert published.is_awaited()
    outbox.close()


def test_a_subscriber_that_begins_again_holds_the_producer_back_again(path: Path) -> None:
    outbox = Outbox(path, stream_settings(outbox_quota_bytes=3 * 65))
    outbox.open_stream("op", "operator")
    outbox.subscribe("op", "down", 0)
    publish(outbox, "op", *"abcd")
    outbox.received("op", "down", 4)
    assert not outbox.pressure("op")
    outbox.subscribe("op", "down", 1)
    assert outbox.pressure("op"), "it has lost what it had received"
    outbox.close()


async def test_waiters_wake_on_what_they_wait_for(path: Path) -> None:

    box = Outbox(path, stream_settings(outbox_quota_bytes=64))
    box.open_stream("op", "operator")
    visible = asyncio.create_task(box.wait_visible("op", 0))
    await asyncio.sleep(0)
    publish(box, "op", "a")
    await visible
    wanted = asyncio.create_task(box.wait_subscribed("op"))
    await asyncio.sleep(0)
    assert not wanted.done()
    box.subscribe("op", "one", 0)
    await wanted
    await box.wait_subscribed("op")
    room = asyncio.create_task(box.wait_room("op"))
    await asyncio.sleep(0)
    assert not room.done()
    box.received("op", "one", 1)
    await room
    box.unsubscribe("op", "one")
    unwanted = asyncio.create_task(box.wait_subscribed("op"))
    dropped = asyncio.create_task(box.wait_visible("op", 1))
    await asyncio.sleep(0)
    box.drop_stream("op")
    with pytest.raises(SbonError, match="dropped"):
        await dropped
    with pytest.raises(SbonError, match="dropped"):
        await unwanted
    box.close()


def test_an_acknowledgement_for_which_the_disk_has_no_room_is_made_good(path: Path) -> None:
    box = Outbox(path, SETTINGS)
    box.open_stream("op", "operator")
    publish(box, "op", *"abc")
    box.subscribe("op", "one", 0)
    with box._store.reading() as connection:
        connection.execute("CREATE TRIGGER full BEFORE DELETE ON frames BEGIN SELECT raise(ABORT, 'x'); END")
    full = SbonError("disk-full", "no room")
    box._store._named = lambda error: full  # type: ignore[method-assign]
    box.acknowledge("op", "one", 2)
    assert (box.earliest("op"), texts(box, "op")) == (1, ["a", "b", "c"])
    with box._store.reading() as connection:
        connection.execute("DROP TRIGGER full")
    box.acknowledge("op", "one", 3)
    box.close()
    again = Outbox(path, SETTINGS)
    assert (again.earliest("op"), again.link_counts("op").links["one"].acknowledged) == (4, 3)
    again.close()


async def test_an_unsubscription_wakes_the_producer_that_waited_for_that_subscriber(path: Path) -> None:
    box = Outbox(path, stream_settings(outbox_quota_bytes=64))
    box.open_stream("op", "operator")
    for subscriber in ("slow", "other"):
        box.subscribe("op", subscriber, 0)
    publish(box, "op", "a" * 100)
    box.received("op", "other", 1)
    room = asyncio.create_task(box.wait_room("op"))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not room.done()
    box.unsubscribe("op", "slow")
    for _ in range(5):
        await asyncio.sleep(0)
    assert room.done()
    box.close()
