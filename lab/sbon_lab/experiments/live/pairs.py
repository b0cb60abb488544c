"""Pairs of equal queries on real nodes, of which one may migrate: their nodes, streams and rows, and how they are measured.

SBON, section 4.2. Sources and consumers are at nodes without memory for operators, so a host that becomes slow can be left. Each
query filters a source's rows with one operator; its twin reads the same source.
"""

import random
import string
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from sbon_lab.bench.usage import Area
from sbon_lab.suite.cases import Case
from sbon_lab.suite.streams import SuiteStream
from sbon_node.placement.model.from_plan import problem_of
from sbon_node.placement.model.objective import longest_delay_ms
from sbon_protocol.api.catalogue import SourceDeclaration, StreamDeclaration
from sbon_protocol.api.columns import Column
from sbon_protocol.api.queries import QueryInfo
from sbon_protocol.errors import SbonError

MIGRATING, FIXED = "migrating", "fixed"
VARIANTS = (MIGRATING, FIXED)
LEAST_ENDS = 4
"""Least number of nodes of sources and consumers."""
SITES = ("a",)
ROWS_S, TEXT_BYTES = 20, 400
"""Rows a second of a source, and the length of the random text in each."""
SLOWER_RTT_MS = 300.0
"""Round-trip time that a change adds to all paths of a node."""
START = datetime(2020, 3, 2, 9, tzinfo=UTC)
SCHEMA = (Column("id", "bigint"), Column("t", "string"), Column("ts", "timestamp"))
_SQL = "SELECT id, upper(t) AS t, ts FROM {stream} WHERE id % 2 = 0"


class Pair(NamedTuple):
    """A query and the nodes of its sources by site; ``name`` is that of the migrating one, and of the pair."""

    name: str
    stream: str
    nodes: Mapping[str, str]
    consumer: str

    def query(self, variant: str) -> str:
        return self.name if variant == MIGRATING else f"{self.name}{variant}"

    @property
    def case(self) -> Case:
        sql = _SQL.format(stream=self.stream)
        return Case(self.name, "every other row of a source", sql, sql)


class PairWorld(NamedTuple):
    """Nodes of an area, the last of which are ``hosts`` of operators, and pairs of queries between the others, the ``ends``."""

    area: Area
    pairs: tuple[Pair, ...]
    ends: tuple[str, ...]
    hosts: tuple[str, ...]


def draw_pairs(area: Area, *, nodes: int, hosts: int, pairs: int, seed: int) -> PairWorld:
    """Draw the nodes from an area, ``hosts`` of which host operators, and for each pair its consumer and its sources.

    At least ``LEAST_ENDS`` nodes must be left for these. Raises :class:`SbonError` ``bad-latency`` if the area has fewer nodes.
    """
    if nodes > len(area.names):
        raise SbonError("bad-latency", f"{nodes} nodes, but only {len(area.names)} sites", where="--data")
    rng = np.random.default_rng((seed, 47))
    chosen = rng.choice(len(area.names), nodes, replace=False).tolist()
    names = tuple(area.names[i] for i in chosen)
    rtt_ms = tuple(tuple(0.0 if i == j else max(1.0, area.rtt_ms[i][j]) for j in chosen) for i in chosen)
    drawn, ends = [], nodes - hosts
    for number in range(pairs):
        consumer, *sources = (names[i] for i in rng.permutation(ends)[: len(SITES) + 1].tolist())
        drawn.append(Pair(f"q{number}", f"rows{number}", dict(zip(SITES, sources, strict=True)), consumer))
    return PairWorld(Area(names, rtt_ms), tuple(drawn), names[:ends], names[ends:])


def slowed(area: Area, nodes: Sequence[str]) -> Area:
    """Return the area with ``SLOWER_RTT_MS`` more on all paths of these nodes."""
    more = [SLOWER_RTT_MS * (name in nodes) for name in area.names]
    rows = enumerate(area.rtt_ms)
    return Area(area.names, tuple(tuple(ms + more[i] + more[j] if i != j else ms for j, ms in enumerate(row)) for i, row in rows))


def next_changed(world: PairWorld, hosts: Sequence[str], changed: Sequence[str]) -> str:
    """Return the node that becomes slow or busy: of those that are not, the one with the most operators, by ``hosts``."""
    count = Counter(hosts)
    others = [name for name in world.hosts if name not in changed]
    return min(others, key=lambda name: (-count[name], name))


def write_rows(pair: Pair, folder: Path, seconds: float, seed: int) -> SuiteStream:
    """Write the rows of a pair's sources for so many seconds, and return its stream."""
    files, count = {}, int(ROWS_S * seconds)
    for number, site in enumerate(SITES):
        files[site] = folder / f"{pair.stream}-{site}.csv"
        with files[site].open("w", encoding="utf-8") as file:
            file.write(",".join(column.name for column in SCHEMA) + "\n")
            file.writelines(_rows(count, number, random.Random(f"{seed} {pair.stream} {site}")))
    declaration = StreamDeclaration(name=pair.stream, schema=SCHEMA, event_time="ts")
    return SuiteStream(declaration, files, dict.fromkeys(SITES, count), timedelta(seconds=seconds))


def sources_of(pair: Pair, stream: SuiteStream) -> tuple[SourceDeclaration, ...]:
    """Return the sources of a pair, whose rows come at the pace of their times."""
    return stream.sources(pair.nodes, seconds=stream.length.total_seconds())


def _rows(count: int, site: int, rng: random.Random) -> Iterator[str]:
    letters = string.ascii_letters + string.digits
    for number in range(count):
        at = (START + timedelta(seconds=number / ROWS_S)).isoformat(timespec="milliseconds")
        yield f"{number * len(SITES) + site},{''.join(rng.choices(letters, k=TEXT_BYTES))},{at}\n"


class Meter:
    """Usage of a query between two looks: bytes that its links have carried since, x the area's latencies now, by the time.

    A link's count begins anew with another host of its stream, unless that has taken it over.
    """

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], int] = {}
        self._at_s: float | None = None
        self.bytes = 0

    def usage(self, info: QueryInfo, at_s: float, area: Area) -> float | None:
        """Return the usage in bytes in transit; None at the first look."""
        byte_ms, before_s = 0.0, self._at_s
        for link in info.links:
            key = (link.stream, link.target)
            before = self._counts.get(key, 0)
            carried = link.bytes - before if link.bytes >= before else link.bytes
            self._counts[key] = link.bytes
            if before_s is not None:
                self.bytes += carried
                if link.source_node and link.target_node:
                    byte_ms += carried * area.one_way_ms(link.source_node, link.target_node)
        self._at_s = at_s
        return byte_ms / 1000 / (at_s - before_s) if before_s is not None else None


def delay_ms(info: QueryInfo, area: Area) -> float:
    """Return the longest delay of links on the way of rows through the query, by the area's latencies."""
    assert info.plan is not None
    return longest_delay_ms(problem_of(info.plan, info.consumer), info.hosts(), area.one_way_ms)


def info_of(described: object) -> QueryInfo:
    """Return a query's description as the node's type."""
    return msgspec.convert(described, QueryInfo, from_attributes=True)
