"""A query as a tree of relations, between the user's SQL and the fragments that run.

An expression names the columns of its relation's child by their bare names; only a join's condition qualifies them, ``in0`` for
the left side and ``in1`` for the right one. Names of one relation differ, whatever their case. What a stream is cut and joined
by (windows, bounds in time) is an attribute here and not text, so that rules can reason about it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from sqlglot import exp

from sbon_node.query.catalog import CatalogEntry

LEFT, RIGHT = "in0", "in1"

WindowKind = Literal["window", "session_window"]
JoinKind = Literal["inner", "left", "right", "full", "semi"]
OUTER: tuple[JoinKind, ...] = ("left", "right", "full")
"""Joins that share an operator with what has state above them."""


@dataclass(frozen=True, slots=True)
class Output:
    """One column of a relation: its name, and what it is made of."""

    name: str
    expression: exp.Expr


@dataclass(frozen=True, slots=True)
class Scan:
    """All rows of a stream, from each of its sources."""

    entry: CatalogEntry

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.entry.declaration.schema)


@dataclass(frozen=True, slots=True)
class Input:
    """The rows of view ``in<view>`` of an operator; ``lags_ms`` are of the columns that follow its watermark."""

    view: int
    names: tuple[str, ...]
    lags_ms: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Select:
    """Expressions over the rows of ``child`` for which all ``conditions`` hold; without state."""

    child: Relation
    outputs: tuple[Output, ...]
    conditions: tuple[exp.Expr, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(output.name for output in self.outputs)


@dataclass(frozen=True, slots=True)
class Window:
    """Pieces of event time: tumbling where ``slide_ms`` equals ``size_ms``, sliding where it is less, a session of ``size_ms``
    without rows where ``kind`` is ``session``. The relation has its ends as columns ``start`` and ``end``."""

    kind: WindowKind
    time: str
    size_ms: int
    slide_ms: int
    offset_ms: int
    start: str
    end: str


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One row for each window and each value of ``keys``; ``start`` is its place in the user's text, and ``remedy`` what to group
    by instead should the groups have no end. A ``partial`` one runs together with the SELECT below it, once for each source."""

    child: Relation
    window: Window | None
    keys: tuple[Output, ...]
    aggregates: tuple[Output, ...]
    start: int = field(default=0, compare=False)
    partial: bool = False
    remedy: str = field(default="", compare=False)

    @property
    def names(self) -> tuple[str, ...]:
        ends = (self.window.start, self.window.end) if self.window else ()
        return (*ends, *(output.name for output in (*self.keys, *self.aggregates)))


@dataclass(frozen=True, slots=True)
class Join:
    """Pairs of rows for which all ``conditions`` hold; ``columns`` are name, side and the name at that side; ``start`` is its
    place in the user's text, and ``remedies`` what to add should it lack an equality, or a bound in time."""

    kind: JoinKind
    left: Relation
    right: Relation
    conditions: tuple[exp.Expr, ...]
    columns: tuple[tuple[str, str, str], ...]
    start: int = field(default=0, compare=False)
    remedies: tuple[str, str] = field(default=("", ""), compare=False)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _, _ in self.columns)


@dataclass(frozen=True, slots=True)
class Union:
    """The rows of all children, which have the same names; their order is not that of any one of them."""

    children: tuple[Relation, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return self.children[0].names


Relation = Scan | Input | Select | Aggregate | Join | Union


def column(name: str, side: str = "") -> exp.Column:
    """A reference to a column of a relation's child, or of one side of a join."""
    table = exp.Identifier(this=side) if side else None
    return exp.Column(this=exp.Identifier(this=name), table=table)


def in_place_of(node: exp.Column, other: exp.Expr) -> exp.Expr:
    """A copy of ``other``; a column keeps the place in the user's text at which ``node`` stood."""
    copy = other.copy()
    if isinstance(copy, exp.Column) and "start" in node.this.meta:
        copy.this.meta.update(node.this.meta)
    return copy


def conjuncts(condition: exp.Expr | None) -> list[exp.Expr]:
    """The parts of which all have to hold."""
    if condition is None:
        return []
    bare = condition.unnest()
    if isinstance(bare, exp.And):
        return [*conjuncts(bare.this), *conjuncts(bare.expression)]
    return [bare]


def named(columns: exp.Expr) -> set[str]:
    """The columns an expression reads, qualified where they are."""
    return {f"{one.table}.{one.name}" if one.table else one.name for one in columns.find_all(exp.Column)}


def replaced(expression: exp.Expr, outputs: dict[str, exp.Expr]) -> exp.Expr:
    """The expression with each column by what ``outputs`` says it is made of, in brackets where that matters."""

    def by_definition(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column):
            return node
        made_of = in_place_of(node, outputs[node.name])
        return exp.Paren(this=made_of) if isinstance(made_of, exp.Binary | exp.Not | exp.Between | exp.In | exp.Neg) else made_of

    return expression.transform(by_definition)
