"""The identity of a stage's output: equal signatures promise equal rows (docs/design.md, section 6).

Beyond what :mod:`sbon_node.query.canonical` says of expressions, the names of relations and columns do not matter, nor the order
of keys and aggregates inside a grouping, of the sides of an inner join, or of the streams of one view. The order of the outputs
does, and so do the signatures of the inputs, down to the sources' ids.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence

from sqlglot import exp

from sbon_node.query.canonical import canonical_conditions, canonical_expression
from sbon_node.query.logical import LEFT, RIGHT, Aggregate, Input, Join, Output, Relation, Select

Meaning = Mapping[str, str]
"""A relation's columns by name, each in a text that says what it is."""


def signature(relation: Select, views: Sequence[Iterable[str]]) -> str:
    """A digest of the relation and of the signatures of the streams of each view."""
    texts = [",".join(sorted(streams)) for streams in views]
    text, _ = _relation(relation, texts)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _relation(relation: Relation, views: Sequence[str]) -> tuple[str, Meaning]:
    match relation:
        case Input(view, names):
            return f"view({views[view]})", {name: f"{number}" for number, name in enumerate(names)}
        case Select(child, outputs, conditions):
            below, meaning = _relation(child, views)
            texts = [_expression(one.expression, meaning) for one in outputs]
            where = canonical_conditions(_by_meaning(one, meaning) for one in conditions)
            return f"select({below}; {texts}; {where})", {one.name: f"{number}" for number, one in enumerate(outputs)}
        case Aggregate():
            return _groups(relation, views)
        case Join():
            return _pairs(relation, views)
    raise TypeError(f"no part of a stage: {relation!r}")


def _groups(relation: Aggregate, views: Sequence[str]) -> tuple[str, Meaning]:
    below, meaning = _relation(relation.child, views)
    keys, aggregates = _named(relation.keys, meaning), _named(relation.aggregates, meaning)
    window, ends = "", {}
    if relation.window is not None:
        one = relation.window
        window = f"{one.kind}({meaning[one.time]}, {one.size_ms}, {one.slide_ms}, {one.offset_ms})"
        ends = {one.start: "start", one.end: "end"}
    text = f"groups({below}; {window}; {sorted(keys.values())})"
    return text, {**ends, **{name: f"key {text}" for name, text in keys.items()}, **aggregates}


def _named(outputs: Iterable[Output], meaning: Meaning) -> dict[str, str]:
    return {one.name: _expression(one.expression, meaning) for one in outputs}


def _pairs(join: Join, views: Sequence[str]) -> tuple[str, Meaning]:
    left, right = _relation(join.left, views), _relation(join.right, views)
    names = {LEFT: "left", RIGHT: "right"}
    if join.kind == "inner" and right[0] < left[0]:
        names = {LEFT: "right", RIGHT: "left"}
    meanings = {LEFT: left[1], RIGHT: right[1]}
    sides = sorted((names[side], text) for side, text in ((LEFT, left[0]), (RIGHT, right[0])))

    def meant(side: str, name: str) -> str:
        return f"{names[side]} {meanings[side][name]}"

    conditions = canonical_conditions(_by_meaning(one, {}, meant) for one in join.conditions)
    columns = {name: meant(side, at) for name, side, at in join.columns}
    return f"{join.kind}({[text for _, text in sides]}; {conditions})", columns


def _expression(expression: exp.Expr, meaning: Meaning) -> str:
    return canonical_expression(_by_meaning(expression, meaning))


def _by_meaning(expression: exp.Expr, meaning: Meaning, meant: Callable[[str, str], str] | None = None) -> exp.Expr:
    """With each column named for what it means; ``meant`` tells that of the columns of a join, by side and name."""

    def renamed(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column):
            return node
        text = meant(node.table, node.name) if meant is not None else meaning[node.name]
        return exp.Column(this=exp.Identifier(this=text, quoted=True))

    return expression.transform(renamed)
