"""Options of the sink ``postgres`` and the table that it writes, apart from the sink, whose library takes memory.

Names come from users and are always sent quoted. Values travel as CSV, which the server converts to the columns' types.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec
import pyarrow as pa
from msgspec import Meta

from sbon_node.connectors.access.endpoints import Endpoint, has_secret_channel, no_cleartext, read_endpoint
from sbon_node.connectors.access.permitted import is_named
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sinks import file_formats
from sbon_node.model import schema as schemas
from sbon_protocol.errors import SbonError

PORTS = {"postgres": 5432, "postgresql": 5432}
SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")


class PostgresOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the sink ``postgres``."""

    url: Annotated[str, Meta(min_length=1, max_length=4096)]
    """postgres://USER@HOST:PORT/DATABASE?sslmode=require"""
    password: Annotated[str, Meta(max_length=256)] = ""
    """of the user: env:SBON_SECRET_NAME or file:NAME, read by the node that connects"""
    table: Annotated[str, Meta(min_length=1, max_length=200)]
    """TABLE or SCHEMA.TABLE; made where there is none"""
    timeout_s: Annotated[float, Meta(gt=0, le=3600)] = 60.0
    """seconds a statement may take"""


def check_postgres(options: PostgresOptions, settings: ConnectorSettings) -> Endpoint:
    """Check the options; raise ``bad-option``, ``outside-endpoints``."""
    read_name(options.table)
    endpoint = read_endpoint(options.url, PORTS, settings, password=options.password)
    for name, value in endpoint.query.items():
        if name != "sslmode" or value not in SSL_MODES:
            message = f"{name}={value[:40]} is not known" if name == "sslmode" else f"a parameter {name[:40]!r} is not known"
            raise SbonError("bad-option", message, where="options.url", hint=f"sslmode={'|'.join(SSL_MODES)}")
    if not endpoint.path.strip("/") or "/" in endpoint.path.strip("/"):
        hint = "postgres://USER@HOST:PORT/DATABASE"
        raise SbonError("bad-option", "the URL names no database, or more", where="options.url", hint=hint)
    in_the_clear = endpoint.query.get("sslmode") in ("disable", "allow") and may_have_password(endpoint, settings)
    if in_the_clear and not has_secret_channel(endpoint.host, endpoint.port, settings):
        raise no_cleartext("options.url", "set sslmode=require, or name the host in connectors.cleartext")
    return endpoint


def may_have_password(endpoint: Endpoint, settings: ConnectorSettings) -> bool:
    """Return whether a password may be sent.

    It is the endpoint's own, or that of the environment, which goes only to hosts named in the configuration.
    """
    return bool(endpoint.password) or is_named(endpoint.host, endpoint.port, settings)


def ssl_mode(endpoint: Endpoint, settings: ConnectorSettings) -> str:
    """Return the requested TLS mode. TLS is required where a password would otherwise travel in the clear."""
    mode = endpoint.query.get("sslmode", "prefer")
    open_channel = has_secret_channel(endpoint.host, endpoint.port, settings) or not may_have_password(endpoint, settings)
    return "require" if mode == "prefer" and not open_channel else mode


MAX_NAME_BYTES = 63
MAX_COLUMNS = 1600

ANY_TEXT = ("text", "character varying", "character", "json", "jsonb", "uuid", "inet", "cidr", "name", "xml")
WIDER: Mapping[str, Sequence[str]] = {
    "smallint": ("smallint", "integer", "bigint", "numeric", "real", "double precision"),
    "integer": ("integer", "bigint", "numeric", "double precision"),
    "bigint": ("bigint", "numeric"),
    "real": ("real", "double precision"),
    "double precision": ("double precision",),
    "boolean": ("boolean",),
    "text": ANY_TEXT,
    "bytea": ("bytea",),
    "date": ("date", "timestamp without time zone"),
    "timestamp with time zone": ("timestamp with time zone",),
    "timestamp without time zone": ("timestamp without time zone",),
    "numeric": ("numeric",),
}
"""Maps a new column's type to existing types that hold it; text holds everything."""


@dataclass(frozen=True, slots=True)
class TableName:
    schema: str
    table: str

    @property
    def quoted(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.table)}"

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"


@dataclass(frozen=True, slots=True)
class DatabaseColumn:
    """A column of an existing table. ``needed``: it refuses NULL and has no default."""

    name: str
    type: str
    needed: bool
    generated: bool


def read_name(text: str) -> TableName:
    """Parse ``table`` or ``schema.table``; raise ``bad-option``."""
    schema, dot, table = text.rpartition(".")
    name = TableName(schema if dot else "public", table)
    for name_part in (name.schema, name.table):
        if not name_part or "\0" in name_part or len(name_part.encode()) > MAX_NAME_BYTES:
            message = f"a name has 1 to {MAX_NAME_BYTES} bytes"
            raise SbonError("bad-option", message, where="options.table", hint="TABLE or SCHEMA.TABLE")
    return name


def quoted(name: str) -> str:
    """Return the identifier quoted for SQL."""
    return '"' + name.replace('"', '""') + '"'


def check_schema(schema: pa.Schema) -> None:
    """Raise ``bad-option`` for a schema that no table can hold."""
    if len(schema) > MAX_COLUMNS:
        raise SbonError("bad-option", f"a table has at most {MAX_COLUMNS} columns", where="options.table")
    for field in schema:
        type_of(field)
        if not field.name or "\0" in field.name or len(field.name.encode()) > MAX_NAME_BYTES:
            message = f"the name of a column has 1 to {MAX_NAME_BYTES} bytes"
            raise SbonError("bad-option", message, where=field.name[:80], hint="give it another with AS")


def type_of(field: pa.Field) -> str:
    """Return the column's type in a new table; raise ``bad-option``."""
    kind, types = field.type, pa.types
    if types.is_timestamp(kind):
        return "timestamp with time zone" if kind.tz else "timestamp without time zone"
    if types.is_decimal(kind):
        return f"numeric({kind.precision},{kind.scale})"
    sql_types = (
        ("smallint", types.is_int8(kind) or types.is_int16(kind) or types.is_uint8(kind)),
        ("integer", types.is_int32(kind) or types.is_uint16(kind)),
        ("bigint", types.is_int64(kind) or types.is_uint32(kind)),
        ("real", types.is_float32(kind)),
        ("double precision", types.is_float64(kind)),
        ("boolean", types.is_boolean(kind)),
        ("text", types.is_string(kind) or types.is_large_string(kind)),
        ("bytea", types.is_binary(kind) or types.is_large_binary(kind)),
        ("date", types.is_date(kind)),
    )
    sql_type = next((name for name, fits in sql_types if fits), None)
    if sql_type is None:
        message = f"no column of a table holds {schemas.type_of(kind)}"
        raise SbonError("bad-option", message, where=field.name, hint="CAST it to a string")
    return sql_type


def creation(name: TableName, schema: pa.Schema) -> str:
    """Return the statement that creates the table."""
    columns = ", ".join(f"{quoted(field.name)} {type_of(field)}" for field in schema)
    return f"CREATE TABLE {name.quoted} ({columns})"


def check_columns(name: TableName, schema: pa.Schema, columns: Sequence[DatabaseColumn]) -> None:
    """Raise ``bad-table``, with further defects as details, if the existing table cannot hold the rows."""
    remaining = {column.name: column for column in columns}
    wrong = []
    for field in schema:
        expected = type_of(field).partition("(")[0]
        column = remaining.pop(field.name, None)
        if column is None:
            wrong.append(f"there is no column {field.name}")
        elif column.generated:
            wrong.append(f"the column {field.name} is generated")
        elif column.type not in (*WIDER[expected], "text", "character varying"):
            wrong.append(f"the column {field.name} is {column.type}, and the query gives {expected}")
    wrong += [
        f"the column {column.name} needs a value, and the query gives none" for column in remaining.values() if column.needed
    ]
    if wrong:
        hint = "name another table, or change the names and types of the query's columns"
        message = f"{name} cannot hold the rows: {wrong[0]}"
        raise SbonError("bad-table", message, where="options.table", hint=hint, details=tuple(wrong[1:]))


def copied(rows: pa.Table) -> bytes:
    """Return rows as CSV for COPY: NULL is an empty unquoted field, bytes are hexadecimal."""
    for index, field in enumerate(rows.schema):
        if pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type):
            texts = [None if value is None else "\\x" + value.hex() for value in rows.column(index).to_pylist()]
            rows = rows.set_column(index, pa.field(field.name, pa.string()), pa.array(texts, pa.string()))
    return file_formats.text("csv", rows)
