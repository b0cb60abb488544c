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
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
import pyarrow as pa

from sbon_cli.client import DEFAULT_API, Client
from sbon_cli.follow import Follower, consumer_client
from sbon_cli.tables import Tables
from sbon_node.connectors.delivered import Finished
from sbon_node.connectors.push import Pushed
from sbon_node.control.explaining.placement_explanation import PlacementExplanation
from sbon_node.control.explaining.plan_explanation import Explanation
from sbon_node.control.query_list import QueryList
from sbon_node.control.report import LIVE, Bill, MemberInfo, QueryInfo, Question, SinkSpec, StreamInfo, Submission
from sbon_node.errors import SbonError
from sbon_node.plain_words import in_plain_words
from sbon_node.query.catalog import SourceDeclaration, StreamDeclaration
from sbon_node.query.schema import parse_schema

Row = dict[str, Any]
"""By column: ``timestamp`` as an aware ``datetime``, ``decimal`` as ``Decimal``, ``binary`` as ``bytes``, NULL as ``None``."""

PAUSE_S = 0.2


def connect(api: str = DEFAULT_API) -> Connection:
    """To the node whose HTTP API is at ``api``; raises ``node-unreachable``."""
    client = Client(api)
    client.status()
    return Connection(client)


class Connection:
    """``client`` knows all that the API answers; these are the things that are done daily. Nothing is kept open between calls."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Queries go on: :meth:`Query.stop` ends one."""

    def members(self) -> list[MemberInfo]:
        return self.client.members()

    def streams(self) -> list[StreamInfo]:
        return self.client.streams()

    def create_stream(self, name: str, schema: str, *, event_time: str, delay_ms: int = 0, comment: str = "") -> StreamInfo:
        """``schema`` as in SQL: ``"ts timestamp, price double"``; rows may come ``delay_ms`` behind the newest."""
        fields = {
            "name": name,
            "schema": parse_schema(schema),
            "event_time": event_time,
            "delay_ms": delay_ms,
            "comment": comment,
        }
        return self.client.create_stream(_checked(fields, StreamDeclaration))

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
        """A source at ``node``, by default the one connected to, with the connector's options (docs/connectors.md); ``file`` is
        short for the connector ``file`` and its ``path``."""
        at = node or self.client.status().name
        if file is not None:
            connector, options = connector or "file", {"path": str(Path(file).absolute()), **options}
        fields = {"stream": stream, "name": name or at, "node": at, "connector": connector, "options": options}
        return self.client.attach_source(_checked(fields if rows_s is None else {**fields, "rows_s": rows_s}, SourceDeclaration))

    def push(self, stream: str, rows: Iterable[Mapping[str, Any]], *, source: str = "", key: str = "") -> Pushed:
        """Posts rows to the stream's ``http`` source at this node; they are durable when it returns. Of posts with the same
        ``key`` one counts."""
        body = b"".join(msgspec.json.encode(row) + b"\n" for row in rows)
        return self.client.push(stream, body, "application/x-ndjson", source=source, key=key)

    def sql(self, text: str, *, to: SinkSpec | None = None, **wishes: Any) -> Query:
        """Submits a query and waits until it runs. ``wishes`` are the fields of :class:`Submission`: ``name``, ``strategy``,
        ``objective``, ``max_delay_ms``, ``min_throughput_bytes_s``, ``consumer`` and so on; with ``to`` its rows go to a sink."""
        asked = {"sql": text, **wishes} if to is None else {"sql": text, "sink": to, **wishes}
        return Query(self.client, self.client.submitted(_checked(asked, Submission)))

    def query(self, query_id: str) -> Query:
        return Query(self.client, self.client.query(query_id))

    def queries(self) -> QueryList:
        """A list that says in ``unanswered`` which members may hold more."""
        return self.client.queries()

    def explain(self, text: str, **wishes: Any) -> Explanation:
        return self.client.explain(_checked({"sql": text, **wishes}, Question))

    def explain_placement(self, text: str, **wishes: Any) -> PlacementExplanation:
        return self.client.explain_placement(_checked({"sql": text, **wishes}, Question))


class Query:
    """A query that runs, or ran. Its rows can be taken once, in any one of the ways; each frame is acknowledged when the next one
    is asked for, so that rows that were being worked on come again after a crash."""

    def __init__(self, client: Client, info: QueryInfo) -> None:
        self._client, self._info = client, info

    @property
    def id(self) -> str:
        return self._info.id

    @property
    def schema(self) -> pa.Schema:
        """Of its rows."""
        return self._tables().schema

    def info(self) -> QueryInfo:
        """As it is now."""
        self._info = self._client.query(self.id)
        return self._info

    def __iter__(self) -> Iterator[Row]:
        for table in self.tables():
            yield from table.to_pylist()

    def tables(self, wanted: Callable[[], bool] = lambda: True) -> Generator[pa.Table, None, Finished]:
        """A table for each frame as it arrives, until the query is over; raises ``query-failed`` where it fails. To leave off,
        close it, or from another thread let ``wanted`` say so: the query goes on, and waits for its next follower."""
        tables = self._tables()
        follower = Follower(consumer_client(self._client, self._info.consumer), self.id, wanted=wanted)
        end = yield from _each(follower, tables)
        if end.state == "failed":
            raise SbonError("query-failed", end.reason, where=self.id)
        return end

    def to_arrow(self) -> pa.Table:
        """All rows, when the query is over: of finite sources, or when somebody stops it."""
        pieces = list(self.tables())
        return pa.concat_tables(pieces) if pieces else self._tables().empty()

    def to_pandas(self) -> Any:
        """As :meth:`to_arrow`, a data frame; needs the package pandas."""
        return self.to_arrow().to_pandas()

    def wait(self) -> QueryInfo:
        """Until it is over, for queries whose rows go to a sink; raises ``query-failed``."""
        while (info := self.info()).state in LIVE:
            time.sleep(PAUSE_S)
        if info.state == "failed":
            raise SbonError("query-failed", info.reason, where=self.id)
        return info

    def stop(self) -> QueryInfo:
        return self._client.stop_query(self.id)

    def bill(self) -> Bill:
        return self._client.bill(self.id)

    def explain(self) -> Explanation:
        """With what is measured."""
        return self._client.explain_query(self.id)

    def explain_placement(self) -> PlacementExplanation:
        return self._client.explain_query_placement(self.id)

    def _tables(self) -> Tables:
        plan = self._info.plan or self.info().plan
        if plan is None:
            raise SbonError("no-plan", "the query has not been planned", where=self.id)
        return Tables(plan.schema)


def _each(follower: Follower, tables: Tables) -> Generator[pa.Table, None, Finished]:
    frames = follower.frames()
    try:
        while True:
            try:
                frame, written = next(frames)
            except StopIteration as end:
                over: Finished = end.value
                return over
            if frame.rows:
                yield tables.of(frame)
            written()
    finally:
        frames.close()


def _checked(fields: dict[str, Any], kind: type[Any]) -> Any:
    """Raises :class:`SbonError` ``bad-request`` that names the field."""
    unknown = [name for name in fields if name not in kind.__struct_fields__]
    if unknown:
        known = ", ".join(kind.__struct_fields__)
        raise SbonError("bad-request", f"there is no {unknown[0]!r}", where=unknown[0], hint=f"known: {known}")
    try:
        return msgspec.convert(fields, kind, from_attributes=True)
    except msgspec.ValidationError as error:
        field, message = in_plain_words(error, kind)
        raise SbonError("bad-request", message, where=field) from error
