"""SBON's four queries over two producers on a local cluster, once with each kind of reuse."""

import importlib
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from sbon import SbonError, states
from sbon.client import Client
from sbon.local.cluster import SHORT_LIVED, LocalCluster
from sbon.local.wide_area import cities
from sbon.model import SinkSpec, Submission
from sbon.states import LIVE
from sbon_protocol.api.queries import QueryInfo

SETTLE_S = 30.0
"""Seconds in which coordinates settle."""
START_S = 600.0
"""Longest time for an engine to start on a machine that has other work."""
PATIENCE_S = 300.0
"""Longest time in seconds from the last row until a query has finished."""
LOOK_S = 2.0
"""Seconds between two looks at a query."""
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
    modes: Any = importlib.import_module("sbon_lab.experiments.reuse.figures")
    paper: Any = importlib.import_module("sbon_lab.experiments.reuse.paper")
    bench: Any = importlib.import_module("sbon_lab.bench.usage")
    rows, area = list[dict[str, Any]](), cities(paper.PLACES)
    with LocalCluster(area.names, area, overrides=SETTINGS) as cluster:
        notify("coordinates settle")
        time.sleep(SETTLE_S)
        _start_engines(cluster, paper, folder, notify)
        for reuse in modes.MODES:
            run = _Run(cluster, reuse, seconds, seed, folder, partial(_notify, notify, f"reuse {reuse}: "))
            infos, own = run.infos(), run.own_byte_ms()
            byte_ms, without = paper.usage_byte_ms(infos, bench.Area(*area)), rows[0]["usage_bytes"] if rows else None
            rows.append({"reuse": reuse, **paper.figures(infos, byte_ms, own, seconds, *run.compared(), without)})
    return rows


def _start_engines(cluster: LocalCluster, paper: Any, folder: Path, notify: Callable[[str], None]) -> None:
    """Let a short query run at each producer, so that no engine has to start while queries are measured."""
    stream, client = paper.write_posts(folder, "first", 2.0, 0), cluster.nodes[0].client
    client.create_stream(stream.declaration)
    for source in stream.sources(paper.PRODUCERS):
        client.attach_source(source)
    for host in paper.PRODUCERS.values():
        notify(f"the engine of {host} starts")
        sql = f"SELECT id FROM {stream.declaration.name}"
        sink = SinkSpec(kind="blackhole")
        client.submitted(Submission(sql=sql, name=f"first-{host}", strategy="consumer", consumer=host, sink=sink, reuse="never"))


def _notify(notify: Callable[[str], None], about: str, text: str) -> None:
    notify(about + text)


class _Run:
    """The four queries with one kind of reuse, from their submission to the comparison of their rows."""

    def __init__(
        self, cluster: LocalCluster, reuse: Any, seconds: float, seed: int, folder: Path, notify: Callable[[str], None]
    ) -> None:
        self._cluster, self._seconds, self._folder, self._notify = cluster, seconds, folder, notify
        self._paper: Any = importlib.import_module("sbon_lab.experiments.reuse.paper")
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
            self._client(query).submitted(submission)

    def infos(self) -> list[QueryInfo]:
        """Wait until all have finished, and return them. Raise ``timeout``, or ``query-over`` with the reason of a failure."""
        deadline = time.monotonic() + self._seconds + PATIENCE_S
        found = []
        for query in self._queries:
            self._notify(f"{query.case.name} finishes")
            while (info := self._info(query)).state in LIVE:
                if time.monotonic() > deadline:
                    raise SbonError("timeout", f"{info.id} has not finished: {info.reason}")
                time.sleep(LOOK_S)
            if info.state != states.FINISHED:
                raise SbonError("query-over", f"{info.id} {info.state}: {info.reason}")
            found.append(info)
        return found

    def own_byte_ms(self) -> float:
        """Return the sum over ``sbon query usage``."""
        return sum(self._client(query).query_usage(query.case.name).byte_ms for query in self._queries)

    def compared(self) -> tuple[int, int]:
        """Return the number of rows that differ from DuckDB's, and of all rows."""
        answers: Any = importlib.import_module("sbon_lab.suite.reference")
        reference, wrong, count = answers.Reference({self._stream.declaration.name: self._stream}), 0, 0
        for query in self._queries:
            expected, found = reference.answer(query.case), answers.stored(self._path(query))
            wrong += len(answers.differences(found, expected, most=len(expected) + len(found) + 1))
            count += len(found)
        return wrong, count

    def _client(self, query: Any) -> Client:
        return self._cluster[query.consumer].client

    def _info(self, query: Any) -> QueryInfo:
        return msgspec.convert(self._client(query).query(query.case.name), QueryInfo, from_attributes=True)

    def _path(self, query: Any) -> Path:
        return self._folder / f"{query.case.name}.parquet"
