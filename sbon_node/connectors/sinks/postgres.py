"""Sink ``postgres``: writes each row exactly once, since one transaction stores rows and position.

The position is a row of the table ``sbon_positions`` beside the result, identified by the sink's claim. A transaction changes it
from the last known position to the next, or does nothing: after a lost reply the position shows whether the commit happened. Its
epoch is that of the sink: a node that takes the sink over writes its own there, after which the former node changes nothing. The
sink isolates rows that the table refuses (a value out of range, a constraint) by halving, and writes them to the dead letters.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import structlog

from sbon_node.connectors.sinks.buffered import BufferedSink
from sbon_node.connectors.sinks.context import SinkContext
from sbon_node.connectors.sinks.delivery_position import DeliveryPosition, Refused
from sbon_node.connectors.sinks.postgres_database import Database, PostgresPosition
from sbon_node.connectors.sinks.postgres_options import PostgresOptions, check_postgres
from sbon_node.connectors.sinks.postgres_table import check_schema, read_name
from sbon_node.errors import SbonError

log = structlog.get_logger()

MAX_BUFFERED_BYTES = 8 * 1024 * 1024
FLUSH_S = 0.1


class PostgresSink(BufferedSink):
    """See :class:`sbon_node.connectors.interface.Sink`."""

    flush_after_s = FLUSH_S
    max_buffered_bytes = MAX_BUFFERED_BYTES

    def __init__(self, context: SinkContext, database: Database, stored: PostgresPosition) -> None:
        super().__init__(context, stored)
        self._database = database
        self._tried: DeliveryPosition | None = None

    async def close(self) -> None:
        await super().close()
        self._database.close()

    async def _deliver(self, *, finished: bool) -> None:
        async with self._database.named_errors():
            connection = await self._database.connected()
            await self._settle(connection)
            async with self._database.transaction(connection):
                refused = await self._copy(connection)
                self._context.failpoint("sink-write")
                await self._write_letters(refused)
                buffer = self._buffer
                rows = buffer.rows - len(refused)
                tried = self._tried = self._advanced(buffer.taken, buffer.ended, rows, refused=len(refused), finished=finished)
                if not await self._database.advance(connection, self._context.claim, self._at, tried):
                    raise self._changed(await self._database.stored(connection, self._context.claim))
            self._delivered(tried)
        self._context.failpoint("position-write")

    async def _settle(self, connection: Any) -> None:
        """Ask the server whether a commit without a reply happened. Waits for a commit that is still in progress."""
        tried = self._tried
        if tried is None:
            return
        stored = await self._database.stored(connection, self._context.claim)
        if stored is None or stored not in (tried, self._at):
            raise self._changed(stored)
        if stored == tried:
            self._delivered(stored)
        self._tried = None

    def _changed(self, stored: PostgresPosition | None) -> SbonError:
        """Return the reason for which the position is not the one that this sink has stored."""
        if stored is None:
            return _lost(self._database, "is missing")
        if stored.epoch > self._context.epoch:
            reason = f"epoch {self._context.epoch} of the sink is over, epoch {stored.epoch} delivers"
            return SbonError("fenced", reason, where=str(self._database))
        return _lost(self._database, "was changed by another process")

    def _delivered(self, position: DeliveryPosition) -> None:
        """Drop the frames up to ``position``; keep the later ones."""
        self._at, self._tried = position, None
        upto = position.streams
        self._buffer.drop(sum(frame.number <= upto.get(frame.stream, 0) for frame in self._buffer.frames))

    async def _copy(self, connection: Any) -> list[Refused]:
        """Copy the held rows; return the rows that the table refuses."""
        if not self._buffer.frames:
            return []
        rows = pa.concat_tables([frame.rows for frame in self._buffer.frames])
        refused = []
        spans = [(0, rows.num_rows)]
        while spans:
            start, count = spans.pop()
            reason = await self._database.copy(connection, rows.slice(start, count))
            if not reason:
                continue
            if count == 1:
                refused.append(self._refused(start, reason))
            else:
                half = count // 2
                spans += [(start + half, count - half), (start, half)]
        return refused

    def _refused(self, row: int, reason: str) -> Refused:
        for frame in self._buffer.frames:
            if row < frame.rows.num_rows:
                return Refused(frame.stream, frame.number, row, frame.rows, reason)
            row -= frame.rows.num_rows
        raise IndexError(row)


async def open_postgres(context: SinkContext, options: PostgresOptions) -> PostgresSink:
    """Open the sink. Raises ``bad-table`` if the table cannot hold the rows, ``sink-lost``, ``endpoint-unreachable``."""
    check_schema(context.schema)
    database = _database(context, options)
    try:
        async with database.named_errors():
            connection = await database.connected()
            if context.fresh:
                stored = await database.make(connection, context.claim, context.schema)
            else:
                taken_up = await database.take_up(connection, context.claim, context.epoch)
                if taken_up is None:
                    raise _lost(database, "is missing")
                stored = taken_up
    except SbonError as error:
        database.close()
        if context.fresh and error.code == "sink-lost":
            raise SbonError(
                "bad-table", error.message, where="options.table", hint="let the user make and write tables"
            ) from error
        raise
    except BaseException:
        database.close()
        raise
    return PostgresSink(context, database, stored)


async def reach_postgres(context: SinkContext, options: PostgresOptions) -> None:
    """Raise ``endpoint-unreachable`` unless the database answers here, and ``sink-lost`` unless it has the sink's position."""
    database = _database(context, options)
    try:
        async with database.named_errors():
            if not await database.has_position(await database.connected(), context.claim):
                raise _lost(database, "is missing")
    finally:
        database.close()


async def withdraw_postgres(context: SinkContext, options: PostgresOptions, delivered: bool) -> None:
    """Remove the position, and the table if this sink made it and no rows must stay.

    If the server is away, both stay: nothing waits for it.
    """
    database = _database(context, options)
    try:
        async with database.named_errors():
            await database.withdraw(await database.connected(), context.claim, delivered=delivered)
    except SbonError as error:
        log.warning("sink-not-withdrawn", sink=context.component, reason=str(error))
    finally:
        database.close()


def _database(context: SinkContext, options: PostgresOptions) -> Database:
    settings = context.settings
    return Database(check_postgres(options, settings), read_name(options.table), options.timeout_s, settings)


def _lost(database: Database, why: str) -> SbonError:
    return SbonError("sink-lost", f"the delivery position {why}", where=str(database), hint="submit the query again")
