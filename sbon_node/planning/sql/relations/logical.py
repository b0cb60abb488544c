"""A query as a tree of relations, between the user's SQL and the executed fragments.

An expression names the columns of its relation's child by their bare names. Only a join's condition qualifies them, ``in0`` for
the left side and ``in1`` for the right. Names in a relation are unique, ignoring case. Windows and time bounds are attributes and
not text, so that rules can reason about them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from sqlglot import exp

from sbon_protocol.api.catalogue import CatalogEntry

LEFT, RIGHT = "in0", "in1"

WindowKind = Literal["window", "session_window"]
JoinKind = Literal["inner", "left", "right", "full", "semi"]
OUTER: tuple[JoinKind, ...] = ("left", "right", "full")
"""Joins that share an operator with stateful relations above them."""
PRESERVED = {"inner": (LEFT, RIGHT), "semi": (LEFT,), "left": (LEFT,), "right": (RIGHT,), "full": ()}
"""Sides whose conditions may be tested before the join or after it; never an outer join's null side."""


@dataclass(frozen=True, slots=True)
class Output:
    """A column of a relation: its name and its expression."""

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
    """Rows of an operator's view ``in<view>``; ``lags_ms`` covers the columns that follow its watermark."""

    view: int
    names: tuple[str, ...]
    lags_ms: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Select:
    """Expressions over the rows of ``child`` that satisfy all ``conditions``; without state."""

    child: Relation
    outputs: tuple[Output, ...]
    conditions: tuple[exp.Expr, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(output.name for output in self.outputs)


@dataclass(frozen=True, slots=True)
class Window:
    """Windows over event time.

    Tumbling if ``slide_ms`` equals ``size_ms``, sliding if it is less; with ``kind`` ``session``, sessions that end after
    ``size_ms`` without rows. The relation has the window's ends as columns ``start`` and ``end``.
    """

    kind: WindowKind
    time: str
    size_ms: int
    slide_ms: int
    offset_ms: int
    start: str
    end: str


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A row for each window and each value of ``keys``.

    ``start`` is its place in the user's text; ``remedy`` is the grouping to suggest if the groups have no end. A ``partial``
    aggregate runs together with the SELECT below it, once per source.
    """

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
    """Pairs of rows that satisfy all ``conditions``.

    ``columns`` are name, side and the name at that side. ``start`` is its place in the user's text; ``remedies`` are the
    conditions to suggest if an equality or a time bound is missing.
    """

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

    @property
    def at_sides(self) -> dict[str, exp.Expr]:
        """The columns by name, as those of the sides."""
        return {name: column(at, side) for name, side, at in self.columns}


@dataclass(frozen=True, slots=True)
class Union:
    """Rows of all children, which have the same names; the order of the rows is arbitrary."""

    children: tuple[Relation, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return self.children[0].names


Relation = Scan | Input | Select | Aggregate | Join | Union


def children_of(relation: Relation) -> tuple[Relation, ...]:
    match relation:
        case Select(child) | Aggregate(child):
            return (child,)
        case Join(_, left, right):
            return left, right
        case Union(children):
            return children
    return ()


def over(relation: Relation, change: Callable[[Relation], Relation]) -> Relation:
    """Return the relation over its changed children."""
    match relation:
        case Select(child) | Aggregate(child):
            return replace(relation, child=change(child))
        case Join(_, left, right):
            return replace(relation, left=change(left), right=change(right))
        case Union(children):
            return replace(relation, children=tuple(change(child) for child in children))
    return relation


def has_aggregate(relation: Relation) -> bool:
    """Return whether groups of rows, and not the rows themselves, come out of a relation."""
    return isinstance(relation, Aggregate) or any(has_aggregate(child) for child in children_of(relation))


def is_partial(relation: Relation) -> bool:
    """Return whether a relation is a partial aggregate, with a SELECT above it."""
    return isinstance(relation, Select) and isinstance(relation.child, Aggregate) and relation.child.partial


def columns_read(relation: Relation, view: int) -> set[str]:
    """Return the columns of a view that the SELECT directly above it reads."""
    if isinstance(relation, Select) and isinstance(relation.child, Input):
        expressions = (*(output.expression for output in relation.outputs), *relation.conditions)
        return {name for expression in expressions for name in named(expression)} if relation.child.view == view else set()
    return {name for child in children_of(relation) for name in columns_read(child, view)}


def as_they_are(names: Iterable[str]) -> tuple[Output, ...]:
    """Return columns that are passed on under their names."""
    return tuple(Output(name, column(name)) for name in names)


def column(name: str, side: str = "") -> exp.Column:
    """Return a reference to a column of a relation's child, or of a join's side."""
    table = exp.Identifier(this=side) if side else None
    return exp.Column(this=exp.Identifier(this=name), table=table)


def in_place_of(node: exp.Column, other: exp.Expr) -> exp.Expr:
    """Return a copy of ``other``; a column keeps the place of ``node`` in the user's text."""
    copy = other.copy()
    if isinstance(copy, exp.Column) and "start" in node.this.meta:
        copy.this.meta.update(node.this.meta)
    return copy


def put(expression: exp.Expr, columns: Mapping[str, exp.Expr]) -> exp.Expr:
    """Return the expression with ``columns`` in place of its own columns of these names."""
    return expression.transform(lambda node: in_place_of(node, columns[node.name]) if isinstance(node, exp.Column) else node)


def conjuncts(condition: exp.Expr | None) -> list[exp.Expr]:
    """Return the parts of a conjunction."""
    if condition is None:
        return []
    bare = condition.unnest()
    if isinstance(bare, exp.And):
        return [*conjuncts(bare.this), *conjuncts(bare.expression)]
    return [bare]


def named(columns: exp.Expr) -> set[str]:
    """Return the columns that an expression reads, qualified as written."""
    return {f"{one.table}.{one.name}" if one.table else one.name for one in columns.find_all(exp.Column)}


def replaced(expression: exp.Expr, outputs: dict[str, exp.Expr]) -> exp.Expr:
    """Replace each column by its expression in ``outputs``, in brackets where needed."""

    def by_definition(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column):
            return node
        made_of = in_place_of(node, outputs[node.name])
        return exp.Paren(this=made_of) if isinstance(made_of, exp.Binary | exp.Not | exp.Between | exp.In | exp.Neg) else made_of

    return expression.transform(by_definition)
