"""A port that follows another host: it reads up to where the host has shown, discards, and goes on in its place."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sbon_node.model.frames import Frame, FrameDraft, InputOffset
from sbon_node.streams.links.span import InputSpan, fill
from sbon_node.streams.outbox.outbox import Outbox
from sbon_node.streams.port import FOLLOWER_WAIT_S, Following, NodePort
from sbon_protocol.errors import BrokenInvariantError, SbonError
from tests.streams.outboxes import draft, stream_settings, texts
from tests.streams.test_port import LONG_S, NONE, run

SETTINGS = {"reconnect_s": 0.001, "reconnect_max_s": 0.002}


def follower(host: Any, of: NodePort, name: str = "new") -> NodePort:
    """Return a port at another node, whose base is the operator's newest visible batch."""
    other = host.make_other()
    other.outbox.open_stream("elsewhere", "operator")
    port = NodePort(
        of.operator,
        of._inputs,
        outbox=other.outbox,
        peers=host,
        clock=host.clock,
        settings=host.settings,
        rng=of._rng,
        following=Following(name, host.outbox.handover.tail(of.operator)),
    )
    host.ports.append(port)
    return port


@pytest.fixture
def host(make_host: Any) -> Any:
    made = make_host()
    made.make_other = make_host
    return made


async def shown(host: Any, *texts: str) -> tuple[NodePort, tuple[InputOffset, ...]]:
    """Return a port that has read and shown a batch for each text, and its offsets."""
    port, after = host.port("op", "up"), NONE
    port.recover(None)
    for batch, text in enumerate(texts):
        after = await step(host, port, batch, after, text)
    return port, after


async def step(host: Any, port: NodePort, batch: int, after: tuple[InputOffset, ...], text: str) -> tuple[InputOffset, ...]:
    host.batch("up", text)
    await port.links[0].wait(host.outbox.latest("up") - 1)
    offsets = await port.poll(after, LONG_S)
    await run(port, batch, after, offsets)
    await port.committed(batch)
    return offsets


async def test_a_follower_reads_what_its_host_has_shown_and_shows_nothing(host: Any) -> None:
    port, offsets = await shown(host, "a", "b")
    copy = follower(host, port)
    copy.recover(1)
    for text in "cd":
        host.batch("up", text)
    await copy.links[0].wait(3)
    assert await copy.poll(offsets, 0.001) == offsets

    copy.limit((3,))
    before, offsets = offsets, await copy.poll(offsets, LONG_S)
    assert [(offset.frame, offset.incarnation) for offset in offsets] == [(3, 2)]
    assert await run(copy, 2, before, offsets) == ["c"]
    await copy.committed(2)
    assert (copy.visible_batch(), copy.discarded.last, copy.discarded.rows) == (2, 3, 3)
    assert host.outbox.latest("op") == 2
    assert sorted(host.outbox.link_counts("up").links) == ["op#0", "op#0~new"]


async def test_a_follower_that_rests_where_it_started_runs_one_batch_for_its_watermark(host: Any) -> None:
    """Its host may have run a batch without input after the one that was copied, and Spark would not ask for one here."""
    port, offsets = await shown(host, "a", "b")
    copy = follower(host, port)
    copy.recover(1)
    assert await copy.poll(offsets, 0.001) == offsets

    copy.limit((2,))
    before, offsets = offsets, await copy.poll(offsets, LONG_S)
    assert [(offset.frame, offset.incarnation) for offset in offsets] == [(2, 2)]
    assert await run(copy, 2, before, offsets) == []
    await copy.committed(2)
    copy.limit((2,))
    assert await copy.poll(offsets, 0.001) == offsets


async def test_a_limit_answers_a_reader_that_waits(host: Any) -> None:
    port, offsets = await shown(host, "a")
    copy = follower(host, port)
    copy.recover(0)
    host.batch("up", "b")
    waiting = asyncio.ensure_future(copy.poll(offsets, LONG_S))
    await copy.links[0].wait(1)
    await asyncio.sleep(0.01)
    assert not waiting.done()
    copy.limit((2,))
    assert [offset.frame for offset in await waiting] == [2]


async def test_a_frozen_port_offers_what_it_has_offered_and_no_more(host: Any) -> None:
    port, after = await shown(host, "a")
    host.batch("up", "b")
    await port.links[0].wait(1)
    offered = await port.poll(after, LONG_S)
    host.batch("up", "c")
    await port.links[0].wait(2)
    assert [offset.frame for offset in port.freeze()] == [2]
    assert await port.poll(after, LONG_S) == offered
    assert await port.poll(offered, 0.001) == offered
    port.limit(None)
    assert [offset.frame for offset in await port.poll(offered, LONG_S)] == [3]


async def test_a_pinned_input_is_kept_by_its_host(host: Any, until: Any) -> None:
    port, after = await shown(host, "a")
    await until(lambda: host.outbox.earliest("up") == 2)
    port.pin(True)
    after = await step(host, port, 1, after, "b")
    await step(host, port, 2, after, "c")
    await asyncio.sleep(0.02)
    assert host.outbox.earliest("up") == 2
    port.pin(False)
    await until(lambda: host.outbox.earliest("up") == 4)


def adopt(port: NodePort, host: Any, outbox: Outbox, epoch: int = 2) -> None:
    """Let the follower's node adopt the stream of the host."""
    tail = port.discarded
    frames = host.outbox.read("op", host.outbox.earliest("op") - 1, 2**30)
    state = host.outbox.handover.export("op")
    outbox.handover.take("op", state, frames)
    outbox.handover.adopt("op", state, batch=tail.batch, offsets=tail.offsets, epoch=epoch)


async def test_a_follower_goes_on_with_the_next_frame_under_the_operators_name(host: Any, until: Any) -> None:
    port, after = await shown(host, "a", "b")
    host.outbox.subscribe("op", "reader", 1)
    copy = follower(host, port)
    copy.recover(1)
    with pytest.raises(SbonError, match="no such stream"):
        copy.go_live(2)

    outbox = copy._published._outbox
    adopt(copy, host, outbox)
    copy.go_live(2)
    await port.close()
    assert (outbox.lineage("op"), outbox.epoch("op")) == (host.outbox.lineage("op"), 2)
    await until(lambda: sorted(host.outbox.link_counts("up").links) == ["op#0"])
    await until(lambda: host.outbox.reader_epoch("up", "op#0") == 2)
    await step(host, copy, 2, after, "c")
    assert texts(outbox, "op") == ["a", "b", "c"]
    assert [frame.number for frame in outbox.read("op", 0, 2**30)] == [1, 2, 3]
    await until(lambda: host.outbox.earliest("up") == 4)


async def test_a_follower_that_goes_live_over_the_quota_waits_for_its_readers(host: Any) -> None:
    port, after = await shown(host, "a")
    copy = follower(host, port)
    copy.recover(0)
    host.batch("up", "b")
    waiting = asyncio.ensure_future(copy.poll(after, LONG_S))
    await copy.links[0].wait(1)
    host.outbox.subscribe("op", "reader", 1)
    adopt(copy, host, copy._published._outbox)
    copy._published._outbox._settings = stream_settings(outbox_quota_bytes=1)
    assert copy._published._outbox.pressure("op")
    copy.go_live(2)
    assert await waiting == after
    assert await copy.poll(after, 0.01) == after
    copy._published._outbox.subscribe("op", "reader", 1)
    copy._published._outbox.acknowledge("op", "reader", 1)
    assert [offset.frame for offset in await copy.poll(after, LONG_S)] == [2]
    await port.close()


async def test_a_follower_that_is_gone_holds_back_no_input(host: Any, until: Any) -> None:
    port, after = await shown(host, "a", "b")
    copy = follower(host, port)
    copy.recover(1)
    await until(lambda: sorted(host.outbox.link_counts("up").links) == ["op#0", "op#0~new"])
    await step(host, port, 2, after, "c")
    await asyncio.sleep(0.02)
    assert host.outbox.earliest("up") == 3
    await copy.close()
    await until(lambda: host.outbox.earliest("up") == 4)
    assert sorted(host.outbox.link_counts("up").links) == ["op#0"]


async def test_a_stream_adopted_at_another_batch_is_not_taken(host: Any) -> None:
    port, after = await shown(host, "a")
    copy = follower(host, port)
    copy.recover(0)
    adopt(copy, host, copy._published._outbox)
    host.batch("up", "b")
    copy.limit((2,))
    ours = await copy.poll(after, LONG_S)
    await run(copy, 1, after, ours)
    with pytest.raises(BrokenInvariantError):
        copy.go_live(2)
    await copy.committed(1)
    with pytest.raises(BrokenInvariantError):
        copy.go_live(2)


async def small_batches(make_host: Any) -> tuple[Any, NodePort, tuple[InputOffset, ...]]:
    """Return a follower whose batches have three rows at most, at the position of its host."""
    host = make_host(stream_settings(follow_span_rows=3, **SETTINGS))
    host.make_other = make_host
    port, offsets = await shown(host, "a")
    copy = follower(host, port)
    copy.recover(0)
    return host, copy, offsets


async def test_a_follower_takes_small_batches(make_host: Any) -> None:
    host, copy, offsets = await small_batches(make_host)
    for _ in range(4):
        host.batch("up", "xy")
    copy.limit((5,))
    await copy.links[0].wait(4)
    taken = []
    for _ in range(4):
        offsets = await copy.poll(offsets, LONG_S)
        taken.append(offsets[0].frame)
    assert taken == [2, 3, 4, 5]


async def test_a_follower_repeats_the_last_batches_of_its_host(make_host: Any) -> None:
    """Its own limits of a batch do not count then, and it waits for the frames of a batch until all of them are there."""
    host, copy, offsets = await small_batches(make_host)
    for _ in range(5):
        host.batch("up", "xy")
    copy.repeat((2,), ((5,), (6,), (7,)), halts=True)
    await copy.links[0].wait(5)
    taken = []
    for _ in range(3):
        offsets = await copy.poll(offsets, LONG_S)
        taken.append(offsets[0].frame)
    waiting = asyncio.ensure_future(copy.poll(offsets, 0.001))
    await asyncio.sleep(FOLLOWER_WAIT_S + 0.2)
    assert not waiting.done()
    host.batch("up", "xy")
    taken.append((await waiting)[0].frame)
    assert taken == [2, 5, 6, 7]


def test_frames_of_another_hosts_batch_are_not_held_back() -> None:
    """The other host took frame 1, since it saw a later watermark of the other input than belongs to the batch."""
    ahead = Frame(stream="a", number=1, payload=b"x", rows=1, watermark_ms=1000)
    spans = [
        InputSpan(0, InputOffset(), lambda number: ahead if number == 1 else None, ahead_ms=10, upto=1),
        InputSpan(0, InputOffset(watermark_ms=5), lambda number: None, ahead_ms=10, upto=0),
    ]
    assert fill(spans, 10**6, 100) == [False, False]
    assert spans[0].last is ahead


def test_a_repeated_batch_of_a_follower_replaces_the_first() -> None:
    from sbon_node.streams.outbox.ledger import Tail
    from sbon_node.streams.port import Discarded

    output = Discarded("op", Tail(batch=4, last=9, rows=20, offsets=NONE))
    output.write(5, NONE, [draft("abc")])
    output.write(5, NONE, [draft("ab")])
    output.write(4, NONE, [draft("dropped")])
    assert output.publish(5) == NONE
    assert (output.tail.batch, output.tail.last, output.tail.rows) == (5, 10, 22)
    with pytest.raises(BrokenInvariantError):
        output.write(7, NONE, [FrameDraft(payload=b"", rows=0)])
    with pytest.raises(BrokenInvariantError):
        output.publish(6)
