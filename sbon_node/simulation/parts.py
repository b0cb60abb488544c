"""The ends of the fast harness: a source of finite input, a sink that keeps a file, and what a loss of power does to a disk."""

from __future__ import annotations

import json
import os
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from sbon_node.clock import Clock
from sbon_node.engine.checkpoint import BatchLog
from sbon_node.errors import SbonError
from sbon_node.simulation.evaluate import decode, encode
from sbon_node.steps import Steps
from sbon_node.streams.frame import FrameDraft
from sbon_node.streams.ledger import Kind
from sbon_node.streams.link import Link
from sbon_node.streams.outbox import Outbox

MAX_ROWS_OF_A_FRAME = 8
PAUSE_S = (0.001, 0.06)
_FULL_RETRY_S = 0.5
_NUMBER_BITS = 40


async def open_stream(outbox: Outbox, stream: str, kind: Kind, clock: Clock, *, finite: bool = False, epoch: int = 1) -> None:
    """Opens it as soon as the disk has room."""
    while True:
        try:
            outbox.open_stream(stream, kind, finite=finite, epoch=epoch)
        except SbonError as error:
            if error.code != "disk-full":
                raise
            await clock.sleep(_FULL_RETRY_S)
        else:
            return


class Source:
    """Frames of one to some rows of ``table``, which is all there is; its position is the number of rows written."""

    def __init__(self, outbox: Outbox, stream: str, table: Any, clock: Clock, rng: random.Random) -> None:
        self._outbox, self._stream, self._table, self._clock, self._rng = outbox, stream, table, clock, rng

    async def run(self) -> None:
        await open_stream(self._outbox, self._stream, "source", self._clock, finite=True)
        while not self._outbox.ended(self._stream):
            await self._outbox.wait_room(self._stream)
            position = int(self._outbox.position(self._stream) or b"0")
            part = self._table.slice(position, self._rng.randint(1, MAX_ROWS_OF_A_FRAME))
            upto = position + part.num_rows
            draft = FrameDraft(
                payload=encode(part),
                rows=part.num_rows,
                watermark_ms=upto * 1000,
                ended=upto == self._table.num_rows,
                born_ms=self._clock.wall_ms(),
            )
            try:
                self._outbox.write_source(self._stream, [draft], str(upto).encode())
            except SbonError as error:
                if error.code != "disk-full":
                    raise
                await self._clock.sleep(_FULL_RETRY_S)
            await self._clock.sleep(self._rng.uniform(*PAUSE_S))


class SinkPosition(NamedTuple):
    """The sink's file holds the rows up to ``frame`` in its first ``length`` bytes."""

    frame: int
    length: int
    ended: bool


def read_position(folder: Path) -> SinkPosition:
    try:
        return SinkPosition(*json.loads((folder / "sink.position").read_text()))
    except FileNotFoundError:
        return SinkPosition(0, 0, False)


def read_sink(folder: Path) -> list[tuple[object, ...]]:
    """The rows delivered."""
    content = (folder / "sink.rows").read_bytes()[: read_position(folder).length]
    return [tuple(json.loads(line)) for line in content.splitlines()]


class FileSink:
    """Appends the rows of a link's frames to a file, stores (frame, length), and acknowledges; truncates at start.

    It goes on after the end: an operator that restarts tells it again.
    """

    def __init__(
        self, folder: Path, connect: Callable[[int], Link], steps: Steps, pause: Callable[[], float], clock: Clock
    ) -> None:
        self._folder, self._connect, self._steps, self._pause, self._clock = folder, connect, steps, pause, clock

    async def run(self) -> None:
        frame, length, ended = read_position(self._folder)
        file = os.open(self._folder / "sink.rows", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        try:
            os.ftruncate(file, length)
            link = self._connect(frame)
            link.start()
            while True:
                await link.wait(frame)
                for one in link.inbox.frames(frame, link.inbox.received):
                    await self._clock.sleep(self._pause())
                    if one.payload:
                        rows = decode(one.payload).to_pylist()
                        length += os.write(file, b"".join(json.dumps(list(row.values())).encode() + b"\n" for row in rows))
                    self._steps("sink-write")
                    frame, ended = one.number, ended or one.ended
                scratch = self._folder / "sink.position.new"
                scratch.write_text(json.dumps([frame, length, ended]))
                scratch.rename(self._folder / "sink.position")
                self._steps("position-write")
                link.acknowledge(frame)
        finally:
            os.close(file)


# -- what is lost with the power ---------------------------------------------------------------------------------------


def tear_newest(checkpoint: Path, visible_batch: int) -> str:
    """Empties the newest commit, unless what it says was relied on already, else the newest plan; says which."""
    log = BatchLog(checkpoint)
    offsets, commits = log.offsets(), log.commits()
    committed = commits[-1] if commits else -1
    if committed > visible_batch:
        torn = checkpoint / "commits" / str(committed)
    elif offsets and offsets[-1] > committed:
        torn = checkpoint / "offsets" / str(offsets[-1])
    else:
        return "nothing"
    torn.write_bytes(b"")
    return f"{torn.parent.name}/{torn.name}"


def lose_newest_batch(database: Path) -> str:
    """Takes the newest batch that nobody has seen out of an outbox that no process has open; says which."""
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        found = connection.execute("SELECT stream, batch FROM pending ORDER BY batch DESC LIMIT 2").fetchall()
        if not found:
            return "nothing"
        stream, batch = found[0]
        kept = connection.execute("SELECT max(last) FROM pending WHERE stream = ? AND batch < ?", (stream, batch)).fetchone()[0]
        if kept is None:
            kept = connection.execute("SELECT last FROM streams WHERE id = ?", (stream,)).fetchone()[0]
        first, end = (stream << _NUMBER_BITS) + kept, (stream + 1) << _NUMBER_BITS
        connection.execute("DELETE FROM frames WHERE id > ? AND id < ?", (first, end))
        connection.execute("DELETE FROM pending WHERE stream = ? AND batch = ?", (stream, batch))
        return f"batch {batch}"
