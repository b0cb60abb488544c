"""Queries over sources that grow during the whole run: a file that is written to, and rows that are posted."""

from __future__ import annotations

import time
from pathlib import Path

from sbon import SbonError
from sbon.local.cluster import LocalCluster
from sbon_cli.commands.experiments.chaos.suite_queries import FAILED, FINISHED, STUCK, Outcome
from sbon_cli.commands.experiments.chaos.timeline import Entry, Timeline
from sbon_cli.commands.experiments.migration.moving_query import MovingQuery
from sbon_node.experiments.bench.migration.feed import Feed
from sbon_node.experiments.bench.migration.kinds import KINDS
from sbon_node.experiments.chaos.verdict import Verdict

ROWS = 3
"""Rows that are written every 50 ms."""


class Tailed:
    """A query of a kind over files that grow, with sources and consumer at one node, followed by its user."""

    def __init__(self, cluster: LocalCluster, at: str, kind: str, durability: str, folder: Path, timeline: Timeline) -> None:
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
        wrong_text = ", ".join(f"{count} {name}" for name, count in verdict._asdict().items() if count)
        self._timeline.end(self._entry, "; ".join(part for part in (end, wrong_text or f"{rows} rows", reason) if part))
        return Outcome(
            self.name, self._durability, self._entry.at_s, self._entry.until_s or time.monotonic(), end, rows, verdict, reason
        )
