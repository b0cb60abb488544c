"""What may run: exactly one SELECT of listed functions and operators over listed views (docs/design.md, section 6).

The submitting node checks what it made, and every host checks again what it is given: peers are not trusted. Nothing here asks
what is dangerous; it asks what is allowed, and refuses the rest.
"""

from __future__ import annotations

import re

from sqlglot import exp

from sbon_node.query.dialect import STATEMENT_WORDS, error_at, start_of
from sbon_node.query.functions import (
    ALLOWED,
    GROWING,
    LITERAL_BOUNDS,
    LITERAL_TEXTS,
    MAX_GROWTH,
    MIN_ARGUMENTS,
    UNIT_FIRST,
    UNITS,
    refusal_of,
)
from sbon_node.query.lexical import Token, refusal, scan
from sbon_node.query.shape import check_clauses, check_table, one_select

MAX_DEPTH = 100
MAX_NUMBER = 40

_OPERATORS: tuple[type[exp.Expr], ...] = (
    exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Neg, exp.And, exp.Or, exp.Not, exp.Paren,
    exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Is, exp.In, exp.Between,
    exp.Like, exp.ILike, exp.RegexpLike, exp.Escape, exp.DPipe,
    exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor, exp.BitwiseNot,
    exp.Case, exp.If, exp.Bracket, exp.Trim, exp.Alias,
)  # fmt: skip
_LEAVES: tuple[type[exp.Expr], ...] = (
    exp.Column,
    exp.Identifier,
    exp.Literal,
    exp.HexString,
    exp.RawString,
    exp.Boolean,
    exp.Null,
)
_TIMES: tuple[type[exp.Expr], ...] = (
    exp.Interval,
    exp.IntervalSpan,
    exp.Extract,
    exp.Var,
    exp.Cast,
    exp.TryCast,
    exp.DataType,
    exp.DataTypeParam,
)
_NODES = frozenset((*_OPERATORS, *_LEAVES, *_TIMES, exp.Anonymous))

_TYPES = frozenset(
    getattr(exp.DType, name)
    for name in ("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL", "TEXT", "BINARY", "DATE")
) | {exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPLTZ, exp.DType.TIMESTAMP}
_NUMBER = re.compile(r"(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?\Z")
_CLOCKS = (exp.CurrentDate, exp.CurrentTimestamp, exp.CurrentTime, exp.CurrentDatetime, exp.Localtimestamp)


def check_fragment(sql: str, inputs: int) -> None:
    """Raises :class:`SbonError` unless ``sql`` is one SELECT over views ``in0`` .. ``in<inputs-1>`` of allowed parts only."""
    clean, tokens = scan(sql, strict=True)
    check_words(clean, tokens)
    statement = one_select(clean, tokens)
    _check_views(clean, statement, inputs)
    check_clauses(clean, statement, tokens)
    check_expressions(clean, statement)


def check_words(text: str, tokens: list[Token]) -> None:
    """A fragment's bare words: one SELECT, at the beginning, and none that other statements are made of."""
    selects = 0
    for token in tokens:
        if token.kind != "word":
            continue
        word = token.text.lower()
        selects += word == "select"
        if word in STATEMENT_WORDS or selects > 1:
            code = "unsupported-subquery" if word == "select" else "forbidden-word"
            hint = f"a column of this name is written `{token.text}`"
            raise refusal(code, "not allowed in a fragment", text, token.start, offending=token.text, hint=hint)


def _check_views(clean: str, select: exp.Select, inputs: int) -> None:
    relation = check_table(clean, select)
    views = [f"in{i}" for i in range(inputs)]
    if relation.name not in views:
        hint = f"the fragment's views are {', '.join(views)}"
        raise error_at("forbidden-relation", "a fragment reads its inputs only", clean, relation, hint=hint)
    for column in select.find_all(exp.Column):
        if column.table and column.table.lower() != relation.alias_or_name.lower():
            raise error_at(
                "forbidden-variable", "neither an input nor its column", clean, column, hint="write the column's name alone"
            )


def check_expressions(clean: str, select: exp.Select) -> None:
    """Every part of the select list and the condition is an allowed one."""
    if not select.expressions:
        raise refusal("bad-sql", "nothing is selected", clean, 0, offending=clean, hint="write SELECT expressions FROM stream")
    where = select.args.get("where")
    for root in select.expressions:
        if isinstance(root, exp.Star) and not any(root.args.values()):
            continue
        if isinstance(root, exp.Column) and isinstance(root.this, exp.Star):
            continue
        _check(clean, root, 0, 0)
    if where is not None:
        _check(clean, where.this, 0, 0)


def _check(clean: str, node: exp.Expr, depth: int, growth: int) -> None:
    if depth > MAX_DEPTH:
        raise refusal(
            "too-deep",
            f"more than {MAX_DEPTH} expressions inside one another",
            clean,
            start_of(node),
            hint="simplify the expression",
        )
    if type(node) not in _NODES:
        raise _refused_node(clean, node)
    if isinstance(node, exp.Anonymous):
        name = _check_function(clean, node)
        growth += name in GROWING
        if growth > MAX_GROWTH:
            raise error_at(
                "unbounded-function", f"more than {MAX_GROWTH} functions inside one another that make values longer", clean, node
            )
    _check_special(clean, node)
    flat = isinstance(node, exp.And | exp.Or)
    for child in node.iter_expressions():
        _check(clean, child, depth if flat and type(child) is type(node) else depth + 1, growth)


def _check_special(clean: str, node: exp.Expr) -> None:
    if type(node) is exp.DataType:
        bounded = all(isinstance(one, exp.DataTypeParam) for one in node.expressions) and (
            node.this == exp.DType.DECIMAL or not node.expressions
        )
        if (
            node.this not in _TYPES
            or not bounded
            or any(v for k, v in node.args.items() if k not in ("this", "expressions", "nested"))
        ):
            raise error_at("unsupported-type", "this type is not supported", clean, node, hint=_TYPE_HINT)
    elif isinstance(node, exp.Literal) and not node.is_string and not (_NUMBER.match(node.name) and len(node.name) <= MAX_NUMBER):
        raise error_at("bad-sql", "not a number", clean, node)
    elif isinstance(node, exp.Column) and (isinstance(node.this, exp.Star) or node.args.get("db")):
        raise error_at("unsupported-expression", "not supported here", clean, node, hint="name a column")
    elif isinstance(node, exp.In) and (node.args.get("query") or node.args.get("unnest") or node.args.get("field")):
        raise error_at("unsupported-subquery", "sub-queries are not supported yet", clean, node, hint="list the values")
    elif isinstance(node, exp.Var) and not isinstance(node.parent, exp.Interval | exp.IntervalSpan | exp.Extract | exp.Anonymous):
        raise error_at("unsupported-expression", "not supported", clean, node)
    elif isinstance(node, exp.Alias) and not isinstance(node.parent, exp.Select):
        raise error_at("unsupported-expression", "an alias has no place here", clean, node)
    elif isinstance(node, exp.Is) and not isinstance(node.expression, exp.Null | exp.Boolean):
        raise error_at("unsupported-expression", "IS takes NULL, TRUE or FALSE", clean, node)
    elif isinstance(node, exp.Trim) and (node.args.get("collation") or not isinstance(node.this, exp.Expr)):
        raise error_at("unsupported-expression", "not supported", clean, node)


_TYPE_HINT = "boolean, tinyint, smallint, int, bigint, float, double, decimal(p,s), string, binary, date, timestamp"


def function_name(node: exp.Anonymous) -> str:
    """The name as Spark looks it up; quoted names are not names of functions we allow."""
    return node.this.lower() if isinstance(node.this, str) else ""


def _check_function(clean: str, node: exp.Anonymous) -> str:
    name = function_name(node)
    if not name:
        raise error_at("forbidden-function", "a function's name is not quoted", clean, node, hint="remove the quotes")
    if name not in ALLOWED:
        code, message, hint = refusal_of(name)
        raise error_at(code, message, clean, node, hint=hint)
    arguments = node.expressions
    if len(arguments) < MIN_ARGUMENTS.get(name, 0):
        raise error_at("not-repeatable", f"{name} without arguments reads the clock", clean, node, hint="pass it a column")
    if name in LITERAL_BOUNDS:
        _check_bound(clean, node, name, *LITERAL_BOUNDS[name])
    if name in LITERAL_TEXTS:
        position, most = LITERAL_TEXTS[name]
        text = arguments[position] if len(arguments) > position else None
        if text is not None and not (isinstance(text, exp.Literal | exp.Null) and len(text.name) <= most):
            hint = f"write a literal of at most {most} characters"
            raise error_at(
                "unbounded-function", f"argument {position + 1} of {name} may make values of any size", clean, node, hint=hint
            )
    normalise_unit(node)
    if any(isinstance(one, exp.Var) for one in arguments[1:]) or (
        arguments and isinstance(arguments[0], exp.Var) and (name not in UNIT_FIRST or arguments[0].name.lower() not in UNITS)
    ):
        raise error_at("unsupported-expression", "not supported", clean, node)
    return name


def normalise_unit(node: exp.Anonymous) -> None:
    """The unit of ``timestampdiff(HOUR, a, b)`` is a word, not a column."""
    if function_name(node) in UNIT_FIRST and len(node.expressions) == 3:
        unit = node.expressions[0]
        if isinstance(unit, exp.Column) and not unit.table and unit.name.lower() in UNITS:
            unit.replace(exp.Var(this=unit.name.upper()))


def _check_bound(clean: str, node: exp.Anonymous, name: str, position: int, most: int) -> None:
    argument = node.expressions[position] if len(node.expressions) > position else None
    if argument is None:
        return
    if not (
        isinstance(argument, exp.Literal) and not argument.is_string and argument.name.isdigit() and int(argument.name) <= most
    ):
        hint = f"write a literal number of at most {most}"
        raise error_at(
            "unbounded-function", f"argument {position + 1} of {name} may make values of any size", clean, node, hint=hint
        )


_REFUSED: tuple[tuple[tuple[type[exp.Expr], ...], str, str, str], ...] = (
    (_CLOCKS, "not-repeatable", "the clock gives another result each time", "use the event time"),
    ((exp.CurrentUser, exp.SessionUser), "forbidden-function", "this reaches beyond the row", "write the value"),
    (
        (exp.Subquery, exp.Select, exp.Exists, exp.SetOperation),
        "unsupported-subquery",
        "sub-queries are not supported yet",
        "write one SELECT",
    ),
    ((exp.Window, exp.WithinGroup), "unsupported-window", "windows are not supported yet", "select rows"),
    ((exp.Filter, exp.IgnoreNulls, exp.Distinct), "unsupported-aggregate", "aggregates are not supported yet", "select rows"),
    (
        (exp.Placeholder, exp.Parameter, exp.SessionParameter),
        "forbidden-variable",
        "parameters and variables are not supported",
        "write the value",
    ),
    ((exp.Lambda, exp.Kwarg), "unsupported-lambda", "lambdas and named arguments are not supported", "write values in order"),
    ((exp.JSONExtract,), "unsupported-expression", "not supported", "use get_json_object(column, '$.path')"),
    ((exp.Dot,), "forbidden-function", "qualified functions are not supported", "write the function's name alone"),
    ((exp.Star,), "unsupported-expression", "* has no place here", "name a column"),
)


def _refused_node(clean: str, node: exp.Expr) -> Exception:
    for types, code, message, hint in _REFUSED:
        if isinstance(node, types):
            return error_at(code, message, clean, node, hint=hint)
    return error_at(
        "unsupported-expression", f"{type(node).__name__} is not supported", clean, node, hint="see the documentation for what is"
    )
