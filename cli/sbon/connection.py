"""An overlay from Python: streams, queries and their rows, asked of one of its nodes.

    with connect("http://127.0.0.1:7480") as overlay:
        overlay.create_stream("trades", "ts timestamp, symbol string, price double", event_time="ts")
        overlay.attach("trades", file="/srv/trades.csv")
        for row in overlay.sql("SELECT symbol, price FROM trades WHERE price > 100"):
            print(row["symbol"])

The calls are those of :mod:`.async_connection`, which has their definitions. Everything raises :class:`SbonError`: the node's
refusal with its code, or ``node-unreachable``.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Any

import pyarrow as pa

from . import model
from .async_connection import AsyncConnection, AsyncQuery, Row, connected
from .http import Http
from .requests import DEFAULT_API, FROZEN_AFTER_S
from .synchronous import Synchronous, SynchronousTransport, each, run, synchronous


def connect(api: str = DEFAULT_API, *, silent_s: float = FROZEN_AFTER_S) -> Connection:
    """Connect to the node whose HTTP API is at ``api``; raise ``node-unreachable``, also if it gives no sign for ``silent_s``."""
    return Connection(run(connected(SynchronousTransport(Http(api, silent_s)))))


class Connection(Synchronous[AsyncConnection]):
    """A connection to one node. Queries continue when it is closed."""

    close = synchronous(AsyncConnection.close)
    status = synchronous(AsyncConnection.status)
    members = synchronous(AsyncConnection.members)
    streams = synchronous(AsyncConnection.streams)
    stream = synchronous(AsyncConnection.stream)
    create_stream = synchronous(AsyncConnection.create_stream)
    create_view = synchronous(AsyncConnection.create_view)
    drop_stream = synchronous(AsyncConnection.drop_stream)
    attach = synchronous(AsyncConnection.attach)
    detach = synchronous(AsyncConnection.detach)
    push = synchronous(AsyncConnection.push)
    queries = synchronous(AsyncConnection.queries)
    explain = synchronous(AsyncConnection.explain)
    explain_placement = synchronous(AsyncConnection.explain_placement)
    request = synchronous(AsyncConnection.request)

    def sql(self, /, text: str, *, to: model.SinkSpec | None = None, **options: Any) -> Query:
        """Submit a query and wait until it runs; arguments as of :meth:`.AsyncConnection.sql`."""
        return Query(run(self._inner.sql(text, to=to, **options)))

    def query(self, query_id: str) -> Query:
        return Query(run(self._inner.query(query_id)))


class Query(Synchronous[AsyncQuery]):
    """A query that runs or has ended. Its rows can be taken once, by any of its methods; then these raise ``rows-taken``.

    Asking for the next frame acknowledges the previous frame, so that unfinished rows come again after a crash. As a context
    manager it stops the query at the end of the block, unless the query is over.
    """

    info = synchronous(AsyncQuery.info)
    to_arrow = synchronous(AsyncQuery.to_arrow)
    to_pandas = synchronous(AsyncQuery.to_pandas)
    wait = synchronous(AsyncQuery.wait)
    stop = synchronous(AsyncQuery.stop)
    move = synchronous(AsyncQuery.move)
    cancel_move = synchronous(AsyncQuery.cancel_move)
    add_sink = synchronous(AsyncQuery.add_sink)
    remove_sink = synchronous(AsyncQuery.remove_sink)
    query_usage = synchronous(AsyncQuery.query_usage)
    explain = synchronous(AsyncQuery.explain)
    explain_placement = synchronous(AsyncQuery.explain_placement)

    @property
    def id(self) -> str:
        return self._inner.id

    @property
    def state(self) -> str:
        """The last known state: ``running``, ``finished``, ``stopped``, ``failed``. :meth:`info` asks again."""
        return self._inner.state

    @property
    def schema(self) -> pa.Schema:
        """The schema of its rows."""
        run(self._inner._planned())
        return self._inner.schema

    def __iter__(self) -> Iterator[Row]:
        with closing(self.tables()) as tables:
            for table in tables:
                yield from table.to_pylist()

    def tables(self) -> Generator[pa.Table, None, None]:
        """Yield a table for each frame as it arrives, until the query is over; raise ``query-failed`` if it fails.

        Close the generator to stop reading: the query continues, and waits for its next follower.
        """
        yield from each(self._inner.tables())
