"""An overlay from Python on asyncio: streams, queries and their rows, asked of one of its nodes.

    async with connect_async("http://127.0.0.1:7480") as overlay:
        async with await overlay.sql("SELECT symbol, price FROM trades WHERE price > 100") as query:
            async for row in query:
                print(row["symbol"])

A task that is cancelled leaves its socket at once, and no thread is used. :mod:`.connection` has the same calls, blocking.
Everything raises :class:`SbonError`: the node's refusal with its code, or ``node-unreachable``.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import AsyncGenerator, Generator, Iterable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
import pyarrow as pa

from sbon_protocol.api.queries import SinkBegin
from sbon_protocol.errors import SbonError

from . import endpoints, model, states, submitting
from .follower import Follower
from .http import is_late
from .pushed_rows import Tabular, table_of
from .requests import ANSWER_S, DEFAULT_API, FROZEN_AFTER_S, Transport, check_positive, not_moved
from .schema import Tables
from .states import LIVE

PAUSE_S = 0.2
"""Seconds between two looks at a query while waiting for it."""
Row = dict[str, Any]
"""Values by column: ``timestamp`` is an aware ``datetime``, ``decimal`` a ``Decimal``, ``binary`` ``bytes``, NULL ``None``."""

_ADVICE = re.compile(r" \(sbon submit --on-error [^()]*\)\Z")
"""The node's advice for the command line, at the end of a reason."""
_BAD_ROWS = re.compile(r"SQLSTATE: 22")
"""Data exceptions (ISO 9075), in a reason that was cut off before the advice."""
_CONTINUE = 'submit it with on_error="skip", or "null", which continues after such rows'
_LOOK = "info() of the query has the state of each operator"

SQL_SHOWN = 60
"""Number of SQL characters in a representation."""


def connect_async(api: str = DEFAULT_API, *, silent_s: float = FROZEN_AFTER_S) -> Connecting:
    """``async with connect_async() as overlay`` or ``overlay = await connect_async()``, as :func:`.connection.connect`."""
    return Connecting(api, silent_s)


class Connecting:
    """A connection before its start: await it, or enter it."""

    def __init__(self, api: str, silent_s: float) -> None:
        self._api, self._silent_s = api, silent_s
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
        from .async_http import AsyncHttp  # asyncio is for those who use it

        return await connected(AsyncHttp(self._api, self._silent_s))


async def connected(node: Transport) -> AsyncConnection:
    """Return a connection to a node that answers; raise ``node-unreachable``."""
    connection = AsyncConnection(node)
    try:
        await connection.status()
    except BaseException:
        await connection.close()
        raise
    return connection


class AsyncConnection:
    """A connection to one node. Queries continue when it is closed."""

    def __init__(self, node: Transport) -> None:
        self._node = node
        self._columns: dict[str, tuple[str, ...]] = {}
        """Columns of the streams to which tables were pushed, as they were when this was last asked."""

    def __repr__(self) -> str:
        return f"<AsyncConnection to {self._node.api}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        await self._node.close()

    async def status(self) -> model.NodeStatus:
        return await self._node.ask(endpoints.status())

    async def members(self) -> model.Listing[model.MemberInfo]:
        return model.Listing(await self._node.ask(endpoints.members()))

    async def streams(self) -> model.Listing[model.StreamInfo]:
        return model.Listing(await self._node.ask(endpoints.streams()))

    async def stream(self, name: str) -> model.StreamInfo:
        return await self._node.ask(endpoints.stream(name))

    async def create_stream(
        self, name: str, schema: str = "", *, event_time: str = "", delay_ms: int = 0, comment: str = "", as_: str = ""
    ) -> model.StreamInfo:
        """Declare a stream, or make it the result of a query.

        ``schema`` is as in SQL: ``"ts timestamp, price double"``; rows may come ``delay_ms`` behind the newest. ``as_`` is a
        query that is submitted, and whose result the stream is; :meth:`sql` takes more options of it, with the sink
        ``SinkSpec(kind="stream", options={"stream": name})``.
        """
        if as_:
            endpoints.check_result(schema, event_time, delay_ms, comment)
            await self._submitted(endpoints.result_of(name, as_))
            return await self.stream(name)
        return await self._node.ask(endpoints.create_stream(endpoints.declared(name, schema, event_time, delay_ms, comment)))

    async def create_view(self, name: str, sql: str, *, comment: str = "", replace: bool = False) -> model.StreamInfo:
        """Create a view, a name for a query, which is read in its place when a query that names it is submitted.

        With ``replace``, it takes the place of a view of that name, which stays if this one is refused.
        """
        return await self._node.ask(
            endpoints.create_view(model.ViewDeclaration(name=name, sql=sql, comment=comment, replace=replace))
        )

    async def drop_stream(self, name: str) -> None:
        """Drop a stream with its sources and their stored rows; rejected while a query reads it."""
        await self._node.ask(endpoints.drop_stream(name))

    async def attach(
        self,
        /,
        stream: str,
        connector: str = "",
        *,
        file: str | Path | None = None,
        node: str = "",
        name: str = "",
        rows_s: float | None = None,
        **options: Any,
    ) -> model.StreamInfo:
        """Attach a source at ``node``, by default the connected node, with the connector's options (docs/connectors.md).

        ``file`` is short for the connector ``file`` and its ``path``.
        """
        at = node or (await self.status()).name
        source = endpoints.source_at(at, stream, connector, file=file, name=name, rows_s=rows_s, options=options)
        return await self._node.ask(endpoints.attach(source))

    async def detach(self, stream: str, source: str = "") -> model.StreamInfo:
        """Detach a source by name, by default the connected node's; rejected while a query reads the stream."""
        return await self._node.ask(endpoints.detach(stream, source or (await self.status()).name))

    async def push(
        self, stream: str, rows: Iterable[Mapping[str, Any]] | Tabular, *, source: str = "", key: str = ""
    ) -> model.Pushed:
        """Post rows to the stream's ``http`` source at this node; they are durable when it returns.

        The rows are dicts, or a table: a pandas or Polars DataFrame, or an Arrow table. A table without any column of the stream
        is refused with ``missing-columns``. Only one of several posts with the same ``key`` counts.
        """
        table = table_of(rows)
        if table is not None:
            await self._check_columns(stream, table.column_names)
        return await self._node.ask(endpoints.push_rows(stream, rows if table is None else table, source, key))

    async def _check_columns(self, stream: str, names: Sequence[str]) -> None:
        if not names or not set(names).isdisjoint(self._columns.get(stream, ())):
            return
        schema = (await self.stream(stream)).entry.declaration.schema
        known = self._columns[stream] = tuple(column.name for column in schema)
        if set(names).isdisjoint(known):
            hint = f"its columns: {', '.join(known)[:500]}; those of the rows: {', '.join(names)[:500]}"
            raise SbonError("missing-columns", f"the rows have no column of {stream}", where="rows", hint=hint)

    async def sql(self, /, text: str, *, to: model.SinkSpec | None = None, **options: Any) -> AsyncQuery:
        """Submit a query and wait until it runs.

        ``options`` are the fields of a ``Submission`` (docs/api.md): ``name``, ``strategy``, ``objective``, ``max_delay_ms``,
        ``min_throughput_bytes_s``, ``consumer`` and so on; with ``to`` its rows go to a sink.
        """
        return await self._submitted(endpoints.submission_of(text, to, options))

    async def _submitted(self, submission: model.Submission | Mapping[str, Any]) -> AsyncQuery:
        return AsyncQuery(self._node, await submitting.submitted(self._node, submission))

    async def query(self, query_id: str) -> AsyncQuery:
        return AsyncQuery(self._node, await self._node.ask(endpoints.query(query_id)))

    async def queries(self) -> model.QueryList:
        """Return all queries; ``unanswered`` of the list names the members that may hold more."""
        return endpoints.query_list(*await self._node.answer(endpoints.queries()))

    async def explain(self, /, text: str, **options: Any) -> model.Explanation:
        return await self._node.ask(endpoints.explain({"sql": text, **options}))

    async def explain_placement(self, /, text: str, **options: Any) -> model.PlacementExplanation:
        return await self._node.ask(endpoints.explain_placement({"sql": text, **options}))

    async def request(self, method: str, path: str, body: Any = None) -> Any:
        """Send any other request of docs/api.md with a JSON answer: ``request("POST", "/v1/doctor")``."""
        return await self._node.ask(endpoints.anything(method, path, body))


class AsyncQuery:
    """A query that runs or has ended. Its rows can be taken once, by any of its methods; then these raise ``rows-taken``.

    Asking for the next frame acknowledges the previous frame, so that unfinished rows come again after a crash. As a context
    manager it stops the query at the end of the block, unless the query is over.
    """

    def __init__(self, node: Transport, info: model.QueryInfo) -> None:
        self._node = node
        self._heard(info)
        self._follower = Follower(node, self.id)
        self._collected: list[pa.Table] = []
        """Rows that no call has handed out, and that the node does not send again: of an interrupted call, or beyond ``rows``."""
        self._is_taken = False

    def __repr__(self) -> str:
        return shown(self._info, time.monotonic() - self._known_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._info.state in LIVE:
            await self.stop()

    @property
    def id(self) -> str:
        return self._info.id

    @property
    def state(self) -> str:
        """The last known state: ``running``, ``finished``, ``stopped``, ``failed``. :meth:`info` asks again."""
        return self._info.state

    @property
    def schema(self) -> pa.Schema:
        """The schema of its rows."""
        return tables_of(self._info).schema

    async def info(self) -> model.QueryInfo:
        """Return the query's present record."""
        return self._heard(await self._node.ask(endpoints.query(self.id)))

    async def __aiter__(self) -> AsyncGenerator[Row, None]:
        async with aclosing(self.tables()) as tables:
            async for table in tables:
                for row in table.to_pylist():
                    yield row

    async def tables(self) -> AsyncGenerator[pa.Table, None]:
        """Yield a table for each frame as it arrives, until the query is over; raise ``query-failed`` if it fails.

        Close the generator to stop reading: the query continues, and waits for its next follower.
        """
        while self._collected:
            yield (kept := self._collected[0])
            self._collected = [table for table in self._collected if table is not kept]
        async with aclosing(self._arriving()) as arriving:
            async for table in arriving:
                yield table

    async def to_arrow(self, *, rows: int | None = None) -> pa.Table:
        """Return all rows, once the query is over; or the next ``rows`` as soon as they are there, or fewer if it ends before.

        Raises ``query-not-over`` where all rows are asked for of a running query that has a source without an end.

        Rows that an interrupted call has acknowledged, or that have come beyond ``rows``, are the first of the next call.
        """
        if rows is not None:
            check_positive(rows, "rows", whole=True)
        elif self.state in LIVE and endless_of(await self.info()):
            hint = "take the next ones with rows=1000, or each as it arrives: for row in query, or query.tables()"
            raise not_over(self._info, "never has all of its rows", hint)
        missing = math.inf if rows is None else rows - sum(table.num_rows for table in self._collected)
        async with aclosing(self._arriving(missing)) as arriving:
            async for table in arriving:
                self._collected.append(table)
        table = pa.concat_tables([tables_of(await self._planned()).empty(), *self._collected])
        rest = table.slice(table.num_rows if rows is None else rows)
        self._collected = [rest] if rest.num_rows else []
        return table.slice(0, rows)

    async def to_pandas(self, *, rows: int | None = None) -> Any:
        """Return rows as :meth:`to_arrow` does, as a data frame; needs the package pandas."""
        return (await self.to_arrow(rows=rows)).to_pandas()

    async def _arriving(self, missing: float = math.inf) -> AsyncGenerator[pa.Table, None]:
        """Yield tables as they arrive, until the query is over, or so many rows have come and are acknowledged."""
        if missing <= 0:
            return
        if self._is_taken:
            hint = "keep the table, or submit the query again"
            raise SbonError("rows-taken", "the rows of this query have been taken", where=self.id, hint=hint)
        tables = tables_of(await self._planned())
        async with aclosing(self._follower.frames()) as frames:
            async for frame, written in frames:
                if frame.rows:
                    yield tables.of(frame)
                written()
                missing -= len(frame.rows)
                if missing <= 0:
                    return
        end = self._follower.end
        assert end is not None
        # The number of its rows has to be asked for again.
        ended_well(self._heard(msgspec.structs.replace(self._info, state=end.state, reason=end.reason, rows=None)))
        self._is_taken = self._follower.rows > 0

    async def wait(self, timeout_s: float | None = None) -> model.QueryInfo:
        """Wait until the query is over, for queries whose rows go to a sink; raise ``query-failed``.

        Raises ``query-not-over`` after ``timeout_s`` seconds, by default never; the query goes on.
        """
        if timeout_s is not None:
            check_positive(timeout_s, "timeout_s")
        until_s = time.monotonic() + (math.inf if timeout_s is None else timeout_s)
        while (info := await self._info_by(until_s)).state in LIVE:
            if (left_s := until_s - time.monotonic()) <= 0:
                raise not_over(info, f"is {info.state} after {timeout_s:g} s", "wait again, or end it with its stop()")
            await self._node.sleep(min(left_s, PAUSE_S))
        return ended_well(info)

    async def _info_by(self, until_s: float) -> model.QueryInfo:
        """Return the query's present record, or the last known one if the node does not answer by then."""
        within_s = min(ANSWER_S, max(PAUSE_S, until_s - time.monotonic()))
        try:
            return self._heard(await self._node.ask(endpoints.query(self.id)._replace(within_s=within_s)))
        except SbonError as error:
            if within_s == ANSWER_S or not is_late(error):
                raise
            return self._info

    async def stop(self) -> model.QueryInfo:
        return self._heard(await self._node.ask(endpoints.stop(self.id)))

    async def move(self, operator: str, to: str, *, how: str = "follow") -> model.Moved:
        """Move an operator to the node ``to`` with its state, while the query runs; if it fails, it goes on where it was.

        Args:
            operator: Its id, or the part after the query's.
            to: Name of the node.
            how: ``follow`` has ``to`` follow the operator until it is level; ``stop`` stops the operator while its state is
                copied, which takes no more of the engines than before but pauses the query for as long.
        """
        async with aclosing(self._node.events(endpoints.move(self.id, operator, to, how))) as events:
            async for event in events:
                if isinstance(event, model.Moved):
                    return event
        raise not_moved(self._node.api, operator)

    async def cancel_move(self, operator: str) -> model.MoveCancelled:
        """Give up the move of an operator, which goes on where it is; raise ``move-committed`` where that is too late."""
        return await self._node.ask(endpoints.cancel_move(self.id, operator))

    async def add_sink(self, to: model.SinkSpec, *, consumer: str = "", begin: SinkBegin = "") -> model.SinkInfo:
        """Add a sink, which begins with the ``earliest`` row or ``now``; by default with the earliest if no row is gone."""
        return await self._node.ask(endpoints.add_sink(self.id, model.SinkRequest(sink=to, consumer=consumer, begin=begin)))

    async def remove_sink(self, sink: str) -> model.SinkInfo:
        """Remove a sink that was added; what it has delivered stays."""
        return await self._node.ask(endpoints.remove_sink(self.id, sink))

    async def query_usage(self) -> model.QueryUsage:
        return await self._node.ask(endpoints.query_usage(self.id))

    async def explain(self) -> model.Explanation:
        """Explain the running query, with its measurements."""
        return await self._node.ask(endpoints.explain_query(self.id))

    async def explain_placement(self) -> model.PlacementExplanation:
        return await self._node.ask(endpoints.explain_query_placement(self.id))

    async def _planned(self) -> model.QueryInfo:
        return self._info if self._info.plan is not None else await self.info()

    def _heard(self, info: model.QueryInfo) -> model.QueryInfo:
        self._info, self._known_s = info, time.monotonic()
        return info


def shown(info: model.QueryInfo, age_s: float) -> str:
    """Return ``<AsyncQuery errors running, 1,204 rows at paris, 3 s ago: SELECT host FROM access>``."""
    reason = f" ({info.reason})" if info.reason else ""
    rows = "" if info.rows is None else f", {info.rows:,} row{'' if info.rows == 1 else 's'}"
    at = f" at {info.consumer}" if info.consumer else ""
    sql = " ".join(info.sql.split())
    sql = sql if len(sql) <= SQL_SHOWN else sql[: SQL_SHOWN - 1] + "…"
    return f"<AsyncQuery {info.id} {info.state}{reason}{rows}{at}, {age_s:.0f} s ago: {sql}>"


def tables_of(info: model.QueryInfo) -> Tables:
    """Return the converter of the query's frames; raise :class:`SbonError` ``no-plan``."""
    if info.plan is None:
        raise SbonError("no-plan", "the query has not been planned", where=info.id)
    return Tables(info.plan.schema)


def endless_of(info: model.QueryInfo) -> str:
    """Return the names of a query's sources without an end, as a message lists them; empty once it is over."""
    return ", ".join(info.progress.endless) if info.state in LIVE and info.progress is not None else ""


def not_over(info: model.QueryInfo, why: str, hint: str) -> SbonError:
    """Return ``query-not-over``; ``why`` continues "the query", and the query's sources without an end follow."""
    sources = endless_of(info)
    return SbonError("query-not-over", f"the query {why}{sources and f'; no end: {sources}'}", where=info.id, hint=hint)


def ended_well(info: model.QueryInfo) -> model.QueryInfo:
    """Return the record; raise ``query-failed`` if the query failed."""
    if info.state == states.FAILED:
        advice = _ADVICE.search(info.reason)
        bad_rows = advice is not None or _BAD_ROWS.search(info.reason) is not None
        message = info.reason[: advice.start()] if advice else info.reason
        raise SbonError("query-failed", message, where=info.id, hint=_CONTINUE if bad_rows else _LOOK)
    return info
