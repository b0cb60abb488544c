"""A fragment as a tree of relations; each turns a batch's input rows into output rows.

A relation with state keeps rows that have arrived, in :data:`RelationState`, as long as they can change its output. It releases
the rows that the watermark completes, as Spark does in append mode: a group once its end is reached; a pair of rows at once; a
row without a partner once no partner can come. So the output up to a batch depends on the rows and the watermark up to there, and
not on the cuts between batches.

Watermarks are milliseconds, 0 before the first. ``now_ms`` is the watermark of a batch, ``before_ms`` that of the previous
batch. Spark regards a row at or below ``before_ms`` as late.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from sbon_lab.simulation.engine.duck import parse, run, written
from sbon_node.model.schema import to_arrow
from sbon_node.planning.sql.relations.logical import LEFT, RIGHT, Input, Join, conjuncts
from sbon_node.planning.sql.rewrite.event_time import bounds
from sbon_node.planning.sql.syntax.durations import literal_ms
from sbon_protocol.api.columns import Schema
from sbon_protocol.errors import SbonError

START, END, PIECE, NEW = "piece start", "piece end", "piece number", "is new"
"""Column names that no stream has."""

RelationState = dict["Relation", list[Any]]
"""The rows that each relation keeps: one table for each of its sides."""


class LateRowsError(Exception):
    """Rows came after the watermark; ``count`` is their number."""

    def __init__(self, count: int) -> None:
        super().__init__(f"{count} rows came after the watermark")
        self.count = count


@dataclass(frozen=True, eq=False)
class View:
    """The rows of ``in<number>``. The watermark, if any, is that of column ``time``."""

    number: int
    schema: Schema
    time: str

    @property
    def times(self) -> frozenset[str]:
        return frozenset([self.time]) - {""}

    def watermark_ms(self, at_ms: int) -> int:
        return at_ms

    def advance(self, state: RelationState, arrived: Sequence[Any], before_ms: int, now_ms: int) -> Any:
        return arrived[self.number]


@dataclass(frozen=True, eq=False)
class Plain:
    """Expressions over the rows of ``child`` that meet a condition; no state."""

    child: Relation
    sql: str
    times: frozenset[str]
    schema: Schema = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "schema", run(self.sql, {"rows": _empty(self.child)})[0])

    def watermark_ms(self, at_ms: int) -> int:
        """Return the watermark of the output for ``at_ms``, the watermark of the inputs."""
        return self.child.watermark_ms(at_ms)

    def advance(self, state: RelationState, arrived: Sequence[Any], before_ms: int, now_ms: int) -> Any:
        rows = self.child.advance(state, arrived, before_ms, now_ms)
        return run(self.sql, {"rows": rows}, self.schema)[1] if rows.num_rows else _empty(self)


@dataclass(frozen=True, eq=False)
class Groups:
    """One row for each group. ``pieces`` is SQL that gives each row the end of its groups; ``sql`` groups the rows in reach.

    A session group has an end only once all its rows are known, so ``least_end`` decides lateness. ``span_us`` is the time from
    a row to the end of its last group at the latest; None for sessions.
    """

    child: Relation
    time: str
    pieces: str
    least_end: str
    span_us: int | None
    sql: str
    schema: Schema = field(init=False)
    times: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        object.__setattr__(self, "schema", run(self._grouped("TRUE"), {"rows": _empty(self.child)})[0])

    def _grouped(self, condition: str) -> str:
        return self.sql.format(f"(SELECT * FROM {self.pieces} WHERE {condition})")

    def watermark_ms(self, at_ms: int) -> int:
        return self.child.watermark_ms(at_ms)

    def advance(self, state: RelationState, arrived: Sequence[Any], before_ms: int, now_ms: int) -> Any:
        rows = self.child.advance(state, arrived, before_ms, now_ms)
        before_ms, now_ms = self.child.watermark_ms(before_ms), self.child.watermark_ms(now_ms)
        if not self.time:
            raise SbonError("bad-inputs", "grouped without an event time")
        if _any_at(rows, self.time, before_ms):
            late = f"SELECT count(*) AS late FROM {self.pieces} WHERE {self.least_end} <= {_at(before_ms)}"
            _check_late(run(late, {"rows": rows})[1].column(0)[0].as_py())
        (before,) = state.setdefault(self, [_empty(self.child)])
        state[self] = [pa.concat_tables([before, rows])]
        if now_ms <= before_ms:
            return _empty(self)
        complete = f'"{END}" > {_at(before_ms)} AND "{END}" <= {_at(now_ms)}'
        output = run(self._grouped(complete), {"rows": state[self][0]}, self.schema)[1]
        state[self] = [self._open(state[self][0], now_ms)]
        return output

    def _open(self, rows: Any, now_ms: int) -> Any:
        """Return the rows of groups that have not ended."""
        if self.span_us is not None:
            return _later(rows, self.time, 1000 * now_ms - self.span_us)
        columns = ", ".join(f'"{column.name}"' for column in self.child.schema)
        return run(f'SELECT {columns} FROM {self.pieces} WHERE "{END}" > {_at(now_ms)}', {"rows": rows}, self.child.schema)[1]


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of rows of two sides that meet ``condition``, with ``least_ms <= left - right <= most_ms`` for their times."""

    kind: str
    sides: tuple[Relation, Relation]
    aliases: tuple[str, str]
    time: tuple[str, str]
    least_ms: int
    most_ms: int
    outputs: str
    condition: str
    where: str
    times: frozenset[str]
    schema: Schema = field(init=False)

    def __post_init__(self) -> None:
        empty = [_flagged(_empty(side), _empty(side)) for side in self.sides]
        object.__setattr__(self, "schema", run(self._matched(), dict(zip(("l", "r"), empty, strict=True)))[0])

    def _input_ms(self, at_ms: int) -> int:
        return min(side.watermark_ms(at_ms) for side in self.sides)

    def _gone_ms(self, side: int, at_ms: int) -> int:
        """Return the time up to which rows of the side get no more partners: Spark's watermark of the side's state."""
        return self._input_ms(at_ms) + (self.least_ms if side == 0 else -self.most_ms) - 1

    def _needed_ms(self, side: int, at_ms: int) -> int:
        """Return the time up to which rows of the side have no partner that may get another one."""
        others_ms = self._gone_ms(1 - side, at_ms) + (self.least_ms if side == 0 else -self.most_ms) - 1
        return min(self._gone_ms(side, at_ms), others_ms)

    def watermark_ms(self, at_ms: int) -> int:
        """Return Spark's ``produceOutputWatermark``: no row that follows is earlier, by either side's time."""
        return min(self._input_ms(at_ms), self._gone_ms(0, at_ms), self._gone_ms(1, at_ms))

    def advance(self, state: RelationState, arrived: Sequence[Any], before_ms: int, now_ms: int) -> Any:
        rows = [side.advance(state, arrived, before_ms, now_ms) for side in self.sides]
        if not all(self.time):
            raise SbonError("bad-inputs", "joined without event times that bound each other")
        late_ms = self._input_ms(before_ms)
        _check_late(sum(_count_at(table, time, late_ms) for table, time in zip(rows, self.time, strict=True)))
        before = state.setdefault(self, [_empty(side) for side in self.sides])
        tables = {name: _flagged(old, new) for name, old, new in zip(("l", "r"), before, rows, strict=True)}
        state[self] = [pa.concat_tables([old, new]) for old, new in zip(before, rows, strict=True)]
        queries = [self._matched()]
        for side, kinds in enumerate((("left", "full"), ("right", "full"))):
            if self.kind in kinds:
                queries.append(self._alone(side, self._gone_ms(side, before_ms), self._gone_ms(side, now_ms)))
        output = run(" UNION ALL ".join(queries), tables, self.schema)[1]
        if now_ms > before_ms:
            state[self] = [
                _later(table, time, 1000 * self._needed_ms(side, now_ms))
                for side, (table, time) in enumerate(zip(state[self], self.time, strict=True))
            ]
        return output

    def _matched(self) -> str:
        """Return SQL for pairs with a new row; in a semi-join, for each left row whose first partner comes now."""
        left, right = self.aliases
        if self.kind == "semi":
            partner = f'EXISTS (SELECT 1 FROM r AS "{right}" WHERE {self.condition}'
            first = f'("{left}"."{NEW}" OR NOT {partner} AND NOT "{right}"."{NEW}"))'
            return f'SELECT {self.outputs} FROM l AS "{left}" WHERE {self.where} AND {partner}) AND {first}'
        new = f'("{left}"."{NEW}" OR "{right}"."{NEW}")'
        return f'SELECT {self.outputs} FROM l AS "{left}" JOIN r AS "{right}" ON {self.condition} WHERE {self.where} AND {new}'

    def _alone(self, side: int, before_ms: int, now_ms: int) -> str:
        """Return SQL for rows of one side that have had no partner, and cannot get one any more."""
        own, other = self.aliases[side], self.aliases[1 - side]
        my_rows, others = ("l", "r") if side == 0 else ("r", "l")
        time = f'"{own}"."{self.time[side]}"'
        gone = f'{time} <= {_at(now_ms)} AND ("{own}"."{NEW}" OR {time} > {_at(before_ms)})'
        alone = f'NOT EXISTS (SELECT 1 FROM {others} AS "{other}" WHERE {self.condition})'
        return (
            f'SELECT {self.outputs} FROM (SELECT * FROM {my_rows} AS "{own}" WHERE {gone} AND {alone}) AS "{own}" '
            f'LEFT JOIN (SELECT * FROM {others} LIMIT 0) AS "{other}" ON TRUE WHERE {self.where}'
        )


Relation = View | Plain | Groups | Pairs


def stateful(relation: Relation) -> list[Relation]:
    """Return the relations of a tree that keep rows, children first."""
    if isinstance(relation, Pairs):
        return [*(one for side in relation.sides for one in stateful(side)), relation]
    if isinstance(relation, View):
        return []
    return [*stateful(relation.child), *([relation] if isinstance(relation, Groups) else [])]


def sides_of(relation: Relation) -> tuple[Relation, ...]:
    """Return the relations whose rows a relation with state keeps, one for each of its tables."""
    return relation.sides if isinstance(relation, Pairs) else (relation.child,) if isinstance(relation, Groups) else ()


# -- from a fragment's text ------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1024)
def relation_of(text: str, views: tuple[tuple[Schema, str], ...]) -> Relation:
    """Parse a fragment over views, each with a schema and an event time or none; raise :class:`SbonError`."""
    return _of_select(parse(text), [View(number, schema, time) for number, (schema, time) in enumerate(views)])


def _of_select(select: exp.Select, views: Sequence[View]) -> Relation:
    source = select.args.get("from_")
    if source is None:
        raise SbonError("bad-sql", f"nothing is read: {written(select)}", where="line 1, column 1")
    child = _of_source(source.this, views)
    if select.args.get("joins"):
        return _pairs(select, child, views)
    if select.args.get("group"):
        return _groups(select, child)
    read = select.copy()
    read.args["from_"].set("this", exp.to_table("rows").as_(source.this.alias_or_name, table=True))
    passed = {(column.name, column.alias_or_name) for column in _columns(select)}
    return Plain(child, written(read), frozenset(name for at, name in passed if at in child.times))


def _of_source(source: exp.Expr, views: Sequence[View]) -> Relation:
    if isinstance(source, exp.Subquery) and isinstance(source.this, exp.Select):
        return _of_select(source.this, views)
    for view in views:
        if isinstance(source, exp.Table) and source.name == f"in{view.number}":
            return view
    raise SbonError("bad-sql", f"no such view: {written(source)}", where="line 1, column 1")


def _columns(select: exp.Select) -> list[exp.Expr]:
    """Return the outputs that are unchanged columns, perhaps renamed."""
    return [expression for expression in select.expressions if isinstance(expression.unalias(), exp.Column)]


def _groups(select: exp.Select, child: Relation) -> Groups:
    keys = list(select.args["group"].expressions)
    windows = [key for key in keys if isinstance(key, exp.Anonymous) and key.name.lower() in ("window", "session_window")]
    others = [key for key in keys if key not in windows]
    if windows:
        time = windows[0].expressions[0].name
        lengths_us = [1000 * (literal_ms(length) or 0) for length in windows[0].expressions[1:]]
        is_session = windows[0].name.lower() == "session_window"
        pieces = _sessions(time, lengths_us[0], others) if is_session else _windows(time, *lengths_us)
        least_end = f'"{time}" + to_microseconds({lengths_us[0]})' if is_session else f'"{END}"'
        span_us = None if is_session else lengths_us[0]
    else:
        time = next((key.name for key in others if isinstance(key, exp.Column) and key.name in child.times), "")
        pieces, least_end = f'(SELECT *, "{time}" AS "{END}" FROM rows)' if time else _UNENDING, f'"{END}"'
        span_us = 0
    grouped = select.copy()
    for column in list(grouped.find_all(exp.Column)):
        if column.table in ("window", "session_window"):
            column.replace(exp.column(START if column.name == "start" else END, quoted=True))
    grouped.args["from_"].set("this", exp.to_table("pieces"))
    ends = [exp.column(name, quoted=True) for name in (START, END)] if windows else []
    grouped.set("group", exp.Group(expressions=[*ends, *(key.copy() for key in others)]))
    sql = written(grouped).replace("{", "{{").replace("}", "}}").replace('FROM "pieces"', "FROM {}")
    return Groups(child, time, pieces, least_end, span_us, sql)


_UNENDING = f'(SELECT *, NULL::TIMESTAMPTZ AS "{END}" FROM rows)'


def _windows(time: str, size_us: int, slide_us: int, offset_us: int) -> str:
    """Return SQL for each row once per window that contains it; windows begin at the offset plus a multiple of the slide."""
    at = f'epoch_us("{time}")'
    last = f"{at} - (({at} - {offset_us}) % {slide_us} + {slide_us}) % {slide_us}"
    start = f'"{PIECE}" - n.n * {slide_us}'
    return (
        f'(SELECT piece.*, make_timestamptz({start}) AS "{START}", make_timestamptz({start} + {size_us}) AS "{END}" '
        f'FROM (SELECT *, {last} AS "{PIECE}" FROM rows WHERE "{time}" IS NOT NULL) AS piece, '
        f"range({-(-size_us // slide_us)}) AS n(n) WHERE {start} + {size_us} > {at})"
    )


def _sessions(time: str, gap_us: int, keys: Sequence[exp.Expr]) -> str:
    """Return SQL for each row with its session: rows of equal keys, each at most the gap after the previous row."""
    at = f'epoch_us("{time}")'
    among = f"PARTITION BY {', '.join(written(key) for key in keys)} " if keys else ""
    begins = f"CASE WHEN {at} - lag({at}) OVER ({among}ORDER BY {at}) > {gap_us} THEN 1 ELSE 0 END"
    begun = f'(SELECT *, {begins} AS "begins" FROM rows WHERE "{time}" IS NOT NULL)'
    number = f'sum("begins") OVER ({among}ORDER BY {at} ROWS UNBOUNDED PRECEDING)'
    session = f'{among.rstrip() + ", " if among else "PARTITION BY "}"{PIECE}"'
    ends = f'min("{time}") OVER ({session}) AS "{START}", max("{time}") OVER ({session}) + to_microseconds({gap_us}) AS "{END}"'
    return f'(SELECT *, {ends} FROM (SELECT *, {number} AS "{PIECE}" FROM {begun}))'


def _pairs(select: exp.Select, left: Relation, views: Sequence[View]) -> Pairs:
    (join,) = select.args["joins"]
    right = _of_source(join.this, views)
    aliases = (select.args["from_"].this.alias_or_name, join.this.alias_or_name)
    on, where = join.args.get("on"), select.args.get("where")
    lags = [dict.fromkeys(sorted(side.times), 0) for side in (left, right)]
    sides = [Input(number, (), lags[number]) for number in range(2)]
    if aliases != (LEFT, RIGHT):
        raise SbonError("bad-sql", f"the sides of a join are {LEFT} and {RIGHT}, not {aliases}", where="line 1, column 1")
    known = [bound for bound in bounds(Join("inner", sides[0], sides[1], tuple(conjuncts(on)), ())) if bound.closed]
    best = min(known, key=lambda bound: bound.most_ms - bound.least_ms, default=None)
    is_semi = str(join.args.get("kind") or "").lower() == "semi"
    of_side = dict(zip(aliases, (left, right), strict=True))
    return Pairs(
        kind="semi" if is_semi else str(join.args.get("side") or "inner").lower(),
        sides=(left, right),
        aliases=aliases,
        time=(best.left, best.right) if best is not None else ("", ""),
        least_ms=int(best.least_ms) if best is not None else 0,
        most_ms=int(best.most_ms) if best is not None else 0,
        outputs=", ".join(written(expression) for expression in select.expressions),
        condition=written(on) if on is not None else "TRUE",
        where=f"({written(where.this)})" if where is not None else "TRUE",
        times=frozenset(column.alias_or_name for column in _columns(select) if _is_time(column.unalias(), of_side)),
    )


def _is_time(column: exp.Expr, of_side: dict[str, Relation]) -> bool:
    return isinstance(column, exp.Column) and column.table in of_side and column.name in of_side[column.table].times


# -- tables ----------------------------------------------------------------------------------------------------------------


def _empty(relation: Relation) -> Any:
    return to_arrow(relation.schema).empty_table()


def _flagged(old: Any, new: Any) -> Any:
    """Return all rows of a side, each with a flag whether it came with this batch."""
    flags = pa.concat_arrays([pa.repeat(False, old.num_rows), pa.repeat(True, new.num_rows)])
    return pa.concat_tables([old, new]).append_column(NEW, flags)


def _at(ms: int) -> str:
    return f"make_timestamptz({ms * 1000})"


def _later(rows: Any, time: str, limit_us: int) -> Any:
    """Return the rows that are later than a time."""
    limit = pa.scalar(limit_us, pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    return rows.filter(pc.greater(rows.column(time), limit)).combine_chunks()


def _any_at(rows: Any, time: str, ms: int) -> bool:
    return _count_at(rows, time, ms) > 0


def _count_at(rows: Any, time: str, ms: int) -> int:
    """Count the rows at or before the watermark."""
    if not rows.num_rows:
        return 0
    limit = pa.scalar(ms * 1000, pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    return int(pc.sum(pc.less_equal(rows.column(time), limit)).as_py() or 0)


def _check_late(count: int) -> None:
    if count:
        raise LateRowsError(count)
