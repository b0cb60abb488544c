"""Sinks to files: each row exactly once whatever dies, and nothing acknowledged before it is delivered."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sbon_node.base.executors import in_thread
from sbon_node.connectors.formats import frames
from sbon_node.connectors.sinks.file import FilePosition, part_path, position_path
from sbon_node.connectors.sinks.registry import open_sink
from sbon_node.connectors.sinks.runner import SinkRunner
from sbon_node.model.frames import Frame
from sbon_protocol.errors import SbonError
from tests.connectors.file_sinks import FORMATS, World, context, opened
from tests.connectors.sent_streams import ARROW, EXPECTED, SENT, Killed


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

        world.failpoint = kill
        deaths = 0
        while True:
            try:
                world.run()
            except Killed:
                deaths += 1
                if deaths > 3:
                    world.failpoint = lambda step: None
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

    world.failpoint = full
    states: list[tuple[str, str]] = []
    enter = SinkRunner._enter
    monkeypatch.setattr(SinkRunner, "_enter", lambda self, *how: (states.append(how), enter(self, *how)))
    world.run()
    assert world.rows() == EXPECTED
    assert any(how[0] == "paused" and "no space" in how[1] for how in states)


def test_parquet_parts_roll_by_rows(tmp_path: Path) -> None:
    world = World(tmp_path / "out.parquet", 0.0, part_rows=4)
    world.run()
    parts = sorted((tmp_path / "out.parquet").glob("part-*.parquet"))
    assert len(parts) >= 4
    assert all(pq.read_table(p).schema.equals(ARROW) for p in parts)
    assert world.rows() == EXPECTED


def test_a_part_that_was_written_and_not_counted_is_removed(tmp_path: Path) -> None:
    world = World(tmp_path / "out.parquet", 0.0, part_rows=4)
    world.run()
    parts = sorted(world.path.glob("part-*.parquet"))
    # A kill between a part and the position that counts it leaves such a file.
    part_path(world.path, len(parts) + 1).write_bytes(parts[0].read_bytes())
    world.run()
    assert sorted(world.path.glob("part-*.parquet")) == parts
    assert world.rows() == EXPECTED


@pytest.mark.parametrize("name", ["out.csv", "out.parquet"])
def test_no_rows_still_have_columns(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = Frame(stream="a", number=1, payload=b"", rows=0, ended=True)
    monkeypatch.setitem(SENT, "a", [empty])
    monkeypatch.setitem(SENT, "b", [msgspec.structs.replace(empty, stream="b")])
    world = World(tmp_path / name)
    world.run()
    assert world.rows() == []


@pytest.mark.parametrize("name", ["out.csv", "out.parquet"])
def test_a_result_that_was_tampered_with_is_not_continued(tmp_path: Path, name: str) -> None:
    world = World(tmp_path / name)
    world.run()
    victim = next(iter(sorted((tmp_path / name).glob("part-*")))) if name == "out.parquet" else tmp_path / name
    victim.unlink()
    with pytest.raises(SbonError) as caught:
        world.run()
    assert caught.value.code == "sink-lost"


@pytest.mark.parametrize("name", FORMATS)
def test_writing_leaves_the_event_loop_free(tmp_path: Path, name: str) -> None:
    """The slow disk waits for the loop, which would block if the sink wrote on it."""
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
        sink = await open_sink("file", options, context(executor=in_thread, failpoint=slow))
        beating = asyncio.create_task(heart())
        for frame in SENT["a"]:
            sink.take(frame)
        delivered = await sink.flush()
        beating.cancel()
        return delivered

    assert asyncio.run(main()) == {"a": 13}


def test_a_write_that_is_cancelled_is_over_when_the_cancelling_is(tmp_path: Path) -> None:
    writing, go_on = threading.Event(), threading.Event()
    failpoint: list[str] = []

    def slow(step: str) -> None:
        failpoint.append(step)
        writing.set()
        assert go_on.wait(60)

    async def main() -> None:
        sink = await open_sink("file", {"path": str(tmp_path / "out.csv")}, context(executor=in_thread, failpoint=slow))
        sink.take(SENT["a"][0])
        task = asyncio.ensure_future(sink.flush())
        await asyncio.to_thread(writing.wait, 60)
        task.cancel()
        asyncio.get_running_loop().call_soon(go_on.set)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert failpoint == ["sink-write", "position-write"]
        assert sink.positions() == {"a": 1}

    asyncio.run(main())


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
