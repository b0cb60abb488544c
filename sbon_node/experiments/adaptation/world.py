"""A drawn world: nodes of a matrix with its rounds as weather, queries over generated streams, and changes at known times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from sbon_node.errors import SbonError
from sbon_node.experiments.coordinates.rtt_matrix import read_matrix
from sbon_node.experiments.harness.network import Floats
from sbon_node.model.catalogue import SourceDeclaration, StreamDeclaration
from sbon_node.model.columns import Column

Kind = Literal["latency", "selectivity"]
KINDS: tuple[Kind, ...] = ("latency", "selectivity")

TYPES = {"id": "bigint", "v": "double", "flip": "bigint", "t": "string", "ts": "timestamp"}
SCHEMA = tuple(Column(name, type_) for name, type_ in TYPES.items())
NEVER = -(10**12)
"""Start of a sequence that does not become positive."""
ROWS_S, ROW_BYTES = (1.0, 4.0), 1000
"""Rows a second of a source, drawn evenly, and the length of their text."""
SHARES = (0.1, 0.9)
"""Shares of rows that a filter lets through, before and after its change or the other way round."""
SLOWER_MS = 80.0
"""One-way latency that a change of latency adds to all paths of a node."""
LEAST_MS = 0.05


class Change(NamedTuple):
    """A change of ``kind`` at a time; ``query`` is that of the filter whose selectivity changes."""

    at_s: float
    kind: Kind
    query: int = -1


@dataclass(frozen=True)
class DrawnQuery:
    """A query over one stream with sources at several nodes: a filter for each, and what joins or counts their rows."""

    name: str
    sql: str
    consumer: str
    streams: tuple[StreamDeclaration, ...]
    sources: tuple[SourceDeclaration, ...]


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
    """Nodes and queries, with the changes in order; those of selectivity are in the sources themselves."""

    weather: Weather
    queries: tuple[DrawnQuery, ...]
    changes: tuple[Change, ...]


def draw(data: Path, *, nodes: int, queries: int, seed: int, changes: Sequence[Change], round_s: float) -> World:
    """Draw nodes without missing pairs, and queries of both kinds in turn.

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
    flips = {change.query: change.at_s for change in changes if change.kind == "selectivity"}
    drawn = tuple(_query(number, names, flips.get(number), rng) for number in range(queries))
    return World(Weather(names, latencies_ms, round_s), drawn, tuple(sorted(changes)))


def _query(number: int, names: Sequence[str], flips_at_s: float | None, rng: np.random.Generator) -> DrawnQuery:
    """Return a windowed count over three filtered sources, or every other time a join of two."""
    is_join = number % 2 == 1
    ends = [names[i] for i in rng.choice(len(names), 3 if is_join else 4, replace=False)]
    consumer, hosts = ends[0], ends[1:]
    named = [f"s{number}x{part}" for part in range(len(hosts) if is_join else 1)]
    streams = tuple(StreamDeclaration(name=name, schema=SCHEMA, event_time="ts") for name in named)
    rises = bool(rng.integers(2))
    before, after = SHARES if rises else SHARES[::-1]
    rates = [float(rng.uniform(*ROWS_S)) for _ in hosts]
    sources = tuple(
        _source(streams[part if is_join else 0].name, host, flips_at_s if part == 0 else None, rates[0 if is_join else part])
        for part, host in enumerate(hosts)
    )
    share = f"CASE WHEN flip > 0 THEN {after} ELSE {before} END"
    if is_join:
        sql = (
            f"SELECT a.t, b.id FROM {streams[0].name} AS a JOIN {streams[1].name} AS b ON a.id = b.id AND b.ts BETWEEN "
            f"a.ts - INTERVAL 1 SECOND AND a.ts + INTERVAL 1 SECOND WHERE a.v < {_of('a', share)} AND b.v < {_of('b', share)}"
        )
    else:
        sql = f"SELECT count(*) AS n, max(t) AS t FROM {streams[0].name} WHERE v < {share} GROUP BY window(ts, '1 second')"
    return DrawnQuery(f"q{number}", sql, consumer, streams, sources)


def _of(table: str, share: str) -> str:
    return share.replace("flip", f"{table}.flip")


def _source(stream: str, host: str, flips_at_s: float | None, rows_s: float) -> SourceDeclaration:
    start = NEVER if flips_at_s is None else -round(flips_at_s * rows_s)
    columns = {"flip": {"kind": "sequence", "start": start}, "t": {"kind": "choice", "values": ["x" * ROW_BYTES]}}
    return SourceDeclaration(
        stream=stream, name=f"at-{host}", node=host, connector="generator", options={"rate": rows_s, "columns": columns}
    )
