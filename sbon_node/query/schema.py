"""Schemas as text (``name type, name type``), their types, and the checks of declarations."""

from __future__ import annotations

import re
from typing import Any

from sbon_node.engine.interface import Column, Schema
from sbon_node.errors import SbonError
from sbon_node.query.catalog import SourceDeclaration, StreamDeclaration
from sbon_node.query.lexical import RESERVED

TYPES = ("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "binary", "date", "timestamp")
"""The types a column may have, beside ``decimal(p,s)``; timestamps are microseconds in UTC."""

MAX_COLUMNS = 1000

_SYNONYMS = {"bool": "boolean", "byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint", "real": "float"}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}\Z")
_DECIMAL = re.compile(r"(?:decimal|dec|numeric)(?:\(\s*(\d{1,2})\s*(?:,\s*(\d{1,2})\s*)?\))?\Z")
_FIELD = re.compile(r"\s*(`[^`]*`|[^\s:,]+)(?:\s*:\s*|\s+)([A-Za-z_]+\s*(?:\([^)]*\))?)\s*\Z")


def parse_schema(text: str) -> Schema:
    """``ts timestamp, delay double`` (or ``name: type``) as columns; raises :class:`SbonError` ``bad-schema``, ``bad-type``."""
    columns: list[Column] = []
    for number, field in enumerate(re.split(r",(?![^()]*\))", text), start=1):
        match = _FIELD.match(field)
        if match is None:
            said = f"{field.strip()!r} is not a column" if field.strip() else "a column is missing"
            raise SbonError("bad-schema", said, where=f"column {number}", hint="write: name type, name type, ...")
        columns.append(Column(match[1].strip("`"), type_named(match[2], where=f"column {number}, {match[1]}")))
    schema = tuple(columns)
    check_schema(schema)
    return schema


def type_named(text: str, *, where: str = "") -> str:
    """The type's own name (``integer`` is ``int``); raises :class:`SbonError` ``bad-type``."""
    name = re.sub(r"\s+", "", text.lower())
    name = _SYNONYMS.get(name, name)
    if name in TYPES:
        return name
    decimal = _DECIMAL.match(name)
    if decimal is not None:
        precision, scale = int(decimal[1] or 10), int(decimal[2] or 0)
        if 1 <= precision <= 38 and scale <= precision:
            return f"decimal({precision},{scale})"
        raise SbonError("bad-type", f"{text.strip()}: 1 <= precision <= 38 and scale <= precision", where=where)
    raise SbonError("bad-type", f"no type {text.strip()!r}", where=where, hint=f"there are {', '.join(TYPES)}, decimal(p,s)")


def check_schema(schema: Schema) -> None:
    """Names are plain and differ (case does not count), types are known."""
    if not 1 <= len(schema) <= MAX_COLUMNS:
        raise SbonError("bad-schema", f"{len(schema)} columns, 1 to {MAX_COLUMNS} are allowed", where="schema")
    seen: set[str] = set()
    for column in schema:
        if not _NAME.match(column.name):
            hint = "letters, digits and _, not beginning with a digit"
            raise SbonError("bad-schema", f"{column.name!r} is not a name", where=f"column {column.name}", hint=hint)
        if column.name.lower() in seen:
            raise SbonError(
                "bad-schema", f"two columns are named {column.name!r}", where=f"column {column.name}", hint="rename one"
            )
        seen.add(column.name.lower())
        if type_named(column.type, where=f"column {column.name}") != column.type:
            raise SbonError("bad-type", f"no type {column.type!r}", where=f"column {column.name}", hint=type_named(column.type))


def check_stream(declaration: StreamDeclaration) -> None:
    """The schema is sound and the event-time column is one of its timestamps; raises :class:`SbonError`."""
    check_schema(declaration.schema)
    types = {column.name: column.type for column in declaration.schema}
    times = [name for name, type_ in types.items() if type_ == "timestamp"]
    hint = f"timestamps are {', '.join(times)}" if times else "add a column of type timestamp"
    if declaration.event_time not in types:
        raise SbonError("bad-event-time", f"there is no column {declaration.event_time!r}", where="event_time", hint=hint)
    if types[declaration.event_time] != "timestamp":
        said = f"{declaration.event_time!r} is of type {types[declaration.event_time]}, not timestamp"
        raise SbonError("bad-event-time", said, where="event_time", hint=hint)


def check_name(stream: str) -> None:
    """A new stream's name can stand in a query as it is; raises :class:`SbonError` ``bad-name``. One that is there
    already is read in back-quotes."""
    if stream in RESERVED:
        said = f"{stream!r} is a word of SQL: FROM {stream} would not be understood as the stream"
        raise SbonError("bad-name", said, where="name", hint=f"choose another, {stream}_stream for instance")


def check_source(source: SourceDeclaration, declaration: StreamDeclaration) -> None:
    """The source is of this stream and its name can be part of a stream's id; raises :class:`SbonError`."""
    if source.stream != declaration.name:
        raise SbonError("bad-source", f"a source of {source.stream!r} is not one of {declaration.name!r}", where="stream")
    if not re.fullmatch(r"[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?", source.name):
        hint = "lower-case letters, digits, '.', '_' and '-', at most 63"
        raise SbonError("bad-source", f"{source.name!r} is not a source's name", where="name", hint=hint)


def to_arrow(schema: Schema) -> Any:
    """The ``pyarrow.Schema`` of a stream's frames: timestamps in microseconds, UTC; every column may be null."""
    import pyarrow as pa

    plain = _arrow_types()
    fields = []
    for column in schema:
        decimal = _DECIMAL.match(column.type)
        type_ = pa.decimal128(int(decimal[1] or 10), int(decimal[2] or 0)) if decimal else plain.get(column.type)
        if type_ is None:
            raise SbonError("bad-type", f"no type {column.type!r}", where=f"column {column.name}")
        fields.append(pa.field(column.name, type_))
    return pa.schema(fields)


def type_of(kind: Any) -> str:
    """What a user calls an Arrow type: as in a schema, where it is one of those; else as Arrow does."""
    import pyarrow as pa

    if pa.types.is_timestamp(kind):
        return "timestamp"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return next((name for name, known in _arrow_types().items() if kind == known), str(kind))


def _arrow_types() -> dict[str, Any]:
    import pyarrow as pa

    return {
        "boolean": pa.bool_(),
        "tinyint": pa.int8(),
        "smallint": pa.int16(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "string": pa.string(),
        "binary": pa.binary(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", tz="UTC"),
    }
