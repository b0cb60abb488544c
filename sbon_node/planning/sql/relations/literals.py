"""Checks of literals against column types, and of strings used as numbers.

A literal is refused if no value of the column can be compared with it, or if it cannot be cast. Spark would report these errors
only at the first row.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from sqlglot import exp

from sbon_node.planning.sql.relations.logical import LEFT, RIGHT, Aggregate, Join, Output, Relation, Scan, Select, Union
from sbon_node.planning.sql.syntax.dialect import error_at, render

_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")
_TIMES = ("date", "timestamp", "timestamp_ntz")
_TIME = re.compile(r"[+-]?\d{4,7}(-\d{1,2}(-\d{1,2}([T ].*)?)?)?|T?\d{1,2}:.*")
_TRUTHS = ("t", "true", "y", "yes", "1", "f", "false", "n", "no", "0")
_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Neg)
_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.Between, exp.In)


def check_literals(text: str, relation: Relation) -> None:
    """Raise ``bad-literal`` or ``bad-operand`` with its place in ``text``.

    Results of functions have no type here; Spark's analyser checks those.
    """
    for types, expression in _expressions(relation):
        for node in expression.walk():
            if isinstance(node, _COMPARISONS):
                sides = list(_sides(node))
                known = [types.get(_name(side), "") for side in sides if isinstance(side, exp.Column)]
                for literal in sides:
                    if (wrong := next((type_ for type_ in known if not _holds(literal, type_)), None)) is not None:
                        column = next(side for side in sides if isinstance(side, exp.Column))
                        hint = f"write one, or compare CAST({column.name} AS string)"
                        message = f"no {wrong} can be compared with this"
                        raise error_at("bad-literal", message, text, literal, hint=hint)
            elif isinstance(node, _ARITHMETIC):
                _check_numbers(text, types, node)
            elif isinstance(node, exp.Cast) and not node.args.get("safe"):  # TRY_CAST gives NULL
                type_name = render(node.to).lower()
                if not _holds(node.this.unnest(), type_name):
                    hint = "write one, or TRY_CAST, which gives NULL for an invalid text"
                    raise error_at("bad-literal", f"this is no {type_name}", text, node.this.unnest(), hint=hint)


def _check_numbers(text: str, types: Mapping[str, str], node: exp.Expr) -> None:
    """Refuse arithmetic on string columns. Spark would read the strings as numbers, and fail with the first that is none."""
    sides = list(_sides(node))
    known = [types.get(_name(side), "") for side in sides if isinstance(side, exp.Column)]
    for side in () if any(type_name.startswith(_TIMES) for type_name in known) else sides:
        if isinstance(side, exp.Column) and types.get(_name(side)) == "string":
            hint = f"CAST({side.name} AS double), or TRY_CAST, which gives NULL for a text that is no number; || joins strings"
            raise error_at("bad-operand", f"{side.name} is a string, and no number", text, node, hint=hint)


def _sides(node: exp.Expr) -> Iterator[exp.Expr]:
    for key in ("this", "expression", "low", "high"):
        if isinstance(operand := node.args.get(key), exp.Expr):
            yield operand.unnest()
    yield from (operand.unnest() for operand in node.args.get("expressions") or ())


def _holds(literal: exp.Expr, type_: str) -> bool:
    """Return whether a text literal is valid for ``type_``. True for other literals, and for types that accept any text."""
    if not (isinstance(literal, exp.Literal) and literal.is_string):
        return True
    written = str(literal.this).strip()
    if type_.startswith(_NUMBERS):
        try:
            float(written.rstrip("dDfF") if written[:1].isdigit() else written)
        except ValueError:
            return False
    elif type_.startswith(_TIMES):
        return _TIME.fullmatch(written) is not None
    elif type_ == "boolean":
        return written.lower() in _TRUTHS
    return True


def _name(column: exp.Column) -> str:
    return f"{column.table}.{column.name}" if column.table else str(column.name)


def _expressions(relation: Relation) -> Iterator[tuple[Mapping[str, str], exp.Expr]]:
    """Yield every expression with the types of the columns it can name."""
    match relation:
        case Select(child, outputs, conditions):
            yield from _expressions(child)
            types = _types(child)
            yield from ((types, expression) for expression in (*(output.expression for output in outputs), *conditions))
        case Aggregate(child=child, keys=keys, aggregates=aggregates):
            yield from _expressions(child)
            types = _types(child)
            yield from ((types, output.expression) for output in (*keys, *aggregates))
        case Join(left=left, right=right, conditions=conditions):
            yield from _expressions(left)
            yield from _expressions(right)
            sides = ((LEFT, _types(left)), (RIGHT, _types(right)))
            types = {f"{side}.{name}": type_ for side, known in sides for name, type_ in known.items()}
            yield from ((types, condition) for condition in conditions)
        case Union(children):
            for child in children:
                yield from _expressions(child)


def _types(relation: Relation) -> Mapping[str, str]:
    """Return the types of the columns that are passed on unchanged."""
    match relation:
        case Scan(entry):
            return {column.name: column.type for column in entry.declaration.schema}
        case Select(child, outputs):
            return _of_outputs(outputs, _types(child))
        case Aggregate(child=child, keys=keys, window=window):
            ends = dict.fromkeys((window.start, window.end), "timestamp") if window is not None else {}
            return {**ends, **_of_outputs(keys, _types(child))}
        case Join(left=left, right=right, columns=columns):
            sides = {LEFT: _types(left), RIGHT: _types(right)}
            return {name: sides[side][at] for name, side, at in columns if at in sides[side]}
        case Union(children):
            return _types(children[0])
    return {}


def _of_outputs(outputs: Sequence[Output], known: Mapping[str, str]) -> dict[str, str]:
    return {
        output.name: known[output.expression.name]
        for output in outputs
        if isinstance(output.expression, exp.Column) and output.expression.name in known
    }
