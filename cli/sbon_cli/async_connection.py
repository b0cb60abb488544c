"""The same as :mod:`sbon_cli.connection` for programs on asyncio: no call holds the loop up.

    overlay = await connect_async("http://127.0.0.1:7480")
    query = await overlay.sql("SELECT symbol, price FROM trades WHERE price > 100")
    async for row in query:
        print(row["symbol"])

Each call runs in a thread. One that is cancelled ends in its thread all the same, and its answer is dropped.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from sbon_cli.client import DEFAULT_API
from sbon_cli.connection import Connection, Query, Row, connect
from sbon_node.connectors.push import Pushed
from sbon_node.control.explaining.placement_explanation import PlacementExplanation
from sbon_node.control.explaining.plan_explanation import Explanation
from sbon_node.control.query_list import QueryList
from sbon_node.control.report import Bill, MemberInfo, QueryInfo, SinkSpec, StreamInfo

aside = asyncio.to_thread


async def connect_async(api: str = DEFAULT_API) -> AsyncConnection:
    return AsyncConnection(await aside(connect, api))


class AsyncConnection:
    """See :class:`sbon_cli.connection.Connection`, which ``blocking`` is."""

    def __init__(self, blocking: Connection) -> None:
        self.blocking = blocking

    async def members(self) -> list[MemberInfo]:
        return await aside(self.blocking.members)

    async def streams(self) -> list[StreamInfo]:
        return await aside(self.blocking.streams)

    async def create_stream(self, name: str, schema: str, *, event_time: str, delay_ms: int = 0, comment: str = "") -> StreamInfo:
        create = self.blocking.create_stream
        return await aside(create, name, schema, event_time=event_time, delay_ms=delay_ms, comment=comment)

    async def attach(self, stream: str, connector: str = "", *, file: str | Path | None = None, **options: Any) -> StreamInfo:
        return await aside(self.blocking.attach, stream, connector, file=file, **options)

    async def push(self, stream: str, rows: Iterable[Mapping[str, Any]], *, source: str = "", key: str = "") -> Pushed:
        return await aside(self.blocking.push, stream, rows, source=source, key=key)

    async def sql(self, text: str, *, to: SinkSpec | None = None, **wishes: Any) -> AsyncQuery:
        return AsyncQuery(await aside(self.blocking.sql, text, to=to, **wishes))

    async def query(self, query_id: str) -> AsyncQuery:
        return AsyncQuery(await aside(self.blocking.query, query_id))

    async def queries(self) -> QueryList:
        return await aside(self.blocking.queries)

    async def explain(self, text: str, **wishes: Any) -> Explanation:
        return await aside(self.blocking.explain, text, **wishes)

    async def explain_placement(self, text: str, **wishes: Any) -> PlacementExplanation:
        return await aside(self.blocking.explain_placement, text, **wishes)


class AsyncQuery:
    """See :class:`sbon_cli.connection.Query`, which ``blocking`` is."""

    def __init__(self, blocking: Query) -> None:
        self.blocking = blocking

    @property
    def id(self) -> str:
        return self.blocking.id

    @property
    def schema(self) -> pa.Schema:
        return self.blocking.schema

    def __aiter__(self) -> AsyncIterator[Row]:
        return self._rows()

    async def tables(self) -> AsyncIterator[pa.Table]:
        """A table for each frame. Whoever leaves off while none has come lets the thread go that waits for it, which takes some
        seconds."""
        over = threading.Event()
        frames = self.blocking.tables(lambda: not over.is_set())
        one_at_a_time = threading.Lock()

        def step() -> pa.Table | None:
            with one_at_a_time:
                return next(frames, None)

        def close() -> None:
            with one_at_a_time:
                frames.close()

        try:
            while (table := await aside(step)) is not None:
                yield table
        finally:
            over.set()
            asyncio.get_running_loop().run_in_executor(None, close)

    async def _rows(self) -> AsyncIterator[Row]:
        async for table in self.tables():
            for row in table.to_pylist():
                yield row

    async def info(self) -> QueryInfo:
        return await aside(self.blocking.info)

    async def to_arrow(self) -> pa.Table:
        return await aside(self.blocking.to_arrow)

    async def to_pandas(self) -> Any:
        return await aside(self.blocking.to_pandas)

    async def wait(self) -> QueryInfo:
        return await aside(self.blocking.wait)

    async def stop(self) -> QueryInfo:
        return await aside(self.blocking.stop)

    async def bill(self) -> Bill:
        return await aside(self.blocking.bill)

    async def explain(self) -> Explanation:
        return await aside(self.blocking.explain)

    async def explain_placement(self) -> PlacementExplanation:
        return await aside(self.blocking.explain_placement)
