"""A drawn world: nodes of a matrix with its rounds as weather, queries over streams of posts, and changes at known times."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from sbon_lab.experiments.coordinates.rtt_matrix import read_matrix
from sbon_lab.experiments.harness.network import Floats
from sbon_protocol.api.catalogue import SourceDeclaration, StreamDeclaration
from sbon_protocol.api.columns import Column
from sbon_protocol.errors import SbonError

Kind = Literal["latency", "rate", "selectivity", "load"]
KINDS: tuple[Kind, ...] = ("latency", "rate", "selectivity", "load")

TYPES = {"id": "bigint", "v": "double", "share": "double", "t": "string", "ts": "timestamp"}
SCHEMA = tuple(Column(name, type_) for name, type_ in TYPES.items())
ROWS_S, ROW_BYTES = (1.0, 4.0), 1000
"""Rows a second of a source, drawn evenly, and the length of their text."""
SHARES = (0.1, 0.9)
"""Shares of rows that a filter lets through; a change of selectivity takes the other one."""
RATE_FACTOR = 5.0
"""Factor by which a change of rate multiplies the rows of a source, or divides them the next time."""
SLOWER_MS = 80.0
"""One-way latency that a change of latency adds to all paths of a node."""
BUSY_LOAD = 2.5
"""Runnable processes per core of a node after a change of load, until the next change of load."""
LEAST_MS = 0.05
BOUNDED = (1, 2)
"""Queries with a bound among each four, a join and a count, if the world has bounds."""


class Change(NamedTuple):
    """A change of ``kind`` at a time; ``query`` is that of the source whose rate or selectivity changes."""

    at_s: float
    kind: Kind
    query: int = -1


@dataclass
class Flow:
    """The rows posted to a source: rows a second, and the share of them that the query's filter lets through."""

    source: SourceDeclaration
    rows_s: float
    share: float
    fast: bool = False

    def change(self, kind: Kind) -> None:
        """Change the rate or the selectivity; twice is as before."""
        if kind == "selectivity":
            self.share = SHARES[self.share == SHARES[0]]
        else:
            self.rows_s, self.fast = self.rows_s * (1 / RATE_FACTOR if self.fast else RATE_FACTOR), not self.fast


@dataclass(frozen=True)
class DrawnQuery:
    """A query over streams with sources at several nodes: a filter for each, and what joins or counts their rows."""

    name: str
    sql: str
    consumer: str
    streams: tuple[StreamDeclaration, ...]
    flows: tuple[Flow, ...]
    max_delay_ms: float | None = None

    @property
    def ends(self) -> frozenset[str]:
        """The nodes of its sources and its consumer."""
        return frozenset({self.consumer, *(flow.source.node for flow in self.flows)})


@dataclass
class Weather:
    """One-way latencies in milliseconds at a time: rounds that follow each other, and nodes that became slower."""

    names: tuple[str, ...]
    rounds: Floats
    round_s: float
    slower: dict[str, float] = field(default_factory=dict)
    """Milliseconds added to all paths of a node."""

    def __post_init__(self) -> None:
        self._number = {name: number for number, name in enumerate(self.names)}
        self._current: tuple[int, int] | None = None
        self._ms: Floats = self.rounds[0]

    def at(self, now_s: float) -> Floats:
        """Return the latencies now, [n, n]."""
        round_ = int(now_s / self.round_s) % len(self.rounds)
        if self._current != (round_, len(self.slower)):
            added = np.array([self.slower.get(name, 0.0) for name in self.names])
            latencies_ms = self.rounds[round_] + added[:, None] + added[None, :]
            np.fill_diagonal(latencies_ms, 0.0)
            self._ms, self._current = latencies_ms, (round_, len(self.slower))
        return self._ms

    def between_ms(self, source: str, target: str, now_s: float) -> float:
        return float(self.at(now_s)[self._number[source], self._number[target]])


@dataclass(frozen=True)
class World:
    """Nodes and queries, with the changes in order."""

    weather: Weather
    queries: tuple[DrawnQuery, ...]
    changes: tuple[Change, ...]


def draw(
    data: Path,
    *,
    nodes: int,
    queries: int,
    seed: int,
    changes: Sequence[Change],
    round_s: float,
    bound: float | None = None,
) -> World:
    """Draw nodes without missing pairs, and queries of both kinds in turn.

    With ``bound`` every other query of each kind has a bound on its delay: that many times the one-way latency from its farthest
    source straight to its consumer, in the first round.

    Raises :class:`SbonError` ``bad-matrix`` for a file without so many nodes.
    """
    rng = np.random.default_rng((seed, 41))
    rounds = read_matrix(data).rounds
    known = np.isfinite(rounds).all(axis=0) | np.eye(rounds.shape[1], dtype=np.bool_)
    complete = np.flatnonzero(known.all(axis=0))
    if len(complete) < nodes:
        raise SbonError("bad-matrix", f"it has {len(complete)} nodes with all times, {nodes} are needed", where=str(data))
    chosen = rng.choice(complete, nodes, replace=False)
    latencies_ms = rounds[:, chosen][:, :, chosen]
    latencies_ms = np.maximum(np.nan_to_num((latencies_ms + latencies_ms.transpose(0, 2, 1)) / 4), LEAST_MS)
    names = tuple(f"n{number:03d}" for number in range(nodes))
    drawn = tuple(_query(number, names, rng) for number in range(queries))
    weather = Weather(names, latencies_ms, round_s)
    if bound is not None:
        drawn = tuple(
            replace(query, max_delay_ms=bound * straight_ms(query, weather, 0.0)) if number % 4 in BOUNDED else query
            for number, query in enumerate(drawn)
        )
    return World(weather, drawn, tuple(sorted(changes)))


def straight_ms(query: DrawnQuery, weather: Weather, now_s: float) -> float:
    """Return the one-way latency from the query's farthest source straight to its consumer."""
    return max(weather.between_ms(flow.source.node, query.consumer, now_s) for flow in query.flows)


def _query(number: int, names: Sequence[str], rng: np.random.Generator) -> DrawnQuery:
    """Return a windowed count over three filtered sources, or every other time a join of two."""
    is_join = number % 2 == 1
    ends = [names[i] for i in rng.choice(len(names), 3 if is_join else 4, replace=False)]
    consumer, hosts = ends[0], ends[1:]
    named = [f"s{number}x{part}" for part in range(len(hosts) if is_join else 1)]
    streams = tuple(StreamDeclaration(name=name, schema=SCHEMA, event_time="ts") for name in named)
    first = SHARES[int(rng.integers(2))]
    rates = [float(rng.uniform(*ROWS_S)) for _ in hosts]
    flows = tuple(
        _flow(streams[part if is_join else 0].name, host, rates[0 if is_join else part], SHARES[1] if part else first)
        for part, host in enumerate(hosts)
    )
    if is_join:
        sql = (
            f"SELECT a.t, b.id FROM {streams[0].name} AS a JOIN {streams[1].name} AS b ON a.id = b.id AND b.ts BETWEEN "
            "a.ts - INTERVAL 10 SECOND AND a.ts + INTERVAL 10 SECOND WHERE a.v < a.share AND b.v < b.share"
        )
    else:
        sql = f"SELECT count(*) AS n, max(t) AS t FROM {streams[0].name} WHERE v < share GROUP BY window(ts, '1 second')"
    return DrawnQuery(f"q{number}", sql, consumer, streams, flows)


def _flow(stream: str, host: str, rows_s: float, share: float) -> Flow:
    source = SourceDeclaration(
        stream=stream,
        name=f"at-{host}",
        node=host,
        connector="http",
        options={"timestamp_format": "epoch_ms"},
        rows_s=rows_s,
        row_bytes=float(ROW_BYTES),
    )
    return Flow(source, rows_s, share)
