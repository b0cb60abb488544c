"""SBON's four queries over two producers on a local cluster, once with each kind of reuse."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from sbon import SbonError, states
from sbon.local.cluster import SHORT_LIVED, LocalCluster
from sbon.local.wide_area import cities
from sbon.model import SinkSpec, Submission
from sbon.states import LIVE
from sbon_node.model.queries import QueryInfo

SETTLE_S = 30.0
"""Seconds in which coordinates settle."""
START_S = 600.0
"""Longest time for an engine to start on a machine that has other work."""
PATIENCE_S = 300.0
"""Longest time in seconds from the last row until a query has finished."""
SETTINGS = {
    **SHORT_LIVED,
    "adaptation.default": "off",
    "control.cores": 64.0,
    "control.start_timeout_s": START_S + 120.0,
    "engine.max_operators": 30,
    "engine.start_timeout_s": START_S,
}
"""Nothing moves by itself, and nodes do not refuse operators because they share a machine."""


def run_paper(seconds: float, seed: int, folder: Path, notify: Callable[[str], None]) -> list[dict[str, Any]]:
    """Return a row for each kind of reuse. Raise :class:`SbonError` of a query that fails."""
    modes: Any = importlib.import_module("sbon_node.experiments.reuse.figures")
    paper: Any = importlib.import_module("sbon_node.experiments.reuse.paper")
    bench: Any = importlib.import_module("sbon_node.experiments.bench.usage")
    rows, area = list[dict[str, Any]](), cities(paper.PLACES)
    with LocalCluster(area.names, area, overrides=SETTINGS) as cluster:
        notify("coordinates settle")
        time.sleep(SETTLE_S)
        for reuse in modes.MODES:
            run = _Run(cluster, reuse, seconds, seed, folder, partial(_notify, notify, f"reuse {reuse}: "))
            infos = run.infos()
            without = rows[0]["byte_ms"] if rows else None
            rows.append({"reuse": reuse, **paper.figures(infos, run.own_byte_ms, *run.compared(), bench.Area(*area), without)})
    return rows


def _notify(notify: Callable[[str], None], about: str, text: str) -> None:
    notify(about + text)


class _Run:
    """The four queries with one kind of reuse, from their submission to the comparison of their rows."""

    def __init__(
        self, cluster: LocalCluster, reuse: Any, seconds: float, seed: int, folder: Path, notify: Callable[[str], None]
    ) -> None:
        self._cluster, self._seconds, self._folder, self._notify = cluster, seconds, folder, notify
        self.own_byte_ms: float | None = None
        """The sum over ``sbon query usage``, at the last look at which all queries ran; None if they never did."""
        self._paper: Any = importlib.import_module("sbon_node.experiments.reuse.paper")
        self._stream = self._paper.write_posts(folder, reuse, seconds, seed)
        self._queries = self._paper.queries(self._stream.declaration.name, reuse)
        client = cluster.nodes[0].client
        client.create_stream(self._stream.declaration)
        for source in self._stream.sources(self._paper.PRODUCERS, seconds=seconds):
            client.attach_source(source)
        for number, query in enumerate(self._queries):
            notify(f"{query.case.name} begins, after {number} others")
            sink = SinkSpec(kind="file", options={"path": str(self._path(query)), "format": "parquet"})
            # As in the paper, the aggregation is one operator.
            submission = Submission(
                sql=query.case.sql, name=query.case.name, consumer=query.consumer, decompose="never", reuse=reuse, sink=sink
            )
            cluster[query.consumer].client.submitted(submission)

    def infos(self) -> list[QueryInfo]:
        """Wait until all have finished, and return them. Raise ``timeout``, or ``query-over`` with the reason of a failure."""
        deadline = time.monotonic() + self._seconds + PATIENCE_S
        clients = {query.case.name: self._cluster[query.consumer].client for query in self._queries}
        while all(client.query(name).state in LIVE for name, client in clients.items()) and time.monotonic() < deadline:
            self._notify("all queries run")
            self.own_byte_ms = sum(client.query_usage(name).byte_ms for name, client in clients.items())
            time.sleep(1.0)
        found = []
        for query in self._queries:
            self._notify(f"{query.case.name} finishes")
            while (info := clients[query.case.name].query(query.case.name)).state in LIVE:
                if time.monotonic() > deadline:
                    raise SbonError("timeout", f"{info.id} has not finished: {info.reason}")
                time.sleep(1.0)
            if info.state != states.FINISHED:
                raise SbonError("query-over", f"{info.id} {info.state}: {info.reason}")
            found.append(msgspec.convert(info, QueryInfo, from_attributes=True))
        return found

    def compared(self) -> tuple[int, int]:
        """Return the number of rows that differ from DuckDB's, and of all rows."""
        answers: Any = importlib.import_module("sbon_node.experiments.suite.reference")
        reference, wrong, count = answers.Reference({self._stream.declaration.name: self._stream}), 0, 0
        for query in self._queries:
            expected, found = reference.answer(query.case), answers.stored(self._path(query))
            wrong += len(answers.differences(found, expected, most=len(expected) + len(found) + 1))
            count += len(found)
        return wrong, count

    def _path(self, query: Any) -> Path:
        return self._folder / f"{query.case.name}.parquet"
