"""The same as :mod:`.connection` on asyncio. A task that is cancelled leaves its socket at once, and no thread is used.

async with connect_async("http://127.0.0.1:7480") as overlay:
    async with await overlay.sql("SELECT symbol, price FROM trades WHERE price > 100") as query:
        async for row in query:
            print(row["symbol"])
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterable, Mapping
from contextlib import aclosing
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from sbon_protocol.api.queries import SinkBegin

from . import endpoints
from .async_follower import AsyncFollower
from .async_http import AsyncHttp
from .connection import PAUSE_S
from .described import KnownQuery, Row, ended_well, tables_of
from .model import (
    Accepted,
    Explanation,
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


def connect_async(api: str = DEFAULT_API) -> Connecting:
    """``async with connect_async() as overlay`` or ``overlay = await connect_async()``; raises ``node-unreachable``."""
    return Connecting(api)


class Connecting:
    """A connection before its start: await it, or enter it."""

    def __init__(self, api: str) -> None:
        self._api = api
        self._connection: AsyncConnection | None = None

    def __await__(self) -> Generator[Any, None, AsyncConnection]:
        return self._connected().__await__()

    async def __aenter__(self) -> AsyncConnection:
        self._connection = await self._connected()
        return self._connection

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._connection is not None:
            await self._connection.close()

    async def _connected(self) -> AsyncConnection:
        connection = AsyncConnection(AsyncHttp(self._api))
        try:
            await connection.status()
        except BaseException:
            await connection.close()
            raise
        return connection


class AsyncConnection:
    """A connection; see :class:`.connection.Connection`."""

    def __init__(self, http: AsyncHttp) -> None:
        self._http = http

    def __repr__(self) -> str:
        return f"<AsyncConnection to {self._http.api}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.close()

    async def status(self) -> NodeStatus:
        return await self._http.ask(endpoints.status())

    async def members(self) -> Listing[MemberInfo]:
        members = await self._http.ask(endpoints.members())
        return Listing(members)

    async def streams(self) -> Listing[StreamInfo]:
        streams = await self._http.ask(endpoints.streams())
        return Listing(streams)

    async def stream(self, name: str) -> StreamInfo:
        return await self._http.ask(endpoints.stream(name))

    async def create_stream(
        self, name: str, schema: str = "", *, event_time: str = "", delay_ms: int = 0, comment: str = "", as_: str = ""
    ) -> StreamInfo:
        if as_:
            endpoints.check_result(schema, event_time, delay_ms, comment)
            await self._submitted(endpoints.result_of(name, as_))
            return await self.stream(name)
        return await self._http.ask(endpoints.create_stream(endpoints.declared(name, schema, event_time, delay_ms, comment)))

    async def create_view(self, name: str, sql: str, *, comment: str = "", replace: bool = False) -> StreamInfo:
        return await self._http.ask(endpoints.create_view(ViewDeclaration(name=name, sql=sql, comment=comment, replace=replace)))

    async def drop_stream(self, name: str) -> None:
        await self._http.ask(endpoints.drop_stream(name))

    async def attach(
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
        at = node or (await self.status()).name
        source = endpoints.source_at(at, stream, connector, file=file, name=name, rows_s=rows_s, options=options)
        return await self._http.ask(endpoints.attach(source))

    async def detach(self, stream: str, source: str = "") -> StreamInfo:
        return await self._http.ask(endpoints.detach(stream, source or (await self.status()).name))

    async def push(self, stream: str, rows: Iterable[Mapping[str, Any]] | Tabular, *, source: str = "", key: str = "") -> Pushed:
        return await self._http.ask(endpoints.push_rows(stream, rows, source, key))

    async def sql(self, text: str, *, to: SinkSpec | None = None, **options: Any) -> AsyncQuery:
        return await self._submitted(endpoints.submission_of(text, to, options))

    async def _submitted(self, submission: Submission | Mapping[str, Any]) -> AsyncQuery:
        async with aclosing(self._http.events(endpoints.submit(submission))) as events:
            async for event in events:
                if isinstance(event, Accepted):
                    return AsyncQuery(self._http, event.query)
        raise not_accepted(self._http.api)

    async def query(self, query_id: str) -> AsyncQuery:
        return AsyncQuery(self._http, await self._http.ask(endpoints.query(query_id)))

    async def queries(self) -> QueryList:
        return endpoints.query_list(*await self._http.answer(endpoints.queries()))

    async def explain(self, text: str, **options: Any) -> Explanation:
        return await self._http.ask(endpoints.explain({"sql": text, **options}), PLANNING_S)

    async def explain_placement(self, text: str, **options: Any) -> PlacementExplanation:
        return await self._http.ask(endpoints.explain_placement({"sql": text, **options}), PLANNING_S)

    async def request(self, method: str, path: str, body: Any = None) -> Any:
        return await self._http.ask(endpoints.anything(method, path, body))


class AsyncQuery(KnownQuery):
    """A query; see :class:`.connection.Query`."""

    def __init__(self, http: AsyncHttp, info: QueryInfo) -> None:
        super().__init__(info)
        self._http = http

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._info.state in LIVE:
            await self.stop()

    @property
    def schema(self) -> pa.Schema:
        return tables_of(self._info).schema

    def __aiter__(self) -> AsyncIterator[Row]:
        return self._rows()

    async def info(self) -> QueryInfo:
        return self._heard(await self._http.ask(endpoints.query(self.id)))

    async def tables(self) -> AsyncGenerator[pa.Table, None]:
        """Yield a table for each frame as it arrives, until the query is over; raise ``query-failed`` if it fails."""
        while self._collected:
            yield self._collected.pop(0)
        async with aclosing(self._arriving()) as arriving:
            async for table in arriving:
                yield table

    async def to_arrow(self) -> pa.Table:
        async with aclosing(self._arriving()) as arriving:
            async for table in arriving:
                self._collected.append(table)
        return self._all_collected(await self._planned())

    async def _arriving(self) -> AsyncGenerator[pa.Table, None]:
        tables = tables_of(await self._planned())
        follower = AsyncFollower(self._http, self.id)
        async with aclosing(follower.frames()) as frames:
            async for frame in frames:
                if frame.rows:
                    yield tables.of(frame)
        assert follower.end is not None
        self._over(follower.end)

    async def to_pandas(self) -> Any:
        return (await self.to_arrow()).to_pandas()

    async def wait(self) -> QueryInfo:
        while (info := await self.info()).state in LIVE:  # noqa: ASYNC110  the state is at the node
            await asyncio.sleep(PAUSE_S)
        return ended_well(info)

    async def stop(self) -> QueryInfo:
        return self._heard(await self._http.ask(endpoints.stop(self.id)))

    async def move(self, operator: str, to: str, *, how: str = "follow") -> Moved:
        async with aclosing(self._http.events(endpoints.move(self.id, operator, to, how))) as events:
            async for event in events:
                if isinstance(event, Moved):
                    return event
        raise not_moved(self._http.api, operator)

    async def cancel_move(self, operator: str) -> MoveCancelled:
        return await self._http.ask(endpoints.cancel_move(self.id, operator))

    async def add_sink(self, to: SinkSpec, *, consumer: str = "", begin: SinkBegin = "") -> SinkInfo:
        return await self._http.ask(endpoints.add_sink(self.id, SinkRequest(sink=to, consumer=consumer, begin=begin)))

    async def remove_sink(self, sink: str) -> SinkInfo:
        return await self._http.ask(endpoints.remove_sink(self.id, sink))

    async def query_usage(self) -> QueryUsage:
        return await self._http.ask(endpoints.query_usage(self.id))

    async def explain(self) -> Explanation:
        return await self._http.ask(endpoints.explain_query(self.id))

    async def explain_placement(self) -> PlacementExplanation:
        return await self._http.ask(endpoints.explain_query_placement(self.id), PLANNING_S)

    async def _rows(self) -> AsyncGenerator[Row, None]:
        async with aclosing(self.tables()) as tables:
            async for table in tables:
                for row in table.to_pylist():
                    yield row

    async def _planned(self) -> QueryInfo:
        return self._info if self._info.plan is not None else await self.info()
