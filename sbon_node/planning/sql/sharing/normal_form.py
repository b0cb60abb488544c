"""Normal form of a stage's relation, in which relations of different queries can be compared.

Columns are named by their meaning and not by their queries' names: those of a view by its streams and their position, those of
groups by their expressions. All conditions that may move above the base are listed, so that relations over one base differ only
in conditions and outputs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from sbon_node.planning.sql.relations.logical import LEFT, PRESERVED, RIGHT, Input, Join, Relation, Select, replaced
from sbon_node.planning.sql.rewrite.canonical import canonical_conditions, canonical_expression, plain_conjuncts
from sbon_protocol.api.columns import Schema

_NEVER_NULL = {"inner": (LEFT, RIGHT), "semi": (LEFT, RIGHT), "left": (LEFT,), "right": (RIGHT,), "full": ()}
"""Sides whose columns the join never makes NULL, so that their expressions may be computed after it."""


class NotProvable(Exception):
    """Raised where a relation has no normal form, or an expression cannot be computed of the offered columns."""


@dataclass(frozen=True, slots=True)
class View:
    """The streams of a view by their signatures, and their schema."""

    streams: str
    schema: Schema


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a relation: those of ``base`` that satisfy all ``conditions``.

    ``columns`` maps the relation's names to expressions over the base's columns, whose types ``types`` has as far as they are
    known. Equal bases have equal rows.
    """

    base: str
    columns: Mapping[str, exp.Expr]
    conditions: tuple[exp.Expr, ...]
    types: Mapping[str, str]

    def selected(self, select: Select) -> Rows:
        """Return the rows of a SELECT over these."""
        outputs = {output.name: self.put(output.expression) for output in select.outputs}
        conditions = (self.put(condition) for condition in select.conditions)
        return Rows(self.base, outputs, (*self.conditions, *plain_conjuncts(conditions)), self.types)

    def put(self, expression: exp.Expr) -> exp.Expr:
        """Return an expression over the relation's columns as one over the base's columns."""
        return replaced(expression, dict(self.columns))

    def transformed(self, change: Callable[[exp.Expr], exp.Expr]) -> Rows:
        """Return the rows with each node of their expressions changed."""
        columns = {name: expression.transform(change) for name, expression in self.columns.items()}
        return Rows(self.base, columns, tuple(condition.transform(change) for condition in self.conditions), self.types)

    def equal_columns(self) -> dict[str, str]:
        """Return columns that always equal another, with that: both have a type of which equal values are the same."""
        first: dict[str, str] = {}
        for condition in self.conditions:
            sides = [side.unnest() for side in (condition.this, condition.expression)] if isinstance(condition, exp.EQ) else []
            names = sorted({first.get(side.name, side.name) for side in sides if isinstance(side, exp.Column)})
            known = {self.types.get(name, "") for name in names}
            if len(names) == 2 and len(known) == 1 and not known & {"", "float", "double"}:
                first = {name: names[0] if to == names[1] else to for name, to in first.items()} | {names[1]: names[0]}
        return first


def meaning(text: str) -> exp.Column:
    """Return the base column with that meaning; its name is short, since meanings contain meanings."""
    return named_column(f"m{hashlib.sha256(text.encode()).hexdigest()[:32]}")


def named_column(name: str) -> exp.Column:
    return exp.Column(this=exp.Identifier(this=name, quoted=True))


def rows_of(relation: Relation, views: Sequence[View]) -> Rows:
    """Return the normal form of a stage's relation without aggregates."""
    match relation:
        case Input(number, names):
            view = views[number]
            if len(names) != len(view.schema):
                raise NotProvable
            columns = {name: named_column(f"c{position}") for position, name in enumerate(names)}
            types = {f"c{position}": field.type for position, field in enumerate(view.schema)}
            return Rows(f"view({view.streams})", columns, (), types)
        case Select(child):
            return rows_of(child, views).selected(relation)
        case Join():
            return _rows_of_join(relation, rows_of(relation.left, views), rows_of(relation.right, views))
    raise NotProvable


def _rows_of_join(join: Join, left: Rows, right: Rows) -> Rows:
    prefix = {LEFT: "l", RIGHT: "r"}
    if join.kind == "inner" and right.base < left.base:
        prefix = {LEFT: "r", RIGHT: "l"}
    sides = {LEFT: left, RIGHT: right}
    at_sides = {side: _prefixed(rows, prefix[side]) for side, rows in sides.items()}
    types = {name: type_ for rows in at_sides.values() for name, type_ in rows.types.items()}
    on = plain_conjuncts(_on(condition, at_sides) for condition in join.conditions)
    lifted = tuple(condition for side in PRESERVED[join.kind] for condition in at_sides[side].conditions)
    columns = {}
    for name, side, at in join.columns:
        expression = at_sides[side].columns[at]
        if side not in _NEVER_NULL[join.kind]:
            opaque = meaning(f"{side} {canonical_expression(expression)}")
            if isinstance(expression, exp.Column) and expression.name in types:
                types[opaque.name] = types[expression.name]
            expression = opaque
        columns[name] = expression
    if join.kind == "inner":
        bases = sorted((prefix[side], rows.base) for side, rows in sides.items())
        return Rows(f"pairs({[base for _, base in bases]})", columns, (*lifted, *on), types)
    parts = []
    for side, rows in at_sides.items():
        kept = () if side in PRESERVED[join.kind] else rows.conditions
        parts.append(f"{rows.base} where {canonical_conditions(kept)}")
    return Rows(f"{join.kind}({parts} on {canonical_conditions(on)})", columns, lifted, types)


def _prefixed(rows: Rows, prefix: str) -> Rows:
    def renamed(node: exp.Expr) -> exp.Expr:
        return named_column(f"{prefix}{node.name}") if isinstance(node, exp.Column) else node

    return replace(rows.transformed(renamed), types={f"{prefix}{name}": type_ for name, type_ in rows.types.items()})


def _on(condition: exp.Expr, sides: Mapping[str, Rows]) -> exp.Expr:
    """Return a join's condition over the base columns of both sides."""

    def put(node: exp.Expr) -> exp.Expr:
        return in_brackets(sides[node.table].columns[node.name]) if isinstance(node, exp.Column) else node

    return condition.transform(put)


def in_brackets(expression: exp.Expr) -> exp.Expr:
    copy = expression.copy()
    return copy if isinstance(copy, exp.Column | exp.Literal | exp.Anonymous) else exp.Paren(this=copy)


def by_text(expressions: Iterable[tuple[str, exp.Expr]]) -> dict[str, str]:
    """Return the first name of each expression, by its canonical text."""
    names: dict[str, str] = {}
    for name, expression in expressions:
        names.setdefault(canonical_expression(expression), name)
    return names


def computed(expression: exp.Expr, offered: Mapping[str, str]) -> exp.Expr:
    """Return an expression over columns that hold the expressions ``offered`` has by their canonical texts.

    Raises :class:`NotProvable` if it reads a column that these do not give. Constants stay as they are, since functions may need
    them.
    """
    if not any(True for _ in expression.find_all(exp.Column)):
        return expression.copy()
    name = None if isinstance(expression, exp.If) else offered.get(canonical_expression(expression))
    if name is not None:
        return exp.Column(this=exp.Identifier(this=name))
    if isinstance(expression, exp.Column):
        raise NotProvable
    copy = expression.copy()
    for child in list(copy.iter_expressions()):
        child.replace(computed(child, offered))
    return copy
