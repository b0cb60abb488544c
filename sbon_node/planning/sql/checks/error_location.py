"""Places in the user's text of errors that the engine reports for a fragment.

The errors include outputs that a stream cannot carry.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlglot import exp

from sbon_node.model.schema import check_schema
from sbon_node.planning.sql.relations.logical import Output, Select
from sbon_node.planning.sql.stages.fragments import tree_of
from sbon_node.planning.sql.syntax.dialect import error_at, parse, render
from sbon_node.planning.sql.syntax.lexical import clause, refusal
from sbon_protocol.api.columns import Schema
from sbon_protocol.errors import SbonError

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
    for column in schema:
        try:
            check_schema((column,))
        except SbonError as error:
            hint = "cast it, or take an element of it; " + error.hint if error.code == "bad-type" else error.hint
            if column.type == "timestamp_ntz":
                hint = f"write CAST({render(made_of[column.name])} AS timestamp), whose zone is UTC"
            raise error_at("unsupported-output", error.message, text, made_of[column.name], hint=hint) from error


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
