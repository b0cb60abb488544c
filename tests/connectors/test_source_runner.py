"""From connector to outbox: the same rows whatever dies, late rows dropped, watermarks keep their promise."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from sbon_node.clock import Clock
from sbon_node.connectors import frames
from sbon_node.connectors.generator import GeneratorOptions, GeneratorSource, Timestamp
from sbon_node.connectors.interface import BadRow, Chunk
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.source_runner import SourceRunner
from sbon_node.engine.interface import Column
from sbon_node.errors import SbonError
from sbon_node.query.catalog import SourceDeclaration, StreamDeclaration
from sbon_node.simulation.loop import run
from sbon_node.streams.frame import END_WATERMARK_MS, Frame
from sbon_node.streams.outbox import Outbox
from sbon_node.streams.settings import StreamSettings

SCHEMA = pa.schema([("ts", pa.timestamp("us", "UTC")), ("n", pa.int64())])
STREAM = StreamDeclaration(
    name="clicks", schema=(Column("ts", "timestamp"), Column("n", "bigint")), event_time="ts", delay_ms=1000
)
SOURCE = SourceDeclaration(stream="clicks", name="one", node="here", connector="scripted")


def at(times: list[int | None]) -> pa.Array:
    return pa.array(times, pa.int64()).cast(pa.timestamp("ms")).cast(SCHEMA.field("ts").type)


class Scripted:
    """Gives the chunks of a script, each of event times in milliseconds; position is the number of the next."""

    finite = True
    waits = True

    def __init__(self, script: list[list[int | None]], pause_s: float = 0.0) -> None:
        self.script, self.pause_s, self.next = script, pause_s, 0

    def check(self) -> None: ...

    async def open(self, position: bytes | None) -> None:
        self.next = int(position or b"0")

    async def read(self) -> Chunk | None:
        await asyncio.sleep(self.pause_s)
        if self.next == len(self.script):
            return None
        times = self.script[self.next]
        before = sum(map(len, self.script[: self.next]))
        self.next += 1
        rows = pa.RecordBatch.from_pydict({"ts": at(times), "n": range(before, before + len(times))}, SCHEMA)
        return Chunk(rows, b"%d" % self.next, lambda i: (before + i + 1, f"row {before + i}"))

    async def close(self) -> None: ...


class Killed(Exception):
    pass


class World:
    def __init__(self, folder: Path, source: Callable[[], Any], **settings: Any) -> None:
        self.folder, self.source = folder, source
        self.settings = ConnectorSettings(**settings)
        self.states: list[tuple[str, str]] = []
        self.steps: Callable[[str], None] = lambda step: None
        self.stream_settings = StreamSettings()

    def run(self, *, until_s: float | None = None, read: bool = True) -> list[Frame]:
        async def main() -> list[Frame]:
            outbox = Outbox(self.folder / "outbox.db", self.stream_settings, lambda step: self.steps(step))
            try:
                self.runner = SourceRunner(
                    SOURCE,
                    STREAM,
                    self.source(),
                    outbox=outbox,
                    clock=Clock(),
                    settings=self.settings,
                    dead_letters=self.folder / "dead-letters",
                    wanted=lambda: asyncio.sleep(0),
                    on_state=lambda state, reason: self.states.append((state, reason)),
                )
                try:
                    async with asyncio.timeout(until_s):
                        await self.runner.run()
                except TimeoutError:
                    pass
                return outbox.read(SOURCE.id, 0, 2**40) if read else []
            finally:
                outbox.close()

        return run(lambda loop, rng: main(), seed=1)

    def letters(self) -> list[dict[str, Any]]:
        return [
            msgspec.json.decode(line) for f in sorted(self.folder.glob("dead-letters/*")) for line in f.read_bytes().splitlines()
        ]


def rows_of(found: list[Frame]) -> list[dict[str, Any]]:
    return [row for frame in found for row in frames.decode(frame.payload, SCHEMA).to_pylist()]


def numbers(found: list[Frame]) -> list[int]:
    return [row["n"] for row in rows_of(found)]


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
    world = World(tmp_path, lambda: Scripted([[1000, None, -1, 2000], [253_402_300_800_000, 2500]]))
    assert numbers(world.run()) == [0, 3, 5]
    assert [(x["line"], x["reason"]) for x in world.letters()] == [
        (2, "ts is NULL"),
        (3, "ts is before 1970"),
        (5, "ts is after the year 9999"),
    ]
    assert world.runner.describe().bad == 3
    assert Path(world.runner.describe().dead_letters).is_file()


@pytest.mark.parametrize("pause_s", [0.0, 0.04])
def test_killed_at_every_step_and_run_again_the_rows_are_the_same(tmp_path: Path, pause_s: float) -> None:
    script: list[list[int | None]] = [[i * 300 + j * 10 - (900 if j == 3 else 0) + 10_000 for j in range(8)] for i in range(12)]
    script[5][2] = None
    (tmp_path / "whole").mkdir()
    whole = World(tmp_path / "whole", lambda: Scripted(script, pause_s))
    expected = rows_of(whole.run())
    for point in range(1, 200):
        folder = tmp_path / f"{point}"
        folder.mkdir()
        world = World(folder, lambda: Scripted(script, pause_s))
        left = itertools.count(-point + 1)

        def kill(step: str, left: Any = left) -> None:
            if next(left) == 0:
                raise Killed

        world.steps = kill
        try:
            world.run()
        except Killed:
            world.steps = lambda step: None
            found = world.run()
        else:
            assert point > 3
            break
        assert rows_of(found) == expected
        assert world.runner.counts.late == whole.runner.counts.late
        assert world.letters() == whole.letters()
        assert world.runner.state == "ended"
    else:
        pytest.fail("the source never ran to its end")


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


def test_a_full_disk_pauses_and_loses_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, lambda: Scripted([[1000, None], [2000, 3000]]))
    refusals = iter([True, True, False, True])
    write = Outbox.write_source

    def full(self: Outbox, *args: Any) -> None:
        if next(refusals, False):
            raise SbonError("disk-full", "no room for more frames")
        write(self, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Outbox, "write_source", full)
        assert numbers(world.run()) == [0, 2, 3]
    assert ("paused", "no room for more frames") in world.states
    assert world.states[-1] == ("ended", "")
    assert len(world.letters()) == 1


@pytest.mark.parametrize("fails", ["open", "read"])
@pytest.mark.parametrize("code", ["file-not-found", "file-unreadable", "bad-header", "missing-columns", "endpoint-unreachable"])
def test_what_may_pass_is_tried_again_ever_later_and_nothing_is_lost(tmp_path: Path, code: str, fails: str) -> None:
    tries: list[float] = []

    class Missing(Scripted):
        def missing(self) -> None:
            tries.append(Clock().now())
            if len(tries) < 9:
                raise SbonError(code, "there is no file x", where="options.path", hint="it has to lie on the source's node")

        async def open(self, position: bytes | None) -> None:
            await super().open(position)
            if fails == "open":
                self.missing()

        async def read(self) -> Chunk | None:
            if fails == "read" and self.next == 1:
                self.missing()
            return await super().read()

    world = World(tmp_path, lambda: Missing([[1000, 2000], [3000, 4000]]), retry_s=1.0, retry_max_s=20.0)
    assert numbers(world.run()) == [0, 1, 2, 3]
    assert ("paused", "options.path: there is no file x (it has to lie on the source's node)") in world.states
    assert world.states[-1] == ("ended", "")
    pauses = [round(later - earlier) for earlier, later in itertools.pairwise(tries)]
    assert pauses[-3:] == [20, 20, 20]
    assert pauses == sorted(pauses)


@pytest.mark.parametrize("code", ["source-changed", "bad-option", "outbox-corrupt"])
def test_what_will_not_pass_fails_and_says_so(tmp_path: Path, code: str) -> None:
    class Wrong(Scripted):
        async def open(self, position: bytes | None) -> None:
            raise SbonError(code, "it cannot be", where="options.path")

    world = World(tmp_path, lambda: Wrong([[1000]]))
    assert world.run(read=False) == []
    assert world.states == [("failed", "options.path: it cannot be")]
    assert (world.runner.describe().state, world.runner.describe().trouble) == (
        "failed: options.path: it cannot be",
        "it cannot be",
    )


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
            texts = ["a", "b" * (frames.MAX_ROW_BYTES + 1), "c" * 700_000, "d" * 700_000]
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
    return GeneratorSource(
        GeneratorOptions(columns={"ts": Timestamp(step_ms=100, jitter_ms=3000)}, **options),
        SCHEMA,
        "ts",
        ConnectorSettings(),
        1e3,
    )


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
    report = world.runner.describe()
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


@pytest.mark.parametrize("call", [1, 2, 3])
def test_killed_between_dead_letters_and_frames_no_letter_is_repeated(tmp_path: Path, call: int) -> None:
    world = World(tmp_path, lambda: Scripted([[1000, None], [None, 2000], [3000], [None]], pause_s=0.2))
    calls = itertools.count(1)
    write = Outbox.write_source

    def killed(self: Outbox, *args: Any) -> None:
        if next(calls) == call:
            raise Killed
        write(self, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Outbox, "write_source", killed)
        with pytest.raises(Killed):
            world.run()
    assert numbers(world.run()) == [0, 3, 4]
    assert [letter["line"] for letter in world.letters()] == [2, 3, 6]


def test_the_pace_is_told_as_measured_and_whether_it_is_the_sources_own(tmp_path: Path) -> None:
    paced, free = (
        World(tmp_path / name, lambda rate=rate: generator(rows=2000, rate=rate)) for name, rate in (("p", 40), ("f", 0))
    )
    for world in (paced, free):
        world.folder.mkdir()
        world.run(read=False)
    told = paced.runner.describe()
    counts = paced.runner.counts
    assert told.paced
    assert told.rows_s == pytest.approx(40 * counts.rows / (counts.rows + counts.late), rel=0.1)
    assert told.bytes_s == pytest.approx(told.rows_s * counts.bytes / counts.rows, rel=0.1)
    assert not free.runner.describe().paced
