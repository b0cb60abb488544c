"""Source ``query``: the result of a query, which the query's own sink hands over at the same node.

The sink ``stream`` (:mod:`sbon_node.connectors.sinks.stream`) attaches it. Rows and the sink's position are stored in one
transaction, so each row is in the stream once.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Annotated

import msgspec
import pyarrow as pa
from msgspec import Meta

from sbon_node.connectors.interface import AWAY, Chunk, Receipt
from sbon_node.connectors.sinks.delivery_position import DeliveryPosition
from sbon_node.model.frames import NO_WATERMARK_MS
from sbon_protocol.api.catalogue import CatalogEntry, SourceDeclaration
from sbon_protocol.api.query_ids import name_of
from sbon_protocol.errors import SbonError

QUERY = "query"
"""The connector's name, and that of its source in each stream."""


def query_of(source: SourceDeclaration) -> str:
    """Return the uid of the query whose result the source is; empty if it is none's."""
    return str(source.options.get("query", "")) if source.connector == QUERY else ""


def check_not_result(entry: CatalogEntry) -> None:
    """Raise ``is-a-result`` if the stream is the result of a query, which is its only source."""
    query = next((query for one in entry.sources if (query := query_of(one))), "")
    if query:
        name = entry.declaration.name
        hint = f"sbon stream drop {name} ends the query; for more rows, let it read a UNION ALL"
        raise SbonError("is-a-result", f"{name!r} is the result of {name_of(query)}", where="stream", hint=hint)


class ResultOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the source ``query``."""

    query: Annotated[str, Meta(max_length=80)] = ""
    """uid of the query whose result the stream is"""


class ResultPosition(msgspec.Struct, frozen=True, kw_only=True):
    """How far the sink has come, and the watermark of each of its streams up to there; and why nothing follows, if so."""

    delivery: DeliveryPosition = DeliveryPosition()
    watermarks: dict[str, int] = {}
    failure: str = ""


class ResultSource:
    """See :class:`sbon_node.connectors.interface.Source`, and :class:`~sbon_node.connectors.interface.Confirmed`."""

    finite = False
    waits = False

    def __init__(self, options: ResultOptions) -> None:
        self.query = options.query
        self.at = ResultPosition()
        self.is_open = False
        self._queue: deque[tuple[Chunk, asyncio.Future[None]]] = deque()
        self._read: deque[asyncio.Future[None]] = deque()
        self._news = asyncio.Event()

    def check(self) -> None:
        """Refuse to be attached by a user."""
        hint = 'sbon stream create NAME --as "SELECT ..."'
        raise SbonError("bad-source", "only a query attaches its own result", where="connector", hint=hint)

    async def open(self, position: bytes | None) -> None:
        self.resume(position)
        self.is_open = True

    async def read(self) -> Chunk | None:
        while not self._queue:
            if self.at.failure:
                raise SbonError("query-over", self.at.failure, where=self.query)
            if self.at.delivery.finished:
                return None
            self._news.clear()
            await self._news.wait()
        chunk, answer = self._queue.popleft()
        self._read.append(answer)
        return chunk

    def stored(self, receipts: Sequence[Receipt]) -> None:
        for receipt in receipts:
            self.at = msgspec.msgpack.decode(receipt.position, type=ResultPosition)
            answer = self._read.popleft()
            if not answer.done():
                answer.set_result(None)
        self._news.set()

    async def close(self) -> None:
        self.is_open = False
        for answer in (*self._read, *(answer for _, answer in self._queue)):
            if not answer.done():
                answer.set_exception(_closed(self.query))
                answer.exception()  # marks the error as retrieved: the sink may be closed as well
        self._read.clear()
        self._queue.clear()

    def resume(self, position: bytes | None) -> None:
        """Take a stored position; one that has ended is not opened again."""
        self.at = msgspec.msgpack.decode(position, type=ResultPosition) if position else ResultPosition()

    # -- requests of its sink -----------------------------------------------------------------------------------------

    async def put(self, rows: pa.RecordBatch, watermark_ms: int, position: ResultPosition) -> None:
        """Store rows and position; return once both are durable.

        Raises :data:`~sbon_node.connectors.interface.AWAY` if the source is closed meanwhile: both may be stored, or neither.
        """
        if not self.is_open:
            raise _closed(self.query)
        await asyncio.shield(self._queued(rows, watermark_ms, position))

    def fail(self, reason: str, schema: pa.Schema) -> None:
        """End the source as failed soon, and after each restart, unless its result is whole."""
        if self.is_open and not self.at.delivery.finished:
            nothing = pa.RecordBatch.from_pylist([], schema=schema)
            self._queued(nothing, NO_WATERMARK_MS, msgspec.structs.replace(self.at, failure=reason))

    def _queued(self, rows: pa.RecordBatch, watermark_ms: int, position: ResultPosition) -> asyncio.Future[None]:
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        chunk = Chunk(rows, msgspec.msgpack.encode(position), lambda _: (0, ""), watermark_ms=watermark_ms)
        self._queue.append((chunk, answer))
        self._news.set()
        return answer


def _closed(query: str) -> SbonError:
    return SbonError(AWAY, "the stream is being opened or closed", where=query)
