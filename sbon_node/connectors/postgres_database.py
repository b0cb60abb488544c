"""What the sink ``postgres`` says to its server, and what the server's failures are called."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import BytesIO
from typing import Any
from urllib.parse import unquote

import asyncpg
import msgspec
import pyarrow as pa

from sbon_node.connectors.endpoints import Endpoint
from sbon_node.connectors.interface import AWAY
from sbon_node.connectors.postgres_table import FoundColumn, TableName, check_columns, copied, creation
from sbon_node.connectors.stated import Stated
from sbon_node.errors import SbonError

POSITIONS = "sbon_positions"
CONNECT_S = 5.0
"""Less than a node waits for another to open a sink: so whoever submits is told why it cannot be."""
MAX_REASON = 300

ROW_CLASSES = ("21", "22", "23")
"""Of SQLSTATE: what the server says of a row it refuses (cardinality, data, integrity constraints)."""
FINAL_CLASSES = ("0A", "42")
"""What will be the same however often it is tried: the table is gone or another, or may not be written to."""

FIND_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, NULL) AS type, a.attgenerated <> '' OR a.attidentity = 'a' AS generated,
       a.attnotnull AND NOT a.atthasdef AND a.attidentity = '' AS needed
FROM pg_attribute a WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""


class PostgresPosition(Stated, frozen=True, kw_only=True):
    """``made``: the claim has made the table."""

    made: bool = False


class Database:
    """One connection, made when it is needed and again after it was lost. ``str`` of it has no password."""

    def __init__(self, endpoint: Endpoint, table: TableName, timeout_s: float) -> None:
        self._endpoint, self._table, self._timeout_s = endpoint, table, timeout_s
        self._positions = TableName(table.schema, POSITIONS).quoted
        self._connection: Any = None

    def __str__(self) -> str:
        return f"{self._endpoint}/{self._table}"

    async def connected(self) -> Any:
        if self._connection is None or self._connection.is_closed():
            endpoint = self._endpoint
            self._connection = await asyncpg.connect(
                host=endpoint.host,
                port=endpoint.port,
                user=endpoint.user or None,
                password=endpoint.password or None,
                database=unquote(endpoint.path.strip("/")),
                ssl=endpoint.query.get("sslmode", "prefer"),
                timeout=CONNECT_S,
                command_timeout=self._timeout_s,
                statement_cache_size=0,  # a pooler between us and the server may keep no statements
                server_settings={"application_name": "sbon", "datestyle": "ISO", "timezone": "UTC"},
            )
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    @asynccontextmanager
    async def named_errors(self) -> AsyncIterator[None]:
        """Whatever fails inside ends the connection, and with it what was not committed; raises :class:`SbonError`."""
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

    async def make(self, connection: Any, claim: str, schema: pa.Schema) -> PostgresPosition:
        """The table, unless it is there and fits, and the position of a sink that has delivered nothing."""
        async with connection.transaction():
            # One after another, or two that make the same table at once would fail each other.
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
            await connection.execute(
                f"INSERT INTO {self._positions} VALUES ($1, $2, $3, now())", claim, str(self._table), _text(position)
            )
        return position

    async def stored(self, connection: Any, claim: str) -> PostgresPosition | None:
        """Waits for a transaction that is changing it."""
        async with connection.transaction():
            found = await connection.fetchval(f"SELECT position FROM {self._positions} WHERE claim = $1 FOR UPDATE", claim)
        return None if found is None else msgspec.json.decode(found, type=PostgresPosition)

    async def advance(self, connection: Any, claim: str, before: Stated, after: Stated) -> bool:
        """Whether it stood at ``before``."""
        done = await connection.execute(
            f"UPDATE {self._positions} SET position = $3, changed = now() WHERE claim = $1 AND position = $2",
            claim,
            _text(before),
            _text(after),
        )
        return bool(done == "UPDATE 1")

    async def copy(self, connection: Any, rows: pa.Table) -> str:
        """Why the server refuses these rows, for what is in them; empty where it took them all."""
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
            return _said(error)
        return ""

    async def withdraw(self, connection: Any, claim: str, *, delivered: bool) -> None:
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock(hashtext($1))", str(self._table))
            found = await connection.fetchval(f"DELETE FROM {self._positions} WHERE claim = $1 RETURNING position", claim)
            if found is None:
                return
            position = msgspec.json.decode(found, type=PostgresPosition)
            others = await connection.fetchval(f"SELECT count(*) FROM {self._positions} WHERE target = $1", str(self._table))
            if position.made and not others and (delivered or not position.rows):
                await connection.execute(f"DROP TABLE IF EXISTS {self._table.quoted}")

    async def _columns(self, connection: Any) -> list[FoundColumn]:
        found = await connection.fetch(FIND_COLUMNS, self._table.quoted)
        return [FoundColumn(one["attname"], one["type"], one["needed"], one["generated"]) for one in found]

    def _named(self, error: Exception) -> SbonError:
        if isinstance(error, asyncpg.PostgresError) and _is_of(error, FINAL_CLASSES):
            return SbonError("sink-lost", _said(error), where=str(self), hint="see that the table is there and may be written to")
        reason = _said(error) or ("no answer in time" if isinstance(error, TimeoutError) else type(error).__name__)
        return SbonError(AWAY, reason, where=str(self))


def _is_of(error: asyncpg.PostgresError, classes: tuple[str, ...]) -> bool:
    return str(getattr(error, "sqlstate", "") or "").startswith(classes)


def _said(error: Exception) -> str:
    return " ".join(str(error).split())[:MAX_REASON]


def _text(position: Stated) -> str:
    return msgspec.json.encode(position, order="sorted").decode()
