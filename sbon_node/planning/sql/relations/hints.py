"""Hints for refused windows and joins, written with the names of the user's text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from sbon_node.planning.sql.relations.logical import Aggregate, Join, Relation, Scan, Select, Union
from sbon_node.planning.sql.rewrite.event_time import lags_ms


class Names(Protocol):
    """Columns of a relation by alias and lower-case name, as in :class:`sbon_node.planning.sql.relations.scope.Scope`."""

    @property
    def relation(self) -> Relation: ...

    @property
    def offered(self) -> Mapping[str, Mapping[str, str]]: ...


def window_over(names: Names, *, by: str = "GROUP BY", keys: Sequence[str] = ()) -> str:
    """Return a GROUP BY with a window, beside other ``keys``."""
    times = _times(names, qualified=len(names.offered) > 1)
    others = "".join(f", {key}" for key in keys)
    if not times:
        return f"{by} window(event time, '1 hour'){others}; {_lost(names.relation)}"
    ends = [time for time in times if time.endswith("window.end")]
    if ends:
        window = ends[0].removesuffix(".end")
        return f"{by} {window}{others}, or {by} window(window_time({window}), '1 day'){others}"
    return f"{by} window({times[0]}, '1 hour'){others}"


def bound_between(left: Names, right: Names) -> str:
    """Return a condition that bounds a join of the two in time."""
    if same := set(left.offered) & set(right.offered):
        return f"give {min(same)} another name in the sub-query, and bound its event time by the outer one"
    one, other = _times(left, qualified=True), _times(right, qualified=True)
    if one and other:
        return f"bound it: {other[0]} BETWEEN {one[-1]} - INTERVAL 1 HOUR AND {one[-1]}, or by --join-window"
    return "bound it by the event times of both sides; " + _lost((left if not one else right).relation)


def equality_between(left: Names, right: Names) -> str:
    """Return an equality condition for a join of the two."""
    if same := set(left.offered) & set(right.offered):
        return f"give {min(same)} another name in the sub-query, and compare a column of both"
    times = {*lags_ms(left.relation, bounded=False), *lags_ms(right.relation, bounded=False)}
    for alias, columns in left.offered.items():
        for other, others in right.offered.items():
            for name in columns:
                if name in others and columns[name] not in times:
                    return f"add one: {alias}.{name} = {other}.{name}"
    return f"add one: {next(iter(left.offered))}.key = {next(iter(right.offered))}.key"


def _times(names: Names, *, qualified: bool) -> list[str]:
    """Return the columns that follow the watermark, in the user's spelling. The end of a window counts, its start does not."""
    lags = lags_ms(names.relation, bounded=False)
    times = []
    for alias, columns in names.offered.items():
        prefix = f"{alias}." if qualified else ""
        for key, name in columns.items():
            if name in lags and not key.endswith("window_start"):
                window = key.removesuffix("_end")
                times.append(f"{prefix}{window}.end" if window in ("window", "session_window") else f"{prefix}{key}")
    return times


def _lost(relation: Relation) -> str:
    """Return the column that a sub-query would have to output."""
    known = sorted(_below(relation))
    return f"the sub-query would have to select {' or '.join(known)}"


def _below(relation: Relation) -> set[str]:
    match relation:
        case Scan(entry):
            return {f"{entry.declaration.event_time}, the event time of {entry.declaration.name}"}
        case Aggregate(child, window):
            return {f"{window.kind}"} if window is not None else _below(child)
        case Select(child):
            return _below(child)
        case Union(children):
            return {relation for child in children for relation in _below(child)}
        case Join():
            return _below(relation.left) | _below(relation.right)
    raise TypeError(f"no relation of a query: {relation!r}")
