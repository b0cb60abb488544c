"""Where a stream comes from, and what reads it: through views, and the queries whose results are streams. Pure."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sbon.model import QueryInfo, StreamInfo
from sbon.states import LIVE

VIEW = "view"


class Line(NamedTuple):
    """A stream, view or query, ``depth`` steps from the stream that is shown."""

    depth: int
    kind: str
    name: str
    detail: str = ""


class Lineage:
    """The streams of an overlay, and its queries: those that make streams, and the live ones."""

    def __init__(self, streams: Iterable[StreamInfo], queries: Iterable[QueryInfo]) -> None:
        self._streams = {info.entry.declaration.name: info for info in streams}
        self._queries = {query.uid: query for query in queries}
        self._made = {uid: name for name, info in self._streams.items() if (uid := made_by(info))}

    def upstream(self, name: str) -> list[Line]:
        """Return the query that makes the stream, and what that reads; or its sources, or what the view reads."""
        return list(self._upstream(name, 1, {name}))

    def _upstream(self, name: str, depth: int, seen: set[str]) -> Iterator[Line]:
        info = self._streams.get(name)
        if info is None:
            return
        if info.entry.declaration.sql:
            yield from self._with_upstream(self._read_by(info), depth, seen)
            return
        query = self._queries.get(made_by(info))
        if query is None:
            for source in info.entry.sources:
                yield Line(depth, "source", source.name, f"{source.connector} at {source.node}")
            return
        yield _line(depth, query)
        yield from self._with_upstream(query.streams, depth + 1, seen)

    def _with_upstream(self, names: Iterable[str], depth: int, seen: set[str]) -> Iterator[Line]:
        for name in names:
            yield Line(depth, self._kind(name), name)
            if name not in seen:
                yield from self._upstream(name, depth + 1, seen | {name})

    def downstream(self, name: str) -> list[Line]:
        """Return the views and live queries that read the stream, and what reads their results."""
        return list(self._downstream(name, 1, {name}))

    def _downstream(self, name: str, depth: int, seen: set[str]) -> Iterator[Line]:
        for view, info in sorted(self._streams.items()):
            if name in self._read_by(info):
                yield Line(depth, VIEW, view)
                if view not in seen:
                    yield from self._downstream(view, depth + 1, seen | {view})
        for uid, query in sorted(self._queries.items()):
            if name not in query.streams or query.state not in LIVE:
                continue
            yield _line(depth, query)
            made = self._made.get(uid, "")
            if made:
                yield Line(depth + 1, "stream", made)
            if made and made not in seen:
                yield from self._downstream(made, depth + 2, seen | {made})

    def _kind(self, name: str) -> str:
        info = self._streams.get(name)
        return VIEW if info is not None and info.entry.declaration.sql else "stream"

    def _read_by(self, info: StreamInfo) -> list[str]:
        """Return the streams and views that a view reads, by name; none for a stream."""
        names = _tables(info.entry.declaration.sql) if info.entry.declaration.sql else set()
        return sorted({name for table in names for name in (table, table.lower()) if name in self._streams})


def _tables(sql: str) -> set[str]:
    sqlglot: Any = importlib.import_module("sqlglot")  # Slow to load, and few lineages have views.
    try:
        tree = sqlglot.parse_one(sql, dialect="spark")
    except sqlglot.errors.SqlglotError:
        return set()
    return {table.name for table in tree.find_all(sqlglot.exp.Table)}


def made_by(info: StreamInfo) -> str:
    """Return the uid of the query whose result the stream is; empty if it is none's."""
    made: Sequence[Mapping[str, object]] = [one.options for one in info.entry.sources if one.connector == "query"]
    return str(made[0].get("query", "")) if made else ""


def _line(depth: int, query: QueryInfo) -> Line:
    return Line(depth, "query", query.id, f"{query.state}, to {query.sink.kind} at {query.consumer}")
