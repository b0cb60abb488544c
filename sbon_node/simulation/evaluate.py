"""Evaluates stateless fragments (``SELECT expressions FROM in0 WHERE condition``) for real, on Arrow, with SQL's nulls.

It knows the everyday part of Spark's expressions; anything else is refused by name. It stands in for Spark where virtual time
needs an engine, and is no oracle for Spark's own semantics.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError

from sbon_node.engine.interface import Column, Schema
from sbon_node.errors import SbonError

_TYPES: dict[str, Any] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}

_BINARY: dict[type[exp.Expression], Callable[[Any, Any], Any]] = {
    exp.Add: pc.add,
    exp.Sub: pc.subtract,
    exp.Mul: pc.multiply,
    exp.Div: lambda a, b: pc.divide(pc.cast(a, pa.float64()), pc.cast(b, pa.float64())),
    exp.Mod: lambda a, b: pc.subtract(a, pc.multiply(pc.divide(a, b), b)),
    exp.EQ: pc.equal,
    exp.NEQ: pc.not_equal,
    exp.GT: pc.greater,
    exp.GTE: pc.greater_equal,
    exp.LT: pc.less,
    exp.LTE: pc.less_equal,
    exp.And: pc.and_kleene,
    exp.Or: pc.or_kleene,
    exp.DPipe: lambda a, b: pc.binary_join_element_wise(a, b, ""),
}

_UNARY: dict[type[exp.Expression], Callable[[Any], Any]] = {
    exp.Not: pc.invert,
    exp.Neg: pc.negate,
    exp.Abs: pc.abs,
    exp.Upper: pc.utf8_upper,
    exp.Lower: pc.utf8_lower,
    exp.Length: pc.utf8_length,
    exp.Floor: lambda a: pc.cast(pc.floor(a), pa.int64()),
    exp.Ceil: lambda a: pc.cast(pc.ceil(a), pa.int64()),
    exp.Sqrt: pc.sqrt,
}


class Fragment:
    """A parsed fragment; raises :class:`SbonError` ``unsupported-sql`` for what it does not know."""

    def __init__(self, text: str) -> None:
        try:
            tree = sqlglot.parse_one(text, dialect="spark")
        except ParseError as error:
            place = error.errors[0] if error.errors else {}
            where = f"line {place.get('line', 1)}, column {place.get('col', 1)}"
            raise SbonError("bad-sql", str(place.get("description", error)), where=where) from error
        source = tree.find(exp.From) if isinstance(tree, exp.Select) else None
        known = {"expressions", "from", "from_", "where"}
        extra = [name for name, value in tree.args.items() if value and name not in known]
        if source is None or source.this.name != "in0" or extra:
            raise _unsupported(text)
        where_clause = tree.args.get("where")
        self._outputs = [(one.alias_or_name, one.unalias()) for one in tree.expressions]
        self._condition = where_clause.this if where_clause is not None else None

    def __call__(self, rows: Any) -> Any:
        """The output of a record batch (or table) of input."""
        table = pa.table(rows) if not isinstance(rows, pa.Table) else rows
        if self._condition is not None:
            table = table.filter(_filled(_value(self._condition, table), table.num_rows))
        columns: list[Any] = []
        names: list[str] = []
        for name, expression in self._outputs:
            if isinstance(expression, exp.Star):
                columns += table.columns
                names += table.column_names
            else:
                columns.append(_filled(_value(expression, table), table.num_rows))
                names.append(name)
        return pa.table(columns, names=names)


@functools.lru_cache(maxsize=256)
def fragment(text: str) -> Fragment:
    return Fragment(text)


def arrow_schema(schema: Schema) -> Any:
    return pa.schema([(column.name, _arrow_type(column.type)) for column in schema])


def output_schema(text: str, inputs: tuple[Schema, ...]) -> Schema:
    """What the fragment's output would be like; runs it over no rows."""
    try:
        empty = fragment(text)(arrow_schema(inputs[0]).empty_table())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise SbonError("bad-sql", str(error), where="line 1, column 1") from error
    return tuple(Column(field.name, _spark_type(field.type)) for field in empty.schema)


def encode(table: Any) -> bytes:
    """An Arrow IPC stream of one record batch, compressed; empty where there are no rows."""
    if table.num_rows == 0:
        return b""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_batch(table.combine_chunks().to_batches()[0])
    return bytes(sink.getvalue())


def decode(payload: bytes) -> Any:
    """The rows of a frame as a table; ``payload`` is not empty."""
    with pa.ipc.open_stream(payload) as reader:
        return reader.read_all()


def _value(node: exp.Expression, table: Any) -> Any:
    if isinstance(node, exp.Paren | exp.Alias):
        return _value(node.this, table)
    if isinstance(node, exp.Column):
        if node.name not in table.column_names:
            raise SbonError("unknown-column", f"no column {node.name!r}", hint=f"there are {', '.join(table.column_names)}")
        return table.column(node.name)
    if isinstance(node, exp.Literal):
        return pa.scalar(node.this) if node.is_string else _number(node.this)
    if isinstance(node, exp.Boolean):
        return pa.scalar(bool(node.this))
    if isinstance(node, exp.Null):
        return pa.scalar(None)
    if type(node) in _BINARY:
        return _BINARY[type(node)](_value(node.this, table), _value(node.expression, table))
    if type(node) in _UNARY:
        return _UNARY[type(node)](_value(node.this, table))
    return _special(node, table)


def _special(node: exp.Expression, table: Any) -> Any:
    if isinstance(node, exp.Is):
        null = pc.is_null(_value(node.this, table))
        return null if isinstance(node.expression, exp.Null) else pc.invert(null)
    if isinstance(node, exp.In) and node.expressions:
        alternatives = [pc.equal(_value(node.this, table), _value(one, table)) for one in node.expressions]
        return functools.reduce(pc.or_kleene, alternatives)
    if isinstance(node, exp.Between):
        value = _value(node.this, table)
        low, high = _value(node.args["low"], table), _value(node.args["high"], table)
        return pc.and_kleene(pc.greater_equal(value, low), pc.less_equal(value, high))
    if isinstance(node, exp.Coalesce):
        return pc.coalesce(_value(node.this, table), *(_value(one, table) for one in node.expressions))
    if isinstance(node, exp.Concat):
        return pc.binary_join_element_wise(*(_value(one, table) for one in node.expressions), "")
    if isinstance(node, exp.Cast):
        return pc.cast(_value(node.this, table), _arrow_type(node.to.sql("spark").lower()))
    if isinstance(node, exp.Case) and node.this is None:
        default = node.args.get("default")
        result = _value(default, table) if default is not None else pa.scalar(None)
        for branch in reversed(node.args["ifs"]):
            taken = pc.fill_null(_value(branch.this, table), False)
            result = pc.if_else(taken, _value(branch.args["true"], table), result)
        return result
    raise _unsupported(node.sql("spark"))


def _number(text: str) -> Any:
    return pa.scalar(int(text)) if text.isdigit() else pa.scalar(float(text))


def _filled(value: Any, rows: int) -> Any:
    """A constant as a column."""
    return pa.repeat(value, rows) if isinstance(value, pa.Scalar) else value


def _arrow_type(name: str) -> Any:
    if name not in _TYPES:
        raise SbonError("unsupported-type", f"the simulated engine knows no {name}")
    return _TYPES[name]


def _spark_type(type_: Any) -> str:
    for name, known in _TYPES.items():
        if known.equals(type_):
            return name
    raise SbonError("unsupported-type", f"the simulated engine knows no {type_}")


def _unsupported(text: str) -> SbonError:
    return SbonError(
        "unsupported-sql", f"the simulated engine cannot evaluate {text!r}", hint="SELECT expressions FROM in0 WHERE condition"
    )
