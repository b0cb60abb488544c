"""Plans of the work of readers in Arrow, before Spark gets the rows: columns, a filter, and groups for each batch.

A plan is data: the engine process makes it from a fragment, and Spark's Python processes run it.
"""

from __future__ import annotations

import msgspec

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
