"""Numbers of distinct values, estimated from samples."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable


def distinct_values(sampled: Iterable[Hashable], rows: float) -> float:
    """Return the expected number of distinct values among ``rows`` rows, of which ``sampled`` is an even sample.

    The estimator is Duj1 of Haas and Stokes, *Estimating the number of classes in a finite population* (JASA 1998), which
    PostgreSQL uses too: n d / (n - f1 + f1 n / N) for n sampled rows with d distinct values, f1 of them seen once, of N.
    """
    seen = Counter(sampled)
    count, distinct = seen.total(), len(seen)
    if not count or count >= rows:
        return float(distinct)
    once = sum(1 for number in seen.values() if number == 1)
    if math.isinf(rows):
        return count * distinct / (count - once) if once < count else math.inf
    return min(rows, count * distinct / (count - once + once * count / rows))


def distinct_of(values: float, rows: float) -> float:
    """Return the expected number of distinct values among ``rows`` rows whose values are drawn evenly from ``values``.

    Cardenas, *Analysis and performance of inverted data base structures* (CACM 1975): D (1 - (1 - 1/D)^n).
    """
    if values <= 1:
        return min(max(values, 0.0), rows)
    if math.isinf(values):
        return rows
    return min(rows, -values * math.expm1(rows * math.log1p(-1 / values)))
