"""How much a fragment is expected to let through, before anything has been measured.

Selectivities are the constants of Selinger et al., *Access path selection in a relational database management system*
(SIGMOD 1979), table 1, for columns without statistics: equality 1/10, comparison 1/3, BETWEEN 1/4, IN at most 1/2.
"""

from __future__ import annotations

import math

from sqlglot import exp

from sbon_node.engine.interface import Needs, Schema
from sbon_node.query.plan import Rate

EQUALITY = 1 / 10
COMPARISON = 1 / 3
BETWEEN = 1 / 4
MOST_OF_IN = 1 / 2
NULL = 1 / 10
PATTERN = 1 / 4
OTHER = 1 / 3

ROWS_S_PER_CORE = 150_000.0
"""What one core of the engine filters (docs/design.md, section 9)."""

IDLE_CORES = 0.1
MOST_CORES = 1.0
OPERATOR_MEMORY_MB = 150.0

_WIDTHS = {"boolean": 1, "tinyint": 1, "smallint": 2, "int": 4, "bigint": 8, "float": 4, "double": 8, "date": 4, "timestamp": 8}
_STRING_BYTES = 16.0
_SHORTEST_STRING = 4.0


def selectivity(condition: exp.Expr | None) -> float:
    """The fraction of rows for which ``condition`` is expected to hold; AND and OR as if their sides were independent."""
    if condition is None:
        return 1.0
    if isinstance(condition, exp.Paren):
        return selectivity(condition.this)
    if isinstance(condition, exp.Not):
        return 1.0 - selectivity(condition.this)
    if isinstance(condition, exp.And):
        return math.prod(selectivity(one) for one in condition.flatten())
    if isinstance(condition, exp.Or):
        return 1.0 - math.prod(1.0 - selectivity(one) for one in condition.flatten())
    if isinstance(condition, exp.Boolean):
        return 1.0 if condition.this else 0.0
    if isinstance(condition, exp.In):
        return min(MOST_OF_IN, EQUALITY * len(condition.expressions))
    constants: tuple[tuple[tuple[type[exp.Expr], ...], float], ...] = (
        ((exp.EQ, exp.NullSafeEQ), EQUALITY),
        ((exp.NEQ, exp.NullSafeNEQ), 1 - EQUALITY),
        ((exp.GT, exp.GTE, exp.LT, exp.LTE), COMPARISON),
        ((exp.Between,), BETWEEN),
        ((exp.Is,), NULL),
        ((exp.Like, exp.ILike, exp.RegexpLike, exp.Escape), PATTERN),
    )
    return next((value for types, value in constants if isinstance(condition, types)), OTHER)


def column_bytes(type_: str, string_bytes: float = _STRING_BYTES) -> float:
    """Bytes of one value in a frame, before compression."""
    if type_.startswith("decimal"):
        return 16.0
    return float(_WIDTHS.get(type_, string_bytes))


def string_bytes(schema: Schema, row_bytes: float) -> float:
    """What a string of the source takes, if its rows are declared to take ``row_bytes``."""
    strings = sum(column.type in ("string", "binary") for column in schema)
    fixed = sum(column_bytes(column.type) for column in schema if column.type not in ("string", "binary"))
    return max(_SHORTEST_STRING, (row_bytes - fixed) / strings) if strings else _STRING_BYTES


def output_rate(source: Rate, input_schema: Schema, output: Schema, condition: exp.Expr | None) -> Rate:
    """Rows by selectivity, bytes by the types of the output's columns."""
    rows_s = source.rows_s * selectivity(condition)
    strings = string_bytes(input_schema, source.bytes_s / source.rows_s)
    return Rate(rows_s=rows_s, bytes_s=rows_s * max(1.0, sum(column_bytes(column.type, strings) for column in output)))


def needs_of(source: Rate, output: Rate) -> Needs:
    """What an operator should reserve: back-pressure slows it where that is too little, so that no rate asks for a whole site."""
    cores = min(MOST_CORES, IDLE_CORES + source.rows_s / ROWS_S_PER_CORE)
    return Needs(cores=round(cores, 3), memory_mb=OPERATOR_MEMORY_MB, bandwidth_bytes_s=round(output.bytes_s, 3))
