"""Where in the user's text lies what the engine refuses of a fragment, or what a stream cannot carry."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlglot import exp

from sbon_node.engine.interface import Schema
from sbon_node.errors import SbonError
from sbon_node.query.dialect import error_at, parse, render
from sbon_node.query.fragments import tree_of
from sbon_node.query.lexical import clause, refusal
from sbon_node.query.logical import Output, Select
from sbon_node.query.schema import check_schema

_WIDER = ("tinyint", "smallint", "int", "bigint", "float", "double")
_HINTS = {
    "datatype-mismatch": "CAST the value to a type that fits",
    "wrong-num-args": "the engine is Spark: its documentation tells the arguments of each function",
    "cast-invalid-input": "TRY_CAST gives NULL for what is none",
}


def in_the_text(error: SbonError, text: str, relation: Select) -> SbonError:
    """The refusal of a relation's fragment, by the engine or by its own guard, with the place in the user's ``text`` from which
    that part of it comes; any other error as it is."""
    place = re.fullmatch(r"line 1, column (\d+)", error.where)
    if place is None and error.where != "fragment":
        return error
    hint = error.hint or _HINTS.get(error.code, "the engine is Spark: cast the values, or write the expression in another way")
    start = _start(int(place[1]) - 1 if place else 0, relation)
    return refusal(error.code, error.message.rstrip("."), text, start, offending=clause(text, start), hint=hint)


def _start(offset: int, relation: Select) -> int:
    """The text's place of the first name or literal at ``offset`` or after it that the user wrote."""
    tree = tree_of(relation)
    twins = zip(_leaves(parse(render(tree))[0]), _leaves(tree), strict=False)
    known = [(one.meta["start"], own.meta["start"]) for one, own in twins if "start" in one.meta and "start" in own.meta]
    after = [(at, start) for at, start in known if at >= offset]
    return int(min(after)[1] if after else 0)


def _leaves(tree: exp.Expr) -> list[exp.Expr]:
    """Names, literals and calls, in the order in which they are written."""
    return [node for node in tree.walk(bfs=False) if isinstance(node, exp.Identifier | exp.Literal | exp.Anonymous)]


def check_outputs(text: str, schema: Schema, outputs: Sequence[Output]) -> None:
    """Raises ``unsupported-output`` for what frames and sinks cannot carry: arrays and intervals are for use inside an
    expression."""
    made_of = {output.name: output.expression for output in outputs}
    for column in schema:
        try:
            check_schema((column,))
        except SbonError as error:
            hint = "cast it, or take an element of it; " + error.hint if error.code == "bad-type" else error.hint
            raise error_at("unsupported-output", error.message, text, made_of[column.name], hint=hint) from error


def check_alike(text: str, schema: Schema, outputs: Sequence[Output], other: Schema, others: Sequence[Output]) -> None:
    """Raises ``bad-union`` where two parts of a view, or of the result, differ in type."""
    for one, two, output, alternative in zip(schema, other, outputs, others, strict=True):
        if one.type == two.type:
            continue
        to, of, narrow = one.type, two.type, alternative
        if to in _WIDER and of in _WIDER and _WIDER.index(of) > _WIDER.index(to):
            to, of, narrow = of, to, output
        hint = f"write CAST({render(narrow.expression)} AS {to})"
        raise error_at("bad-union", f"{of} here, {to} in another part of the UNION", text, narrow.expression, hint=hint)
