"""The work of readers before Spark gets the rows: its plan, and the evaluation with pyarrow, with Spark's results.

A plan is data: the engine process makes it from a fragment, and Spark's Python processes run it.
Differences between the two that matter here: Spark takes NaN for the greatest number, equal to itself, and raises an error where
a sum of whole numbers overflows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sbon_protocol.api.columns import Schema


class Value(msgspec.Struct, frozen=True, tag="value"):
    """A column."""

    name: str


class Literal(msgspec.Struct, frozen=True, tag="literal"):
    """A constant."""

    value: bool | int | float | str


class Call(msgspec.Struct, frozen=True, tag="call"):
    """A function of :mod:`sbon_node.engine.arrow.evaluate` and its arguments."""

    function: str
    arguments: tuple[Expression, ...]


Expression = Value | Literal | Call


class Aggregation(msgspec.Struct, frozen=True):
    """An aggregate: ``count_all``, ``count``, ``sum``, ``min`` or ``max`` of ``argument``, which ``count_all`` has not."""

    name: str
    function: str
    argument: Expression | None = None


class Grouping(msgspec.Struct, frozen=True):
    """Groups by tumbling windows of ``size_us`` over ``time``, and by columns; ``names`` are all outputs in order."""

    time: str
    size_us: int
    offset_us: int
    start: str
    end: str
    keys: tuple[tuple[str, str], ...]
    """Output name and column of each key."""
    aggregations: tuple[Aggregation, ...]
    names: tuple[str, ...]


class ReadPlan(msgspec.Struct, frozen=True):
    """The columns to decode, with their declared types; then the rows for which ``condition`` holds; then their groups.

    Without ``grouping`` Spark gets these rows, and applies the whole fragment to them.
    """

    columns: Schema
    condition: Expression | None = None
    grouping: Grouping | None = None


def encoded(plan: ReadPlan) -> str:
    return msgspec.json.encode(plan).decode()


def decoded(text: str) -> ReadPlan:
    return msgspec.json.decode(text, type=ReadPlan)


_MAX_LONG = 2**63 - 1
OVERFLOW = "[ARITHMETIC_OVERFLOW] a sum of whole numbers is out of range. SQLSTATE: 22003"


def read(plan: ReadPlan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a batch's frames, or its groups. ``batches`` have the plan's columns."""
    if plan.grouping is None:
        yield from _filtered(plan, batches)
        return
    pieces = list(_filtered(plan, batches))
    if pieces and (table := pa.Table.from_batches(pieces)).num_rows:
        yield from _grouped(plan.grouping, table).combine_chunks().to_batches()


def _filtered(plan: ReadPlan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows = batch if plan.condition is None else batch.filter(value_of(plan.condition, batch))
        if rows.num_rows:
            yield rows


def value_of(expression: Expression, table: pa.Table | pa.RecordBatch) -> Any:
    """Return the expression's value for each row, or one value for all."""
    match expression:
        case Value(name):
            return table.column(name)
        case Literal(value):
            return pa.scalar(value)
        case Call(function, arguments):
            return _FUNCTIONS[function](*(value_of(argument, table) for argument in arguments))
    raise TypeError(f"no expression: {expression!r}")


def _to_double(value: Any) -> Any:
    return value.cast(pa.float64(), safe=False) if isinstance(value, pa.Array | pa.ChunkedArray) else value.cast(pa.float64())


def _nan_is_greatest(compare: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def compared(left: Any, right: Any) -> Any:
        holds = compare(left, right)
        return pc.or_(holds, pc.is_nan(left)) if pa.types.is_floating(left.type) else holds

    return compared


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "double": _to_double,
    "long": lambda value: value.cast(pa.int64()),
    "add": pc.add,
    "subtract": pc.subtract,
    "multiply": pc.multiply,
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": _nan_is_greatest(pc.greater),
    ">=": _nan_is_greatest(pc.greater_equal),
    "and": pc.and_kleene,
    "is not null": pc.is_valid,
}


# -- groups ---------------------------------------------------------------------------------------------------------------


def _grouped(grouping: Grouping, table: pa.Table) -> pa.Table:
    """Return a row for each group; rows without a time are in none."""
    if table.column(grouping.time).null_count:
        table = table.filter(pc.is_valid(table.column(grouping.time)))
    time = table.column(grouping.time).cast(pa.int64()).to_numpy()
    columns = {"window": pa.array(np.floor_divide(time - grouping.offset_us, grouping.size_us))}
    columns |= {f"key {number}": table.column(column) for number, (_, column) in enumerate(grouping.keys)}
    keys = list(columns)
    parts = [_Part(aggregation, table, f"value {number}") for number, aggregation in enumerate(grouping.aggregations)]
    for part in parts:
        columns |= part.columns
    wanted = list(dict.fromkeys(pair for part in parts for pair in part.wanted))
    calls = [([] if function == "count_all" else column, function) for column, function in wanted]
    groups = pa.table(columns).group_by(keys, use_threads=False).aggregate(calls)
    start = pc.add(pc.multiply(groups.column("window"), grouping.size_us), grouping.offset_us)
    of_name = {grouping.start: _timestamp(start), grouping.end: _timestamp(pc.add(start, grouping.size_us))}
    of_name |= {name: groups.column(f"key {number}") for number, (name, _) in enumerate(grouping.keys)}
    of_name |= {part.name: part.result(groups) for part in parts}
    return pa.table({name: of_name[name] for name in grouping.names})


def _timestamp(microseconds: Any) -> Any:
    return microseconds.cast(pa.timestamp("us", tz="UTC"))


class _Part:
    """An aggregate over Arrow's own: ``columns`` that it needs, those ``wanted`` of them, and its result from these."""

    def __init__(self, aggregation: Aggregation, table: pa.Table, column: str) -> None:
        self.name, self._function, self._column = aggregation.name, aggregation.function, column
        self.columns: dict[str, Any] = {}
        self.wanted = [(column if aggregation.function != "count_all" else "", aggregation.function)]
        self._has_nan = False
        if aggregation.argument is None:
            return
        values = value_of(aggregation.argument, table)
        if self._function == "sum" and pa.types.is_integer(values.type):
            values = _summable(values)
        if self._function in ("min", "max") and pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py():
            self._has_nan = True
            self.columns[f"{column} nan"] = pc.is_nan(values).cast(pa.int64())
            self.wanted += [(f"{column} nan", "sum"), (column, "count")]
        self.columns[column] = values

    def result(self, groups: pa.Table) -> Any:
        if self._function == "count_all":
            return groups.column("count_all")
        values = groups.column(f"{self._column}_{self._function}")
        if pa.types.is_decimal(values.type):
            return _as_long(values)
        if self._has_nan:
            nans, count = groups.column(f"{self._column} nan_sum"), groups.column(f"{self._column}_count")
            is_nan = pc.greater(nans, 0) if self._function == "max" else pc.and_(pc.greater(nans, 0), pc.equal(nans, count))
            return pc.if_else(is_nan, pa.scalar(float("nan"), values.type), values)
        return values


def _summable(values: Any) -> Any:
    """Return whole numbers as a type whose sum does not overflow: usually 64 bits suffice."""
    extremes = pc.min_max(values).as_py()
    largest = max((abs(extreme) for extreme in extremes.values() if extreme is not None), default=0)
    return values if largest * len(values) <= _MAX_LONG else values.cast(pa.decimal128(38, 0))


def _as_long(sums: Any) -> Any:
    """Return sums as 64-bit numbers; raise ``OverflowError`` as Spark does."""
    try:
        return sums.cast(pa.int64())
    except pa.ArrowInvalid as error:
        raise OverflowError(OVERFLOW) from error
