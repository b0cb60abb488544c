"""From connector to outbox: the same rows whatever dies, late rows dropped, watermarks keep their promise."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sbon_node.connectors.formats import frames
from sbon_node.connectors.interface import BadRow, Chunk
from sbon_node.connectors.sources.generator import GeneratorOptions, GeneratorSource, Timestamp
from sbon_node.model.frames import END_WATERMARK_MS, MAX_ROW_BYTES
from sbon_node.streams.outbox.outbox import Outbox
from sbon_node.streams.settings import StreamSettings
from tests.connectors.source_context import context_of
from tests.connectors.source_worlds import SCHEMA, SOURCE, Scripted, World, at, numbers, rows_of


def test_late_rows_are_dropped_by_the_greatest_time_before_them(tmp_path: Path) -> None:
    # Delay 1,000 ms: after 5,000 a row of 4,000 is in time, one of 3,999 late; the row that moves the time is never late itself.
    world = World(tmp_path, lambda: Scripted([[5000, 4000, 3999], [3999, 9000, 7999, 8000]]))
    assert numbers(world.run()) == [0, 1, 4, 6]
    assert (world.runner.counts.rows, world.runner.counts.late) == (4, 3)


def test_every_frame_keeps_its_watermarks_promise(tmp_path: Path) -> None:
    script = [[(i * 37 + j * 911) % 20_000 + i * 500 for j in range(50)] for i in range(40)]
    found = World(tmp_path, lambda: Scripted(script, pause_s=0.03)).run()
    assert len(found) > 10
    assert [f.ended for f in found] == [False] * (len(found) - 1) + [True]
    assert found[-1].watermark_ms == END_WATERMARK_MS
    for earlier, later in itertools.combinations(found, 2):
        times = [row["ts"].timestamp() * 1000 for row in rows_of([later])]
        assert all(time >= earlier.watermark_ms for time in times)
        assert later.watermark_ms >= earlier.watermark_ms


def test_rows_without_usable_time_are_dead_letters(tmp_path: Path) -> None:
    world = World(tmp_path, lambda: Scripted([[1000, None, -62_135_596_800_001, 2000], [253_402_300_800_000, 2500]]))
    assert numbers(world.run()) == [0, 3, 5]
    assert [(x["line"], x["reason"]) for x in world.letters()] == [
        (2, "ts is NULL"),
        (3, "ts is before the year 1"),
        (5, "ts is after the year 9999"),
    ]
    assert world.told.bad == 3
    assert Path(world.told.dead_letters).is_file()


@pytest.mark.parametrize("start_ms", [-62_135_596_800_000, -5000, 0])
def test_event_times_of_1970_and_before_are_like_any_other(tmp_path: Path, start_ms: int) -> None:
    script = [[start_ms, start_ms + 5000, start_ms + 4000], [start_ms + 3999, start_ms + 9000, start_ms + 8000]]
    world = World(tmp_path, lambda: Scripted(script))
    found = world.run()
    assert numbers(found) == [0, 1, 2, 4, 5]
    assert (world.runner.counts.late, world.told.bad) == (1, 0)
    assert world.told.watermark_ms == start_ms + 8000


def test_an_ended_source_stays_ended(tmp_path: Path) -> None:
    world = World(tmp_path, lambda: Scripted([[1000]]))
    assert world.run() == world.run()
    assert world.states == [("running", ""), ("ended", ""), ("ended", "")]


def test_an_empty_source_ends_with_a_frame(tmp_path: Path) -> None:
    found = World(tmp_path, lambda: Scripted([])).run()
    assert [(f.rows, f.ended, f.payload) for f in found] == [(0, True, b"")]


def test_rows_that_trickle_share_frames_for_no_longer_than_the_linger(tmp_path: Path) -> None:
    script: list[list[int | None]] = [[1000 + i] for i in range(100)]
    found = World(tmp_path, lambda: Scripted(script, pause_s=0.01), linger_s=0.1).run()
    assert 8 <= len(found) <= 12


def test_large_input_is_cut_into_frames_of_the_aim(tmp_path: Path) -> None:
    found = World(tmp_path, lambda: Scripted([list(range(10_000)) for _ in range(12)])).run()
    assert len(numbers(found)) < 120_000
    assert max(frames.decode(f.payload, SCHEMA).nbytes for f in found) <= 2 * frames.AIM_BYTES
    assert len(found) <= 10


def test_a_finite_source_waits_for_its_subscribers_to_receive(tmp_path: Path) -> None:
    script: list[list[int | None]] = [[i * 20_000 + j for j in range(20_000)] for i in range(10)]
    world = World(tmp_path, lambda: Scripted(script))
    world.stream_settings = StreamSettings(outbox_quota_bytes=20_000)
    found = world.run(until_s=60.0)
    assert 0 < len(found) < 10
    assert world.states[-1][0] == "paused"
    world.stream_settings = StreamSettings()
    assert numbers(world.run()) == list(range(200_000))


def test_a_row_over_the_limit_is_refused_alone(tmp_path: Path) -> None:
    schema = pa.schema([("ts", pa.timestamp("us", "UTC")), ("text", pa.string())])

    class Wide(Scripted):
        async def read(self) -> Chunk | None:
            if self.next:
                return None
            self.next = 1
            texts = ["a", "b" * (MAX_ROW_BYTES + 1), "c" * 700_000, "d" * 700_000]
            rows = pa.RecordBatch.from_pydict({"ts": at([1000] * 4), "text": texts}, schema)
            return Chunk(rows, b"1", lambda i: (i + 10, texts[i]), bad=(BadRow(9, "?", "not a row"),))

    world = World(tmp_path, lambda: Wide([]))
    found = world.run()
    assert [len(t) for f in found for t in frames.decode(f.payload, schema)["text"].to_pylist()] == [1, 700_000, 700_000]
    assert [(x["line"], len(x["text"])) for x in world.letters()] == [(9, 1), (11, 4096)]
    assert (world.runner.counts.bad, world.runner.counts.too_large) == (1, 1)


def test_dead_letters_are_bounded_and_counted_beyond(tmp_path: Path) -> None:
    world = World(tmp_path, lambda: Scripted([[None] * 100, [1000]]), dead_letter_max_bytes=500)
    world.run()
    assert world.runner.counts.bad == 100
    assert 0 < len(world.letters()) < 100
    assert sum(f.stat().st_size for f in tmp_path.glob("dead-letters/*")) <= 500


def generator(**options: Any) -> GeneratorSource:
    columns = {"ts": Timestamp(step_ms=100, jitter_ms=3000)}
    return GeneratorSource(context_of(SCHEMA), GeneratorOptions(columns=columns, **options))


def test_a_generator_keeps_its_rate_and_resumes_with_the_same_rows(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    expected = rows_of(World(tmp_path / "whole", lambda: generator(rows=1000, rate=100)).run())
    world = World(tmp_path, lambda: generator(rows=1000, rate=100))
    seen = len(rows_of(world.run(until_s=3.0)))
    assert 150 <= seen + world.runner.counts.late <= 310
    assert rows_of(world.run()) == expected
    assert world.runner.counts.late > 0


def test_a_live_source_drops_and_counts_what_an_absent_subscriber_cannot_take(tmp_path: Path) -> None:
    world = World(tmp_path, lambda: generator(rate=1000))
    world.stream_settings = StreamSettings(live_retention_bytes=50_000, subscription_quota_bytes=200_000)
    box = Outbox(tmp_path / "outbox.db", world.stream_settings)
    box.open_stream(SOURCE.id, "source")
    box.subscribe(SOURCE.id, "absent", 0)
    box.close()
    world.run(until_s=200.0, read=False)
    report = world.told
    assert report.state == "running"
    assert 0 < report.dropped < report.rows
    again = Outbox(tmp_path / "outbox.db", world.stream_settings)
    link = again.link_counts(SOURCE.id).links["absent"]
    assert (link.failed, link.dropped) == ("quota", report.dropped)
    first = again.subscribe(SOURCE.id, "later", 0)
    assert first > 1
    kept = sum(frame.rows for frame in again.read(SOURCE.id, first - 1, 2**30))
    assert report.rows - kept >= report.dropped
    again.close()


def test_the_pace_is_reported_as_measured_and_whether_it_is_the_sources_own(tmp_path: Path) -> None:
    paced, free = (
        World(tmp_path / name, lambda rate=rate: generator(rows=2000, rate=rate)) for name, rate in (("p", 40), ("f", 0))
    )
    for world in (paced, free):
        world.folder.mkdir()
        world.run(read=False)
    told = paced.told
    counts = paced.runner.counts
    assert told.paced
    assert told.rows_s == pytest.approx(40 * counts.rows / (counts.rows + counts.late), rel=0.1)
    assert told.bytes_s == pytest.approx(told.rows_s * counts.bytes / counts.rows, rel=0.1)
    assert not free.told.paced


class Bulky(Scripted):
    """Rows of half a frame each, all in one chunk."""

    async def read(self) -> Chunk | None:
        chunk = await super().read()
        if chunk is None:
            return None
        text = pa.array(["x" * (frames.AIM_BYTES // 2)] * chunk.rows.num_rows)
        rows = pa.RecordBatch.from_arrays([*chunk.rows.columns, text], schema=BULKY)
        return Chunk(rows, chunk.position, chunk.origin)


BULKY = SCHEMA.append(pa.field("text", pa.string()))


def test_frames_of_one_write_promise_nothing_that_later_ones_of_it_break(tmp_path: Path) -> None:
    # One write of many frames, whose rows span a hundred times the delay; then another.
    script: list[list[int | None]] = [[i * 10_000 for i in range(12)], [130_000 + i * 10_000 for i in range(12)]]
    found = World(tmp_path, lambda: Bulky(script)).run()
    times = [[row["ts"].timestamp() * 1000 for row in frames.decode(frame.payload, BULKY).to_pylist()] for frame in found]
    assert sum(map(len, times)) == 24
    assert len(found) >= 8
    for number, frame in enumerate(found):
        assert all(time >= frame.watermark_ms for later in times[number + 1 :] for time in later)
    # And they do promise what held before the write.
    assert max(frame.watermark_ms for frame in found[:-1]) >= 110_000 - 1000
