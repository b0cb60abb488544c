"""Moves of one query on a local cluster, with what they cost."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np

from sbon import SbonError
from sbon.local.cluster import LocalCluster
from sbon.local.node import API_PORT, LocalNode
from sbon_lab.bench import footprint
from sbon_lab.migration.feed import Feed
from sbon_lab.migration.kinds import KINDS
from sbon_lab.migration.moving_query import Move, MovingQuery

SOURCE, HOSTS = "near", ("left", "right")
"""The node with the sources and the consumer, and those between which an operator moves."""
MEGABYTE = 10**6
SETTLE_S = 2.0
"""Time after a move that does not count as usual yet."""
FRAMES_BETWEEN = 5
MEMORY_EVERY_S = 0.5


class Case(NamedTuple):
    """Subject of the moves: a query of a kind, its state provider and the megabytes of its state at the beginning."""

    kind: str
    provider: str
    state_mb: int

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.provider}-{self.state_mb}"

    @property
    def feed(self) -> Feed:
        return Feed(state_bytes=self.state_mb * MEGABYTE)


class Cost(NamedTuple):
    """CPU cores and megabytes of memory that a target takes while it follows."""

    cores: float
    memory_mb: float


@dataclass
class Measured:
    """All moves of a case. ``failed`` are the errors of those that were given up."""

    case: Case
    moves: list[Move] = field(default_factory=list)
    costs: list[Cost] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    gaps_s: list[float] = field(default_factory=list)
    usual_gaps_s: list[float] = field(default_factory=list)
    delays_s: list[float] = field(default_factory=list)
    usual_delays_s: list[float] = field(default_factory=list)
    probes_ms: list[float] = field(default_factory=list)
    usual_probes_ms: list[float] = field(default_factory=list)
    rows: int = 0
    wrong: int = 0
    buckets: tuple[Any, ...] = ()


class Following:
    """The cost of a target within the block: CPU of its processes, and what their memory grows at most."""

    def __init__(self, node: LocalNode) -> None:
        self._node, self._ended, self._peak_mb = node, threading.Event(), 0.0
        self._thread = threading.Thread(target=self._sample, name="memory", daemon=True)

    def __enter__(self) -> Self:
        self._before_mb, self._before_s = self._memory_mb(), footprint.total_cpu_s([self._node.pid])
        self._began_s = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._cores = (footprint.total_cpu_s([self._node.pid]) - self._before_s) / (time.monotonic() - self._began_s)
        self._ended.set()
        self._thread.join()

    @property
    def cost(self) -> Cost:
        return Cost(self._cores, max(0.0, self._peak_mb - self._before_mb))

    def _sample(self) -> None:
        while not self._ended.wait(MEMORY_EVERY_S):
            self._peak_mb = max(self._peak_mb, self._memory_mb())

    def _memory_mb(self) -> float:
        return footprint.memory_mb(footprint.family(self._node.pid))


def measure(cluster: LocalCluster, case: Case, moves: int, folder: Path, notify: Callable[[str], None]) -> Measured:
    """Run a query of the case, and move its last operator ``moves`` times.

    Two more moves come first: they warm both hosts, and do not count.
    """
    kind, measured = KINDS[case.kind], Measured(case)
    fields = {} if case.provider == "hdfs" else {"state_provider": case.provider}
    with MovingQuery(cluster, SOURCE, f"moves-{case.name}", kind, case.feed, folder, strategy="consumer", **fields) as query:
        notify(f"{case.name}: the state")
        query.more(FRAMES_BETWEEN)
        last = query.operators()[-1]
        query.until(lambda: query.rows_in(last) > case.feed.state_rows)
        for host in HOSTS:
            notify(f"{case.name}: the first move to {host}")
            query.beyond(query.move(last, host))
            query.more(FRAMES_BETWEEN)
        since_s = time.monotonic() + SETTLE_S
        with Prober([cluster[host] for host in HOSTS]) as prober:
            _rest(query)
            for number in range(moves):
                notify(f"{case.name}: move {number + 1} of {moves}")
                _move(query, cluster, last, measured)
        plan = query.info().plan
        assert plan is not None
        measured.buckets = plan.operators[-1].buckets
        notify(f"{case.name}: the rows")
        answers = query.answers()
        missing, superfluous = query.end(answers)
        measured.wrong, measured.rows = missing + superfluous, sum(len(arrival.rows) for arrival in query.arrivals)
        _divide(query, measured, answers.due_ms(), prober, since_s)
    return measured


def _move(query: MovingQuery, cluster: LocalCluster, operator: str, measured: Measured) -> None:
    target = next(host for host in HOSTS if host != query.host_of(operator))
    try:
        with Following(cluster[target]) as following:
            move = query.move(operator, target)
    except SbonError as error:
        measured.failed.append(f"{error.code}: {error}")
        _rest(query)
        return
    query.beyond(move)
    _rest(query)
    measured.moves.append(move)
    measured.costs.append(following.cost)


def _rest(query: MovingQuery) -> None:
    """Let the query run as usual for a while."""
    time.sleep(SETTLE_S)
    query.more(FRAMES_BETWEEN)


def _divide(query: MovingQuery, measured: Measured, due_ms: list[int], prober: Prober, since_s: float) -> None:
    """Divide gaps, delays and probes by whether the operator moved meanwhile."""
    arrivals = query.arrivals
    for before, after in pairwise(arrivals):
        gap_s = after.at_s - before.at_s
        if any(before.number <= move.last < after.number for move in measured.moves):
            measured.gaps_s.append(gap_s)
        elif after.at_s > since_s and not _during(measured.moves, after.at_s):
            measured.usual_gaps_s.append(gap_s)
    at_s = np.repeat([arrival.at_s for arrival in arrivals], [len(arrival.rows) for arrival in arrivals])
    written_s = query.written_s
    for arrived_s, due in zip(at_s.tolist(), due_ms, strict=False):  # Some rows have come after the comparison.
        frame = query.feed.frame_with(due)
        if arrived_s > since_s and frame < len(written_s):
            delays_s = measured.delays_s if _during(measured.moves, arrived_s) else measured.usual_delays_s
            delays_s.append(arrived_s - written_s[frame])
    for probe in prober.probes:
        copies = any(move.requested_s <= probe.at_s <= move.moved_s for move in measured.moves)
        (measured.probes_ms if copies else measured.usual_probes_ms).append(probe.took_ms)


def _during(moves: list[Move], at_s: float) -> bool:
    return any(move.requested_s <= at_s <= move.moved_s + SETTLE_S for move in moves)


# -- Round trips to the API of nodes, one after another: how long their event loops keep a caller waiting -------------

EVERY_S = 0.02
TIMEOUT_S = 30.0


class Probe(NamedTuple):
    """A round trip that began at ``at_s`` (:func:`time.monotonic`)."""

    at_s: float
    took_ms: float


class Prober:
    """Probes each of the nodes within its block, every 20 ms or as fast as it answers."""

    def __init__(self, nodes: Sequence[LocalNode]) -> None:
        self.probes: list[Probe] = []
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=self._probe, args=(node,), name=f"probe {node.name}", daemon=True) for node in nodes
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _probe(self, node: LocalNode) -> None:
        connection = http.client.HTTPConnection(node.host, API_PORT, timeout=TIMEOUT_S)
        while not self._ended.wait(EVERY_S):
            began_s = time.monotonic()
            try:
                connection.request("GET", "/readyz")
                connection.getresponse().read()
            except OSError:
                connection.close()
                continue
            self.probes.append(Probe(began_s, 1000 * (time.monotonic() - began_s)))
        connection.close()
