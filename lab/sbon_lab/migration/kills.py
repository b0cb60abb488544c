"""Processes that die amid moves of an operator: the query goes on, and its rows stay right."""

import random
import signal
import threading
import time
from collections import Counter
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import psutil

from sbon import SbonError
from sbon.local.cluster import SHORT_LIVED, LocalCluster
from sbon.local.node import LocalNode
from sbon_lab.bench.path.costs import kind_of
from sbon_lab.experiments.harness.experiment import Found, Notify, Row
from sbon_lab.migration.feed import Feed
from sbon_lab.migration.kinds import KINDS
from sbon_lab.migration.measuring import HOSTS, SOURCE
from sbon_lab.migration.moving_query import Move, MovingQuery
from sbon_protocol.api.states import operator_states

VICTIMS = ("daemon", "host", "jvm", "all")
"""Victims at a node: its daemon, the engine's process, its JVM, or all its processes at once."""
LATEST_S = 1.3
"""Latest moment of a kill, in lengths of the moves so far."""


def run(folder: Path, kinds: tuple[str, ...], kills: int, seed: int, notify: Notify, found: Found) -> list[Row]:
    """Return a row for each kind: ``kills`` in all, each amid a move of the kind's last operator, and the wrong rows."""
    rng, rows = random.Random(seed), []
    with LocalCluster((SOURCE, *HOSTS), folder=folder / "cluster", overrides=SHORT_LIVED) as cluster:
        for place, kind in enumerate(kinds):
            count = kills // len(kinds) + (place < kills % len(kinds))
            rows.append(_Kills(cluster, kind, rng, notify).row(folder / kind, count))
            found(rows[-1])
    return rows


class _Kills:
    """Kills amid the moves of a query of one kind."""

    def __init__(self, cluster: LocalCluster, kind: str, rng: random.Random, notify: Notify) -> None:
        self._cluster, self._kind, self._rng, self._notify = cluster, kind, rng, notify
        self._ends: Counter[str] = Counter()
        self._waits_s: list[float] = []

    def row(self, folder: Path, kills: int) -> Row:
        with MovingQuery(
            self._cluster, SOURCE, f"kills-{self._kind}", KINDS[self._kind], Feed(), folder, strategy="consumer"
        ) as query:
            self._notify(f"{self._kind}: the first moves")
            query.more(3)
            operator, lengths_s = query.operators()[-1], []
            for host in HOSTS:
                move = query.move(operator, host)
                lengths_s.append(move.moved_s - move.requested_s)
                query.more(3)
            for number in range(kills):
                self._notify(f"{self._kind}: kill {number + 1} of {kills}")
                self._kill_amid_move(query, operator, self._rng.uniform(0, LATEST_S * lengths_s[-1]))
            self._notify(f"{self._kind}: the rows")
            missing, superfluous = query.end(query.answers())
            numbers = [arrival.number for arrival in query.arrivals]
            return {
                "kind": self._kind,
                "kills": kills,
                "moved": self._ends["moved"],
                "given_up": kills - self._ends["moved"],
                "longest_wait_s": round(max(self._waits_s, default=0.0), 1),
                "rows": sum(len(arrival.rows) for arrival in query.arrivals),
                "repeated_frames": len(numbers) - len(set(numbers)),
                "wrong": missing + superfluous,
                "ends": ", ".join(f"{end}: {count}" for end, count in sorted(self._ends.items())),
            }

    def _kill_amid_move(self, query: MovingQuery, operator: str, after_s: float) -> None:
        """Kill a process of either side ``after_s`` seconds into a move; wait until rows of a later input have arrived."""
        origin = query.host_of(operator)
        target = next(host for host in HOSTS if host != origin)
        victim, what = self._cluster[self._rng.choice((origin, target))], self._rng.choice(VICTIMS)
        ends: list[str] = []

        def move() -> None:
            try:
                ended: Move | SbonError = query.move(operator, target)
            except SbonError as error:
                ended = error
            ends.append("moved" if isinstance(ended, Move) else ended.code)

        thread = threading.Thread(target=move, name="move", daemon=True)
        thread.start()
        time.sleep(after_s)
        kill(victim, what)
        killed_s = time.monotonic()
        if not victim.running:
            victim.start()
            victim.wait_ready()
        thread.join()
        count, written = len(query.arrivals), len(query.written_s)
        query.until(lambda: len(query.arrivals) > count + 3 and len(query.written_s) > written)
        self._waits_s.append(_longest_gap_s(query, killed_s))
        self._ends[ends[0]] += 1
        self._cluster.wait_converged()
        query.until(lambda: _runs(query, operator))


def kill(node: LocalNode, what: str) -> None:
    """Send SIGKILL to a process of the node, or to all; a process that is not there is not killed."""
    daemon = psutil.Process(node.pid)
    family = daemon.children(recursive=True)
    chosen = [daemon] if what == "daemon" else [daemon, *family] if what == "all" else [p for p in family if _is(p, what)]
    for process in chosen:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGKILL)
    if daemon in chosen:
        node.wait()


def _is(process: psutil.Process, what: str) -> bool:
    try:
        return kind_of(process.cmdline(), top=False) == what
    except psutil.Error:
        return False


def _longest_gap_s(query: MovingQuery, since_s: float) -> float:
    """Return the longest time without rows since then."""
    at_s = [since_s, *(arrival.at_s for arrival in list(query.arrivals) if arrival.at_s > since_s)]
    return max(after - before for before, after in pairwise(at_s))


def _runs(query: MovingQuery, operator: str) -> bool:
    try:
        return any(one.id == operator and one.state == operator_states.RUNNING for one in query.info().operators)
    except SbonError:
        return False
