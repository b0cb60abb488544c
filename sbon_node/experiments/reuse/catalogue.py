"""Queries of the reuse experiment: templates over streams, filled with constants, and drawn by Zipf's law.

SBON (Pietzuch et al., ICDE 2006, section 4.2.2) expects the popularity of data and operators to follow Zipf's law.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

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
