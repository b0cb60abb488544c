"""A query from now on: over rows whose event times are later than all those that its sources had when it was submitted.

A window, or a group by a truncated time, that began before has lost rows, so it is left out: the first one that counts begins
after that moment.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

from sqlglot import exp

from sbon_node.planning.sql.relations.logical import Aggregate, Join, Output, Relation, Scan, Select, Union, column
from sbon_node.planning.sql.rewrite.event_time import lag_of, lags_ms
from sbon_protocol.api.catalogue import StreamDeclaration

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_MS = 86_400_000


def with_since(relation: Relation, since_ms: int) -> Relation:
    """Return the relation over rows whose event times are at or after ``since_ms``, without groups that began before."""
    match relation:
        case Scan(entry):
            declaration = entry.declaration
            return _filtered(relation, declaration.event_time, _type(declaration, declaration.event_time), since_ms)
        case Select(child):
            return replace(relation, child=with_since(child, since_ms))
        case Union(children):
            return replace(relation, children=tuple(with_since(child, since_ms) for child in children))
        case Join(_, left, right):
            return replace(relation, left=with_since(left, since_ms), right=with_since(right, since_ms))
        case Aggregate(child, window, keys):
            below = with_since(child, since_ms)
            begins = [window.start] if window is not None and window.kind == "window" else _truncated(keys, child)
            counted = replace(relation, child=below)
            return _filtered(counted, begins[0], "timestamp", since_ms) if begins else counted
    raise TypeError(f"no relation: {relation!r}")


def _truncated(keys: tuple[Output, ...], child: Relation) -> list[str]:
    """Return the keys by which groups begin: they follow the event time, and lag behind it."""
    lags = lags_ms(child)
    return [key.name for key in keys if lag_of(key.expression, lags)]


def _filtered(relation: Relation, name: str, type_: str, since_ms: int) -> Select:
    outputs = tuple(Output(one, column(one)) for one in relation.names)
    return Select(relation, outputs, (exp.GTE(this=column(name), expression=_literal(type_, since_ms)),))


def _type(declaration: StreamDeclaration, name: str) -> str:
    return next(field.type for field in declaration.schema if field.name == name)


def _literal(type_: str, since_ms: int) -> exp.Cast:
    """Return the first value of a type of times at or after ``since_ms``."""
    if type_ == "date":
        day = date.fromordinal(min(_EPOCH.toordinal() - (-since_ms // _DAY_MS), date.max.toordinal()))
        return exp.cast(exp.Literal.string(day.isoformat()), type_, dialect="spark")
    time = (_EPOCH + timedelta(milliseconds=since_ms)).replace(tzinfo=None).isoformat(" ", "milliseconds")
    return exp.cast(exp.Literal.string(time), type_, dialect="spark")
