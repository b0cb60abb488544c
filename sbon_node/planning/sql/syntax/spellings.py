"""Spark's spelling for other dialects: lists of ANY, arrays in brackets, fields of structs."""

from __future__ import annotations

from sqlglot import exp

from sbon_node.planning.sql.syntax.dialect import call_name, error_at

_STRUCTS = ("struct", "named_struct")
_QUANTIFIERS = ("any", "some", "all")


def respell(clean: str, tree: exp.Expr) -> None:
    """Respell a tree in place, innermost first. Raises :class:`SbonError` if Spark has no equivalent."""
    for node in reversed(list(tree.walk(bfs=False))):
        match node:
            case exp.Bracket():
                new = _array(node)
            case exp.EQ():
                new = _member(node)
            case exp.Dot():
                new = _field(clean, node)
            case _:
                new = node
        if new is not node:
            node.replace(new)
    for comparison in tree.find_all(exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE):
        if call_name(comparison.expression) in _QUANTIFIERS and isinstance(comparison.expression, exp.Anonymous):
            hint = "list the values: IN (1, 2), or = ANY (array(1, 2)); or join with a sub-query"
            raise error_at("unsupported-expression", "ALL and ANY are not supported here", clean, comparison, hint=hint)


def _array(node: exp.Bracket) -> exp.Expr:
    """Rewrite ``ARRAY[1, 2]`` as ``array(1, 2)``; no column is an array."""
    base = node.this
    bare = isinstance(base, exp.Column) and not base.table and base.name.lower() == "array" and not base.this.args.get("quoted")
    return exp.Anonymous(this="array", expressions=node.expressions) if bare else node


def _member(node: exp.EQ) -> exp.Expr:
    """Rewrite ``x = ANY (array(1, 2))`` as ``x IN (1, 2)``."""
    call = node.expression
    if call_name(call) not in ("any", "some") or len(call.expressions) != 1:
        return node
    array = call.expressions[0].unnest()
    if call_name(array) != "array" or not array.expressions:
        return node
    return exp.In(this=node.this, expressions=array.expressions)


def _field(clean: str, node: exp.Dot) -> exp.Expr:
    """Rewrite ``struct(a, b).b`` as ``b``. A struct's fields are known where it is made, and no column is a struct."""
    struct, field = node.this.unnest(), node.expression
    if not isinstance(field, exp.Identifier | exp.Column | exp.Var):
        return node
    if call_name(struct) not in _STRUCTS:
        hint = "name a column, or take the field of struct(...) where it is made"
        raise error_at("unsupported-expression", "only struct(...) has fields", clean, node, hint=hint)
    fields = _fields(struct)
    values = [value for name, value in fields if name.lower() == field.name.lower()]
    if len(values) != 1:
        known = ", ".join(name for name, _ in fields)
        problem = "two fields of that name" if values else "no such field"
        raise error_at("unknown-field", f"the struct has {problem}: {field.name}", clean, node, hint=f"it has {known}")
    return exp.Paren(this=values[0])


def _fields(struct: exp.Expr) -> list[tuple[str, exp.Expr]]:
    """Return names and values; unnamed values are ``col1``, ``col2`` and so on, as in Spark."""
    values = struct.expressions
    if call_name(struct) == "named_struct":
        return [(name.name, value) for name, value in zip(values[::2], values[1::2], strict=False)]
    return [
        (value.alias, value.this)
        if isinstance(value, exp.Alias)
        else (value.name if isinstance(value, exp.Column) else f"col{at}", value)
        for at, value in enumerate(values, 1)
    ]
