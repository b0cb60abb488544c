"""Rows of the streams that moving operators read: as frames, and as files that grow."""

import base64
import random
import threading
import time
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import pyarrow as pa

from sbon_node.connectors.formats.frames import encode
from sbon_node.model.frames import FrameDraft
from sbon_protocol.api.columns import Column

FIRST_MS = 1_356_998_400_000
ROW_MS = 33
BURST_ROWS, BREAK_MS = 300, 1500
"""Rows between two breaks, which end the sessions."""
SCHEMA = (Column("ts", "timestamp"), Column("n", "bigint"), Column("k", "bigint"), Column("note", "string"))
EVERY_S = 0.05
"""Pause between two frames."""
LATER_MS = 500
"""Delay of the rows of the second input, which has every third row of the first."""
STATE_ROW_BYTES, STATE_ROWS = 8000, 25_000
"""Bytes of a row of the state, fewer where there would be fewer rows than these: so a small state also leaves row by row."""
_STATE_FRAME_ROWS = 25
_A_DAY_MS = 86_400_000
_NO_NOTE = "-"


@dataclass(frozen=True)
class Row:
    """One row; ``n`` below 0 is part of the state at the beginning."""

    ts_ms: int
    n: int
    note: str = _NO_NOTE

    def csv(self) -> str:
        text = datetime.fromtimestamp(self.ts_ms / 1000, UTC).isoformat(timespec="milliseconds")
        return f"{text},{self.n},{self.n % 4},{self.note}\n"


@dataclass(frozen=True)
class Feed:
    """Frames of ``rows`` rows, a row every 33 ms of event time, for ever; files get one every ``every_s`` seconds.

    With ``state_bytes`` so many bytes of text come before them, in rows of which each keeps a group of its own, or a row of a
    join. They are spread over the day before the first row, and the streams' delay is a day: so they stay in the state, and
    leave it evenly in the course of a day.
    """

    rows: int = 30
    state_bytes: int = 0
    every_s: float = EVERY_S

    @property
    def delay_ms(self) -> int:
        return _A_DAY_MS if self.state_bytes else 0

    @property
    def state_rows(self) -> int:
        return max(STATE_ROWS, self.state_bytes // STATE_ROW_BYTES) if self.state_bytes else 0

    def time_ms(self, n: int) -> int:
        return FIRST_MS + n * ROW_MS + n // BURST_ROWS * BREAK_MS

    def frame(self, number: int, view: int) -> list[Row]:
        """Return the rows of a frame, counted from 0."""
        numbers = range(number * self.rows, (number + 1) * self.rows)
        return [Row(self.time_ms(n) + LATER_MS * view, n) for n in numbers if not view or n % 3 == 0]

    def state(self) -> Iterator[list[Row]]:
        """Yield the rows that come before all others, of the first input only, by frames."""
        rng, count = random.Random(1), self.state_rows
        bits = 6 * self.state_bytes // max(1, count)  # Base64 has a character for six bits.
        for first in range(0, count, _STATE_FRAME_ROWS):
            yield [
                Row(FIRST_MS - _A_DAY_MS + i * _A_DAY_MS // count, i - count, base64.b64encode(rng.randbytes(bits // 8)).decode())
                for i in range(first, min(count, first + _STATE_FRAME_ROWS))
            ]

    def watermark_ms(self, number: int) -> int:
        """Return the event time that the streams have reached with a frame."""
        return self.time_ms((number + 1) * self.rows) - 1

    def frame_with(self, reached_ms: int) -> int:
        """Return the first frame with which the streams have reached this time."""
        low, high = 0, max(1, -(-(reached_ms + 1 - FIRST_MS) // (self.rows * ROW_MS)))
        return bisect_left(range(low, high), reached_ms, key=self.watermark_ms)

    def draft(self, number: int, view: int) -> FrameDraft:
        return _draft(self.frame(number, view), self.watermark_ms(number) - self.delay_ms)

    def state_drafts(self) -> Iterator[FrameDraft]:
        for rows in self.state():
            yield _draft(rows, FIRST_MS - 2 * _A_DAY_MS)


def table_of(rows: list[Row]) -> pa.Table:
    """Return rows as they are in a stream."""
    return pa.table(
        {
            "ts": pa.array([row.ts_ms * 1000 for row in rows], pa.timestamp("us", "UTC")),
            "n": pa.array([row.n for row in rows], pa.int64()),
            "k": pa.array([row.n % 4 for row in rows], pa.int64()),
            "note": pa.array([row.note for row in rows], pa.string()),
        }
    )


def _draft(rows: list[Row], watermark_ms: int) -> FrameDraft:
    payload = encode(table_of(rows).combine_chunks().to_batches()[0])
    return FrameDraft(payload=payload, rows=len(rows), watermark_ms=watermark_ms)


class GrowingFiles:
    """Files of CSV, one for each input, to which a frame is appended at the feed's pace within the block, after the state.

    ``written_s`` are the times (:func:`time.monotonic`) at which they were.
    """

    def __init__(self, folder: Path, feed: Feed, inputs: int) -> None:
        self.paths = [folder / f"in{view}.csv" for view in range(inputs)]
        self.written_s: list[float] = []
        self._feed, self._ended = feed, threading.Event()
        self._thread = threading.Thread(target=self._grow, name="feed", daemon=True)
        self._failure: BaseException | None = None

    def write_state(self) -> None:
        """Write the head of each file and the state, before the block."""
        for path in self.paths:
            path.write_text(",".join(column.name for column in SCHEMA) + "\n", encoding="utf-8")
        with self.paths[0].open("a", encoding="utf-8") as file:
            for rows in self._feed.state():
                file.writelines(row.csv() for row in rows)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.end()

    def end(self) -> None:
        """Write no more frames."""
        self._ended.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _grow(self) -> None:
        try:
            with ExitStack() as stack:
                self._append([stack.enter_context(path.open("a", encoding="utf-8")) for path in self.paths])
        except BaseException as error:
            self._failure = error
            raise

    def _append(self, files: list[IO[str]]) -> None:
        due_s = time.monotonic()
        while not self._ended.is_set():
            for view, file in enumerate(files):
                file.write("".join(row.csv() for row in self._feed.frame(len(self.written_s), view)))
                file.flush()
            self.written_s.append(time.monotonic())
            due_s += self._feed.every_s
            self._ended.wait(max(0.0, due_s - time.monotonic()))
