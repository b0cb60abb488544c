"""Pairs of sampled rows: what a join makes of two complete samples, or how often two keys are equal."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from sbon_node.model.samples import Value
from sbon_node.planning.sql.relations.logical import LEFT, RIGHT, Join
from sbon_node.planning.sql.rewrite.event_time import has_equal_times
from sbon_node.planning.sql.sampling.evaluate import Values, alike, evaluate
from sbon_node.planning.sql.sampling.rows import SampledRows, distinct_values

MAX_PAIRS = 100_000
"""Most pairs of equal keys that are looked at."""
MAX_ROWS = 4000
"""Most rows of a join's sample."""

Pair = tuple[int | None, int | None]


@dataclass(frozen=True, slots=True)
class Pairs:
    """Estimates from a join's samples.

    ``of_left`` and ``of_right`` are rows out for each row of a side, of complete samples; None otherwise. Then a pair of rows has
    equal keys with probability ``equal``, 0 if their number grows with the stream; ``new_keys`` are the distinct keys for each
    row of the left and the right side. ``rows`` are the join's own sampled rows; None if too few are known.
    """

    of_left: float | None
    of_right: float | None
    equal: float
    new_keys: tuple[float, float]
    rows: SampledRows | None

    def growing(self, left: float, right: float) -> float:
        """Return the pairs among so many rows of each side, if new keys come with the rows, as with times or numbers of orders.

        The side with fewer keys has all of its keys on the other side too (Selinger et al., SIGMOD 1979, table 1).
        """
        keys = max(left * self.new_keys[0], right * self.new_keys[1])
        return left * right / keys if keys > 0 else 0.0


def paired(left: SampledRows, right: SampledRows, join: Join) -> Pairs | None:
    """Return what two samples tell of a join; None if no equality of keys can be evaluated."""
    keys = _keys(left, right, join)
    if keys is None:
        return None
    left_keys, right_keys = keys
    values = max(distinct_values(left_keys, _all(left)), distinct_values(right_keys, _all(right)), 1.0)
    pairs = _equal_pairs(left_keys, right_keys)
    equal = 0.0 if math.isinf(values) else 1 / values
    new_keys = _new_keys(left_keys, left), _new_keys(right_keys, right)
    unmatched = Pairs(None, None, equal, new_keys, None)
    if not (left.complete and right.complete) or len(pairs) >= MAX_PAIRS:
        matched = _rows_of(left, right, join, pairs[:: max(1, len(pairs) // MAX_ROWS)], complete=False)
        if has_equal_times(join) or not equal:
            matched = replace(matched, seen=max(matched.seen, unmatched.growing(left.seen, right.seen)))
        return replace(unmatched, rows=matched if matched.telling else None)
    satisfying = _satisfying(left, right, join, pairs)
    if satisfying is None:
        return unmatched
    made = _with_unmatched(satisfying, left, right, join)
    rows = _rows_of(left, right, join, made[:MAX_ROWS], complete=len(made) <= MAX_ROWS)
    return Pairs(
        len(made) / left.count if left.count else None, len(made) / right.count if right.count else None, equal, new_keys, rows
    )


def _new_keys(keys: Sequence[Hashable], sample: SampledRows) -> float:
    """Return the distinct keys for each row of a side."""
    return distinct_values(keys, sample.seen) / max(sample.seen, 1.0)


def _all(sample: SampledRows) -> float:
    return sample.seen if sample.complete else math.inf


def _keys(left: SampledRows, right: SampledRows, join: Join) -> tuple[list[Hashable], list[Hashable]] | None:
    """Return the values of all equalities between the two sides, by row."""
    sides: tuple[list[Sequence[Value]], list[Sequence[Value]]] = ([], [])
    for condition in join.conditions:
        bare = condition.unnest()
        if not isinstance(bare, exp.EQ | exp.NullSafeEQ):
            continue
        one, two = _side(bare.this, left, right), _side(bare.expression, left, right)
        if one is None or two is None or one[0] == two[0]:
            continue
        pair = alike(one[1], two[1])
        if pair is None:
            continue
        for (side, _), column in zip((one, two), pair, strict=True):
            sides[side == RIGHT].append(column.values)
    if not sides[0]:
        return None
    return list(zip(*sides[0], strict=True)), list(zip(*sides[1], strict=True))


def _side(node: exp.Expr, left: SampledRows, right: SampledRows) -> tuple[str, Values] | None:
    """Return the one side that an expression reads, and its values."""
    tables = {reference.table for reference in node.find_all(exp.Column)}
    if tables not in ({LEFT}, {RIGHT}):
        return None
    (table,) = tables
    sample = left if table == LEFT else right
    values = evaluate(node, {f"{table}.{name}": column for name, column in sample.columns.items()}, sample.count)
    return (table, values) if values is not None else None


def _equal_pairs(left: Sequence[Hashable], right: Sequence[Hashable]) -> list[tuple[int, int]]:
    rows: dict[Hashable, list[int]] = defaultdict(list)
    for number, key in enumerate(right):
        if isinstance(key, tuple) and None not in key:
            rows[key].append(number)
    pairs: list[tuple[int, int]] = []
    for number, key in enumerate(left):
        pairs += [(number, other) for other in rows.get(key, ())]
        if len(pairs) >= MAX_PAIRS:
            break
    return pairs


def _satisfying(
    left: SampledRows, right: SampledRows, join: Join, pairs: Sequence[tuple[int, int]]
) -> list[tuple[int, int]] | None:
    """Return the pairs for which all conditions hold; None if one cannot be evaluated."""
    left_rows, right_rows = [one for one, _ in pairs], [two for _, two in pairs]
    needed = {(reference.table, reference.name) for condition in join.conditions for reference in condition.find_all(exp.Column)}
    columns = {f"{LEFT}.{name}": column.chosen(left_rows) for name, column in left.columns.items() if (LEFT, name) in needed}
    columns |= {f"{RIGHT}.{name}": column.chosen(right_rows) for name, column in right.columns.items() if (RIGHT, name) in needed}
    holds = [True] * len(pairs)
    for condition in join.conditions:
        truth = evaluate(condition, columns, len(pairs))
        if truth is None:
            return None
        holds = [before and bool(value) for before, value in zip(holds, truth.values, strict=True)]
    return [pair for pair, true in zip(pairs, holds, strict=True) if true]


def _with_unmatched(pairs: Sequence[tuple[int, int]], left: SampledRows, right: SampledRows, join: Join) -> list[Pair]:
    """Return the rows of the join as pairs; None stands for the missing side of an outer join."""
    if join.kind == "semi":
        return [(one, None) for one in sorted({one for one, _ in pairs})]
    made: list[Pair] = list(pairs)
    if join.kind in ("left", "full"):
        matched = {one for one, _ in pairs}
        made += [(one, None) for one in range(left.count) if one not in matched]
    if join.kind in ("right", "full"):
        matched = {two for _, two in pairs}
        made += [(None, two) for two in range(right.count) if two not in matched]
    return made


def _rows_of(left: SampledRows, right: SampledRows, join: Join, pairs: Sequence[Pair], *, complete: bool) -> SampledRows:
    columns: dict[str, Values] = {}
    for name, side, at in join.columns:
        sample, index = (left, 0) if side == LEFT else (right, 1)
        if (column := sample.columns.get(at)) is not None:
            rows = [pair[index] for pair in pairs]
            columns[name] = Values(column.kind, [column.values[row] if row is not None else None for row in rows])
    share = len(pairs) / left.count if left.count else 1.0
    weight = left.weight * share if left.count else right.weight
    return SampledRows(columns, len(pairs), float(len(pairs)), weight, complete and left.complete and right.complete)
