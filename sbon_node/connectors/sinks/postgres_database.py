"""SQL statements of the sink ``postgres``, and the error codes for the server's failures."""

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

from sbon_node.connectors.access.endpoints import Endpoint
from sbon_node.connectors.access.permitted import is_named
from sbon_node.connectors.access.resolved import PinnedLoop, checked_addresses
from sbon_node.connectors.interface import AWAY
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sinks.delivery_position import DeliveryPosition
from sbon_node.connectors.sinks.postgres_options import ssl_mode
from sbon_node.connectors.sinks.postgres_table import DatabaseColumn, TableName, check_columns, copied, creation
from sbon_node.errors import SbonError
from sbon_node.model.bounded import MAX_REASON

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
        except SbonError:
            self.close()
            raise
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
                check_columns(self._table, schema, columns)
            else:
                await connection.execute(creation(self._table, schema))
            position = PostgresPosition(made=not columns)
            made = await connection.execute(
                f"INSERT INTO {self._positions} VALUES ($1, $2, $3, now()) ON CONFLICT (claim) DO NOTHING",
                claim,
                str(self._table),
                _text(position),
            )
            if made != "INSERT 0 1":
                raise SbonError("sink-exists", "another sink has this claim", where=str(self), hint="submit the query again")
        return position

    async def stored(self, connection: Any, claim: str) -> PostgresPosition | None:
        """Return the stored position; wait for a transaction that is changing it."""
        async with self.transaction(connection):
            position = await connection.fetchval(f"SELECT position FROM {self._positions} WHERE claim = $1 FOR UPDATE", claim)
        return None if position is None else msgspec.json.decode(position, type=PostgresPosition)

    async def has_position(self, connection: Any, claim: str) -> bool:
        return bool(await connection.fetchval(f"SELECT count(*) FROM {self._positions} WHERE claim = $1", claim))

    async def take_up(self, connection: Any, claim: str, epoch: int) -> PostgresPosition | None:
        """Return the stored position, which from now on only the sink of ``epoch`` changes; None if there is none.

        Waits for a transaction that is changing it. Raises ``fenced`` if a sink of a later epoch has it.
        """
        async with self.transaction(connection):
            stored = await connection.fetchval(f"SELECT position FROM {self._positions} WHERE claim = $1 FOR UPDATE", claim)
            if stored is None:
                return None
            position = msgspec.json.decode(stored, type=PostgresPosition)
            if position.epoch > epoch:
                raise SbonError("fenced", f"epoch {epoch} of the sink is over, epoch {position.epoch} delivers", where=str(self))
            taken_up = msgspec.structs.replace(position, epoch=epoch)
            await connection.execute(
                f"UPDATE {self._positions} SET position = $2, changed = now() WHERE claim = $1", claim, _text(taken_up)
            )
        return taken_up

    async def advance(self, connection: Any, claim: str, before: DeliveryPosition, after: DeliveryPosition) -> bool:
        """Change the position from ``before`` to ``after``; return whether it was ``before``."""
        done = await connection.execute(
            f"UPDATE {self._positions} SET position = $3, changed = now() WHERE claim = $1 AND position = $2",
            claim,
            _text(before),
            _text(after),
        )
        return bool(done == "UPDATE 1")

    async def copy(self, connection: Any, rows: pa.Table) -> str:
        """Copy rows; return why the server refuses their content, empty if it took them all."""
        try:
            async with connection.transaction():
                await connection.copy_to_table(
                    self._table.table,
                    schema_name=self._table.schema,
                    columns=rows.schema.names,
                    source=BytesIO(copied(rows)),
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
            return SbonError(
                "sink-lost", _reason_of(error), where=str(self), hint="see that the table is there and may be written to"
            )
        reason = _reason_of(error) or ("no answer in time" if isinstance(error, TimeoutError) else type(error).__name__)
        return SbonError(AWAY, reason, where=str(self), hint="check options.url, and that the server runs there")


def _is_of(error: asyncpg.PostgresError, classes: tuple[str, ...]) -> bool:
    return str(getattr(error, "sqlstate", "") or "").startswith(classes)


def _reason_of(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split())[:MAX_REASON]


def _text(position: DeliveryPosition) -> str:
    return msgspec.json.encode(position, order="sorted").decode()
