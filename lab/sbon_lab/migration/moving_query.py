"""A query on a local cluster that reads growing files, and whose operators move from node to node."""

import hashlib
import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import pyarrow as pa

from sbon import SbonError
from sbon.client import Client
from sbon.follower import Follower
from sbon.local.cluster import LocalCluster
from sbon.model import Column, Moved, QueryInfo, SourceDeclaration, StreamDeclaration, Submission
from sbon.states import FAILED, LIVE
from sbon.synchronous import SynchronousTransport, each
from sbon_lab.migration.feed import SCHEMA, Feed, GrowingFiles
from sbon_lab.migration.kinds import Answers, Kind

PATIENCE_S = 600.0
"""Longest time without any new row of a query."""
SLACK_MS = 10_000
"""Event time before the newest at which a row may be late: its watermark may have to pass two operators with state."""
POLL_S = 0.05


class Arrival(NamedTuple):
    """A frame at the consumer, with its rows."""

    at_s: float
    number: int
    rows: tuple[tuple[Any, ...], ...]


@dataclass
class Move:
    """A move of an operator from its request to its end, in seconds of :func:`time.monotonic`.

    ``last`` is the number of the last frame that its old host has published; for ``pause_s`` it has read no rows.
    """

    requested_s: float
    settles_s: float = 0.0
    moved_s: float = 0.0
    pause_s: float = 0.0
    copied_bytes: int = 0
    last: int = 0
    steps: list[str] = field(default_factory=list)


class MovingQuery:
    """A query of a kind, from its submission to the comparison of its rows; its sources and its consumer are at one node."""

    def __init__(self, cluster: LocalCluster, at: str, name: str, kind: Kind, feed: Feed, folder: Path, **fields: Any) -> None:
        """``fields`` are those of the submission beside text, name and consumer."""
        self.name, self.kind, self.feed = name, kind, feed
        self.arrivals: list[Arrival] = []
        self._cluster, self._at, self._fields = cluster, at, fields
        self._client: Client = cluster[at].client
        folder.mkdir()
        self._files = GrowingFiles(folder, feed, kind.inputs)
        self._streams = [f"{name.replace('-', '_')}_in{view}" for view in range(kind.inputs)]
        self._columns: tuple[str, ...] = ()
        self._thread = threading.Thread(target=self._follow, name=f"follow {name}", daemon=True)
        self._failure: BaseException | None = None

    @property
    def written_s(self) -> list[float]:
        return self._files.written_s

    def __enter__(self) -> Self:
        self._files.write_state()
        for stream, path in zip(self._streams, self._files.paths, strict=True):
            schema = tuple(Column(column.name, column.type) for column in SCHEMA)
            declaration = StreamDeclaration(name=stream, schema=schema, event_time="ts", delay_ms=self.feed.delay_ms)
            self._client.create_stream(declaration)
            options = {"path": str(path), "from": "beginning", "poll_s": 0.02}
            source = SourceDeclaration(
                stream=stream, name=self._at, node=self._at, connector="tail", options=options, rows_s=600.0
            )
            self._client.attach_source(source)
        self._files.__enter__()
        sql = self.kind.of_streams(*self._streams)
        self._client.submitted(
            Submission(sql=sql, name=self.name, consumer=self._at, decompose="never", reuse="never", **self._fields)
        )
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._files.end()
        with suppress(SbonError):
            self._client.stop_query(self.name)
        self._thread.join()

    # -- what is known ------------------------------------------------------------------------------------------------

    def info(self) -> QueryInfo:
        return self._client.query(self.name)

    def operators(self) -> list[str]:
        """Return the ids of the operators, the last one writes the rows that the consumer reads."""
        plan = self.info().plan
        assert plan is not None
        return [operator.id for operator in plan.operators]

    def host_of(self, operator: str) -> str:
        return next(one.node for one in self.info().operators if one.id == operator)

    def rows_in(self, operator: str) -> int:
        """Return the rows that an operator has read at its present host."""
        return next((one.stats.rows_in for one in self.info().operators if one.id == operator and one.stats), 0)

    def found(self) -> pa.Table:
        """Return the rows so far, with digests in place of notes."""
        rows = [row for arrival in self.arrivals for row in arrival.rows]
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(self._columns)
        types = [pa.string() if self.kind.columns[name] != "BIGINT" else pa.int64() for name in self._columns]
        return pa.table(
            [pa.array(list(column), type_) for column, type_ in zip(columns, types, strict=True)], list(self._columns)
        )

    # -- what is done -------------------------------------------------------------------------------------------------

    def move(self, operator: str, to: str) -> Move:
        """Move an operator; raise the error for which it stays."""
        origin = self.host_of(operator)
        log, since = self._cluster[origin].log, self._cluster[origin].log.stat().st_size
        move = Move(time.monotonic())
        for event in self._client.move_operator(self.name, operator, to):
            now_s = time.monotonic()
            if isinstance(event, Moved):
                move.moved_s, move.pause_s, move.copied_bytes = now_s, (event.pause_ms or 0) / 1000, event.copied_bytes
                move.last = _last_frame(log, since, operator)
                return move
            if event.step not in move.steps:
                move.steps.append(event.step)
            if not move.settles_s and event.step in ("settling", "switching"):
                move.settles_s = now_s
        raise SbonError("node-unreachable", f"the node ended the connection before {operator} had moved")

    def more(self, frames: int) -> None:
        """Wait until so many more frames with rows have arrived."""
        upto = len(self.arrivals) + frames
        self.until(lambda: len(self.arrivals) >= upto)

    def beyond(self, move: Move) -> None:
        """Wait until a frame with rows of the last operator's new host has arrived."""
        self.until(lambda: self.arrivals[-1].number > move.last)

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition; raise if the query fails, or if no row has arrived for long."""
        count, deadline_s, looks = len(self.arrivals), time.monotonic() + PATIENCE_S, 0
        while not condition():
            if self._failure is not None:
                raise self._failure
            if len(self.arrivals) > count:
                count, deadline_s = len(self.arrivals), time.monotonic() + PATIENCE_S
            if time.monotonic() > deadline_s:
                raise SbonError("timeout", f"no rows of {self.name} in {PATIENCE_S:g} s")
            looks += 1
            if looks % 100 == 0:
                self._check()
            time.sleep(POLL_S)

    def _check(self) -> None:
        with suppress(SbonError):  # A node that was killed answers again later.
            info = self.info()
            if info.state not in LIVE:
                raise AssertionError(f"{self.name} {info.state}: {info.reason}")

    def end(self, answers: Answers) -> tuple[int, int]:
        """Write no more rows; return the missing and the superfluous rows once none is missing, or no more come."""
        self._files.end()
        upto_ms = self.feed.watermark_ms(len(self.written_s) - 1) - SLACK_MS
        count, deadline_s = -1, time.monotonic() + PATIENCE_S
        while True:
            if len(self.arrivals) != count:
                count = len(self.arrivals)
                missing, superfluous = answers.wrong(self.found(), upto_ms)
            if not missing or time.monotonic() > deadline_s:
                return missing, superfluous
            time.sleep(1.0)
            self._check()

    def answers(self) -> Answers:
        return Answers(self.kind, [str(path) for path in self._files.paths], self.feed.delay_ms)

    def _follow(self) -> None:
        try:
            follower = Follower(SynchronousTransport(self._client), self.name)
            for frame, written in each(follower.frames()):
                at_s = time.monotonic()
                if frame.rows:
                    self._columns = frame.columns
                    self.arrivals.append(Arrival(at_s, frame.number, self._short(frame.columns, frame.rows)))
                written()
            if follower.end is not None and follower.end.state == FAILED:
                self._failure = SbonError("query-failed", follower.end.reason, where=self.name)
        except Exception as error:
            self._failure = error
            raise

    def _short(self, columns: tuple[str, ...], rows: tuple[tuple[Any, ...], ...]) -> tuple[tuple[Any, ...], ...]:
        if "note" not in columns:
            return rows
        at = columns.index("note")
        return tuple((*row[:at], hashlib.md5(row[at].encode()).hexdigest(), *row[at + 1 :]) for row in rows)


def _last_frame(log: Path, since: int, operator: str) -> int:
    """Return the number of the last frame that a node has published of an operator that has moved away, by its log."""
    with log.open("rb") as file:
        file.seek(since)
        for line in file:
            if b'"operator-moves"' in line and (entry := json.loads(line))["operator"] == operator:
                return int(entry["last"])
    raise AssertionError(f"{log} says nothing of the move of {operator}")
