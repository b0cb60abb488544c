"""Small frames that declare to be large: refused before anything is unpacked, and what is large is not unpacked on the loop."""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pytest

from sbon_node.base.clock import Clock
from sbon_node.base.executors import in_thread
from sbon_node.connectors.formats import frames
from sbon_node.connectors.sinks.follow import FollowSink
from sbon_node.connectors.sinks.registry import open_sink
from sbon_node.connectors.sinks.runner import SinkRunner
from sbon_node.model.frames import MAX_FRAME_BYTES, Frame
from sbon_node.streams.outbox.signals import Signal
from sbon_node.streams.payload import LARGE_BYTES, MAX_UNPACKED_BYTES
from sbon_protocol.api.delivery import Rows
from tests.connectors.sent_streams import FakeLink
from tests.connectors.sink_world import Sinking

T = TypeVar("T")
MIB = 1024 * 1024


def stream(rows: pa.RecordBatch, codec: str | None = "lz4") -> bytes:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, rows.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_batch(rows)
    found: bytes = out.getvalue().to_pybytes()
    return found


def zeros(size: int) -> Any:
    return pa.Array.from_buffers(pa.int8(), size, [None, pa.py_buffer(bytes(size))])


def columns(count: int, size: int) -> pa.RecordBatch:
    one = zeros(size)
    return pa.RecordBatch.from_arrays([one] * count, [f"c{i}" for i in range(count)])


def declaring(size: int) -> bytes:
    """A stream whose one buffer says that it unpacks to ``size`` bytes."""
    payload = stream(columns(1, 2 * MIB))
    said = struct.pack("<q", 2 * MIB)
    assert payload.count(said) >= 1
    at = payload.rindex(said)
    return payload[:at] + struct.pack("<q", size) + payload[at + 8 :]


def nested() -> pa.RecordBatch:
    values = zeros(12 * MIB)
    inner = pa.ListArray.from_arrays(pa.array([0, 12 * MIB], pa.int32()), values)
    outer = pa.StructArray.from_arrays([inner, inner], ["a", "b"])
    return pa.RecordBatch.from_arrays([outer], ["s"])


def dictionary() -> pa.RecordBatch:
    indices = pa.array([0] * 1000, pa.int32())
    return pa.RecordBatch.from_arrays([pa.DictionaryArray.from_arrays(indices, ["x" * MIB])], ["d"])


def nulls(count: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(count)], ["n"])


def run_ends() -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.RunEndEncodedArray.from_arrays(pa.array([2**20], pa.int32()), pa.array(["x"]))], ["r"])


def views() -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(["x" * 100] * 10, pa.string_view())], ["v"])


def twice(rows: pa.RecordBatch) -> bytes:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, rows.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(rows)
        writer.write_batch(rows)
    found: bytes = out.getvalue().to_pybytes()
    return found


BOMBS: dict[str, Callable[[], bytes]] = {
    "lz4, many columns": lambda: stream(columns(40, MIB)),
    "zstd, many columns": lambda: stream(columns(40, MIB), "zstd"),
    "one buffer that says so": lambda: declaring(1_600_000_000),
    "one buffer of 2^62 bytes": lambda: declaring(2**62),
    "one buffer of less than nothing": lambda: declaring(-2),
    "nested columns": lambda: stream(nested(), "zstd"),
    "compressed as a whole, and its buffers besides": lambda: pa.compress(stream(columns(40, MIB), "zstd"), "zstd", asbytes=True),
    "a dictionary": lambda: stream(dictionary()),
    "nulls without number": lambda: stream(nulls(2**26)),
    "runs": lambda: stream(run_ends()),
    "views": lambda: stream(views()),
    "two batches": lambda: twice(columns(1, 10)),
    "columns without number": lambda: stream(columns(20_000, 0)),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_is_refused_and_takes_no_memory(bomb: str) -> None:
    payload = BOMBS[bomb]()
    assert len(payload) < MAX_FRAME_BYTES
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    pa.set_memory_pool(pool)
    try:
        with pytest.raises(frames.BadPayloadError):
            frames.decode(payload)
    finally:
        pa.set_memory_pool(before)
    assert pool.max_memory() < MIB


@pytest.mark.parametrize("codec", ["lz4", "zstd", None])
@pytest.mark.parametrize(
    "rows",
    [
        columns(3, MIB),
        pa.RecordBatch.from_pydict(
            {"s": ["x" * i for i in range(1000)], "l": [[i, None] for i in range(1000)], "n": [None] * 1000}
        ),
        pa.RecordBatch.from_pydict({"b": [True, None] * 500, "m": [{"a": 1, "b": ["x", "y"]}] * 1000}),
    ],
    ids=["many", "text and lists", "bits and structs"],
)
def test_honest_frames_of_every_kind_are_read(rows: pa.RecordBatch, codec: str | None) -> None:
    assert frames.decode(stream(rows, codec)).equals(pa.table(rows))


def test_the_largest_frame_that_an_engine_makes_is_read() -> None:
    rows = columns(1, 2 * 4 * MIB)
    assert rows.nbytes < MAX_UNPACKED_BYTES
    assert frames.decode(stream(rows)).num_rows == rows.num_rows


class Watched:
    """Runs work in threads, and notes on which."""

    def __init__(self) -> None:
        self.threads: list[bool] = []

    async def __call__(self, work: Callable[[], T], /) -> T:
        def noted() -> T:
            self.threads.append(threading.current_thread() is threading.main_thread())
            return work()

        return await in_thread(noted)


LARGE = columns(2, LARGE_BYTES)
SMALL = columns(2, 1000)


def _frames(*of: pa.RecordBatch) -> list[Frame]:
    return [
        Frame(stream="a", number=n, payload=stream(rows), rows=rows.num_rows, watermark_ms=n, ended=n == len(of), born_ms=1)
        for n, rows in enumerate(of, start=1)
    ]


def test_a_sink_unpacks_large_frames_in_a_thread_and_small_ones_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        watched = Watched()
        world = Sinking(tmp_path, "file", {"path": str(tmp_path / "out.parquet")}, schema=LARGE.schema)
        sink = await open_sink("file", world.options, world.context(fresh=True))
        news = Signal()
        links: list[Any] = [FakeLink(_frames(SMALL, LARGE, SMALL), {}, 0.0, 0, news)]
        runner = SinkRunner("q", sink, links, news, Clock(), executor=watched)
        await runner.run()
        await runner.close()
        assert runner.rows == 2 * SMALL.num_rows + LARGE.num_rows
        assert watched.threads == [False]

    asyncio.run(main())


def test_a_follower_is_given_large_frames_that_were_read_in_a_thread() -> None:
    async def main() -> None:
        watched = Watched()
        small = columns(2, 100)
        news = Signal()
        links: list[Any] = [FakeLink(_frames(small, LARGE), {}, 0.0, 0, news)]
        sink = FollowSink("q", links, news, Clock(), executor=watched)
        running = asyncio.create_task(sink.run())
        counts = []
        async for event in sink.follow({}):
            if isinstance(event, Rows):
                counts.append(len(event.rows))
                sink.acknowledge({"a": event.number})
        await running
        await sink.close()
        assert counts == [small.num_rows, LARGE.num_rows]
        assert watched.threads == [False]

    asyncio.run(main())
