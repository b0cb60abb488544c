"""Queries over sources that grow during the whole run: a file that is written to, and rows that are posted."""

import threading
import time
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import msgspec

from sbon import SbonError
from sbon.follower import Follower
from sbon.local.cluster import LocalCluster
from sbon.model import Column, SourceDeclaration, StreamDeclaration, Submission
from sbon.synchronous import SynchronousTransport, each
from sbon_lab.chaos.suite_queries import FAILED, FINISHED, STUCK, Outcome
from sbon_lab.chaos.timeline import Entry, Timeline
from sbon_lab.chaos.verdict import Verdict
from sbon_lab.migration.feed import Feed
from sbon_lab.migration.kinds import KINDS
from sbon_lab.migration.moving_query import MovingQuery
from sbon_protocol.api.durability import LOCAL, Durability

ROWS = 3
"""Rows that are written every 50 ms."""
POSTED_ROWS, POSTS_EVERY_S = 20, 0.5
PATIENCE_S = 420.0
"""Longest wait for rows that are due, after the last post."""


class Growing(Protocol):
    """A query whose input grows from :meth:`begin` to :meth:`end`."""

    def begin(self) -> None: ...

    def end(self) -> Outcome: ...


class Tailed:
    """A query of a kind over files that grow, with sources and consumer at one node, followed by its user."""

    def __init__(
        self, cluster: LocalCluster, at: str, kind: str, durability: Durability, folder: Path, timeline: Timeline
    ) -> None:
        self._timeline, self._durability = timeline, durability
        feed = Feed(rows=ROWS)
        self._query = MovingQuery(
            cluster, at, f"tail-{kind}", KINDS[kind], feed, folder, strategy="consumer", adapt="off", durability=durability
        )
        self._entry: Entry | None = None

    @property
    def name(self) -> str:
        return self._query.name

    def begin(self) -> None:
        self._query.__enter__()
        self._entry = self._timeline.begin("query", self.name, f"{self._durability}, a file that grows")

    def end(self) -> Outcome:
        """Write no more rows, wait for those that are due, and compare."""
        assert self._entry is not None
        end, verdict, reason = FINISHED, Verdict(), ""
        try:
            lost, wrong = self._query.end(self._query.answers())
            numbers = [arrival.number for arrival in self._query.arrivals]
            verdict = Verdict(wrong, lost, len(numbers) - len(set(numbers)))
        except SbonError as error:
            end, reason = STUCK if error.code == "timeout" else FAILED, str(error)
        except AssertionError as error:
            end, reason = FAILED, str(error)
        rows = sum(len(arrival.rows) for arrival in self._query.arrivals)
        self._query.__exit__(None, None, None)
        return outcome(self._timeline, self._entry, self._durability, (end, rows, verdict, reason))


def outcome(timeline: Timeline, entry: Entry, durability: Durability, found: tuple[str, int, Verdict, str]) -> Outcome:
    """End a query's entry in the timeline; return its outcome."""
    end, rows, verdict, reason = found
    wrong = ", ".join(f"{count} {name}" for name, count in verdict._asdict().items() if count)
    timeline.end(entry, "; ".join(part for part in (end, wrong or f"{rows} rows", reason) if part))
    return Outcome(entry.name, durability, entry.at_s, entry.until_s or 0.0, end, rows, verdict, reason)


class Posted:
    """A filter over rows that are posted at one node; each post is repeated under its key until it is answered."""

    STREAM, NAME = "posted_rows", "posted"

    def __init__(self, cluster: LocalCluster, at: str, consumer: str, timeline: Timeline) -> None:
        self._at, self._consumer, self._timeline = cluster[at], cluster[consumer], timeline
        self._ended = threading.Event()
        self._due: Counter[int] = Counter()
        self._got: Counter[int] = Counter()
        self._failure: BaseException | None = None
        self._threads = [threading.Thread(target=work, name=self.NAME, daemon=True) for work in (self._post, self._follow)]
        self._entry: Entry | None = None

    def begin(self) -> None:
        client, schema = self._at.client, (Column("ts", "timestamp"), Column("n", "bigint"))
        client.create_stream(StreamDeclaration(name=self.STREAM, schema=schema, event_time="ts"))
        client.attach_source(
            SourceDeclaration(stream=self.STREAM, name="posts", node=self._at.name, connector="http", rows_s=40.0)
        )
        sql = f"SELECT n FROM {self.STREAM} WHERE n % 3 = 0"
        client.submitted(
            Submission(sql=sql, name=self.NAME, strategy="producer", adapt="off", durability=LOCAL, consumer=self._consumer.name)
        )
        self._entry = self._timeline.begin("query", self.NAME, f"{LOCAL}, rows posted at {self._at.name}")
        for thread in self._threads:
            thread.start()

    def end(self) -> Outcome:
        assert self._entry is not None
        self._ended.set()
        self._threads[0].join(PATIENCE_S)
        deadline_s = time.monotonic() + PATIENCE_S
        while self._due - self._got and self._failure is None and time.monotonic() < deadline_s:
            time.sleep(POSTS_EVERY_S)
        more = self._got - self._due
        doubled = sum(count for n, count in more.items() if n in self._due)
        verdict = Verdict(sum(more.values()) - doubled, sum((self._due - self._got).values()), doubled)
        end = FINISHED if self._failure is None else FAILED
        found = (end, sum(self._got.values()), verdict, str(self._failure or ""))
        with suppress(SbonError):
            self._consumer.client.stop_query(self.NAME)
        return outcome(self._timeline, self._entry, LOCAL, found)

    def _post(self) -> None:
        number = 0
        while not self._ended.wait(POSTS_EVERY_S):
            numbers = range(number * POSTED_ROWS, (number + 1) * POSTED_ROWS)
            rows = [{"ts": datetime.now(UTC).isoformat(), "n": n} for n in numbers]
            body = b"".join(msgspec.json.encode(row) + b"\n" for row in rows)
            while not self._pushed(body, f"{self.NAME}-{number}"):
                time.sleep(POSTS_EVERY_S)
            self._due.update(n for n in numbers if n % 3 == 0)
            number += 1

    def _pushed(self, body: bytes, key: str) -> bool:
        try:
            self._at.client.push(self.STREAM, body, "application/x-ndjson", key=key)
        except SbonError:
            return False
        return True

    def _follow(self) -> None:
        try:
            follower = Follower(SynchronousTransport(self._consumer.client), self.NAME)
            for frame, written in each(follower.frames()):
                self._got.update(row[0] for row in frame.rows)
                written()
            if follower.end is not None and not self._ended.is_set():
                self._failure = SbonError("query-over", f"{self.NAME} {follower.end.state}: {follower.end.reason}")
        except SbonError as error:
            self._failure = error
