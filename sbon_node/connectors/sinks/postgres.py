"""Sink ``postgres``: writes each row exactly once, since one transaction stores rows and position.

The position is a row of the table ``sbon_positions`` beside the result, identified by the sink's claim. A transaction changes it
from the last known position to the next, or does nothing: after a lost reply the position shows whether the commit happened. Its
epoch is that of the sink: a node that takes the sink over writes its own there, after which the former node changes nothing. The
sink isolates rows that the table refuses (a value out of range, a constraint) by halving, and writes them to the dead letters.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import BytesIO
from typing import Any
from urllib.parse import unquote

import asyncpg
import msgspec
import pyarrow as pa
import structlog

from sbon_node.base.connecting import reason_of
from sbon_node.connectors.access.endpoints import Endpoint
from sbon_node.connectors.access.permitted import PinnedLoop, checked_addresses, is_named
from sbon_node.connectors.interface import AWAY
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sinks import postgres_options as tables
from sbon_node.connectors.sinks.buffer import BufferedSink, Refused
from sbon_node.connectors.sinks.context import SinkContext
from sbon_node.connectors.sinks.delivery_position import DeliveryPosition
from sbon_node.connectors.sinks.postgres_options import DatabaseColumn, PostgresOptions, TableName, check_postgres, ssl_mode
from sbon_protocol.api.bounded import MAX_REASON
from sbon_protocol.errors import SbonError

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
    tables.check_schema(context.schema)
    database = _database(context, options)
    try:
        async with database.named_errors():
            connection = await database.connected()
            if context.fresh:
                stored = await database.make(connection, context.claim, context.schema)
            else:
                stored = await database.take_up(connection, context.claim, context.epoch)
    except SbonError as error:
        if context.fresh and error.code == "sink-lost":
            hint = "let the user make and write tables"
            raise SbonError("bad-table", error.message, where="options.table", hint=hint) from error
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
    """Remove the position, and the table if this sink made it and no rows must stay; neither if the server is away."""
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
    return Database(check_postgres(options, settings), tables.read_name(options.table), options.timeout_s, settings)


def _lost(database: Database, why: str) -> SbonError:
    return SbonError("sink-lost", f"the delivery position {why}", where=str(database), hint="submit the query again")


# -- SQL statements of the sink ``postgres``, and the error codes for the server's failures ---------------------------

POSITIONS = "sbon_positions"
CONNECT_S = 5.0
"""Connection timeout; below a node's wait for a sink, so the submitter gets the cause."""

ROW_CLASSES = ("21", "22", "23")
"""SQLSTATE classes of refused rows (cardinality, data, integrity constraints)."""
FINAL_CLASSES = ("0A", "42")
"""SQLSTATE classes of permanent failures: the table is missing, has changed, or refuses writes."""

FIND_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, NULL) AS type, a.attgenerated <> '' OR a.attidentity = 'a' AS generated,
       a.attnotnull AND NOT a.atthasdef AND a.attidentity = '' AS needed
FROM pg_attribute a WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""


class PostgresPosition(DeliveryPosition, frozen=True, kw_only=True):
    """Delivery position in the database. ``made``: the claim made the table. ``epoch``: of the sink that may change it."""

    made: bool = False
    epoch: int = 0


class Database:
    """A connection, made on demand and again after a loss. ``str`` of it has no password."""

    def __init__(self, endpoint: Endpoint, table: TableName, timeout_s: float, settings: ConnectorSettings) -> None:
        self._endpoint, self._table, self._timeout_s, self._settings = endpoint, table, timeout_s, settings
        self._positions = TableName(table.schema, POSITIONS).quoted
        self._connection: Any = None

    def __str__(self) -> str:
        return f"{self._endpoint}/{self._table}"

    async def connected(self) -> Any:
        if self._connection is None or self._connection.is_closed():
            endpoint, settings = self._endpoint, self._settings
            addresses = await checked_addresses(endpoint.host, endpoint.port, settings)
            # Without a password asyncpg would send that of the environment or of ~/.pgpass to any server that asks.
            none = None if is_named(endpoint.host, endpoint.port, settings) else ""
            self._connection = await asyncpg.connect(
                loop=PinnedLoop(asyncio.get_running_loop(), addresses),
                host=endpoint.host,
                port=endpoint.port,
                user=endpoint.user or None,
                password=endpoint.password or none,
                database=unquote(endpoint.path.strip("/")),
                ssl=ssl_mode(endpoint, settings),
                timeout=CONNECT_S,
                command_timeout=self._timeout_s,
                statement_cache_size=0,  # a pooler between the node and the server may not keep statements
                server_settings={"application_name": "sbon", "datestyle": "ISO", "timezone": "UTC"},
            )
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    @asynccontextmanager
    async def named_errors(self) -> AsyncIterator[None]:
        """Turn errors inside into :class:`SbonError` and close the connection, which drops uncommitted work."""
        try:
            yield
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError) as error:
            self.close()
            raise self._named(error) from error
        except BaseException:
            self.close()
            raise

    @asynccontextmanager
    async def transaction(self, connection: Any) -> AsyncIterator[None]:
        """Run a transaction, which the server ends if its node falls silent: its locks would hold back other sinks.

        The limits are those of the transaction: a pooler may refuse settings of a session, and gives it to others.
        """
        limit_ms = math.ceil(self._timeout_s * 1000)
        async with connection.transaction():
            await connection.execute(
                f"SET LOCAL idle_in_transaction_session_timeout = {limit_ms}; SET LOCAL statement_timeout = {limit_ms}"
            )
            yield

    async def make(self, connection: Any, claim: str, schema: pa.Schema) -> PostgresPosition:
        """Make the table unless a fitting one exists, and the position of a new sink."""
        async with self.transaction(connection):
            # Serialised: two sinks that make the same table at once would fail each other.
            await connection.execute("SELECT pg_advisory_xact_lock(hashtext($1))", str(self._table))
            await connection.execute(
                f"CREATE TABLE IF NOT EXISTS {self._positions} "
                "(claim text PRIMARY KEY, target text NOT NULL, position text NOT NULL, changed timestamptz NOT NULL)"
            )
            columns = await self._columns(connection)
            if columns:
                tables.check_columns(self._table, schema, columns)
            else:
                await connection.execute(tables.creation(self._table, schema))
            position = PostgresPosition(made=not columns)
            insert = f"INSERT INTO {self._positions} VALUES ($1, $2, $3, now()) ON CONFLICT (claim) DO NOTHING"
            made = await connection.execute(insert, claim, str(self._table), _text(position))
            if made != "INSERT 0 1":
                raise SbonError("sink-exists", "another sink has this claim", where=str(self), hint="submit the query again")
        return position

    async def stored(self, connection: Any, claim: str) -> PostgresPosition | None:
        """Return the stored position; wait for a transaction that is changing it."""
        async with self.transaction(connection):
            return await self._locked(connection, claim)

    async def _locked(self, connection: Any, claim: str) -> PostgresPosition | None:
        stored = await connection.fetchval(f"SELECT position FROM {self._positions} WHERE claim = $1 FOR UPDATE", claim)
        return None if stored is None else msgspec.json.decode(stored, type=PostgresPosition)

    async def has_position(self, connection: Any, claim: str) -> bool:
        return bool(await connection.fetchval(f"SELECT count(*) FROM {self._positions} WHERE claim = $1", claim))

    async def take_up(self, connection: Any, claim: str, epoch: int) -> PostgresPosition:
        """Return the stored position, which from now on only the sink of ``epoch`` changes.

        Waits for a transaction that is changing it. Raises ``sink-lost`` if there is none, ``fenced`` in a later epoch.
        """
        async with self.transaction(connection):
            position = await self._locked(connection, claim)
            if position is None:
                raise _lost(self, "is missing")
            if position.epoch > epoch:
                raise SbonError("fenced", f"epoch {epoch} of the sink is over, epoch {position.epoch} delivers", where=str(self))
            taken_up = msgspec.structs.replace(position, epoch=epoch)
            update = f"UPDATE {self._positions} SET position = $2, changed = now() WHERE claim = $1"
            await connection.execute(update, claim, _text(taken_up))
        return taken_up

    async def advance(self, connection: Any, claim: str, before: DeliveryPosition, after: DeliveryPosition) -> bool:
        """Change the position from ``before`` to ``after``; return whether it was ``before``."""
        update = f"UPDATE {self._positions} SET position = $3, changed = now() WHERE claim = $1 AND position = $2"
        return bool(await connection.execute(update, claim, _text(before), _text(after)) == "UPDATE 1")

    async def copy(self, connection: Any, rows: pa.Table) -> str:
        """Copy rows; return why the server refuses their content, empty if it took them all."""
        try:
            async with connection.transaction():
                await connection.copy_to_table(
                    self._table.table,
                    schema_name=self._table.schema,
                    columns=rows.schema.names,
                    source=BytesIO(tables.copied(rows)),
                    format="csv",
                    timeout=self._timeout_s,
                )
        except asyncpg.PostgresError as error:
            if connection.is_closed() or not _is_of(error, ROW_CLASSES):
                raise
            return _reason_of(error)
        return ""

    async def withdraw(self, connection: Any, claim: str, *, delivered: bool) -> None:
        async with self.transaction(connection):
            await connection.execute("SELECT pg_advisory_xact_lock(hashtext($1))", str(self._table))
            stored = await connection.fetchval(f"DELETE FROM {self._positions} WHERE claim = $1 RETURNING position", claim)
            if stored is None:
                return
            position = msgspec.json.decode(stored, type=PostgresPosition)
            others = await connection.fetchval(f"SELECT count(*) FROM {self._positions} WHERE target = $1", str(self._table))
            if position.made and not others and (delivered or not position.rows):
                await connection.execute(f"DROP TABLE IF EXISTS {self._table.quoted}")

    async def _columns(self, connection: Any) -> list[DatabaseColumn]:
        records = await connection.fetch(FIND_COLUMNS, self._table.quoted)
        return [DatabaseColumn(record["attname"], record["type"], record["needed"], record["generated"]) for record in records]

    def _named(self, error: Exception) -> SbonError:
        if isinstance(error, asyncpg.PostgresError) and _is_of(error, FINAL_CLASSES):
            hint = "see that the table is there and may be written to"
            return SbonError("sink-lost", _reason_of(error), where=str(self), hint=hint)
        reason = _reason_of(error) or ("no answer in time" if isinstance(error, TimeoutError) else type(error).__name__)
        return SbonError(AWAY, reason, where=str(self), hint="check options.url, and that the server runs there")


def _is_of(error: asyncpg.PostgresError, classes: tuple[str, ...]) -> bool:
    return str(getattr(error, "sqlstate", "") or "").startswith(classes)


def _reason_of(error: Exception) -> str:
    return " ".join(reason_of(error).split())[:MAX_REASON]


def _text(position: DeliveryPosition) -> str:
    return msgspec.json.encode(position, order="sorted").decode()
