"""Sinks: each row exactly once whatever dies, and nothing acknowledged before it is delivered."""

from __future__ import annotations

import asyncio
import itertools
import json
import resource
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sbon_node.blocking import Blocking, in_thread, inline
from sbon_node.clock import Clock
from sbon_node.connectors import frames
from sbon_node.connectors.delivered import Finished, Rows
from sbon_node.connectors.follow_sink import FollowSink
from sbon_node.connectors.interface import Sink
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sink_context import SinkContext
from sbon_node.connectors.sink_position import FilePosition, position_path
from sbon_node.connectors.sink_registry import check_sink, open_sink, withdraw_sink
from sbon_node.connectors.sink_runner import SinkRunner
from sbon_node.errors import SbonError
from sbon_node.simulation.loop import run
from sbon_node.steps import unobserved
from sbon_node.streams.frame import Frame
from sbon_node.streams.inbox import Inbox

FORMATS = ["out.csv", "out.ndjson", "out.parquet"]
ARROW = pa.schema([("stream", pa.string()), ("n", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("x", pa.float64())])


def stream_of(name: str, count: int) -> list[Frame]:
    """Frame i has i % 4 rows; the last one says that the stream has ended."""
    found = []
    for number in range(1, count + 1):
        rows = [
            {"stream": name, "n": number * 10 + i, "ts": number * 10**9 + i, "x": None if i else 0.5} for i in range(number % 4)
        ]
        payload = frames.encode(pa.RecordBatch.from_pylist(rows, ARROW))
        found.append(
            Frame(
                stream=name, number=number, payload=payload, rows=len(rows), watermark_ms=number, ended=number == count, born_ms=1
            )
        )
    return found


class FakeLink:
    """A link whose stream is all here: frames come one every ``pause_s``, as far as the credit goes."""

    def __init__(self, sent: list[Frame], acknowledged: dict[str, int], pause_s: float, start_after: int) -> None:
        self.stream = sent[0].stream
        self.sent, self.pause_s, self.acknowledged = sent, pause_s, acknowledged
        self.inbox = Inbox(self.stream, capacity_bytes=2**20, released=start_after)
        self.task: asyncio.Task[None] | None = None
        self.failure: SbonError | None = None
        assert acknowledged.get(self.stream, 0) <= start_after

    def start(self) -> None:
        self.task = asyncio.get_running_loop().create_task(self.feed())

    async def feed(self) -> None:
        for frame in self.sent[self.inbox.received :]:
            await asyncio.sleep(self.pause_s)
            self.inbox.add(frame)

    def check(self) -> None:
        if self.failure is not None:
            raise self.failure

    def acknowledge(self, number: int) -> None:
        self.acknowledged[self.stream] = max(number, self.acknowledged.get(self.stream, 0))
        self.inbox.release(number)

    async def close(self, *, unsubscribe: bool = False) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.wait([self.task])


def context(claim: str = "mine", *, fresh: bool = True, blocking: Blocking = inline, steps: Any = unobserved) -> SinkContext:
    return SinkContext(
        part="q.sink", claim=claim, fresh=fresh, schema=ARROW, data_dir=Path("/nowhere"), blocking=blocking, steps=steps
    )


def opened(options: dict[str, Any], claim: str = "mine", *, fresh: bool = True) -> Sink:
    return asyncio.run(open_sink("file", options, context(claim, fresh=fresh)))


def withdrawn(options: dict[str, Any], claim: str = "mine", *, delivered: bool) -> None:
    asyncio.run(withdraw_sink("file", options, context(claim, fresh=False), delivered=delivered))


class Killed(Exception):
    pass


SENT = {"a": stream_of("a", 13), "b": stream_of("b", 6)}
EXPECTED = sorted(
    (r["stream"], r["n"], r["x"]) for s in SENT.values() for f in s if f.rows for r in frames.decode(f.payload).to_pylist()
)


class World:
    def __init__(self, path: Path, pause_s: float = 0.02, **options: Any) -> None:
        self.path, self.pause_s, self.options = path, pause_s, {"path": str(path), **options}
        self.acknowledged: dict[str, int] = {}
        self.fresh = True
        self.steps: Callable[[str], None] = lambda step: None

    def run(self) -> SinkRunner:
        async def main() -> SinkRunner:
            steps = lambda step: self.steps(step)  # noqa: E731
            sink = await open_sink("file", self.options, context(fresh=self.fresh, steps=steps))
            self.fresh = False
            done = sink.positions()
            links: list[Any] = [FakeLink(s, self.acknowledged, self.pause_s, done.get(n, 0)) for n, s in SENT.items()]
            runner = SinkRunner("q", sink, links, Clock())
            try:
                await runner.run()
            finally:
                await runner.close()
            return runner

        return run(lambda loop, rng: main(), seed=1)

    def rows(self) -> list[tuple[Any, ...]]:
        what = {".csv": f"read_csv('{self.path}')", ".ndjson": f"read_json('{self.path}')"}.get(
            self.path.suffix, f"read_parquet('{self.path}/*.parquet')"
        )
        return sorted(duckdb.sql(f"SELECT stream, n, x FROM {what}").fetchall())


@pytest.mark.parametrize("name", FORMATS)
def test_another_reader_finds_every_row(tmp_path: Path, name: str) -> None:
    world = World(tmp_path / name)
    runner = world.run()
    assert world.rows() == EXPECTED
    assert runner.rows == len(EXPECTED)
    assert world.acknowledged == {"a": 13, "b": 6}
    assert runner.state == "finished"


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("pause_s", [0.0, 0.04])
def test_killed_between_any_two_steps_each_row_is_there_once(tmp_path: Path, name: str, pause_s: float) -> None:
    for point in range(1, 100):
        folder = tmp_path / f"{point}"
        folder.mkdir()
        world = World(folder / name, pause_s, part_s=0.1)
        left = itertools.count(1)

        def kill(step: str, left: Any = left, point: int = point) -> None:
            # Killed over and over: each run gets one step further than the one before.
            if next(left) % (point + 1) == point:
                raise Killed

        world.steps = kill
        deaths = 0
        while True:
            try:
                world.run()
            except Killed:
                deaths += 1
                if deaths > 3:
                    world.steps = lambda step: None
                stated = msgspec.json.decode(position_path(world.path, suffix(world.path)).read_bytes(), type=FilePosition)
                assert all(stated.streams.get(s, 0) >= n for s, n in world.acknowledged.items())
            else:
                break
        assert world.rows() == EXPECTED
        assert not list(folder.glob("**/*.new"))
        if not deaths:
            assert point > 1
            return
    pytest.fail("the sink never ran to its end")


def suffix(path: Path) -> Any:
    return path.suffix[1:]


@pytest.mark.parametrize("name", FORMATS)
def test_a_finished_sink_run_again_changes_nothing(tmp_path: Path, name: str) -> None:
    world = World(tmp_path / name)
    world.run()
    before = {p: p.read_bytes() for p in tmp_path.glob("**/*") if p.is_file()}
    world.run()
    assert before == {p: p.read_bytes() for p in tmp_path.glob("**/*") if p.is_file()}


@pytest.mark.parametrize("name", FORMATS)
def test_a_full_disk_pauses_and_loses_nothing(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path / name, part_s=0.1)
    refusals = itertools.count()

    def full(step: str) -> None:
        if step == "sink-write" and next(refusals) in (1, 2, 5):
            raise OSError(28, "No space left on device")

    world.steps = full
    states: list[tuple[str, str]] = []
    enter = SinkRunner._enter
    monkeypatch.setattr(SinkRunner, "_enter", lambda self, *how: (states.append(how), enter(self, *how)))
    world.run()
    assert world.rows() == EXPECTED
    assert any(how[0] == "paused" and "no room" in how[1] for how in states)


def test_parquet_parts_roll_by_rows(tmp_path: Path) -> None:
    world = World(tmp_path / "out.parquet", 0.0, part_rows=4)
    world.run()
    parts = sorted((tmp_path / "out.parquet").glob("part-*.parquet"))
    assert len(parts) >= 4
    assert all(pq.read_table(p).schema.equals(ARROW) for p in parts)
    assert world.rows() == EXPECTED


@pytest.mark.parametrize("name", ["out.csv", "out.parquet"])
def test_no_rows_still_have_columns(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = Frame(stream="a", number=1, payload=b"", rows=0, ended=True)
    monkeypatch.setitem(SENT, "a", [empty])
    monkeypatch.setitem(SENT, "b", [msgspec.structs.replace(empty, stream="b")])
    world = World(tmp_path / name)
    world.run()
    assert world.rows() == []


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_there_already_is_not_touched(tmp_path: Path, name: str) -> None:
    foreign = tmp_path / name / "x" if name == "out.parquet" else tmp_path / name
    foreign.parent.mkdir(exist_ok=True)
    foreign.write_text("mine")
    for call in (lambda o: check_sink("file", o, ConnectorSettings()), opened):
        with pytest.raises(SbonError) as caught:
            call({"path": str(tmp_path / name)})
        assert caught.value.code == "sink-exists"
    assert foreign.read_text() == "mine"


def test_two_sinks_cannot_share_a_path(tmp_path: Path) -> None:
    options = {"path": str(tmp_path / "out.csv")}
    opened(options)
    with pytest.raises(SbonError) as caught:
        opened(options)
    assert caught.value.code == "sink-exists"


@pytest.mark.parametrize("name", ["out.csv", "out.parquet"])
def test_a_result_that_was_tampered_with_is_not_continued(tmp_path: Path, name: str) -> None:
    world = World(tmp_path / name)
    world.run()
    victim = next(iter(sorted((tmp_path / name).glob("part-*")))) if name == "out.parquet" else tmp_path / name
    victim.unlink()
    with pytest.raises(SbonError) as caught:
        world.run()
    assert caught.value.code == "sink-lost"


def found_under(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.glob("**/*")}


@contextmanager
def no_room() -> Iterator[None]:
    """The system refuses to let files grow, as it does on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("name", FORMATS)
def test_a_claim_that_fails_half_way_leaves_nothing(tmp_path: Path, name: str) -> None:
    options = {"path": str(tmp_path / name)}
    with no_room(), pytest.raises(SbonError) as caught:
        opened(options)
    assert caught.value.code == "disk-full"
    assert found_under(tmp_path) == set()
    opened(options)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("delivered", [False, True])
def test_a_refused_submission_leaves_the_path_free(tmp_path: Path, name: str, delivered: bool) -> None:
    world = World(tmp_path / name, part_s=0.1)
    if delivered:
        world.run()
        assert world.rows() == EXPECTED
    else:
        opened(world.options)
    for _ in range(2):  # it may be repeated
        withdrawn(world.options, "mine", delivered=True)
        assert found_under(tmp_path) == set()
    check_sink("file", world.options, ConnectorSettings())


@pytest.mark.parametrize("name", FORMATS)
def test_a_stopped_query_keeps_what_it_has_delivered(tmp_path: Path, name: str) -> None:
    world = World(tmp_path / name)
    world.run()
    withdrawn(world.options, "mine", delivered=False)
    assert world.rows() == EXPECTED


@pytest.mark.parametrize("name", FORMATS)
def test_withdrawing_touches_nothing_of_others(tmp_path: Path, name: str) -> None:
    theirs = World(tmp_path / name)
    theirs.run()
    before = found_under(tmp_path)
    withdrawn(theirs.options, "another", delivered=True)
    assert found_under(tmp_path) == before
    assert theirs.rows() == EXPECTED


def test_withdrawing_keeps_a_folder_and_files_that_were_there_or_came(tmp_path: Path) -> None:
    folder = tmp_path / "out.parquet"
    folder.mkdir()
    options = {"path": str(folder)}
    opened(options)
    withdrawn(options, "mine", delivered=True)
    assert folder.is_dir()
    folder.rmdir()
    opened(options)
    (folder / "notes").write_text("theirs")
    withdrawn(options, "mine", delivered=True)
    assert found_under(tmp_path) == {"out.parquet", "out.parquet/notes"}


def test_a_result_of_another_claim_is_not_continued(tmp_path: Path) -> None:
    options = {"path": str(tmp_path / "out.csv")}
    opened(options, "mine")
    with pytest.raises(SbonError) as caught:
        opened(options, "another", fresh=False)
    assert caught.value.code == "sink-lost"


@pytest.mark.parametrize("name", FORMATS)
def test_writing_leaves_the_event_loop_free(tmp_path: Path, name: str) -> None:
    """The disk is slow: it waits for the loop, which could not go on if the sink wrote on it."""
    beat = threading.Event()

    def slow(step: str) -> None:
        beat.clear()
        assert beat.wait(60), "the loop stood still while the sink wrote"

    async def heart() -> None:
        while True:
            beat.set()
            await asyncio.sleep(0)

    async def main() -> Mapping[str, int]:
        options = {"path": str(tmp_path / name)}
        sink = await open_sink("file", options, context(blocking=in_thread, steps=slow))
        beating = asyncio.create_task(heart())
        for frame in SENT["a"]:
            sink.take(frame)
        delivered = await sink.flush()
        beating.cancel()
        return delivered

    assert asyncio.run(main()) == {"a": 13}


def test_a_write_that_is_cancelled_is_over_when_the_cancelling_is(tmp_path: Path) -> None:
    writing, go_on = threading.Event(), threading.Event()
    steps: list[str] = []

    def slow(step: str) -> None:
        steps.append(step)
        writing.set()
        assert go_on.wait(60)

    async def main() -> None:
        sink = await open_sink("file", {"path": str(tmp_path / "out.csv")}, context(blocking=in_thread, steps=slow))
        sink.take(SENT["a"][0])
        task = asyncio.ensure_future(sink.flush())
        await asyncio.to_thread(writing.wait, 60)
        task.cancel()
        asyncio.get_running_loop().call_soon(go_on.set)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert steps == ["sink-write", "position-write"]
        assert sink.positions() == {"a": 1}

    asyncio.run(main())


@pytest.mark.parametrize(
    "kind, options, code, where",
    [
        ("file", {}, "bad-option", "options.path"),
        ("file", {"path": "/nowhere/at/all.csv"}, "bad-option", "options.path"),
        ("file", {"path": "x.doc"}, "bad-option", "options.format"),
        ("file", {"path": "x.csv", "fromat": "csv"}, "unknown-option", "options.fromat"),
        ("kafka", {}, "unknown-sink", "sink.kind"),
        ("follow", {"path": "x"}, "unknown-option", "options.path"),
    ],
)
def test_what_is_refused_at_submission(kind: str, options: dict[str, Any], code: str, where: str) -> None:
    with pytest.raises(SbonError) as caught:
        check_sink(kind, options, ConnectorSettings())
    assert (caught.value.code, caught.value.where) == (code, where)


@pytest.mark.parametrize("payload, rows", [(b"garbage", 1), (frames.encode(pa.RecordBatch.from_pydict({"y": [1]})), 1), (b"", 3)])
def test_a_frame_of_something_else_is_refused(tmp_path: Path, payload: bytes, rows: int) -> None:
    sink = opened({"path": str(tmp_path / "out.csv")})
    with pytest.raises(SbonError) as caught:
        sink.take(Frame(stream="a", number=1, payload=payload, rows=rows))
    assert caught.value.code == "bad-frame"


def test_ndjson_keeps_types(tmp_path: Path) -> None:
    world = World(tmp_path / "out.ndjson")
    world.run()
    first = json.loads((tmp_path / "out.ndjson").read_text().splitlines()[0])
    assert first == {"stream": "a", "n": 10, "ts": "1970-01-01T00:16:40Z", "x": 0.5}


# -- following --------------------------------------------------------------------------------------------------------


def following(test: Callable[[FollowSink, list[FakeLink], asyncio.Task[None]], Any], pause_s: float = 0.01) -> dict[str, int]:
    acknowledged: dict[str, int] = {}

    async def main() -> None:
        links: list[Any] = [FakeLink(s, acknowledged, pause_s, 0) for s in SENT.values()]
        sink = FollowSink("q", links, Clock())
        task = asyncio.get_running_loop().create_task(sink.run())
        try:
            await test(sink, links, task)
        finally:
            task.cancel()
            await asyncio.wait([task])
            await sink.close()

    run(lambda loop, rng: main(), seed=1)
    return acknowledged


def test_a_follower_sees_every_row_and_then_the_end() -> None:
    seen: list[tuple[Any, ...]] = []

    async def test(sink: FollowSink, links: list[FakeLink], task: asyncio.Task[None]) -> None:
        async for event in sink.follow({}):
            if isinstance(event, Finished):
                assert event.state == "finished"
                break
            seen.extend(dict(zip(event.columns, row, strict=True)).values() for row in event.rows)
            sink.acknowledge({event.stream: event.number})
        await task
        assert sink.rows == len(EXPECTED)

    assert following(test) == {"a": 13, "b": 6}
    assert sorted((s, n, x) for s, n, _, x in seen) == EXPECTED


def test_what_nobody_acknowledged_comes_again() -> None:
    async def test(sink: FollowSink, links: list[FakeLink], task: asyncio.Task[None]) -> None:
        async def numbers(after: dict[str, int], count: int) -> list[tuple[str, int]]:
            found = []
            events = sink.follow(after)
            async for event in events:
                assert isinstance(event, Rows)
                found.append((event.stream, event.number))
                if len(found) == count:
                    await events.aclose()
            return found

        await asyncio.sleep(60)
        everything = await numbers({}, 19)
        assert everything == [("a", n) for n in range(1, 14)] + [("b", n) for n in range(1, 7)]
        sink.acknowledge({"a": 5})
        assert await numbers({}, 14) == everything[5:]
        assert await numbers({"a": 13, "b": 4}, 2) == [("b", 5), ("b", 6)]
        for after, code in (({"a": 3}, "not-retained"), ({"c": 1}, "unknown-stream")):
            with pytest.raises(SbonError) as caught:
                await numbers(after, 1)
            assert caught.value.code == code
        with pytest.raises(SbonError) as caught:
            sink.acknowledge({"a": 14})
        assert caught.value.code == "not-received"
        assert sink.ends({"a": 13}) == {"a"}
        assert not task.done()

    assert following(test) == {"a": 5}


def test_one_follower_at_a_time_and_another_after_it() -> None:
    async def test(sink: FollowSink, links: list[FakeLink], task: asyncio.Task[None]) -> None:
        first = sink.follow({})
        await anext(first)
        with pytest.raises(SbonError) as caught:
            await anext(sink.follow({}))
        assert caught.value.code == "already-followed"
        await first.aclose()
        assert isinstance(await anext(sink.follow({})), Rows)

    assert following(test) == {}


def test_a_link_that_fails_ends_the_following_with_its_reason() -> None:
    async def test(sink: FollowSink, links: list[FakeLink], task: asyncio.Task[None]) -> None:
        events = sink.follow({"a": 13, "b": 6})
        waiting = asyncio.get_running_loop().create_task(anext(events))
        await asyncio.sleep(0.05)
        links[0].failure = SbonError("quota", "fell behind")
        links[0].inbox.news.notify()
        event = await waiting
        assert isinstance(event, Finished)
        assert (event.state, event.reason) == ("failed", "fell behind")
        with pytest.raises(SbonError):
            await task

    following(test)
