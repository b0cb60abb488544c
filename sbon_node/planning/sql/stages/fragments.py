"""SQL text of a stage's relation, over the engine's views ``in0``, ``in1`` and so on."""

import re
from collections.abc import Iterable, Sequence

from sqlglot import exp

from sbon_node.model.schema import check_schema
from sbon_node.planning.sql.relations.logical import (
    LEFT,
    RIGHT,
    Aggregate,
    Input,
    Join,
    Output,
    Relation,
    Select,
    column,
    put,
)
from sbon_node.planning.sql.rewrite.canonical import canonical_expression
from sbon_node.planning.sql.syntax.dialect import error_at, parse, render
from sbon_node.planning.sql.syntax.lexical import clause, refusal
from sbon_node.planning.sql.syntax.shape import balanced
from sbon_protocol.api.columns import Schema
from sbon_protocol.errors import SbonError

_GROUPS = "groups"


def fragment_of(relation: Select) -> str:
    """Return the SELECT in one line.

    Raises ``ambiguous-expression`` if Spark would parse its text differently. ``a NOT IN (1) = b`` is such a case: NOT is written
    first and would take the comparison with it.
    """
    tree = tree_of(relation)
    text = render(tree)
    if canonical_expression(parse(text)[0]) != canonical_expression(tree):
        expressions = [*tree.expressions, *(where.this for where in [tree.args.get("where")] if where is not None)]
        unclear = next((render(expression) for expression in expressions if not _is_clear(expression)), text)
        where = f"line 1, column {text.find(unclear) + 1}"
        raise SbonError("ambiguous-expression", "it is not clear what belongs together", where=where, hint="add brackets")
    return text


def _is_clear(expression: exp.Expr) -> bool:
    return canonical_expression(parse(f"SELECT {render(expression)}")[0].expressions[0]) == canonical_expression(expression)


def tree_of(relation: Select) -> exp.Select:
    """Return the tree that :func:`fragment_of` renders."""
    child = relation.child
    if isinstance(child, Join):
        return _join(child, relation.outputs, relation.conditions)
    source = exp.Subquery(this=_groups(child), alias=_alias(_GROUPS)) if isinstance(child, Aggregate) else _table(child, "")
    return _plain(source, relation.outputs, relation.conditions)


def _plain(source: exp.Expr, outputs: Iterable[Output], conditions: Iterable[exp.Expr]) -> exp.Select:
    select = exp.Select(expressions=[_output(output.name, output.expression) for output in outputs], from_=exp.From(this=source))
    if (condition := _all(conditions)) is not None:
        select.set("where", exp.Where(this=condition))
    return select


def _groups(relation: Aggregate) -> exp.Select:
    window = relation.window
    outputs = [*relation.keys, *relation.aggregates]
    keys: list[exp.Expr] = [key.expression.copy() for key in relation.keys]
    if window is not None:
        ends = {window.start: "start", window.end: "end"}
        outputs = [*(Output(name, column(end, window.kind)) for name, end in ends.items()), *outputs]
        lengths = [window.size_ms] if window.kind == "session_window" else [window.size_ms, window.slide_ms, window.offset_ms]
        arguments = [exp.Literal.string(f"{length} milliseconds") for length in lengths]
        keys = [exp.Anonymous(this=window.kind, expressions=[column(window.time), *arguments]), *keys, *constant_keys(relation)]
    child = relation.child
    source = _table(child, "") if isinstance(child, Input) else _nested(child, "joined")
    select = _plain(source, outputs, ())
    select.set("group", exp.Group(expressions=keys))
    return select


def constant_keys(relation: Aggregate) -> list[exp.Expr]:
    """Return the key that Spark needs for sessions unless a column is one: false for all rows; those without a time have none.

    Spark's streams take no sessions of all rows, and leave out constant keys before they look, as any but a column may become.
    """
    window = relation.window
    if window is None or window.kind != "session_window" or any(isinstance(key.expression, exp.Column) for key in relation.keys):
        return []
    return [exp.Is(this=column(window.time), expression=exp.Null())]


def _join(join: Join, outputs: Iterable[Output], conditions: Iterable[exp.Expr]) -> exp.Select:
    """Return a join's SELECT; its sides keep the aliases ``in0`` and ``in1``, whatever their views."""
    at_sides = join.at_sides
    columns = [Output(output.name, put(output.expression, at_sides)) for output in outputs]
    select = _plain(_relation(join.left, LEFT), columns, [put(condition, at_sides) for condition in conditions])
    sides = {"inner": "", "semi": "LEFT"}
    clause = exp.Join(
        this=_relation(join.right, RIGHT),
        on=_all([*join.conditions, *presence(join)]),
        side=sides.get(join.kind, join.kind.upper()),
    )
    if join.kind == "semi":
        clause.set("kind", "SEMI")
    select.set("joins", [clause])
    return select


def presence(join: Join) -> list[exp.Expr]:
    """Return the conditions that keys are not NULL, where Spark does not infer them.

    Spark's stream joins match partners by the keys' bytes, and would pair NULL with NULL. Spark infers the conditions for
    columns, but not for a full join, and not through functions that may return NULL.
    """
    keys = [key for one in join.conditions if isinstance(one, exp.EQ) for key in (one.this, one.expression)]
    unsure = [key for key in keys if key.find(exp.Column) and (join.kind == "full" or not isinstance(key, exp.Column))]
    return [exp.Not(this=exp.Is(this=_bracketed(key), expression=exp.Null())) for key in unsure]


def _bracketed(key: exp.Expr) -> exp.Expr:
    return exp.Paren(this=key.copy()) if isinstance(key, exp.Binary | exp.Not | exp.Between | exp.In) else key.copy()


def _relation(relation: Relation, alias: str) -> exp.Expr:
    return _table(relation, alias) if isinstance(relation, Input) else _nested(relation, alias)


def _nested(relation: Relation, alias: str) -> exp.Subquery:
    assert isinstance(relation, Select)
    return exp.Subquery(this=tree_of(relation), alias=_alias(alias))


def _table(relation: Relation, alias: str) -> exp.Table:
    assert isinstance(relation, Input)
    name = f"in{relation.view}"
    return exp.Table(this=exp.Identifier(this=name), alias=_alias(alias) if alias not in ("", name) else None)


def _alias(name: str) -> exp.TableAlias:
    return exp.TableAlias(this=exp.Identifier(this=name))


def _output(name: str, expression: exp.Expr) -> exp.Expr:
    plain = isinstance(expression, exp.Column) and expression.name == name
    return expression.copy() if plain else exp.alias_(expression.copy(), exp.Identifier(this=name), copy=False)


def _all(conditions: Iterable[exp.Expr]) -> exp.Expr | None:
    """Return the conjunction of all conditions, with brackets around OR and the like."""
    each = [condition.copy() for condition in conditions]
    if len(each) < 2:
        return each[0] if each else None
    operands = [
        exp.Paren(this=condition) if isinstance(condition, exp.Or | exp.Not | exp.Between) else condition for condition in each
    ]
    return balanced(exp.And, operands)


# -- Places in the user's text of errors that the engine reports for a fragment ----------------------------------------

_WIDER = ("tinyint", "smallint", "int", "bigint", "float", "double")
_HINTS = {
    "datatype-mismatch": "CAST the value to a type that fits",
    "wrong-num-args": "the engine is Spark: its documentation lists the arguments of each function",
    "cast-invalid-input": "TRY_CAST gives NULL for an invalid text",
}


def in_the_text(error: SbonError, text: str, relation: Select) -> SbonError:
    """Add the place in the user's ``text`` to an error in a relation's fragment.

    The engine or the fragment's own check raised it. Other errors are returned as they are.
    """
    match = re.fullmatch(r"line 1, column (\d+)", error.where)
    if match is None and error.where != "fragment":
        return error
    hint = error.hint or _HINTS.get(error.code, "the engine is Spark: cast the values, or write the expression in another way")
    start = _start(int(match[1]) - 1 if match else 0, relation)
    return refusal(error.code, error.message.rstrip("."), text, start, offending=clause(text, start), hint=hint)


def _start(offset: int, relation: Select) -> int:
    """Return the place of the first user-written name or literal from ``offset`` on."""
    tree = tree_of(relation)
    twins = zip(_leaves(parse(render(tree))[0]), _leaves(tree), strict=False)
    known = [(twin.meta["start"], own.meta["start"]) for twin, own in twins if "start" in twin.meta and "start" in own.meta]
    after = [(at, start) for at, start in known if at >= offset]
    return int(min(after)[1] if after else 0)


def _leaves(tree: exp.Expr) -> list[exp.Expr]:
    """Return names, literals and calls in the order in which they are written."""
    return [node for node in tree.walk(bfs=False) if isinstance(node, exp.Identifier | exp.Literal | exp.Anonymous)]


def check_outputs(text: str, schema: Schema, outputs: Sequence[Output]) -> None:
    """Raise ``unsupported-output`` for types that frames and sinks cannot carry.

    Arrays and intervals are allowed only inside an expression.
    """
    made_of = {output.name: output.expression for output in outputs}
    for field in schema:
        try:
            check_schema((field,))
        except SbonError as error:
            hint = "cast it, or take an element of it; " + error.hint if error.code == "bad-type" else error.hint
            if field.type == "timestamp_ntz":
                hint = f"write CAST({render(made_of[field.name])} AS timestamp), whose zone is UTC"
            raise error_at("unsupported-output", error.message, text, made_of[field.name], hint=hint) from error


def check_alike(text: str, schema: Schema, outputs: Sequence[Output], other: Schema, others: Sequence[Output]) -> None:
    """Raise ``bad-union`` if two parts of a view, or of the result, differ in type."""
    for column_type, two, output, alternative in zip(schema, other, outputs, others, strict=True):
        if column_type.type == two.type:
            continue
        to, of, narrow = column_type.type, two.type, alternative
        if to in _WIDER and of in _WIDER and _WIDER.index(of) > _WIDER.index(to):
            to, of, narrow = of, to, output
        hint = f"write CAST({render(narrow.expression)} AS {to})"
        raise error_at("bad-union", f"{of} here, {to} in another part of the UNION", text, narrow.expression, hint=hint)
