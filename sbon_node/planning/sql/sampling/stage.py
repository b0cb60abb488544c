"""A stage's relation over the sampled rows of its views: its groups, and the pairs of its joins."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from sbon_node.model.samples import Value
from sbon_node.planning.sql.relations.logical import LEFT, RIGHT, Aggregate, Input, Join, Output, Relation, Select, Window
from sbon_node.planning.sql.rewrite.event_time import has_equal_times
from sbon_node.planning.sql.sampling.evaluate import Values, alike, evaluate
from sbon_node.planning.sql.sampling.rows import SampledRows, distinct_of, distinct_values, selected


@dataclass(slots=True)
class SampledStage:
    """Estimates from sampled rows for each part of a relation, by the part's identity; ``rows`` are those of its output."""

    rows: SampledRows | None = None
    selects: dict[int, tuple[float, list[exp.Expr]]] = field(default_factory=dict)
    """Share of the rows that pass a SELECT, and its conditions that were not evaluated."""
    aggregates: dict[int, Groups] = field(default_factory=dict)
    joins: dict[int, Pairs] = field(default_factory=dict)


def sampled_stage(relation: Select, views: Sequence[SampledRows | None]) -> SampledStage:
    """Run a stage over sampled rows, as far as they go."""
    stage = SampledStage()
    stage.rows = _rows(relation, views, stage)
    return stage


def _rows(relation: Relation, views: Sequence[SampledRows | None], stage: SampledStage) -> SampledRows | None:
    match relation:
        case Input(view):
            return views[view]
        case Select(child):
            below = _rows(child, views, stage)
            if below is None or not below.telling:
                return None
            rows, share, unknown = selected(below, relation)
            stage.selects[id(relation)] = share, unknown
            return rows
        case Aggregate(child):
            below = _rows(child, views, stage)
            groups = grouped(below, relation) if below is not None and below.telling else None
            if groups is None:
                return None
            stage.aggregates[id(relation)] = groups
            return groups.rows
        case Join(_, left, right):
            sides = _rows(left, views, stage), _rows(right, views, stage)
            if sides[0] is None or sides[1] is None or not (sides[0].telling and sides[1].telling):
                return None
            pairs = paired(sides[0], sides[1], relation)
            if pairs is None:
                return None
            stage.joins[id(relation)] = pairs
            return pairs.rows
    raise TypeError(f"no part of a stage: {relation!r}")


# -- Groups of sampled rows: how many a window or a key makes, and the rows that an aggregate gives --------------------

UNKNOWN_KEY = 10.0
"""Distinct values of a key that cannot be evaluated (Selinger's constant for an equality)."""
MAX_COPIES = 64
"""Most overlapping windows of a row that are looked at one by one."""
LEAST_WINDOWS = 2.0
"""Windows that a sample must span to count the groups of each."""

Group = tuple[Hashable, ...]


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups of an aggregate: ``of_row`` for each row that goes in, or else ``keys``, the distinct keys.

    ``rows`` are those that the aggregate gives for the sampled rows; None if it cannot be told.
    """

    of_row: float | None
    keys: float
    rows: SampledRows | None

    def in_window(self, rows: float) -> float:
        """Return the expected groups of one window with so many rows."""
        return distinct_of(self.keys, rows)


def grouped(sample: SampledRows, aggregate: Aggregate) -> Groups | None:
    """Return the groups of sampled rows; None if no key is known."""
    keys = [evaluate(key.expression, sample.columns, sample.count) for key in aggregate.keys]
    known = [column for column in keys if column is not None]
    time = sample.columns.get(aggregate.window.time) if aggregate.window is not None else None
    if (aggregate.window is not None and time is None) or (not known and aggregate.keys):
        return None
    unknown = UNKNOWN_KEY ** (len(keys) - len(known))
    rows: list[Group] = list(zip(*(column.values for column in known), strict=True)) if known else [()] * sample.count
    if aggregate.window is None:
        once = min(_of_row(rows, sample, 1.0) * unknown, 1.0)
        return Groups(once, math.inf, _rows_of_groups({}, rows, sample, aggregate) if unknown == 1 else None)
    assert time is not None
    placed, copies = _in_windows(aggregate.window, time.values, rows)
    windows = [(window, *key) for window, key, _ in placed]
    spans = sample.complete or _span_ms(time.values) >= LEAST_WINDOWS * aggregate.window.size_ms
    of_row = min(_of_row(windows, sample, copies) * unknown, copies) if spans else None
    of_rows = [row for *_, row in placed]
    made = _rows_of_groups(_ends(aggregate.window, placed), windows, sample, aggregate, of_rows) if unknown == 1 else None
    return Groups(of_row, distinct_values(rows, sample.seen if sample.complete else math.inf) * unknown, made)


def _of_row(groups: Sequence[Group], sample: SampledRows, copies: float) -> float:
    return distinct_values(groups, sample.seen * copies) / max(sample.seen, 1.0)


def _span_ms(times: Sequence[Value]) -> float:
    known = [value for value in times if isinstance(value, int)]
    return (max(known) - min(known)) / 1000 if known else 0.0


Placed = tuple[int, Group, int]
"""A window's first microsecond, the key, and the row."""


def _in_windows(window: Window, times: Sequence[Value], rows: Sequence[Group]) -> tuple[list[Placed], float]:
    """Return each row in each of its windows, and the windows of a row. Rows without a time are in none."""
    timed = [(value, rows[at], at) for at, value in enumerate(times) if isinstance(value, int)]
    if window.kind == "session_window":
        return _in_sessions(window, timed), 1.0
    size, slide = window.size_ms * 1000, max(window.slide_ms, 1) * 1000
    copies = size / slide
    if copies > MAX_COPIES:
        size, copies = slide, copies
    placed: list[Placed] = []
    for value, key, at in timed:
        start = value - (value - window.offset_ms * 1000) % slide
        while start > value - size:
            placed.append((start, key, at))
            start -= slide
    return placed, copies


def _in_sessions(window: Window, timed: Sequence[tuple[int, Group, int]]) -> list[Placed]:
    by_key: dict[Group, list[tuple[int, int]]] = defaultdict(list)
    for value, key, at in timed:
        by_key[key].append((value, at))
    placed: list[Placed] = []
    for key, rows in by_key.items():
        rows.sort()
        start, last = rows[0][0], rows[0][0]
        for value, at in rows:
            if value - last >= window.size_ms * 1000:
                start = value
            last = value
            placed.append((start, key, at))
    return placed


def _ends(window: Window, placed: Sequence[Placed]) -> dict[str, list[Value]]:
    """Return the windows' columns for each placed row; a session's end is that of its last row plus the gap."""
    starts: list[Value] = [start for start, *_ in placed]
    size = window.size_ms * 1000
    return {window.start: starts, window.end: [start + size for start, *_ in placed]}


def _rows_of_groups(
    ends: Mapping[str, list[Value]],
    groups: Sequence[Group],
    sample: SampledRows,
    aggregate: Aggregate,
    rows: Sequence[int] | None = None,
) -> SampledRows:
    """Return a row for each distinct group. Only a complete sample has the values of its aggregates."""
    members: dict[Group, list[int]] = defaultdict(list)
    for place, group in enumerate(groups):
        members[group].append(place)
    at = list(range(len(groups))) if rows is None else rows
    firsts = [places[0] for places in members.values()]
    columns = {name: Values("timestamp", [values[first] for first in firsts]) for name, values in ends.items()}
    for key in aggregate.keys:
        values = evaluate(key.expression, sample.columns, sample.count)
        if values is not None:
            columns[key.name] = values.chosen([at[first] for first in firsts])
    if sample.complete:
        of_groups = [[at[place] for place in places] for places in members.values()]
        columns |= {o.name: v for o in aggregate.aggregates if (v := _aggregated(o, sample, of_groups)) is not None}
    share = len(members) / sample.count if sample.count else 0.0
    return SampledRows(columns, len(members), sample.seen * share, sample.weight * share, sample.complete)


def _aggregated(output: Output, sample: SampledRows, groups: Sequence[Sequence[int]]) -> Values | None:
    """Return a count, sum, average or extreme for each group; None for other aggregates."""
    call = output.expression
    name = str(call.this).lower() if isinstance(call, exp.Anonymous) else ""
    if name == "count" and (not call.expressions or isinstance(call.expressions[0], exp.Star | exp.Literal)):
        return Values("number", [len(rows) for rows in groups])
    if name not in ("count", "sum", "avg", "mean", "min", "max") or len(call.expressions) != 1:
        return None
    argument = evaluate(call.expressions[0], sample.columns, sample.count)
    if argument is None or (name in ("sum", "avg", "mean") and argument.kind != "number"):
        return None
    values = [[argument.values[row] for row in rows if argument.values[row] is not None] for rows in groups]
    if name == "count":
        return Values("number", [len(of_group) for of_group in values])
    of = {"sum": math.fsum, "avg": _mean, "mean": _mean, "min": min, "max": max}[name]
    return Values(argument.kind, [of(of_group) if of_group else None for of_group in values])  # type: ignore[operator]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


# -- Pairs of sampled rows: what a join makes of two complete samples, or how often two keys are equal -----------------

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
    keys = _keys_of_sides(left, right, join)
    if keys is None:
        return None
    left_keys, right_keys = keys
    values = max(distinct_values(left_keys, _all(left)), distinct_values(right_keys, _all(right)), 1.0)
    pairs = _equal_pairs(left_keys, right_keys)
    equal = 0.0 if math.isinf(values) else 1 / values
    new_keys = _new_keys(left_keys, left), _new_keys(right_keys, right)
    unmatched = Pairs(None, None, equal, new_keys, None)
    if not (left.complete and right.complete) or len(pairs) >= MAX_PAIRS:
        matched = _rows_of_pairs(left, right, join, pairs[:: max(1, len(pairs) // MAX_ROWS)], complete=False)
        if has_equal_times(join) or not equal:
            matched = replace(matched, seen=max(matched.seen, unmatched.growing(left.seen, right.seen)))
        return replace(unmatched, rows=matched if matched.telling else None)
    satisfying = _satisfying(left, right, join, pairs)
    if satisfying is None:
        return unmatched
    made = _with_unmatched(satisfying, left, right, join)
    rows = _rows_of_pairs(left, right, join, made[:MAX_ROWS], complete=len(made) <= MAX_ROWS)
    return Pairs(
        len(made) / left.count if left.count else None, len(made) / right.count if right.count else None, equal, new_keys, rows
    )


def _new_keys(keys: Sequence[Hashable], sample: SampledRows) -> float:
    """Return the distinct keys for each row of a side."""
    return distinct_values(keys, sample.seen) / max(sample.seen, 1.0)


def _all(sample: SampledRows) -> float:
    return sample.seen if sample.complete else math.inf


def _keys_of_sides(left: SampledRows, right: SampledRows, join: Join) -> tuple[list[Hashable], list[Hashable]] | None:
    """Return the values of all equalities between the two sides, by row."""
    sides: tuple[list[Sequence[Value]], list[Sequence[Value]]] = ([], [])
    for condition in join.conditions:
        bare = condition.unnest()
        if not isinstance(bare, exp.EQ | exp.NullSafeEQ):
            continue
        one, two = _of_one_side(bare.this, left, right), _of_one_side(bare.expression, left, right)
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


def _of_one_side(node: exp.Expr, left: SampledRows, right: SampledRows) -> tuple[str, Values] | None:
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


def _rows_of_pairs(left: SampledRows, right: SampledRows, join: Join, pairs: Sequence[Pair], *, complete: bool) -> SampledRows:
    columns: dict[str, Values] = {}
    for name, side, at in join.columns:
        sample, index = (left, 0) if side == LEFT else (right, 1)
        if (column := sample.columns.get(at)) is not None:
            rows = [pair[index] for pair in pairs]
            columns[name] = Values(column.kind, [column.values[row] if row is not None else None for row in rows])
    share = len(pairs) / left.count if left.count else 1.0
    weight = left.weight * share if left.count else right.weight
    return SampledRows(columns, len(pairs), float(len(pairs)), weight, complete and left.complete and right.complete)
