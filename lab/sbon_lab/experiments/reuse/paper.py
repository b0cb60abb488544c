"""SBON's experiment on reuse (ICDE 2006, section 4.2.2, Figure 13): four queries over two producers, on real nodes.

Two producers are in Europe, and each query has a consumer of its own on the West Coast of the US, which requests aggregated data.
In the paper three of the four queries share their aggregation, and reuse saves 21 % of the network usage.

The paper leaves the rest open. Here the producers are in Madrid and Stockholm. They send 2 KB/s each, and the aggregation passes
on an eighth, as in the paper's simulation (section 4.1): the largest text and the number of rows of all 2 s. Three queries are
equal up to the names of their columns. The fourth one aggregates 4 s: its rows follow from those of the others, but no operator
of theirs equals its own. The paper's multicast operator, which sends one copy of the shared rows across the ocean, has no
counterpart: each consumer takes its own copy from the operator.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sbon_lab.bench.usage import Area
from sbon_lab.experiments.reuse.links import links_once
from sbon_lab.experiments.reuse.world import write_stream
from sbon_lab.suite.cases import Case
from sbon_lab.suite.streams import SuiteStream
from sbon_protocol.api.queries import QueryInfo

PRODUCERS = {"p0": "madrid", "p1": "stockholm"}
"""Nodes of the sources, by their names."""
CONSUMERS = ("seattle", "portland", "san-francisco", "los-angeles")
PLACES = {
    "madrid": (40.42, -3.70),
    "stockholm": (59.33, 18.07),
    "seattle": (47.61, -122.33),
    "portland": (45.52, -122.68),
    "san-francisco": (37.77, -122.42),
    "los-angeles": (34.05, -118.24),
}
"""Coordinates in degrees north and east."""
PAPER_SAVED_PCT = 21.0
_TWO = "window(ts, '2 seconds')"
SQL = (
    f"SELECT {_TWO}.start AS begin, count(*) AS n, max(t) AS top FROM {{0}} GROUP BY {_TWO}",
    f"SELECT {_TWO}.start AS since, count(*) AS posts, max(t) AS greatest FROM {{0}} AS p GROUP BY {_TWO}",
    "SELECT window(p.ts, '2 seconds').start AS at, count(*) AS number, max(p.t) AS most FROM {0} AS p "
    "GROUP BY window(p.ts, '2 seconds')",
    "SELECT window(ts, '4 seconds').start AS begin, count(*) AS n, max(t) AS top FROM {0} GROUP BY window(ts, '4 seconds')",
)
WIDTHS_S = (2, 2, 2, 4)


class PaperQuery(NamedTuple):
    case: Case
    consumer: str


def queries(stream: str, reuse: str) -> list[PaperQuery]:
    """Return the four queries over a stream, by names with the kind of reuse in them."""
    return [
        PaperQuery(
            Case(f"q{number}-{reuse}", "an aggregate of two producers", sql.format(stream), _reference(stream, width_s)), at
        )
        for number, (sql, width_s, at) in enumerate(zip(SQL, WIDTHS_S, CONSUMERS, strict=True))
    ]


def _reference(stream: str, width_s: int) -> str:
    return f"SELECT time_bucket(INTERVAL {width_s} SECOND, ts) AS begin, count(*), max(t) FROM {stream} GROUP BY ALL"


def write_posts(folder: Path, reuse: str, seconds: float, seed: int) -> SuiteStream:
    """Write the rows of both producers, equal for all kinds of reuse, and return a stream for one of these."""
    return write_stream(folder, f"posts_{reuse}", tuple(PRODUCERS), seconds, (seed, 71))


def usage_byte_ms(infos: Sequence[QueryInfo], area: Area) -> float:
    """Return the bytes that each link bears so far, x its one-way latency in the area."""
    return sum(link.borne_bytes * area.one_way_ms(link.source_node, link.target_node) for link in links_once(infos))


def figures(
    infos: Sequence[QueryInfo], byte_ms: float, own_byte_ms: float, seconds: float, wrong: int, rows: int, without: float | None
) -> dict[str, Any]:
    """Return the figures of the four queries with one kind of reuse.

    Usage is in bytes in transit, as in the paper: the mean over the ``seconds`` for which the producers have rows.
    ``own_byte_ms`` is the sum over ``sbon query usage``, which goes by measured latencies. ``without`` is the usage in bytes
    without reuse.
    """
    usage, own = (total / seconds / 1000 for total in (byte_ms, own_byte_ms))
    return {
        "queries": len(infos),
        "operators": sum(len(info.operators) for info in infos),
        "shared": len({one.id for info in infos for one in info.shared}),
        "sharing": sum(bool(info.shared) for info in infos),
        "usage_bytes": round(usage, 2),
        "own_usage_bytes": round(own, 2),
        "link_mb": round(sum(link.borne_bytes for link in links_once(infos)) / 1e6, 3),
        "rows": rows,
        "wrong": wrong,
        "saved_pct": None if without is None else round(100 * (1 - usage / without), 1),
        "paper_saved_pct": PAPER_SAVED_PCT,
    }
