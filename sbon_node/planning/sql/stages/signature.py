"""Signatures of stage outputs: equal signatures promise equal rows (docs/design.md, section 6).

A signature ignores the differences that :mod:`sbon_node.planning.sql.rewrite.canonical` ignores in expressions, the names of
relations and columns, and the order of keys and aggregates in a grouping, of the sides of an inner join, and of the streams of
a view. It includes the order of the outputs and the signatures of the inputs, down to the sources' ids.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence

from sqlglot import exp

from sbon_node.planning.sql.relations.logical import LEFT, RIGHT, Aggregate, Input, Join, Output, Relation, Select
from sbon_node.planning.sql.rewrite.canonical import canonical_conditions, canonical_expression
from sbon_protocol.api.operators import OnError

Meaning = Mapping[str, str]
"""Maps a relation's columns to texts that describe their meaning."""


def signature(relation: Select, views: Sequence[Iterable[str]], on_error: OnError = "fail") -> str:
    """Return a digest of the relation, its views' stream signatures, and the treatment of errors."""
    texts = [",".join(sorted(streams)) for streams in views]
    text, _ = _relation(relation, texts)
    text = text if on_error == "fail" else f"{on_error}({text})"
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _relation(relation: Relation, views: Sequence[str]) -> tuple[str, Meaning]:
    match relation:
        case Input(view, names):
            return f"view({views[view]})", {name: f"{number}" for number, name in enumerate(names)}
        case Select(child, outputs, conditions):
            below, meaning = _relation(child, views)
            texts = [_expression(output.expression, meaning) for output in outputs]
            where = canonical_conditions(_by_meaning(condition, meaning) for condition in conditions)
            return f"select({below}; {texts}; {where})", {output.name: f"{number}" for number, output in enumerate(outputs)}
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
        spec = relation.window
        window = f"{spec.kind}({meaning[spec.time]}, {spec.size_ms}, {spec.slide_ms}, {spec.offset_ms})"
        ends = {spec.start: "start", spec.end: "end"}
    text = f"groups({below}; {window}; {sorted(keys.values())})"
    return text, {**ends, **{name: f"key {text}" for name, text in keys.items()}, **aggregates}


def _named(outputs: Iterable[Output], meaning: Meaning) -> dict[str, str]:
    return {output.name: _expression(output.expression, meaning) for output in outputs}


def _pairs(join: Join, views: Sequence[str]) -> tuple[str, Meaning]:
    left, right = _relation(join.left, views), _relation(join.right, views)
    names = {LEFT: "left", RIGHT: "right"}
    if join.kind == "inner" and right[0] < left[0]:
        names = {LEFT: "right", RIGHT: "left"}
    meanings = {LEFT: left[1], RIGHT: right[1]}
    sides = sorted((names[side], text) for side, text in ((LEFT, left[0]), (RIGHT, right[0])))

    def meaning_of(side: str, name: str) -> str:
        return f"{names[side]} {meanings[side][name]}"

    conditions = canonical_conditions(_by_meaning(condition, {}, meaning_of) for condition in join.conditions)
    columns = {name: meaning_of(side, at) for name, side, at in join.columns}
    return f"{join.kind}({[text for _, text in sides]}; {conditions})", columns


def _expression(expression: exp.Expr, meaning: Meaning) -> str:
    return canonical_expression(_by_meaning(expression, meaning))


def _by_meaning(expression: exp.Expr, meaning: Meaning, meaning_of: Callable[[str, str], str] | None = None) -> exp.Expr:
    """Return an expression's text with each column replaced by its meaning.

    ``meaning_of`` returns the meaning of a join's column by side and name.
    """

    def renamed(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column):
            return node
        text = meaning_of(node.table, node.name) if meaning_of is not None else meaning[node.name]
        return exp.Column(this=exp.Identifier(this=text, quoted=True))

    return expression.transform(renamed)
