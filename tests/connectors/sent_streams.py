"""Two streams with an end, the links they come over, and the rows a sink has to have delivered then."""

from __future__ import annotations

import asyncio

import pyarrow as pa

from sbon_node.connectors.formats import frames
from sbon_node.model.frames import Frame
from sbon_node.streams.links.inbox import Inbox
from sbon_node.streams.outbox.signals import Signal
from sbon_protocol.errors import SbonError

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

    def __init__(self, sent: list[Frame], acknowledged: dict[str, int], pause_s: float, start_after: int, news: Signal) -> None:
        self.stream = sent[0].stream
        self.sent, self.pause_s, self.acknowledged = sent, pause_s, acknowledged
        self.inbox = Inbox(self.stream, capacity_bytes=2**20, released=start_after, news=news)
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


class Killed(Exception):
    pass


SENT = {"a": stream_of("a", 13), "b": stream_of("b", 6)}
EXPECTED = sorted(
    (r["stream"], r["n"], r["x"]) for s in SENT.values() for f in s if f.rows for r in frames.decode(f.payload).to_pylist()
)
