"""An overlay from Python: streams, queries and their rows, asked of one of its nodes.

    with connect("http://127.0.0.1:7480") as overlay:
        overlay.create_stream("trades", "ts timestamp, symbol string, price double", event_time="ts")
        overlay.attach("trades", file="/srv/trades.csv")
        for row in overlay.sql("SELECT symbol, price FROM trades WHERE price > 100"):
            print(row["symbol"])

Everything raises :class:`SbonError`: the node's refusal with its code, or ``node-unreachable``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from sbon_protocol.api.queries import SinkBegin

from . import endpoints
from .client import Client
from .described import KnownQuery, Row, ended_well, tables_of
from .follower import Follower
from .model import (
    Accepted,
    Explanation,
    Finished,
    Listing,
    MemberInfo,
    MoveCancelled,
    Moved,
    NodeStatus,
    PlacementExplanation,
    Pushed,
    QueryInfo,
    QueryList,
    QueryUsage,
    Rows,
    SinkInfo,
    SinkRequest,
    SinkSpec,
    StreamInfo,
    Submission,
    ViewDeclaration,
)
from .pushed_rows import Tabular
from .requests import DEFAULT_API, PLANNING_S, not_accepted, not_moved
from .states import LIVE

PAUSE_S = 0.2
"""Seconds between two looks at a query while waiting for it."""


def connect(api: str = DEFAULT_API) -> Connection:
    """Connect to the node whose HTTP API is at ``api``; raise ``node-unreachable``."""
    connection = Connection(Client(api))
    try:
        connection.status()
    except BaseException:
        connection.close()
        raise
    return connection


class Connection:
    """A connection to one node. Queries continue when it is closed."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def __repr__(self) -> str:
        return f"<Connection to {self._client.api}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()

    def status(self) -> NodeStatus:
        return self._client.status()

    def members(self) -> Listing[MemberInfo]:
        return self._client.members()

    def streams(self) -> Listing[StreamInfo]:
        return self._client.streams()

    def stream(self, name: str) -> StreamInfo:
        return self._client.stream(name)

    def create_stream(
        self, name: str, schema: str = "", *, event_time: str = "", delay_ms: int = 0, comment: str = "", as_: str = ""
    ) -> StreamInfo:
        """Declare a stream, or make it the result of a query.

        ``schema`` is as in SQL: ``"ts timestamp, price double"``; rows may come ``delay_ms`` behind the newest. ``as_`` is a
        query that is submitted, and whose result the stream is; :meth:`sql` takes more options of it, with the sink
        ``SinkSpec(kind="stream", options={"stream": name})``.
        """
        if as_:
            endpoints.check_result(schema, event_time, delay_ms, comment)
            self._submitted(endpoints.result_of(name, as_))
            return self.stream(name)
        return self._client.create_stream(endpoints.declared(name, schema, event_time, delay_ms, comment))

    def create_view(self, name: str, sql: str, *, comment: str = "", replace: bool = False) -> StreamInfo:
        """Create a view, a name for a query, which is read in its place when a query that names it is submitted.

        With ``replace``, it takes the place of a view of that name, which stays if this one is refused.
        """
        return self._client.create_view(ViewDeclaration(name=name, sql=sql, comment=comment, replace=replace))

    def drop_stream(self, name: str) -> None:
        """Drop a stream with its sources and their stored rows; rejected while a query reads it."""
        self._client.drop_stream(name)

    def attach(
        self,
        stream: str,
        connector: str = "",
        *,
        file: str | Path | None = None,
        node: str = "",
        name: str = "",
        rows_s: float | None = None,
        **options: Any,
    ) -> StreamInfo:
        """Attach a source at ``node``, by default the connected node, with the connector's options (docs/connectors.md).

        ``file`` is short for the connector ``file`` and its ``path``.
        """
        at = node or self.status().name
        source = endpoints.source_at(at, stream, connector, file=file, name=name, rows_s=rows_s, options=options)
        return self._client.attach_source(source)

    def detach(self, stream: str, source: str = "") -> StreamInfo:
        """Detach a source by name, by default the connected node's; rejected while a query reads the stream."""
        return self._client.detach_source(stream, source or self.status().name)

    def push(self, stream: str, rows: Iterable[Mapping[str, Any]] | Tabular, *, source: str = "", key: str = "") -> Pushed:
        """Post rows to the stream's ``http`` source at this node; they are durable when it returns.

        The rows are dicts, or a table: a pandas or Polars DataFrame, or an Arrow table.
        Only one of several posts with the same ``key`` counts.
        """
        return self._client.ask(endpoints.push_rows(stream, rows, source, key))

    def sql(self, text: str, *, to: SinkSpec | None = None, **options: Any) -> Query:
        """Submit a query and wait until it runs.

        ``options`` are the fields of a ``Submission`` (docs/api.md): ``name``, ``strategy``, ``objective``, ``max_delay_ms``,
        ``min_throughput_bytes_s``, ``consumer`` and so on; with ``to`` its rows go to a sink.
        """
        return self._submitted(endpoints.submission_of(text, to, options))

    def _submitted(self, submission: Submission | Mapping[str, Any]) -> Query:
        with closing(self._client.events(endpoints.submit(submission))) as events:
            for event in events:
                if isinstance(event, Accepted):
                    return Query(self._client, event.query)
        raise not_accepted(self._client.api)

    def query(self, query_id: str) -> Query:
        return Query(self._client, self._client.query(query_id))

    def queries(self) -> QueryList:
        """Return all queries; ``unanswered`` of the list names the members that may hold more."""
        return self._client.queries()

    def explain(self, text: str, **options: Any) -> Explanation:
        return self._client.ask(endpoints.explain({"sql": text, **options}), PLANNING_S)

    def explain_placement(self, text: str, **options: Any) -> PlacementExplanation:
        return self._client.ask(endpoints.explain_placement({"sql": text, **options}), PLANNING_S)

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """Send any other request of docs/api.md with a JSON answer: ``request("POST", "/v1/doctor")``."""
        return self._client.ask(endpoints.anything(method, path, body))


class Query(KnownQuery):
    """A query that runs or has ended. Its rows can be taken once, by any of its methods.

    Asking for the next frame acknowledges the previous frame, so that unfinished rows come again after a crash. As a context
    manager it stops the query at the end of the block, unless the query is over.
    """

    def __init__(self, client: Client, info: QueryInfo) -> None:
        super().__init__(info)
        self._client = client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._info.state in LIVE:
            self.stop()

    @property
    def schema(self) -> pa.Schema:
        """The schema of its rows."""
        return tables_of(self._planned()).schema

    def info(self) -> QueryInfo:
        """Return the query's present record."""
        return self._heard(self._client.query(self.id))

    def __iter__(self) -> Iterator[Row]:
        with closing(self.tables()) as tables:
            for table in tables:
                yield from table.to_pylist()

    def tables(self) -> Generator[pa.Table, None, Finished]:
        """Yield a table for each frame as it arrives, until the query is over; raise ``query-failed`` if it fails.

        Close the generator to stop reading: the query continues, and waits for its next follower.
        """
        while self._collected:
            yield self._collected.pop(0)
        return (yield from self._arriving())

    def to_arrow(self) -> pa.Table:
        """Return all rows, once the query is over: its sources are finite, or somebody stops it.

        An interrupted call has already acknowledged its rows; this object keeps them for the next call.
        """
        with closing(self._arriving()) as arriving:
            for table in arriving:
                self._collected.append(table)
        return self._all_collected(self._planned())

    def _arriving(self) -> Generator[pa.Table, None, Finished]:
        tables = tables_of(self._planned())
        end = yield from _each(Follower(self._client, self.id), tables.of)
        self._over(end)
        return end

    def to_pandas(self) -> Any:
        """Return all rows as :meth:`to_arrow` does, as a data frame; needs the package pandas."""
        return self.to_arrow().to_pandas()

    def wait(self) -> QueryInfo:
        """Wait until the query is over, for queries whose rows go to a sink; raise ``query-failed``."""
        while (info := self.info()).state in LIVE:
            time.sleep(PAUSE_S)
        return ended_well(info)

    def stop(self) -> QueryInfo:
        return self._heard(self._client.stop_query(self.id))

    def move(self, operator: str, to: str, *, how: str = "follow") -> Moved:
        """Move an operator to the node ``to`` with its state, while the query runs; if it fails, it goes on where it was.

        Args:
            operator: Its id, or the part after the query's.
            to: Name of the node.
            how: ``follow`` has ``to`` follow the operator until it is level; ``stop`` stops the operator while its state is
                copied, which takes no more of the engines than before but pauses the query for as long.
        """
        with closing(self._client.events(endpoints.move(self.id, operator, to, how))) as events:
            for event in events:
                if isinstance(event, Moved):
                    return event
        raise not_moved(self._client.api, operator)

    def cancel_move(self, operator: str) -> MoveCancelled:
        """Give up the move of an operator, which goes on where it is; raise ``move-committed`` where that is too late."""
        return self._client.cancel_move(self.id, operator)

    def add_sink(self, to: SinkSpec, *, consumer: str = "", begin: SinkBegin = "") -> SinkInfo:
        """Add a sink, which begins with the ``earliest`` row or ``now``; by default with the earliest if no row is gone."""
        return self._client.add_sink(self.id, SinkRequest(sink=to, consumer=consumer, begin=begin))

    def remove_sink(self, sink: str) -> SinkInfo:
        """Remove a sink that was added; what it has delivered stays."""
        return self._client.remove_sink(self.id, sink)

    def query_usage(self) -> QueryUsage:
        return self._client.query_usage(self.id)

    def explain(self) -> Explanation:
        """Explain the running query, with its measurements."""
        return self._client.explain_query(self.id)

    def explain_placement(self) -> PlacementExplanation:
        return self._client.explain_query_placement(self.id)

    def _planned(self) -> QueryInfo:
        return self._info if self._info.plan is not None else self.info()


def _each(follower: Follower, table_of: Callable[[Rows], pa.Table]) -> Generator[pa.Table, None, Finished]:
    with closing(follower.frames()) as frames:
        while True:
            try:
                frame, written = next(frames)
            except StopIteration as end:
                finished: Finished = end.value
                return finished
            if frame.rows:
                yield table_of(frame)
            written()
