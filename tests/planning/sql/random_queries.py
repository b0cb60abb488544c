"""Queries of the accepted language at random, changes to them that may or may not keep their meaning, and rows to try them on."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from sqlglot import exp

from sbon_node.model.schema import parse_schema, to_arrow
from sbon_node.planning.sql.syntax.dialect import call_name, parse, render
from sbon_protocol.api.catalogue import CatalogEntry, SourceDeclaration, StreamDeclaration

AT_RANDOM = settings(
    deadline=None,
    database=None,
    derandomize=True,
    report_multiple_bugs=False,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
"""The same queries in every run, none of them made smaller: evaluating one takes longer than reading it."""

SCHEMA = parse_schema("ts timestamp, a int, b int, k bigint, d double, s string")
WHOLE, TEXTS = ("a", "b", "k"), ("s",)
START = dt.datetime(2013, 1, 1, tzinfo=dt.UTC)


def entry(name: str) -> CatalogEntry:
    declaration = StreamDeclaration(name=name, schema=SCHEMA, event_time="ts")
    return CatalogEntry(declaration=declaration, sources=(SourceDeclaration(stream=name, name="x", node="n", connector="file"),))


CATALOG = {"u": entry("u"), "v": entry("v")}

# -- rows ---------------------------------------------------------------------------------------------------------------

_NUMBERS = (None, 0, 1, 1, 2, 3, -1)
_DOUBLES = (None, 0.0, -0.0, math.nan, 1.5, math.inf)
_STRINGS = (None, "", "x", "xy", "1", "01")


def table(chance: random.Random) -> pa.Table:
    """A few rows, most of which meet others: few values, many NULLs, duplicates, within three hours."""
    schema = to_arrow(SCHEMA)
    rows = [
        (
            START + dt.timedelta(minutes=15 * chance.randrange(12)),
            *(chance.choice(_NUMBERS) for _ in WHOLE),
            chance.choice(_DOUBLES),
            chance.choice(_STRINGS),
        )
        for _ in range(chance.randrange(8, 24))
    ]
    rows += rows[:3]
    return pa.table([pa.array([row[at] for row in rows], field.type) for at, field in enumerate(schema)], schema=schema)


def tables() -> st.SearchStrategy[dict[str, pa.Table]]:
    return st.integers(0, 2**32).map(lambda seed: {name: table(random.Random(f"{seed} {name}")) for name in CATALOG})


# -- conditions and expressions -----------------------------------------------------------------------------------------

Draw = Callable[..., Any]
_CONDITIONS = (
    "{n} > {c}", "{c} <= {n}", "{n} = {n2}", "{n} <> {c}", "{n} <=> {n2}", "{n} < {n2}", "{n} IS NULL", "{n} IS NOT NULL",
    "{n} IN ({c}, {c2})", "{n} NOT IN ({c}, {c2})", "{n} BETWEEN {c} AND {c2}", "{n} - {n2} > {c}", "{n} + {n2} > {c}",
    "{n} * {n2} = {c}", "mod({n}, 3) = {c}", "coalesce({n}, {c}) = 1", "nullif({n}, {n2}) = {c}", "{s} = ''", "{s} LIKE 'x%'",
    "{s} || 'x' = 'xx'", "length({s}) > {c}", "upper({s}) = 'X'", "{d} > 0", "{d} = {d}", "CAST({d} AS STRING) LIKE '-%'",
    "CASE WHEN {n} > {c} THEN {n2} ELSE {c2} END = 1", "({n} > {c}) IS TRUE", "{n} = {c}",
)  # fmt: skip
_VALUES = (
    "{n}", "{n} + {n2}", "{n} - {n2}", "{n} * {c}", "-{n}", "coalesce({n}, {n2})", "nullif({n}, {n2})", "{n} > {n2}", "{s}",
    "concat({s}, 'x')", "CASE WHEN {n} > {c} THEN {n2} END", "{n} IS NULL", "{d}", "{c}", "upper({s})",
)  # fmt: skip


def _filled(draw: Draw, pattern: str, alias: str) -> str:
    prefix = f"{alias}." if alias else ""
    numbers = [prefix + name for name in WHOLE]
    constants = ["0", "1", "2", "3"]
    return pattern.format(
        n=draw(st.sampled_from(numbers)), n2=draw(st.sampled_from(numbers)), c=draw(st.sampled_from(constants)),
        c2=draw(st.sampled_from(constants)), s=f"{prefix}s", d=f"{prefix}d",
    )  # fmt: skip


def condition(draw: Draw, alias: str = "", depth: int = 1) -> str:
    shape = draw(st.sampled_from(["plain", "plain", "plain", "or", "and", "not"])) if depth else "plain"
    if shape == "not":
        return f"NOT ({condition(draw, alias, 0)})"
    if shape in ("or", "and"):
        return f"({condition(draw, alias, 0)} {shape.upper()} {condition(draw, alias, 0)})"
    return _filled(draw, draw(st.sampled_from(_CONDITIONS)), alias)


def _where(draw: Draw, *aliases: str) -> str:
    each = [condition(draw, draw(st.sampled_from(aliases))) for _ in range(draw(st.integers(0, 2)))]
    return f" WHERE {' AND '.join(each)}" if each else ""


def _selected(draw: Draw, *aliases: str) -> str:
    values = [_filled(draw, draw(st.sampled_from(_VALUES)), draw(st.sampled_from(aliases))) for _ in range(2)]
    return ", ".join(f"{value} AS c{number}" for number, value in enumerate(values))


# -- queries ------------------------------------------------------------------------------------------------------------

_WINDOWS = (
    "window(ts, '1 hour')", "window(ts, '2 hours', '30 minutes')", "window(ts, '1 hour', '1 hour', '15 minutes')",
    "session_window(ts, '30 minutes')", "window(ts, '90 minutes', '1 hour')",
)  # fmt: skip
_AGGREGATES = (
    "count(*)", "count({n})", "sum({n})", "max({n} - {n2})", "min({s})", "sum({n}) + count(*)", "count_if({n} > {c})",
    "max({n}) - min({n2})", "sum(CASE WHEN {n} > {c} THEN {n2} END)", "avg({n})",
)  # fmt: skip
_JOINS = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN")
_EQUALITIES = ("x.a = y.a", "x.a = y.b", "x.k = y.k", "x.k = y.a", "x.s = y.s", "y.b = x.b", "x.d = y.d")
_BOUNDS = (
    "y.ts BETWEEN x.ts - INTERVAL '1' HOUR AND x.ts", "y.ts BETWEEN x.ts AND x.ts + INTERVAL '2' HOUR", "x.ts = y.ts",
    "y.ts >= x.ts - INTERVAL '30' MINUTE AND y.ts <= x.ts + INTERVAL '30' MINUTE",
)  # fmt: skip


def _source(draw: Draw, depth: int = 1) -> str:
    """Return a FROM clause, with all columns of a stream."""
    kind = draw(st.sampled_from(["stream", "stream", "select", "union", "shifted"])) if depth else "stream"
    name = draw(st.sampled_from(sorted(CATALOG)))
    if kind == "select":
        return f"(SELECT * FROM {name}{_where(draw, '')})"
    if kind == "union":
        return f"(SELECT * FROM u{_where(draw, '')} UNION ALL SELECT * FROM v{_where(draw, '')})"
    if kind == "shifted":
        return f"(SELECT ts, a + 1 AS a, a - b AS b, k, d, s FROM {name}{_where(draw, '')})"
    return name


def _grouped(draw: Draw, source: str) -> str:
    window = draw(st.sampled_from(_WINDOWS))
    keys = draw(st.sampled_from([["a"], ["s"], ["a", "b"], ["mod(a, 2)"], []]))
    piece = window.split("(")[0]
    aggregates = [_filled(draw, draw(st.sampled_from(_AGGREGATES)), "") for _ in range(draw(st.integers(1, 2)))]
    havings = [
        f"{_filled(draw, draw(st.sampled_from(_AGGREGATES[:3])), '')} > 1",
        f"{piece}.start > TIMESTAMP '2013-01-01 01:00:00'",
    ]
    havings += [f"{key} = 1" for key in keys if key != "s"] + [f"{key} > 0 OR count(*) > 1" for key in keys if key == "a"]
    chosen = draw(st.lists(st.sampled_from(havings), max_size=2, unique=True))
    listed = [
        f"{piece}.start AS w",
        *(f"{key} AS g{at}" for at, key in enumerate(keys)),
        *(f"{one} AS c{at}" for at, one in enumerate(aggregates)),
    ]
    having = f" HAVING {' AND '.join(f'({one})' for one in chosen)}" if chosen else ""
    return f"SELECT {', '.join(listed)} FROM {source}{_where(draw, '')} GROUP BY {', '.join([window, *keys])}{having}"


def _joined(draw: Draw, outputs: str = "") -> str:
    kind = draw(st.sampled_from(_JOINS))
    sides = ("x",) if "SEMI" in kind else ("x", "y")
    on = [draw(st.sampled_from(_EQUALITIES)), draw(st.sampled_from(_BOUNDS))]
    on += [condition(draw, draw(st.sampled_from("xy"))) for _ in range(draw(st.integers(0, 2)))]
    listed = outputs or _selected(draw, *sides)
    return f"SELECT {listed} FROM {_source(draw)} x {kind} {_source(draw)} y ON {' AND '.join(on)}{_where(draw, *sides)}"


SHAPES = ("plain", "nested", "grouped", "joined", "joined", "both", "regrouped", "exists", "again")


@st.composite
def queries(draw: st.DrawFn) -> str:
    shape = draw(st.sampled_from(SHAPES))
    if shape == "plain":
        return f"SELECT {_selected(draw, '')} FROM {_source(draw)}{_where(draw, '')}"
    if shape == "nested":
        end = draw(st.sampled_from(["c0 IS NOT NULL", "c1 IS NULL OR c0 IS NULL", "c0 IS NULL AND c1 IS NOT NULL"]))
        return f"SELECT c1 AS e0, c0 AS e1 FROM (SELECT {_selected(draw, '')} FROM {_source(draw)}{_where(draw, '')}) WHERE {end}"
    if shape == "grouped":
        return _grouped(draw, _source(draw))
    if shape == "joined":
        return _joined(draw)
    if shape == "both":
        return _grouped(draw, f"({_joined(draw, 'x.ts, x.a, x.b, x.k, x.d, x.s')})")
    if shape == "regrouped":
        below = f"SELECT window, a, count(*) AS b FROM {_source(draw)} GROUP BY window(ts, '1 hour'), a"
        where = draw(st.sampled_from(["a > 0", "b > 1", "a = b"]))
        return f"SELECT window.start AS w, a, max(b) AS m FROM ({below}) WHERE {where} GROUP BY window, a"
    if shape == "exists":
        inner = (
            f"SELECT 1 FROM {_source(draw, 0)} y WHERE {draw(st.sampled_from(_EQUALITIES))} AND {draw(st.sampled_from(_BOUNDS))}"
        )
        where = f"EXISTS ({inner} AND {condition(draw, 'y')}) AND {condition(draw, 'x')}"
        return f"SELECT {_selected(draw, 'x')} FROM {_source(draw)} x WHERE {where}"
    twice = f"SELECT window.end AS e, a, count(*) AS n FROM {_source(draw)} GROUP BY window(ts, '1 hour'), a"
    on = "x.a = y.a AND y.e BETWEEN x.ts AND x.ts + INTERVAL '1' HOUR"
    return f"SELECT x.s, y.n FROM {_source(draw, 0)} x JOIN ({twice}) y ON {on}{_where(draw, 'x')}"


# -- changes ------------------------------------------------------------------------------------------------------------

_STRICT = {exp.GT: exp.GTE, exp.GTE: exp.GT, exp.LT: exp.LTE, exp.LTE: exp.LT}
_MIRRORED = {exp.GT: exp.LT, exp.LT: exp.GT, exp.GTE: exp.LTE, exp.LTE: exp.GTE}


def _swapped(node: exp.Expr) -> exp.Expr:
    return type(node)(this=node.expression, expression=node.this)


def _changes(node: exp.Expr) -> list[Callable[[], exp.Expr]]:
    """Return the changes of one node; some keep the meaning and some do not."""
    found: list[Callable[[], exp.Expr]] = []
    if isinstance(node, exp.Binary) and type(node) is not exp.Is:
        found.append(lambda: _swapped(node))
    if type(node) in _MIRRORED:
        found.append(lambda: _MIRRORED[type(node)](this=node.expression, expression=node.this))
        found.append(lambda: _MIRRORED[type(node)](this=node.this, expression=node.expression))
        found.append(lambda: _STRICT[type(node)](this=node.this, expression=node.expression))
    if isinstance(node, exp.And):
        found += [lambda: node.this, lambda: exp.Or(this=node.this, expression=node.expression)]
        found.append(lambda: exp.And(this=exp.Paren(this=node), expression=node.this))
    if isinstance(node, exp.Or):
        found.append(lambda: exp.And(this=node.this, expression=node.expression))
    if isinstance(node, exp.Between):
        low, high = node.args["low"], node.args["high"]
        found.append(
            lambda: exp.And(this=exp.GTE(this=node.this, expression=low), expression=exp.LTE(this=node.this, expression=high))
        )
        found.append(lambda: exp.Between(this=node.this, low=high, high=low))
    if isinstance(node, exp.In) and node.expressions:
        found.append(lambda: exp.In(this=node.this, expressions=node.expressions[::-1]))
    if isinstance(node, exp.EQ | exp.NEQ | exp.GT | exp.Like):
        found.append(lambda: exp.Not(this=exp.Paren(this=exp.Not(this=exp.Paren(this=node)))))
        found.append(lambda: exp.Not(this=exp.Paren(this=node)))
    if isinstance(node, exp.Literal) and not node.is_string:
        found.append(lambda: exp.Literal.number(str(int(node.name) + 1)))
    if isinstance(node, exp.Literal) and node.name in ("15 minutes", "30 minutes"):
        found += [lambda: exp.Literal.string("1 hour"), lambda: exp.Literal.string("10 minutes")]
    if isinstance(node, exp.Literal) and node.name == "1 hour":
        found += [
            lambda: exp.Literal.string("60 minutes"),
            lambda: exp.Literal.string("2 hours"),
            lambda: exp.Literal.string("30 minutes"),
        ]
    if isinstance(node, exp.Column) and node.name in ("a", "b"):
        found.append(lambda: exp.column("b" if node.name == "a" else "a", table=node.table or None))
    if isinstance(node, exp.Anonymous) and len(node.expressions) == 2 and call_name(node) != "window":
        found.append(lambda: exp.Anonymous(this=str(node.this).upper(), expressions=node.expressions[::-1]))
    if isinstance(node, exp.Case):
        found.append(lambda: exp.Case(ifs=node.args["ifs"], default=exp.Literal.number("2")))
    return found


def _joins_changed(tree: exp.Expr) -> list[Callable[[], None]]:
    found: list[Callable[[], None]] = []
    for join in tree.find_all(exp.Join):
        select = join.parent
        assert isinstance(select, exp.Select)
        source = select.args["from_"]

        def swapped(join: exp.Join = join, source: exp.Expr = source) -> None:
            first, second = source.this.copy(), join.this.copy()
            source.set("this", second)
            join.set("this", first)

        found += [swapped, swapped]
        for side in ("LEFT", "RIGHT", "FULL", ""):
            found.append(lambda join=join, side=side: join.set("side", side) if not join.kind else None)
    return found


@st.composite
def changed(draw: st.DrawFn, sql: str, most: int = 3) -> str:
    """The query with some of its parts changed, and perhaps with other names for its outputs."""
    for _ in range(draw(st.integers(1, most))):
        tree = parse(sql)[0]
        choices: list[Callable[[], object]] = [
            lambda node=node, make=make: node.replace(make().copy())
            for node in tree.walk()
            for make in _changes(node.copy())  # which may put it into another node, and so take it from the tree
            if node.parent
        ]
        choices += _joins_changed(tree)
        if choices:
            draw(st.sampled_from(choices))()
        sql = render(tree)
    if draw(st.booleans()):
        sql = (
            sql.replace(" AS c0", " AS f0")
            .replace(" c0 ", " f0 ")
            .replace("(c0", "(f0")
            .replace(" c0,", " f0,")
            .replace("= c0", "= f0")
        )
    return sql
