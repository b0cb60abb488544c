"""Queries of the suite, one after another and a few at a time, each beside DuckDB's answer."""

import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from sbon import SbonError, states
from sbon.local.cluster import LocalCluster
from sbon.model import Accepted, QueryInfo, SinkSpec, Submission
from sbon_lab.chaos.asking import AGAIN_S, ENDED, Asking, Gate
from sbon_lab.chaos.timeline import Timeline
from sbon_lab.chaos.verdict import Verdict, judged
from sbon_lab.chaos.workload import Planned, over, streams_of
from sbon_lab.suite.reference import Reference, stored
from sbon_lab.suite.streams import SuiteStream
from sbon_protocol.api.durability import Durability

AT_A_TIME = 2
PATIENCE_S = 420.0
"""Longest time for a step of a query after which it counts as stuck; for its end, after all faults are repaired."""
FINISHED, FAILED, STUCK = states.FINISHED, states.FAILED, "stuck"


class Outcome(NamedTuple):
    """The end of a query, and its rows beside the right ones."""

    query: str
    durability: Durability
    began_s: float
    ended_s: float
    end: str
    rows: int = 0
    verdict: Verdict = Verdict()
    reason: str = ""


class Sites(NamedTuple):
    """Nodes of the sources by site, and the consumer."""

    sources: Mapping[str, str]
    consumer: str


class SuiteQueries:
    """Submits planned queries until :meth:`submit_no_more`, and waits for the end of each."""

    def __init__(
        self, cluster: LocalCluster, sites: Sites, asking: Asking, gate: Gate, streams: Mapping[str, SuiteStream], folder: Path
    ) -> None:
        self._cluster, self._sites, self._asking, self._gate = cluster, sites, asking, gate
        self._streams, self._folder = streams, folder
        self._reference = Reference(streams)
        self._lock = threading.Lock()
        self._enough, self._repaired_s = threading.Event(), float("inf")
        self.first_runs = threading.Event()
        self.outcomes: list[Outcome] = []

    def submit_no_more(self) -> None:
        self._enough.set()

    def repaired(self) -> None:
        """Note that all faults are repaired: from now on queries must finish soon."""
        self._repaired_s = time.monotonic()

    def run(self, planned: Iterator[Planned], timeline: Timeline) -> None:
        with ThreadPoolExecutor(AT_A_TIME, thread_name_prefix="query") as pool:
            for turn in [pool.submit(self._take_turns, planned, timeline) for _ in range(AT_A_TIME)]:
                turn.result()

    def _take_turns(self, planned: Iterator[Planned], timeline: Timeline) -> None:
        while not self._enough.is_set():
            with self._lock:
                query = next(planned)
            self.outcomes.append(self._outcome(query, timeline))

    def _outcome(self, query: Planned, timeline: Timeline) -> Outcome:
        name = f"q{query.number}-{query.case.name.replace('_', '-')}"
        entry = timeline.begin("query", name, f"{query.durability}, {query.strategy}")
        end, rows, verdict, reason = STUCK, 0, Verdict(), ""
        try:
            streams = self._declare(query)
            info, path = self._submitted(query, name, streams)
            self.first_runs.set()
            info = self._over(info)
            end, reason = info.state, info.reason if info.state != FINISHED else ""
            if end == FINISHED:
                got = stored(path)
                rows, verdict = len(got), self._judged(query, got)
            self._forget(streams)
        except SbonError as error:
            reason = str(error)
        wrong = ", ".join(f"{count} {name}" for name, count in verdict._asdict().items() if count)
        timeline.end(entry, "; ".join(part for part in (end, wrong or f"{rows} rows", reason) if part))
        return Outcome(name, query.durability, entry.at_s, entry.until_s or 0.0, end, rows, verdict, reason)

    def _judged(self, query: Planned, rows: list[Any]) -> Verdict:
        with self._lock:
            expected = self._reference.answer(query.case)
        return judged(rows, expected)

    def _declare(self, query: Planned) -> dict[str, str]:
        """Declare streams of the query's own, read at its pace; return their names by those in the text."""
        names = {name: f"q{query.number}_{name}" for name in streams_of(query.case, self._streams)}
        for name, own in names.items():
            declaration: Any = msgspec.structs.replace(self._streams[name].declaration, name=own)
            self._asking.insist(lambda client, it=declaration: client.create_stream(it), PATIENCE_S, {"stream-exists"})  # type: ignore[misc]
            for source in self._streams[name].sources(self._sites.sources, seconds=query.seconds):
                at: Any = msgspec.structs.replace(source, stream=own)
                self._asking.insist(lambda client, it=at: client.attach_source(it), PATIENCE_S, {"source-exists"})  # type: ignore[misc]
        return names

    def _submitted(self, query: Planned, name: str, streams: dict[str, str]) -> tuple[QueryInfo, Path]:
        """Submit until a node accepts it, each time under another name: an attempt without an answer may have succeeded."""
        deadline_s, attempt = time.monotonic() + PATIENCE_S, 0
        while True:
            path = self._folder / f"{name}-{attempt}.parquet"
            submission = Submission(
                sql=over(query.case, streams),
                name=f"{name}-{attempt}",
                strategy=query.strategy,
                durability=query.durability,
                adapt="off",
                consumer=self._sites.consumer,
                sink=SinkSpec(kind="file", options={"path": str(path), "format": "parquet"}),
            )
            try:
                with self._gate.submitting():
                    return self._accepted(submission), path
            except SbonError:
                with suppress(SbonError):
                    self._asking.client().stop_query(submission.name)
                if time.monotonic() > deadline_s:
                    raise
            attempt += 1
            time.sleep(AGAIN_S)

    def _accepted(self, submission: Submission) -> QueryInfo:
        client = self._asking.client()
        for event in client.submit(submission):
            if isinstance(event, Accepted):
                return event.query
        raise SbonError("node-unreachable", f"{client.api} ended the connection before the query was accepted")

    def _over(self, info: QueryInfo) -> QueryInfo:
        """Wait for the end; raise :class:`SbonError` ``timeout`` if it is stuck."""
        while info.state not in ENDED:
            time.sleep(AGAIN_S)
            if time.monotonic() > self._repaired_s + PATIENCE_S:
                raise SbonError("timeout", f"{info.state} for {PATIENCE_S:g} s after all repairs: {_state_of(info)}")
            with suppress(SbonError):
                info = self._asking.query(info.id)
        return info

    def _forget(self, streams: Mapping[str, str]) -> None:
        for own in streams.values():
            with suppress(SbonError):
                for site in self._sites.sources:
                    self._asking.client().detach_source(own, site)
                self._asking.client().drop_stream(own)


def _state_of(info: QueryInfo) -> str:
    """Return the reasons of a query and of its operators."""
    parts = [info.reason, *(f"{one.id} at {one.node} is {one.state}: {one.reason}" for one in info.operators)]
    return "; ".join(part for part in parts if part)
