"""One operator's port over real outboxes and links: what an engine with Spark's contract may rely on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sbon_node.engine.interface import OperatorPort
from sbon_node.model.frames import END_WATERMARK_MS, NO_WATERMARK_MS, Frame, FrameDraft, InputOffset
from sbon_node.streams.links.span import InputSpan, fill
from sbon_node.streams.port import NodePort
from sbon_node.streams.settings import BatchLimits
from sbon_node.streams.watermark import output_watermark
from sbon_protocol.errors import BrokenInvariantError, SbonError
from tests.streams.outboxes import stream_settings

QUICK = {"reconnect_s": 0.001, "reconnect_max_s": 0.002}
NONE = (InputOffset(),)
LONG_S = 3600.0


def as_engine_sees(port: NodePort) -> OperatorPort:
    return port


async def run(port: NodePort, batch: int, after: tuple[InputOffset, ...], offsets: tuple[InputOffset, ...]) -> list[str]:
    """Runs a batch that passes its input on, up to its write."""
    texts = []
    for position, (one, upto) in enumerate(zip(after, offsets, strict=True)):
        texts += [frame.payload.decode() for frame in await port.fetch(position, one.frame, upto.frame)]
    watermark_ms, ended = output_watermark(offsets)
    draft = FrameDraft(payload="".join(texts).encode(), rows=len(texts), watermark_ms=watermark_ms, ended=ended)
    await port.write(batch, offsets, [draft])
    return texts


async def test_a_batch_is_polled_fetched_written_and_acknowledged_once_committed(make_host: Any, until: Any) -> None:
    host = make_host()
    for text in "abc":
        host.batch("up", text)
    port = host.port("op", "up")
    port.recover(None)
    await port.links[0].wait(2)
    offsets = await as_engine_sees(port).poll(NONE, LONG_S)
    assert offsets == (InputOffset(frame=3, incarnation=1),)
    assert await run(port, 0, NONE, offsets) == ["a", "b", "c"]
    assert (host.outbox.latest("op"), host.outbox.earliest("up")) == (0, 1)
    await port.committed(0)
    assert host.outbox.latest("op") == 1
    await until(lambda: host.outbox.earliest("up") == 4)
    assert await port.poll(offsets, 0.001) is offsets


async def test_only_inputs_of_the_newest_visible_batch_are_acknowledged(make_host: Any, until: Any) -> None:
    host = make_host()
    port = host.port("op", "up")
    host.batch("up", "a")
    port.recover(None)
    first = await port.poll(NONE, LONG_S)
    await run(port, 0, NONE, first)
    host.batch("up", "b")
    await port.links[0].wait(1)
    second = await port.poll(first, LONG_S)
    await run(port, 1, first, second)
    await port.committed(0)
    assert port.links[0].counts.acknowledged == 1
    assert host.outbox.latest("op") == 1
    await port.committed(1)
    assert port.links[0].counts.acknowledged == 2


async def test_news_on_any_input_answers_for_all(make_host: Any) -> None:
    host = make_host()
    host.source("left")
    host.source("right")
    port = host.port("op", "left", "right")
    port.recover(None)
    waiting = asyncio.ensure_future(port.poll((InputOffset(), InputOffset()), LONG_S))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    host.source("right", "r", ended=True)
    offsets = await waiting
    assert [(one.frame, one.ended) for one in offsets] == [(0, False), (1, True)]
    assert output_watermark(offsets) == (NO_WATERMARK_MS, False)
    host.source("left", "l", ended=True)
    offsets = await port.poll(offsets, LONG_S)
    assert output_watermark(offsets) == (END_WATERMARK_MS, True)


async def test_the_span_of_a_batch_is_bounded_and_goes_by_watermarks(make_host: Any) -> None:
    host = make_host(stream_settings(batch_span_bytes=3 * 65, batch_span_frames=2, **QUICK))
    host.source("one", *"abcdef")
    host.source("two", *"uvwxyz")
    port = host.port("op", "one", "two")
    port.recover(None)
    for link in port.links:
        await link.wait(5)
    seen, after = [], (InputOffset(), InputOffset())
    for _ in range(6):
        after = await port.poll(after, 0.001)
        seen.append(tuple(one.frame for one in after))
    assert seen[:3] == [(2, 1), (3, 3), (5, 4)]
    assert seen[-1] == (6, 6)


def test_an_operator_with_state_takes_so_many_rows_at_once_and_one_frame_at_least() -> None:
    frames = [Frame(stream="s", number=number, payload=b"rows", rows=rows) for number, rows in enumerate((40, 60, 1, 500, 7), 1)]
    ends, start = [], 0
    while start < len(frames):
        span = InputSpan(start, InputOffset(), lambda number: frames[number - 1] if number <= len(frames) else None)
        fill([span], 10**6, 100, 100)
        assert span.last is not None
        start = span.last.number
        ends.append(start)
    assert ends == [2, 3, 4, 5]


@pytest.mark.parametrize(
    "state, joins, limits",
    [(False, False, (None, None)), (False, True, (None, None)), (True, True, (3, None)), (True, False, (3, 7))],
)
def test_operators_with_state_take_so_many_rows_and_others_any_number(
    state: bool, joins: bool, limits: tuple[int | None, int | None]
) -> None:
    settings = stream_settings(batch_span_rows=3, batch_span_grouped_rows=7, batch_linger_s=2.0)
    assert settings.batch_limits(has_state=state, joins=joins) == (*limits, 0.0)
    assert settings.batch_limits(has_state=state, joins=joins, unpaced=True) == (*limits, 2.0)


@pytest.mark.parametrize("groups, ends", [((0, 4, 0, 1), [2, 4, 6, 8]), ((1, 1), [2, 8])], ids=["small groups", "large groups"])
async def test_an_aggregate_takes_more_rows_once_its_groups_have_twenty_each(
    make_host: Any, groups: tuple[int, ...], ends: list[int]
) -> None:
    host = make_host()
    host.source("s", *("x" * 10 for _ in range(12)))
    port = host.port("op", "s", limits=BatchLimits(rows=20, grouped_rows=60))
    port.recover(None)
    await port.links[0].wait(11)
    taken, after = [], NONE
    for batch, rows in enumerate(groups):
        before, after = after, await port.poll(after, LONG_S)
        taken.append(after[0].frame)
        await port.fetch(0, before[0].frame, after[0].frame)
        await port.write(batch, after, [FrameDraft(payload=b"g" * rows, rows=rows)])
        await port.committed(batch)
    assert taken == ends


async def test_a_batch_without_pace_waits_for_more_until_it_is_full_or_the_input_ends(make_host: Any) -> None:
    host = make_host()
    host.source("s", "a")
    port = host.port("op", "s", limits=BatchLimits(rows=3, linger_s=LONG_S))
    port.recover(None)
    waiting = asyncio.ensure_future(port.poll(NONE, 0.0))
    await port.links[0].wait(0)
    host.source("s", "b", "c", "d")
    first = await waiting
    assert [one.frame for one in first] == [3]
    waiting = asyncio.ensure_future(port.poll(first, 0.0))
    host.source("s", "e", ended=True)
    last = await waiting
    assert [(one.frame, one.ended) for one in last] == [(5, True)]
    assert await port.poll(last, 0.001) is last


async def test_a_batch_without_pace_goes_with_less_once_the_time_is_over(make_host: Any) -> None:
    host = make_host()
    host.source("s", "a")
    port = host.port("op", "s", limits=BatchLimits(linger_s=0.01))
    port.recover(None)
    assert [one.frame for one in await port.poll(NONE, LONG_S)] == [1]


async def test_a_frame_larger_than_the_span_goes_alone(make_host: Any) -> None:
    host = make_host(stream_settings(batch_span_bytes=1, **QUICK))
    host.source("s", "large", "larger")
    port = host.port("op", "s")
    port.recover(None)
    await port.links[0].wait(1)
    assert [one.frame for one in await port.poll(NONE, LONG_S)] == [1]


async def test_a_full_outbox_holds_news_back(make_host: Any, until: Any) -> None:
    host = make_host(stream_settings(outbox_quota_bytes=10, **QUICK))
    host.source("s", "a")
    port = host.port("op", "s")
    port.recover(None)
    first = await port.poll(NONE, LONG_S)
    await run(port, 0, NONE, first)
    await port.committed(0)
    host.source("s", "b")
    await port.links[0].wait(1)
    waiting = asyncio.ensure_future(port.poll(first, LONG_S))
    assert await port.poll(first, 0.01) is first
    assert not waiting.done()
    down = host.link("op")
    await down.wait(0)
    assert [one.frame for one in await waiting] == [2]


# -- restarts ---------------------------------------------------------------------------------------------------------


async def restarted(host: Any, old: NodePort, *inputs: str) -> NodePort:
    await old.close()
    host.restart()
    return host.port(old.operator, *inputs)


async def test_every_start_offers_every_input_again_under_a_new_incarnation(make_host: Any) -> None:
    host = make_host()
    host.source("s", "a", ended=True)
    host.source("quiet")
    port = host.port("op", "s", "quiet")
    port.recover(None)
    first = await port.poll((InputOffset(), InputOffset()), LONG_S)
    await run(port, 0, (InputOffset(), InputOffset()), first)
    assert await port.poll(first, 0.001) is first
    await port.committed(0)
    port.recover(0)
    again = await port.poll(first, LONG_S)
    assert again[0] == InputOffset(frame=1, watermark_ms=1, ended=True, incarnation=2)
    assert again[1].frame == 0
    assert await port.poll(again, 0.001) is again
    assert await run(port, 1, first, again) == []
    await port.committed(1)
    port = await restarted(host, port, "s", "quiet")
    port.recover(1)
    third = await port.poll(again, LONG_S)
    assert [one.incarnation for one in third] == [3, 3]
    assert [one.frame for one in third] == [1, 0]


async def test_a_planned_batch_is_run_again_from_frames_sent_again(make_host: Any) -> None:
    host = make_host()
    for text in "abcd":
        host.batch("up", text)
    port = host.port("op", "up")
    port.recover(None)
    await port.links[0].wait(3)
    planned = await port.poll(NONE, LONG_S)
    await run(port, 0, NONE, planned)
    port = await restarted(host, port, "up")
    port.recover(None)
    assert await run(port, 0, NONE, planned) == ["a", "b", "c", "d"]
    await port.committed(0)
    assert [frame.payload for frame in host.outbox.read("op", 0, 1000)] == [b"abcd"]


async def test_committed_batches_become_visible_at_start_and_are_acknowledged(make_host: Any, until: Any) -> None:
    host = make_host()
    for text in "ab":
        host.batch("up", text)
    port = host.port("op", "up")
    port.recover(None)
    await port.links[0].wait(1)
    planned = await port.poll(NONE, LONG_S)
    await run(port, 0, NONE, planned)
    port = await restarted(host, port, "up")
    assert host.outbox.latest("op") == 0
    port.recover(0)
    assert host.outbox.latest("op") == 1
    await until(lambda: host.outbox.earliest("up") == 3)
    host.batch("up", "c")
    after = await port.poll(planned, LONG_S)
    while after[0].frame < 3:
        after = await port.poll(after, LONG_S)
    assert await run(port, 1, planned, after) == ["c"]


@pytest.mark.parametrize("committed", [5, 3, 1, None])
async def test_checkpoint_and_outbox_must_belong_together(make_host: Any, committed: int | None) -> None:
    host = make_host()
    host.source("s", "a")
    for text in "abc":
        host.batch("op", text)
    port = host.port("op", "s")
    with pytest.raises(SbonError) as caught:
        port.recover(committed)
    assert caught.value.code == "checkpoint-mismatch"


async def test_going_back_behind_what_is_visible_is_loud(make_host: Any) -> None:
    host = make_host()
    host.source("s", "a", "b")
    port = host.port("op", "s")
    port.recover(None)
    await port.links[0].wait(1)
    offsets = await port.poll(NONE, LONG_S)
    await run(port, 0, NONE, offsets)
    await port.committed(0)
    with pytest.raises(BrokenInvariantError):
        await port.poll(NONE, 0.001)
    with pytest.raises(BrokenInvariantError):
        await port.write(1, (InputOffset(frame=1),), [FrameDraft(payload=b"", rows=0)])
    with pytest.raises(BrokenInvariantError):
        await port.write(1, (), [FrameDraft(payload=b"", rows=0)])
    with pytest.raises(SbonError, match="visible already"):
        await port.fetch(0, 0, 2)


async def test_a_failed_input_fails_the_operator_with_its_reason(make_host: Any) -> None:
    host = make_host()
    host.source("s", "a")
    port = host.port("op", "s")
    port.recover(None)
    offsets = await port.poll(NONE, LONG_S)
    waiting = asyncio.ensure_future(port.poll(offsets, LONG_S))
    await asyncio.sleep(0)
    host.outbox.drop_stream("s")
    with pytest.raises(SbonError, match="dropped"):
        await waiting


@pytest.mark.parametrize(
    "offsets, expected",
    [
        ([InputOffset(watermark_ms=5), InputOffset(watermark_ms=3)], (3, False)),
        ([InputOffset(watermark_ms=5), InputOffset()], (NO_WATERMARK_MS, False)),
        ([InputOffset(watermark_ms=5), InputOffset(watermark_ms=1, ended=True)], (5, False)),
        ([InputOffset(watermark_ms=5, ended=True)], (END_WATERMARK_MS, True)),
    ],
)
def test_the_output_watermark_is_the_minimum_of_what_has_not_ended(
    offsets: list[InputOffset], expected: tuple[int, bool]
) -> None:
    assert output_watermark(offsets) == expected
