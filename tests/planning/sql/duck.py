"""Relations as SQL for DuckDB: as plain as the relation itself, with the optimizer off."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import duckdb
import sqlglot
from sqlglot import exp

from sbon_node.planning.sql.relations.logical import (
    LEFT,
    RIGHT,
    Aggregate,
    Input,
    Join,
    Output,
    Relation,
    Scan,
    Select,
    Union,
    Window,
)
from sbon_node.planning.sql.stages.cut import Stage
from sbon_node.planning.sql.syntax.dialect import render

_KINDS = {"inner": "JOIN", "left": "LEFT JOIN", "right": "RIGHT JOIN", "full": "FULL JOIN", "semi": "SEMI JOIN"}


class Duck:
    """Streams as tables, by name."""

    def __init__(self) -> None:
        self._connection = duckdb.connect()
        self._connection.execute("SET TimeZone = 'UTC'; PRAGMA disable_optimizer; SET threads = 1")

    def holds(self, tables: Mapping[str, Any]) -> None:
        """From now on, the streams have these rows."""
        for name, rows in tables.items():
            self._connection.register(f"stream_{name}", rows)

    def rows(self, relation: Relation | Stage) -> Counter[str]:
        """The bag of rows, each by its values in the order of the columns; NaN equals NaN and 0.0 differs from -0.0."""
        sql = sql_of_stage(relation) if isinstance(relation, Stage) else sql_of(relation, ())
        return self.bag(sql)

    def bag(self, sql: str) -> Counter[str]:
        return Counter(map(repr, self._connection.execute(sql).fetchall()))

    def types(self, sql: str) -> list[tuple[str, str]]:
        """The columns of a query and their types."""
        return [(name, type_) for name, type_, *_ in self._connection.execute(f"DESCRIBE {sql}").fetchall()]


def sql_of_stage(stage: Stage) -> str:
    """All that the stage's streams carry, from the declared streams on."""
    views = []
    for view in stage.views:
        feeds = [feed.origin for feed in view.feeds]
        names = ", ".join(_view(stage.relation, len(views)))
        parts = [sql_of(one, ()) if isinstance(one, Scan) else sql_of_stage(one) for one in feeds]
        views.append(" UNION ALL ".join(f"SELECT {names} FROM ({part}) AS part" for part in parts))
    return sql_of(stage.relation, views)


def _view(relation: Relation, number: int) -> tuple[str, ...]:
    """The columns of a view."""
    pending = [relation]
    while pending:
        one = pending.pop()
        if isinstance(one, Input) and one.view == number:
            return one.names
        pending += [one.left, one.right] if isinstance(one, Join) else [one.child] if isinstance(one, Select | Aggregate) else []
    raise AssertionError(f"no view {number}")


def sql_of(relation: Relation, views: Sequence[str]) -> str:
    match relation:
        case Scan(entry):
            return f"SELECT {', '.join(relation.names)} FROM stream_{entry.declaration.name}"
        case Input(view, names):
            return f"SELECT {', '.join(names)} FROM ({views[view]}) AS view_{view}"
        case Select(child, outputs, conditions):
            return f"SELECT {_listed(outputs)} FROM ({sql_of(child, views)}) AS rows{_holding('WHERE', conditions)}"
        case Union(children):
            names = ", ".join(relation.names)
            return " UNION ALL ".join(f"SELECT {names} FROM ({sql_of(child, views)}) AS part" for child in children)
        case Join(kind, left, right, conditions, columns):
            listed = ", ".join(f"{side}.{at} AS {name}" for name, side, at in columns)
            sides = f"({sql_of(left, views)}) AS {LEFT} {_KINDS[kind]} ({sql_of(right, views)}) AS {RIGHT}"
            return f"SELECT {listed} FROM {sides}{_holding('ON', conditions) or ' ON true'}"
        case Aggregate(child, window, keys, aggregates):
            below = f"({sql_of(child, views)}) AS rows"
            if window is None:
                return f"SELECT {_listed((*keys, *aggregates))} FROM {below} {_grouped(keys)}"
            below = f"({_sessions(below, window, keys) if window.kind == 'session_window' else _pieces(below, window)}) AS rows"
            ends = f"piece_start AS {window.start}, piece_end AS {window.end}"
            listed = ", ".join([ends, *(_listed((one,)) for one in (*keys, *aggregates))])
            return f"SELECT {listed} FROM {below} {_grouped(keys, 'piece_start', 'piece_end')}"
    raise TypeError(f"no relation: {relation!r}")


def _pieces(below: str, window: Window) -> str:
    """Every row once for each tumbling or sliding window that holds it."""
    slide, size = window.slide_ms, window.size_ms
    since = f"(epoch_ms({window.time}) - {window.offset_ms})"
    start = f"({since} - (({since} % {slide}) + {slide}) % {slide} - back * {slide})"
    each = f"SELECT *, unnest(range({-(-size // slide)})) AS back FROM {below} WHERE {window.time} IS NOT NULL"
    ends = ", ".join(
        f"make_timestamptz(({start} + {window.offset_ms + more}) * 1000) AS {name}"
        for name, more in (("piece_start", 0), ("piece_end", size))
    )
    return f"SELECT *, {ends} FROM ({each}) AS rows WHERE {start} + {size} > {since}"


def _sessions(below: str, window: Window, keys: Sequence[Output]) -> str:
    """Every row with the ends of its session."""
    gap, of = f"INTERVAL {window.size_ms} MILLISECONDS", f"PARTITION BY {', '.join(_text(key.expression) for key in keys) or '1'}"
    order = f"ORDER BY {window.time}"
    first = f"coalesce({window.time} > lag({window.time}) OVER ({of} {order}) + {gap}, true)::INT AS first"
    marked = f"SELECT *, {first} FROM {below} WHERE {window.time} IS NOT NULL"
    numbered = f"SELECT *, sum(first) OVER ({of} {order}) AS session FROM ({marked}) AS rows"
    ends = f"min({window.time}) OVER ({of}, session) AS piece_start, max({window.time}) OVER ({of}, session) + {gap} AS piece_end"
    return f"SELECT *, {ends} FROM ({numbered}) AS rows"


def _grouped(keys: Sequence[Output], *more: str) -> str:
    return f"GROUP BY {', '.join([*more, *(_text(key.expression) for key in keys)])}"


def _listed(outputs: Sequence[Output]) -> str:
    return ", ".join(f"{_text(one.expression)} AS {one.name}" for one in outputs)


def _holding(word: str, conditions: Sequence[exp.Expr]) -> str:
    return f" {word} {' AND '.join(f'({_text(one)})' for one in conditions)}" if conditions else ""


def _text(expression: exp.Expr) -> str:
    return _translated(render(expression))


@functools.lru_cache(maxsize=10_000)
def _translated(text: str) -> str:
    return sqlglot.transpile(text, read="spark", write="duckdb")[0]
