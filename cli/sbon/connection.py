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
from typing import Any

import pyarrow as pa

from .async_connection import AsyncConnection, AsyncQuery, Row, connected
from .blocking import Blocking, BlockingTransport, blocking, each, run
from .http import Http
from .model import Finished, SinkSpec
from .requests import DEFAULT_API


def connect(api: str = DEFAULT_API) -> Connection:
    """Connect to the node whose HTTP API is at ``api``; raise ``node-unreachable``."""
    return Connection(run(connected(BlockingTransport(Http(api)))))


class Connection(Blocking[AsyncConnection]):
    """A connection to one node. Queries continue when it is closed."""

    close = blocking(AsyncConnection.close)
    status = blocking(AsyncConnection.status)
    members = blocking(AsyncConnection.members)
    streams = blocking(AsyncConnection.streams)
    stream = blocking(AsyncConnection.stream)
    create_stream = blocking(AsyncConnection.create_stream)
    create_view = blocking(AsyncConnection.create_view)
    drop_stream = blocking(AsyncConnection.drop_stream)
    attach = blocking(AsyncConnection.attach)
    detach = blocking(AsyncConnection.detach)
    push = blocking(AsyncConnection.push)
    queries = blocking(AsyncConnection.queries)
    explain = blocking(AsyncConnection.explain)
    explain_placement = blocking(AsyncConnection.explain_placement)
    request = blocking(AsyncConnection.request)

    def sql(self, /, text: str, *, to: SinkSpec | None = None, **options: Any) -> Query:
        """Submit a query and wait until it runs; arguments as of :meth:`.AsyncConnection.sql`."""
        return Query(run(self._inner.sql(text, to=to, **options)))

    def query(self, query_id: str) -> Query:
        return Query(run(self._inner.query(query_id)))


class Query(Blocking[AsyncQuery]):
    """A query that runs or has ended. Its rows can be taken once, by any of its methods.

    Asking for the next frame acknowledges the previous frame, so that unfinished rows come again after a crash. As a context
    manager it stops the query at the end of the block, unless the query is over.
    """

    info = blocking(AsyncQuery.info)
    to_arrow = blocking(AsyncQuery.to_arrow)
    to_pandas = blocking(AsyncQuery.to_pandas)
    wait = blocking(AsyncQuery.wait)
    stop = blocking(AsyncQuery.stop)
    move = blocking(AsyncQuery.move)
    cancel_move = blocking(AsyncQuery.cancel_move)
    add_sink = blocking(AsyncQuery.add_sink)
    remove_sink = blocking(AsyncQuery.remove_sink)
    query_usage = blocking(AsyncQuery.query_usage)
    explain = blocking(AsyncQuery.explain)
    explain_placement = blocking(AsyncQuery.explain_placement)

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
        return each(aiter(self._inner))

    def tables(self) -> Generator[pa.Table, None, Finished]:
        """Yield a table for each frame as it arrives, until the query is over; raise ``query-failed`` if it fails.

        Close the generator to stop reading: the query continues, and waits for its next follower.
        """
        yield from each(self._inner.tables())
        return Finished(state=self._inner._info.state, reason=self._inner._info.reason)
