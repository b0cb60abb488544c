"""Read plans of fragments: as much as Arrow computes exactly as Spark does. Spark does the rest."""

from collections.abc import Mapping, Sequence

from sqlglot import exp

from sbon_node.engine.arrow.evaluate import Aggregation, Call, Expression, Grouping, Literal, ReadPlan, Value
from sbon_node.planning.sql.relations.logical import conjuncts
from sbon_node.planning.sql.syntax.dialect import parse
from sbon_node.planning.sql.syntax.durations import literal_ms
from sbon_protocol.api.columns import Schema
from sbon_protocol.api.operators import OperatorSpec

_WHOLE = frozenset({"tinyint", "smallint", "int", "bigint"})
_FLOATING = frozenset({"float", "double"})
_KEYS = _WHOLE | {"string", "boolean", "date", "timestamp"}
_ORDERED = _WHOLE | _FLOATING | {"date", "timestamp"}
"""Types whose least and greatest values Arrow and Spark agree on, apart from NaN."""
_COMPARISONS: Mapping[type[exp.Expr], tuple[str, str]] = {
    exp.EQ: ("=", "="),
    exp.NEQ: ("<>", "<>"),
    exp.LT: ("<", ">"),
    exp.LTE: ("<=", ">="),
    exp.GT: (">", "<"),
    exp.GTE: (">=", "<="),
}
"""Each comparison, and the one with exchanged sides."""
_ARITHMETIC: Mapping[type[exp.Expr], str] = {exp.Add: "add", exp.Sub: "subtract", exp.Mul: "multiply"}
_MAX_LONG = 2**63 - 1


class _NotInArrowError(Exception):
    """An expression that is left to Spark."""


def read_plans(spec: OperatorSpec) -> list[ReadPlan | None]:
    """Return the plan of each view; None where readers pass all rows on as they are.

    An operator that skips rows for errors reads all columns, since its dead letters have them. A fragment with a backslash is
    left to Spark, so that its escapes in strings need not be known here.
    """
    views = spec.views()
    if spec.on_error != "fail":
        return [None] * len(views)
    tree = parse(spec.fragment)[0]
    times_of_buckets = {time for bucket in spec.buckets for time in (bucket.time, bucket.copied_time)}
    plans: list[ReadPlan | None] = []
    for inputs in views:
        schema = inputs[0][1].schema
        columns = _used(tree, schema, {inputs[0][1].event_time, *times_of_buckets})
        has_rows_alone = len(views) == 1 and not spec.has_state and "\\" not in spec.fragment
        condition = _condition(tree, schema) if has_rows_alone else None
        grouping = _grouping(tree, schema, spec.schema) if has_rows_alone and spec.groups_per_batch else None
        is_all = len(columns) == len(schema) and condition is None and grouping is None
        plans.append(None if is_all else ReadPlan(columns, condition, grouping))
    return plans


def _used(tree: exp.Expr, schema: Schema, times: set[str]) -> Schema:
    """Return the columns that a fragment names, at least one; all of them for ``SELECT *``."""
    if any(isinstance(expression, exp.Star) for select in tree.find_all(exp.Select) for expression in select.expressions):
        return schema
    named = {name.name.lower() for name in tree.find_all(exp.Identifier)} | {time.lower() for time in times}
    return tuple(column for column in schema if column.name.lower() in named) or schema[:1]


# -- filters --------------------------------------------------------------------------------------------------------------


def _condition(tree: exp.Expr, schema: Schema) -> Expression | None:
    """Return the first parts of the innermost WHERE that Arrow can evaluate; Spark evaluates all of them.

    Later parts after one that is left to Spark stay too, since that one may raise an error for rows that they would drop.
    """
    select = _innermost(tree)
    where = None if select is None else select.args.get("where")
    if where is None:
        return None
    types = {column.name: column.type for column in schema}
    condition: Expression | None = None
    for part in conjuncts(where.this):
        try:
            compiled = _comparison(part, types)
        except _NotInArrowError:
            break
        condition = compiled if condition is None else Call("and", (condition, compiled))
    return condition


def _innermost(tree: exp.Expr) -> exp.Select | None:
    """Return the SELECT that reads the view, if no other relation is read."""
    if not isinstance(tree, exp.Select) or tree.args.get("joins"):
        return None
    source = tree.args["from_"].this
    return tree if isinstance(source, exp.Table) else _innermost(source.this)


def _comparison(node: exp.Expr, types: Mapping[str, str]) -> Expression:
    """Return a comparison of a column with a constant. Raises :class:`_NotInArrowError`."""
    node = node.unnest()
    if isinstance(node, exp.Between):
        bounds = (exp.GTE(this=node.this, expression=node.args["low"]), exp.LTE(this=node.this, expression=node.args["high"]))
        return Call("and", tuple(_comparison(bound, types) for bound in bounds))
    if isinstance(node, exp.Not) and isinstance(inner := node.this.unnest(), exp.Is) and isinstance(inner.expression, exp.Null):
        return Call("is not null", (_column(inner.this, types)[0],))
    if type(node) not in _COMPARISONS:
        raise _NotInArrowError
    left, right = node.this.unnest(), node.expression.unnest()
    function, exchanged = _COMPARISONS[type(node)]
    if not isinstance(left, exp.Column):
        left, right, function = right, left, exchanged
    column, type_ = _column(left, types)
    constant, is_whole = _constant(right)
    if type_ == "string" and isinstance(constant.value, str):
        return Call(function, (column, constant))
    if type_ in _WHOLE and is_whole:
        return Call(function, (Call("long", (column,)), constant))
    if type_ == "double" and isinstance(constant.value, int | float):
        return Call(function, (column, Literal(float(constant.value))))
    raise _NotInArrowError


def _column(node: exp.Expr, types: Mapping[str, str]) -> tuple[Value, str]:
    node = node.unnest()
    if not isinstance(node, exp.Column) or node.name not in types:
        raise _NotInArrowError
    return Value(node.name), types[node.name]


def _constant(node: exp.Expr) -> tuple[Literal, bool]:
    """Return a constant, and whether it is a whole number."""
    sign = 1
    if isinstance(node, exp.Neg):
        sign, node = -1, node.this
    if not isinstance(node, exp.Literal):
        raise _NotInArrowError
    if node.is_string:
        if sign < 0:
            raise _NotInArrowError
        return Literal(node.this), False
    if node.this.isdigit():
        if int(node.this) > _MAX_LONG:
            raise _NotInArrowError
        return Literal(sign * int(node.this)), True
    try:
        return Literal(sign * float(node.this)), False
    except ValueError as error:
        raise _NotInArrowError from error


# -- groups ---------------------------------------------------------------------------------------------------------------


def _grouping(tree: exp.Expr, schema: Schema, output: Schema) -> Grouping | None:
    """Return the whole fragment as groups in Arrow, or None if Spark has to group."""
    try:
        return _Grouping(schema, output).of(tree)
    except _NotInArrowError:
        return None


class _Grouping:
    def __init__(self, schema: Schema, output: Schema) -> None:
        self._types = {column.name: column.type for column in schema}
        self._output = output

    def of(self, tree: exp.Expr) -> Grouping:
        """Return a SELECT of columns over a GROUP BY over the view, whose WHERE and columns are simple."""
        names = tuple(self._plain(expression) for expression in tree.expressions)
        groups = self._from(tree)
        if tree.args.get("where") is not None or names != tuple(column.name for column in self._output):
            raise _NotInArrowError
        self._check_below(groups)
        window, *keys = groups.args["group"].expressions
        time, size_us, offset_us = self._window(window)
        ends: dict[str, str] = {}
        key_names: dict[str, str] = {}
        aggregations = []
        for expression in groups.expressions:
            value = expression.unalias()
            if isinstance(value, exp.Column) and value.table == "window":
                ends[value.name] = expression.alias_or_name
            elif isinstance(value, exp.Column):
                key_names[value.name] = expression.alias_or_name
            else:
                aggregations.append(self._aggregation(expression.alias_or_name, value))
        columns = [_column(key, self._types) for key in keys]
        if {column.name for column, _ in columns} != set(key_names) or any(type_ not in _KEYS for _, type_ in columns):
            raise _NotInArrowError
        pairs = tuple((key_names[column.name], column.name) for column, _ in columns)
        self._check_types([*ends.values()], dict(pairs), aggregations)
        return Grouping(time, size_us, offset_us, ends["start"], ends["end"], pairs, tuple(aggregations), names)

    def _from(self, select: exp.Expr) -> exp.Select:
        source = select.args["from_"].this if isinstance(select, exp.Select) and not select.args.get("joins") else None
        if not isinstance(source, exp.Subquery) or not isinstance(source.this, exp.Select):
            raise _NotInArrowError
        return source.this

    def _check_below(self, groups: exp.Select) -> None:
        """Check the SELECT below the groups: it reads the view, and Arrow can evaluate its columns and its whole WHERE."""
        if groups.args.get("where") is not None or groups.args.get("joins") or not groups.args.get("group"):
            raise _NotInArrowError
        if isinstance(groups.args["from_"].this, exp.Table):
            return
        rows = self._from(groups)
        if not isinstance(rows.args["from_"].this, exp.Table) or rows.args.get("joins") or rows.args.get("group"):
            raise _NotInArrowError
        for expression in rows.expressions:
            self._plain(expression)
        where = rows.args.get("where")
        for part in conjuncts(where.this) if where is not None else []:
            _comparison(part, self._types)

    @staticmethod
    def _plain(expression: exp.Expr) -> str:
        """Return the name of a column that is passed on under its name."""
        value = expression.unalias()
        if not isinstance(value, exp.Column) or value.name != expression.alias_or_name:
            raise _NotInArrowError
        return value.name

    def _window(self, window: exp.Expr) -> tuple[str, int, int]:
        if not isinstance(window, exp.Anonymous) or window.name.lower() != "window" or len(window.expressions) != 4:
            raise _NotInArrowError
        time, type_ = _column(window.expressions[0], self._types)
        size_ms, slide_ms, offset_ms = (literal_ms(length) for length in window.expressions[1:])
        if type_ != "timestamp" or size_ms is None or size_ms != slide_ms or offset_ms is None:
            raise _NotInArrowError
        return time.name, size_ms * 1000, offset_ms * 1000

    def _aggregation(self, name: str, call: exp.Expr) -> Aggregation:
        if not isinstance(call, exp.Anonymous) or len(call.expressions) != 1:
            raise _NotInArrowError
        function, (argument,) = call.name.lower(), call.expressions
        if function == "count" and isinstance(argument, exp.Star):
            return Aggregation(name, "count_all")
        value, type_ = self._argument(argument)
        allowed = {"count": None, "sum": _WHOLE | _FLOATING, "min": _ORDERED, "max": _ORDERED}
        if function not in allowed or not ((types := allowed[function]) is None or type_ in types):
            raise _NotInArrowError
        return Aggregation(name, function, value)

    def _argument(self, node: exp.Expr) -> tuple[Expression, str]:
        """Return an aggregate's argument and its type: a column, its cast to double, or arithmetic of doubles."""
        node = node.unnest()
        if isinstance(node, exp.Column):
            return _column(node, self._types)
        if isinstance(node, exp.Cast) and node.to.this == exp.DataType.Type.DOUBLE:
            value, type_ = self._argument(node.this)
            if type_ in _WHOLE | _FLOATING:
                return Call("double", (value,)), "double"
        if type(node) in _ARITHMETIC:
            sides = [self._argument(side) for side in (node.this, node.expression)]
            if any(type_ == "double" for _, type_ in sides) and all(type_ in _WHOLE | _FLOATING for _, type_ in sides):
                return Call(_ARITHMETIC[type(node)], tuple(Call("double", (value,)) for value, _ in sides)), "double"
        raise _NotInArrowError

    def _check_types(self, ends: Sequence[str], keys: Mapping[str, str], aggregations: Sequence[Aggregation]) -> None:
        """Check that the outputs have the types that Spark gives them."""
        expected = dict.fromkeys(ends, "timestamp") | {name: self._types[column] for name, column in keys.items()}
        for aggregation in aggregations:
            type_ = "bigint"
            if aggregation.function not in ("count", "count_all"):
                assert aggregation.argument is not None
                type_ = self._types[aggregation.argument.name] if isinstance(aggregation.argument, Value) else "double"
            if aggregation.function == "sum":
                type_ = "double" if type_ in _FLOATING else "bigint"
            expected[aggregation.name] = type_
        if {column.name: column.type for column in self._output} != expected or len(ends) != 2:
            raise _NotInArrowError
