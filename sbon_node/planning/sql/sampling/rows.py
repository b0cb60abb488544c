"""Sampled rows of a stream, and what a SELECT makes of them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from sbon_node.model.samples import StreamSample
from sbon_node.planning.sql.relations.logical import Select
from sbon_node.planning.sql.sampling.evaluate import Values, alike, evaluate, kind_of
from sbon_protocol.api.columns import Schema

LEAST_ROWS = 10
"""Fewest sampled rows from which anything is estimated, unless they are all there are."""


@dataclass(frozen=True, slots=True)
class SampledRows:
    """Rows taken evenly from ``seen`` rows of a stream; columns whose values are not known are missing.

    ``weight`` is proportional to the rows of the whole stream. A ``complete`` sample holds all rows that the stream will have.
    """

    columns: Mapping[str, Values]
    count: int
    seen: float
    weight: float
    complete: bool

    @staticmethod
    def of_source(sample: StreamSample, schema: Schema, rows_s: float) -> SampledRows | None:
        """Return a source's sampled rows; None for a source without any."""
        kinds = {column.name: kind_of(column.type) for column in schema}
        columns = {name: Values(kind, values) for name, values in sample.columns.items() if (kind := kinds.get(name)) is not None}
        count = max((len(column.values) for column in columns.values()), default=0)
        complete = sample.rows is not None and count >= round(sample.rows) and count == sample.seen
        if not columns or (count < LEAST_ROWS and not complete):
            return None
        weight = sample.rows if sample.rows is not None else rows_s
        return SampledRows(columns, count, max(float(sample.seen), float(count)), weight, complete)

    @property
    def telling(self) -> bool:
        """Whether so many rows are left that anything can be estimated from them."""
        return self.complete or self.count >= LEAST_ROWS

    def chosen(self, rows: Sequence[int]) -> SampledRows:
        """Return the sample of a stream with these rows alone."""
        share = len(rows) / self.count if self.count else 0.0
        kept = {name: column.chosen(rows) for name, column in self.columns.items()}
        return replace(self, columns=kept, count=len(rows), seen=self.seen * share, weight=self.weight * share)

    def thinned(self, share: float) -> SampledRows:
        """Return the sample with this share of its rows, of the same stream."""
        if share >= 1.0:
            return self
        rows = [int(number / share) for number in range(int(self.count * share))]
        kept = {name: column.chosen(rows) for name, column in self.columns.items()}
        return replace(self, columns=kept, count=len(rows), complete=False)


def together(samples: Sequence[SampledRows | None]) -> SampledRows | None:
    """Return the sample of several streams as one: each gives rows in proportion to the whole stream's rows."""
    each = [sample for sample in samples if sample is not None]
    if not each or len(each) < len(samples):
        return None
    if len(each) == 1:
        return each[0]
    rated = [sample for sample in each if sample.count]
    if not all(sample.complete for sample in each) and rated:
        least = min(sample.count / max(sample.weight, 1e-9) for sample in rated)
        each = [sample.thinned(least * sample.weight / sample.count) if sample.count else sample for sample in each]
    columns: dict[str, Values] = {}
    for name in each[0].columns:
        joined = each[0].columns[name]
        for sample in each[1:]:
            pair = alike(joined, sample.columns[name]) if name in sample.columns else None
            if pair is None:
                break
            joined = Values(pair[0].kind, [*pair[0].values, *pair[1].values])
        else:
            columns[name] = joined
    return SampledRows(
        columns,
        sum(sample.count for sample in each),
        sum(sample.seen for sample in each),
        sum(sample.weight for sample in each),
        all(sample.complete for sample in each),
    )


def matching(sample: SampledRows, condition: exp.Expr) -> list[int] | None:
    """Return the rows for which a condition holds; None if it cannot be evaluated."""
    truth = evaluate(condition, sample.columns, sample.count)
    if truth is None or truth.kind not in ("boolean", "null"):
        return None
    return [row for row, value in enumerate(truth.values) if value]


def selected(sample: SampledRows, select: Select) -> tuple[SampledRows, float, list[exp.Expr]]:
    """Return the rows that a SELECT makes of sampled ones, the share that passes, and the conditions that were not evaluated.

    If no row of an incomplete sample passes, half a row counts as passing.
    """
    passing, unknown = list(range(sample.count)), []
    for condition in select.conditions:
        rows = matching(sample, condition)
        if rows is None:
            unknown.append(condition)
        else:
            holds = set(rows)
            passing = [row for row in passing if row in holds]
    left = sample.chosen(passing)
    outputs = {output.name: evaluate(output.expression, left.columns, left.count) for output in select.outputs}
    columns = {name: values for name, values in outputs.items() if values is not None}
    share = len(passing) / sample.count if sample.count else 1.0
    if not passing and sample.count and not sample.complete:
        share = 0.5 / sample.count
    return replace(left, columns=columns, complete=left.complete and not unknown), share, unknown


# -- Numbers of distinct values, estimated from samples ----------------------------------------------------------------


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
