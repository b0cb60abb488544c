"""A drawn world of the reuse experiment: nodes of a network, streams with producers at some of them, and queries that arrive."""

import base64
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sbon_lab.experiments.harness.network import Floats, Network
from sbon_lab.suite.cases import Case
from sbon_lab.suite.streams import SuiteStream
from sbon_protocol.api.catalogue import SourceDeclaration, StreamDeclaration
from sbon_protocol.api.columns import Column
from sbon_protocol.errors import SbonError

# -- Queries of the reuse experiment: templates over streams, filled with constants, and drawn by Zipf's law ----------

# SBON (Pietzuch et al., ICDE 2006, section 4.2.2) expects the popularity of data and operators to follow Zipf's law.

BOUNDS = (0.2, 0.4, 0.6, 0.9)
"""Constants of filters: each lets through the rows of all smaller ones, and that share of all rows."""
WIDTHS_S = (5, 10, 30)
"""Widths of tumbling windows in seconds; the last is a multiple of the others."""
WINDOW_BOUNDS = (0.4, 0.9)
APART_S = 5
"""Largest difference of event times of two rows that a join pairs; rows of equal ids have equal times."""


class Template(NamedTuple):
    """A query without a name: ``sql`` is Spark's, ``reference`` DuckDB's."""

    kind: str
    sql: str
    reference: str


def catalogue(streams: Sequence[str]) -> list[Template]:
    """Return all queries that users may ask: filters, projections, windows, and joins of each stream with the next one."""
    return [template for number, stream in enumerate(streams) for template in _of(stream, streams[number - 1])]


def zipf(kinds: int, count: int, exponent: float, rng: np.random.Generator) -> list[int]:
    """Draw ``count`` of so many kinds; the popularity of the one at rank r is r ** -exponent, and ranks are random."""
    weights = np.arange(1, kinds + 1, dtype=np.float64) ** -exponent
    ranked = rng.permutation(kinds)
    drawn: list[int] = ranked[rng.choice(kinds, count, p=weights / weights.sum())].tolist()
    return drawn


def _of(stream: str, other: str) -> Iterator[Template]:
    for bound in BOUNDS:
        yield _same("filter", f"SELECT id, k, v, t FROM {stream} WHERE v < {bound}")
        yield _same("projection", f"SELECT id, v FROM {stream} WHERE v < {bound}")
    for width_s in WIDTHS_S:
        for bound in WINDOW_BOUNDS:
            figures = f"k, count(*) AS n, sum(id) AS ids, min(v) AS low, max(v) AS high FROM {stream} WHERE v < {bound}"
            yield Template(
                "window",
                f"SELECT window(ts, '{width_s} seconds').start AS begin, {figures} GROUP BY window(ts, '{width_s} seconds'), k",
                f"SELECT time_bucket(INTERVAL {width_s} SECOND, ts) AS begin, {figures} GROUP BY ALL",
            )
    for bound in WINDOW_BOUNDS if other != stream else ():
        yield _same(
            "join",
            f"SELECT a.id, a.k, a.t, b.v FROM {stream} AS a JOIN {other} AS b ON a.id = b.id AND b.ts BETWEEN a.ts - INTERVAL "
            f"{APART_S} SECOND AND a.ts + INTERVAL {APART_S} SECOND WHERE a.v < {bound} AND b.v < {bound}",
        )


def _same(kind: str, sql: str) -> Template:
    return Template(kind, sql, sql)


# ---------------------------------------------------------------------------------------------------------------------

STREAMS, PRODUCERS = 4, 2
"""Number of streams, and of producers of each, all at nodes of their own."""
ROWS_S, TEXT_BYTES = 2.0, 1000
"""Rows a second of a producer, and the length of the random text in each: SBON's 2 KB/s (section 4.1)."""
KEYS = 4
LEAST_MS = 0.05
START = datetime(2020, 3, 2, 9, tzinfo=UTC)
SCHEMA = tuple(
    Column(name, type_) for name, type_ in {"id": "bigint", "k": "int", "v": "double", "t": "string", "ts": "timestamp"}.items()
)


class Query(NamedTuple):
    """A query, which arrives ``at_s`` after the first one."""

    name: str
    template: Template
    consumer: str
    at_s: float

    @property
    def case(self) -> Case:
        return Case(self.name, self.template.kind, self.template.sql, self.template.reference)


class World(NamedTuple):
    """``latency_ms`` [n, n] is one-way. ``producers`` are the nodes of each stream's sources, by the names of these.

    The producers have rows for ``seconds``.
    """

    names: tuple[str, ...]
    latency_ms: Floats
    producers: Mapping[str, Mapping[str, str]]
    queries: tuple[Query, ...]
    seconds: float

    def one_way_ms(self, source: str, target: str) -> float:
        return float(self.latency_ms[self.names.index(source), self.names.index(target)])


def draw(network: Network, *, nodes: int, queries: int, exponent: float, every_s: float, tail_s: float, seed: int) -> World:
    """Draw nodes, producers and queries with their consumers; a query arrives every ``every_s``.

    Rows come until ``tail_s`` after the last one. Raises :class:`SbonError` ``bad-matrix`` for a network without so many nodes.
    """
    if nodes > network.nodes:
        raise SbonError("bad-matrix", f"it has {network.nodes} nodes, {nodes} are needed", where=network.name)
    rng = np.random.default_rng((seed, 59))
    chosen = rng.choice(network.nodes, nodes, replace=False)
    latency_ms = np.maximum(network.latency_ms[np.ix_(chosen, chosen)], LEAST_MS)
    np.fill_diagonal(latency_ms, 0.0)
    names = tuple(f"n{number:03d}" for number in range(nodes))
    ends = iter(rng.permutation(nodes)[: STREAMS * PRODUCERS].tolist())
    producers = {f"s{number}": {f"p{part}": names[next(ends)] for part in range(PRODUCERS)} for number in range(STREAMS)}
    templates = catalogue(tuple(producers))
    drawn = tuple(
        Query(f"q{number}", templates[kind], names[int(rng.integers(nodes))], number * every_s)
        for number, kind in enumerate(zipf(len(templates), queries, exponent, rng))
    )
    return World(names, latency_ms, producers, drawn, (queries - 1) * every_s + tail_s)


def write_streams(world: World, folder: Path, seed: int) -> dict[str, SuiteStream]:
    """Write a file for each producer, and return the streams by name."""
    return {
        stream: write_stream(folder, stream, tuple(nodes), world.seconds, (seed, 61, number))
        for number, (stream, nodes) in enumerate(world.producers.items())
    }


def write_stream(folder: Path, name: str, producers: Sequence[str], seconds: float, seed: Sequence[int]) -> SuiteStream:
    """Write a file for each producer of a stream, with its rows of so many seconds, and return the stream."""
    count, files = int(ROWS_S * seconds), {producer: folder / f"{name}-{producer}.csv" for producer in producers}
    for part, file in enumerate(files.values()):
        with file.open("w", encoding="utf-8") as written:
            written.write(",".join(column.name for column in SCHEMA) + "\n")
            written.writelines(_rows(count, part, len(files), np.random.default_rng((*seed, part))))
    declaration = StreamDeclaration(name=name, schema=SCHEMA, event_time="ts")
    return SuiteStream(declaration, files, dict.fromkeys(files, count), timedelta(seconds=seconds))


def sources_of(world: World, streams: Mapping[str, SuiteStream]) -> Sequence[SourceDeclaration]:
    """Return all sources, whose rows come at the pace of their times."""
    return [
        source
        for stream in streams.values()
        for source in stream.sources(world.producers[stream.declaration.name], seconds=world.seconds)
    ]


def _rows(count: int, part: int, parts: int, rng: np.random.Generator) -> Iterator[str]:
    """Yield lines; ids of all producers of a stream differ, and every stream has the same ones at the same times."""
    values, keys = rng.integers(0, 1000, count) / 1000, rng.integers(0, KEYS, count)
    for number, (v, k) in enumerate(zip(values.tolist(), keys.tolist(), strict=True)):
        at = (START + timedelta(seconds=number / ROWS_S)).isoformat(timespec="milliseconds")
        text = base64.b64encode(rng.bytes(TEXT_BYTES * 3 // 4)).decode()
        yield f"{number * parts + part},{k},{v},{text},{at}\n"
