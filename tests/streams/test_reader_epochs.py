"""A reader has an epoch, too: a stale reader neither takes over its successor's subscription nor acknowledges for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sbon_node.model.frames import FrameDraft, InputOffset
from sbon_node.net.transport import ConnectionLostError
from sbon_node.streams.outbox.ledger import Kind, Reader
from sbon_node.streams.outbox.outbox import Outbox
from sbon_node.streams.outbox.store import FrameStore
from sbon_protocol.api.bounded import MAX_EPOCH_LEAP
from sbon_protocol.errors import SbonError
from sbon_protocol.messages import Progress, Refused, Subscribe, Subscribed
from tests.streams.outboxes import SETTINGS, code_of, draft, publish


async def test_a_stale_reader_does_not_take_over_its_successors_subscription(make_host: Any, until: Any) -> None:
    host = make_host()
    for text in "abcd":
        host.batch("up", text)
    new = host.link("up", reader_epoch=2)
    await new.wait(3)
    stale = host.link("up", reader_epoch=1)
    with pytest.raises(SbonError, match="epoch 1 of the reader is over") as caught:
        await stale.wait(0)
    assert (caught.value.code, stale.state, new.state) == ("reader-fenced", "failed", "connected")
    new.acknowledge(4)
    await until(lambda: host.outbox.earliest("up") == 5)


async def test_a_later_reader_ends_its_predecessors_connection_for_good(make_host: Any) -> None:
    host = make_host()
    host.batch("up", "a")
    stale = host.link("up", reader_epoch=1)
    await stale.wait(0)
    new = host.link("up", reader_epoch=2)
    await new.wait(0)
    with pytest.raises(SbonError) as caught:
        await stale.wait(1)
    assert (caught.value.code, host.outbox.earliest("up")) == ("reader-fenced", 1)


async def test_the_publisher_remembers_the_epoch_over_a_restart(make_host: Any) -> None:
    host = make_host()
    for text in "ab":
        host.batch("up", text)
    new = host.link("up", reader_epoch=3)
    await new.wait(1)
    await new.close()
    host.restart()
    stale = host.link("up", reader_epoch=2)
    with pytest.raises(SbonError) as caught:
        await stale.wait(0)
    assert caught.value.code == "reader-fenced"
    again = host.link("up", reader_epoch=3)
    await again.wait(1)


async def test_a_reader_leaves_a_publisher_that_knows_a_later_epoch_of_it(make_host: Any) -> None:
    host = make_host()

    async def serve(channel: Any) -> None:
        await channel.receive()
        await channel.send(Subscribed(epoch=1, next=1, reader_epoch=5))

    host.serve = serve
    stale = host.link("up", reader_epoch=4)
    with pytest.raises(SbonError, match="it has connected in epoch 5"):
        await stale.wait(0)


async def test_an_acknowledgement_of_a_stale_epoch_counts_for_nothing(make_host: Any) -> None:
    host = make_host()
    for text in "ab":
        host.batch("up", text)
    ours = await host.open_stream(None)
    await ours.send(Subscribe(stream="up", subscriber="x", next=1, epoch=1, credit_bytes=1000, reader_epoch=2))
    assert isinstance(await ours.receive(), Subscribed)
    await ours.receive()
    await ours.receive()
    await ours.send(Progress(received=2, acknowledged=2, credit_bytes=0, epoch=1, reader_epoch=1))
    assert (await ours.receive()).code == "reader-fenced"
    assert host.outbox.earliest("up") == 1


async def test_a_publisher_believes_no_reader_an_absurd_epoch_of_its_own(make_host: Any) -> None:
    host = make_host()
    host.batch("up", "a")
    liar = await host.open_stream(None)
    absurd = MAX_EPOCH_LEAP + 1
    await liar.send(Subscribe(stream="up", subscriber="x", next=1, epoch=1, credit_bytes=1000, reader_epoch=absurd))
    with pytest.raises(ConnectionLostError):
        await liar.receive()
    other = await host.open_stream(None)
    await other.send(Subscribe(stream="up", subscriber="x", next=1, epoch=1, credit_bytes=1000, reader_epoch=1))
    assert not isinstance(await other.receive(), Refused)


def test_a_full_disk_refuses_no_reader_whose_acknowledgements_would_free_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader's greater epoch is stored with its next acknowledgement."""
    box = Outbox(path, SETTINGS)
    box.open_stream("op", "operator")
    publish(box, "op", *"abc")
    box.subscribe("op", "x", 1, reader=Reader(epoch=1))

    def full(store: FrameStore, *, promised: bool = True) -> Any:
        raise SbonError("disk-full", "no space for more frames")

    with monkeypatch.context() as patched:
        patched.setattr(FrameStore, "transaction", full)
        assert box.subscribe("op", "x", 1, reader=Reader(epoch=2)) == 1
    assert code_of(lambda: box.subscribe("op", "x", 1, reader=Reader(epoch=1))) == "reader-fenced"
    box.acknowledge("op", "x", 1)
    box.close()
    again = Outbox(path, SETTINGS)
    assert again.reader_epoch("op", "x") == 2
    again.close()


def test_a_subscription_made_anew_keeps_what_its_reader_has_not_acknowledged(path: Path) -> None:
    """The publisher has lost the subscription of a reader that holds frames in memory alone."""
    box = Outbox(path, SETTINGS)
    box.open_stream("live", "source")
    box.write_source("live", [draft(text) for text in "abcdefg"], b"")
    assert box.subscribe("live", "x", 6, reader=Reader(acknowledged=2)) == 6
    assert box.link_counts("live").links["x"].acknowledged == 2
    box.subscribe("live", "late", 0, reader=Reader(acknowledged=0))
    assert box.link_counts("live").links["late"].acknowledged == 0
    box.close()


async def test_a_reader_that_lost_its_subscription_finds_its_frames_after_a_restart(make_host: Any, until: Any) -> None:
    host = make_host()
    for text in "abcd":
        host.batch("up", text)
    host.outbox.subscribe("up", "other", 1)
    link = host.link("up")
    await link.wait(3)
    link.acknowledge(1)
    await until(lambda: host.outbox.link_counts("up").links["down"].acknowledged == 1)
    host.away = True
    host.cut()
    host.outbox.unsubscribe("up", "down")
    host.away = False
    await until(lambda: host.outbox.link_counts("up").links.get("down") is not None)
    draft_of_more = [FrameDraft(payload=b"e", rows=1)]
    host.outbox.write_batch("up", 4, (InputOffset(frame=4),), draft_of_more)
    host.outbox.publish("up", 4)
    await link.wait(4)
    host.outbox.acknowledge("up", "other", 5)
    await link.close()
    again = host.link("up", start_after=1)
    await again.wait(4)
    assert [frame.number for frame in again.inbox.frames(1, 5)] == [2, 3, 4, 5]


async def test_a_reader_that_lost_its_position_asks_for_it_and_ends_the_earlier_one(make_host: Any, until: Any) -> None:
    host = make_host()
    for text in "abcd":
        host.batch("up", text)
    old = host.link("up", reader_epoch=1)
    await old.wait(3)
    old.acknowledge(2)
    await until(lambda: host.outbox.earliest("up") == 3)
    assert host.outbox.fence("up", "down", 2) == (2, False)
    with pytest.raises(SbonError) as caught:
        await old.wait(9)
    assert caught.value.code == "reader-fenced"
    old.acknowledge(4)
    assert host.outbox.fence("up", "down", 2) == (2, False)
    assert code_of(lambda: host.outbox.fence("up", "down", 1)) == "reader-fenced"
    assert code_of(lambda: host.outbox.fence("up", "unknown", 1)) == "not-retained"
    new = host.link("up", reader_epoch=2, start_after=2)
    await new.wait(3)
    new.acknowledge(4)
    await until(lambda: host.outbox.fence("up", "down", 2) == (4, False))


@pytest.mark.parametrize("kind", ["operator", "source"])
def test_a_reader_that_was_fenced_before_it_first_connected_takes_no_frames(path: Path, kind: Kind) -> None:
    box = Outbox(path, SETTINGS)
    box.open_stream("s", kind)
    if kind == "source":
        box.write_source("s", [draft(text) for text in "abcd"], b"")
    else:
        publish(box, "s", *"abcd")
    box.subscribe("s", "other", 1)
    for _ in range(2):
        assert box.fence("s", "sink", 2) == (0, False)
    box.acknowledge("s", "other", 4)
    box.close()
    again = Outbox(path, SETTINGS)
    assert code_of(lambda: again.subscribe("s", "sink", 1, reader=Reader(epoch=1))) == "reader-fenced"
    assert again.earliest("s") == 1
    assert again.subscribe("s", "sink", 1, reader=Reader(epoch=2)) == 1
    again.close()
