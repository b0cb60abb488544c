"""Inputs that run ahead of others are held back, outside of the credit and of memory (docs/design.md, section 7)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sbon_node.model.frames import END_WATERMARK_MS, NO_WATERMARK_MS, Frame, FrameDraft, InputOffset
from sbon_node.streams.links.credit import weight
from sbon_node.streams.links.inbox import SEGMENT_BYTES, Inbox, Spill
from sbon_node.streams.links.span import InputSpan, fill
from sbon_node.streams.port import NodePort, PortInput
from sbon_node.streams.watermark import output_watermark
from sbon_protocol.errors import SbonError
from tests.streams.conftest import HERE
from tests.streams.outboxes import stream_settings

PATIENCE_S = 240.0
DAY = 24
NO, END = NO_WATERMARK_MS, END_WATERMARK_MS


def frame(number: int, watermark_ms: int = 0, size: int = 1, ended: bool = False) -> Frame:
    return Frame(stream="s", number=number, payload=b"x" * size, rows=1, watermark_ms=watermark_ms, ended=ended)


def span(stands: int, watermarks: Sequence[int], ahead_ms: int | None = 0, *, lag_ms: int = 0, ended: bool = False) -> InputSpan:
    """An input that stands at frame 7, and has frames of these watermarks at hand; the last one may be its end."""
    last = 7 + len(watermarks)
    frames = {n: frame(n, at, ended=ended and n == last) for n, at in enumerate(watermarks, 8)}
    offset = InputOffset(frame=7, watermark_ms=stands, ended=ended and not watermarks)
    return InputSpan(7, offset, frames.get, lag_ms, ahead_ms)


@pytest.mark.parametrize(
    "inputs, taken, held",
    [
        pytest.param([span(0, [1, 2, 3])], [3], [False], id="one alone is never held"),
        pytest.param([span(0, [1, 9]), span(0, [2, 3])], [1, 2], [True, False], id="the least first"),
        pytest.param([span(0, [1, 5, 9]), span(4, [])], [1, 0], [True, False], id="the one ahead waits"),
        pytest.param([span(0, [1, 5, 9], 1), span(4, [])], [2, 0], [True, False], id="as far ahead as it may"),
        pytest.param([span(0, [900]), span(0, [1000])], [1, 0], [False, True], id="leaps do not hold each other"),
        pytest.param([span(0, [5]), span(NO, [])], [0, 0], [True, False], id="an input without a watermark holds others back"),
        pytest.param([span(NO, [NO, NO, 5]), span(NO, [])], [2, 0], [True, False], id="frames without a watermark are not ahead"),
        pytest.param([span(0, [5]), span(1, [], ended=True)], [1, 0], [False, False], id="an ended input holds no other back"),
        pytest.param([span(0, [9]), span(1, [2], ended=True)], [1, 1], [False, False], id="nor once its end is taken"),
        pytest.param([span(0, [END]), span(3, [])], [1, 0], [False, False], id="an end does not wait"),
        pytest.param([span(0, [5, END, END]), span(6, [7, 8])], [3, 2], [False, False], id="nor what comes at the end"),
        pytest.param([span(0, [9, END]), span(3, [])], [0, 0], [True, False], id="but what is before it does"),
        pytest.param([span(0, [9]), span(9, [], lag_ms=5)], [0, 0], [True, False], id="behind by its lag"),
        pytest.param([span(0, [9], 5), span(9, [], lag_ms=5)], [1, 0], [False, False], id="a bound that knows the lag"),
        pytest.param([span(0, [9], None), span(0, [], None)], [1, 0], [False, False], id="without a bound none is held"),
        pytest.param([span(0, [6], 9), span(0, [5], 1), span(0, [], 0)], [1, 0, 0], [False, True, False], id="each by its own"),
    ],
)
def test_a_batch_takes_frames_and_holds_others_back(inputs: list[InputSpan], taken: list[int], held: list[bool]) -> None:
    assert fill(inputs, 1000, 1000) == held
    assert [one.last.number - 7 if one.last else 0 for one in inputs] == taken


def test_a_batch_takes_frames_in_the_order_of_watermarks() -> None:
    inputs = [span(0, [1, 2, 3, 4, 5]), span(0, [2, 4, 6])]
    assert fill(inputs, 4 * weight(b"x"), 1000) == [False, False]
    assert [one.offset_upto(3) for one in inputs] == [
        InputOffset(frame=10, watermark_ms=3, incarnation=3),
        InputOffset(frame=8, watermark_ms=2, incarnation=3),
    ]


def test_spilled_frames_come_back_in_order_and_leave_no_file(tmp_path: Path) -> None:
    (tmp_path / "spill").mkdir()
    (tmp_path / "spill" / "7.frames").write_bytes(b"of an earlier process")
    spill = Spill(tmp_path / "spill", 10)
    assert (list(tmp_path.iterdir()), spill.head) == ([], None)
    large = SEGMENT_BYTES // 3
    for number in range(1, 9):
        spill.push(frame(number, size=large))
        if number in (3, 4, 8):
            assert spill.pop().number == {3: 1, 4: 2, 8: 3}[number]
    assert spill.head == frame(4, size=large)
    assert len(list((tmp_path / "spill").iterdir())) == 2
    assert (spill.frames, spill.bytes, spill.is_full) == (5, 5 * (large + 64), True)
    assert [spill.pop().number for _ in range(5)] == [4, 5, 6, 7, 8]
    assert (spill.head, spill.bytes, spill.total_frames) == (None, 0, 8)
    spill.push(frame(9))
    assert spill.pop() == frame(9)
    assert len(list((tmp_path / "spill").iterdir())) == 1
    spill.clear()
    assert list(tmp_path.iterdir()) == []


def test_frames_on_disk_leave_the_credit_until_the_spill_is_full(tmp_path: Path) -> None:
    size = weight(b"x" * 36)
    spill = Spill(tmp_path / "spill", 20 * size)
    inbox = Inbox("s", capacity_bytes=10 * size, spill=spill)
    number = 0

    def receive() -> None:
        nonlocal number
        while inbox.room_bytes >= size:
            number += 1
            inbox.add(frame(number, size=36))
            assert inbox.memory_bytes <= inbox.capacity_bytes

    receive()
    assert (number, spill.frames) == (10, 0)
    inbox.hold(True)
    receive()
    assert number == 10 + 21 + 10 - 1
    assert inbox.room_bytes == 0
    inbox.hold(False)
    taken = 0
    while taken < number:
        upto = min(taken + 3, number)
        assert [one.number for one in inbox.frames(taken, upto)] == list(range(taken + 1, upto + 1))
        inbox.release(upto)
        taken = upto
    assert (inbox.buffered_bytes, inbox.memory_bytes, spill.frames) == (0, 0, 0)


# -- a stream joined with its own daily aggregate ----------------------------------------------------------------------

PAYLOAD = "x" * 960
HOURS = 20 * DAY
SMALL = stream_settings(inbox_credit_bytes=4096, outbox_quota_bytes=4096, batch_span_bytes=2048, reconnect_s=0.001)
"""The stream has 480 KB; a day of it is three times what a link and an outbox take together."""


class Diamond:
    """``s`` > ``b0`` > ``join`` directly, and through ``daily``, whose watermark is a day behind what it has read."""

    def __init__(self, host: Any, ahead_ms: int, spill_to: Path | None) -> None:
        self.host, self.spill_to = host, spill_to
        host.source("s", *[PAYLOAD] * HOURS, ended=True)
        self.b0 = host.port("b0", "s")
        self.daily = host.port("daily", "b0")
        self.join = host.port(
            "join",
            PortInput(stream="b0", locate=lambda: HERE, ahead_ms=ahead_ms, spill_to=spill_to),
            PortInput(stream="daily", locate=lambda: HERE, ahead_ms=DAY),
        )
        self.taken = 0
        self.most_ahead_ms = 0
        self.most_bytes = 0

    def spill_exists(self) -> bool:
        return self.spill_to is not None and self.spill_to.exists()

    async def run(self) -> None:
        sink = self.host.link("join")
        async with asyncio.TaskGroup() as group:
            for port, lag_ms in ((self.b0, 0), (self.daily, DAY), (self.join, 0)):
                group.create_task(self._operate(port, lag_ms))
            while sink.inbox.newest is None or not sink.inbox.newest.ended:
                await sink.wait(sink.inbox.released)
                if not sink.inbox.newest.ended:
                    sink.acknowledge(sink.inbox.received)

    async def _operate(self, port: NodePort, lag_ms: int) -> None:
        """As an engine does, until the end: passes frames on, ``join`` and ``daily`` as frames without rows."""
        port.recover(None)
        batch, after = 0, (InputOffset(),) * len(port._inputs)
        while not all(one.ended for one in after):
            offsets = await port.poll(after, 0.05)
            if offsets == after:
                continue
            drafts = []
            for position, (one, upto) in enumerate(zip(after, offsets, strict=True)):
                for taken in await port.fetch(position, one.frame, upto.frame):
                    watermark_ms = taken.watermark_ms - (lag_ms if taken.watermark_ms < END else 0)
                    payload, rows = (taken.payload, taken.rows) if port is self.b0 else (b"", 0)
                    drafts.append(FrameDraft(payload=payload, rows=rows, watermark_ms=watermark_ms))
                    self.taken += port is self.join and position == 0
            watermark_ms, ended = output_watermark(offsets)
            last = FrameDraft(payload=b"", rows=0, watermark_ms=watermark_ms - (0 if ended else lag_ms), ended=ended)
            await port.write(batch, offsets, [*drafts, last])
            await port.committed(batch)
            self.most_bytes = max([self.most_bytes, *(link.inbox.memory_bytes for link in port.links)])
            if port is self.join and 0 < offsets[1].watermark_ms < HOURS - 2 * DAY:
                self.most_ahead_ms = max(self.most_ahead_ms, offsets[0].watermark_ms - offsets[1].watermark_ms)
            batch, after = batch + 1, offsets


def diamond(make_host: Any, ahead_ms: int, spill_to: Path | None, **more: Any) -> Diamond:
    return Diamond(make_host(msgspec.structs.replace(SMALL, **more)), ahead_ms, spill_to)


async def test_a_stream_joined_with_its_own_daily_aggregate_runs_to_its_end_by_way_of_the_spill(
    make_host: Any, tmp_path: Path
) -> None:
    one = diamond(make_host, 0, tmp_path / "spill")
    async with asyncio.timeout(PATIENCE_S):
        await one.run()
    assert one.taken >= HOURS
    assert one.join.spilled.bytes > DAY * weight(PAYLOAD.encode()) * 15
    assert one.join.spilled.now_bytes == 0
    await one.join.close()
    assert not one.spill_exists()
    assert one.most_bytes <= SMALL.inbox_credit_bytes
    assert one.most_ahead_ms <= 1


async def test_without_the_spill_it_locks_up(make_host: Any, until: Any) -> None:
    one = diamond(make_host, 0, None)
    running = asyncio.ensure_future(one.run())
    async with asyncio.timeout(PATIENCE_S):
        await until(lambda: one.join.held == ["b0"] and one.host.outbox.pressure("b0"))
        await until(lambda: one.daily.links and one.daily.links[0].inbox.received == one.host.outbox.latest("b0"))
    taken = one.taken
    await asyncio.sleep(0.2)
    assert (running.done(), one.taken) == (False, taken)
    assert taken < 2 * DAY
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_bound_that_knows_of_the_day_needs_no_spill(make_host: Any) -> None:
    one = diamond(make_host, DAY, None)
    async with asyncio.timeout(PATIENCE_S):
        await one.run()
    assert one.taken >= HOURS


async def test_a_spill_that_is_full_fails_the_operator_with_the_reason_and_no_other(make_host: Any, tmp_path: Path) -> None:
    one = diamond(make_host, 0, tmp_path / "spill", spill_max_bytes=8192, spill_patience_s=0.05)
    with pytest.raises(ExceptionGroup) as failed:
        async with asyncio.timeout(PATIENCE_S):
            await one.run()
    (error,) = failed.value.exceptions
    assert isinstance(error, SbonError)
    assert (error.code, error.where) == ("held-too-long", "join")
    assert "b0" in error.message
    assert one.daily.links[0].state == one.b0.links[0].state == "connected"


async def test_a_planned_batch_finds_the_same_frames_after_a_restart_that_has_thrown_the_spill_away(
    make_host: Any, tmp_path: Path
) -> None:
    host = make_host(SMALL)
    texts = [f"{number:02} {PAYLOAD}" for number in range(1, 41)]

    def port(committed: int | None) -> NodePort:
        one = PortInput(stream="fast", locate=lambda: HERE, ahead_ms=0, spill_to=tmp_path / "spill")
        made: NodePort = host.port("op", one, PortInput(stream="slow", locate=lambda: HERE, ahead_ms=0))
        made.recover(committed)
        return made

    host.source("fast", *texts)
    host.source("slow", "a", "b", "c")
    before = port(None)
    batch, after = -1, (InputOffset(), InputOffset())
    while after[0].frame < 3 or before.links[0].inbox.received < len(texts):
        offsets = await before.poll(after, 0.01)
        if offsets != after:
            batch, after = batch + 1, offsets
            await before.write(batch, offsets, [FrameDraft(payload=b"", rows=0)])
            await before.committed(batch)
    assert after[0].frame == 3
    assert before.spilled.frames > 30
    host.source("slow", "d", "e")
    await before.links[1].wait(4)
    planned = await before.poll(after, PATIENCE_S)
    assert planned[0].frame == 4
    frames = await before.fetch(0, 3, 4)
    await before.close()
    (tmp_path / "spill").mkdir()
    (tmp_path / "spill" / "0.frames").write_bytes(b"left by a kill")
    host.restart()
    again = port(batch)
    assert await again.fetch(0, 3, 4) == frames
    assert [frame.payload.decode() for frame in frames] == texts[3:4]
