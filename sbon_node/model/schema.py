"""Schemas as text (``name type, name type``), their types, and the checks of declarations."""

import re
import unicodedata
from typing import Any

from sbon_protocol.api.catalogue import SourceDeclaration, StreamDeclaration
from sbon_protocol.api.columns import DECIMAL, Column, Schema, arrow_type, arrow_types, named_fields, plain_type
from sbon_protocol.errors import SbonError

TYPES = ("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "binary", "date", "timestamp")
"""The allowed types of a column, beside ``decimal(p,s)``; timestamps are microseconds in UTC."""

MAX_COLUMNS = 1000

MAX_NAME = 128
_NAME = re.compile(rf"[^\W\d]\w{{0,{MAX_NAME - 1}}}\Z")
NAME_HINT = f"letters, digits and _, not beginning with a digit; at most {MAX_NAME}"


def parse_schema(text: str) -> Schema:
    """Parse ``ts timestamp, delay double`` (or ``name: type``); raise :class:`SbonError` ``bad-schema`` or ``bad-type``."""
    schema = tuple(
        Column(unicodedata.normalize("NFC", name.strip("`")), type_named(type_, where=f"column {number}, {name}"))
        for number, name, type_ in named_fields(text)
    )
    check_schema(schema)
    return schema


def type_named(text: str, *, where: str = "") -> str:
    """Return the type's own name (``integer`` is ``int``); raise :class:`SbonError` ``bad-type``."""
    name = plain_type(text)
    if name in TYPES:
        return name
    decimal = DECIMAL.match(name)
    if decimal is not None:
        precision, scale = int(decimal[1] or 10), int(decimal[2] or 0)
        if 1 <= precision <= 38 and scale <= precision:
            return f"decimal({precision},{scale})"
        raise SbonError("bad-type", f"{text.strip()}: 1 <= precision <= 38 and scale <= precision", where=where)
    raise SbonError("bad-type", f"no type {text.strip()!r}", where=where, hint=f"there are {', '.join(TYPES)}, decimal(p,s)")


def check_schema(schema: Schema) -> None:
    """Check that names are plain and distinct (ignoring case), and types are known."""
    if not 1 <= len(schema) <= MAX_COLUMNS:
        raise SbonError("bad-schema", f"{len(schema)} columns, 1 to {MAX_COLUMNS} are allowed", where="schema")
    seen: set[str] = set()
    for column in schema:
        if not is_column_name(column.name):
            raise SbonError("bad-schema", f"{column.name!r} is not a name", where=f"column {column.name}", hint=NAME_HINT)
        folded = column.name.upper().lower()  # Spark compares names in both cases
        if folded in seen:
            raise SbonError(
                "bad-schema", f"two columns are named {column.name!r}", where=f"column {column.name}", hint="rename one"
            )
        seen.add(folded)
        if type_named(column.type, where=f"column {column.name}") != column.type:
            raise SbonError("bad-type", f"no type {column.type!r}", where=f"column {column.name}", hint=type_named(column.type))


def is_column_name(name: str) -> bool:
    """Return whether the name consists of letters of any script, digits and ``_`` in NFKC form.

    Other forms are refused, so that names that look the same are the same.
    """
    return _NAME.match(name) is not None and unicodedata.is_normalized("NFKC", name)


def check_stream(declaration: StreamDeclaration) -> None:
    """Check the schema and that the event-time column is a timestamp; raise :class:`SbonError`."""
    check_schema(declaration.schema)
    if declaration.sql and not declaration.event_time:
        return
    types = {column.name: column.type for column in declaration.schema}
    times = [name for name, type_ in types.items() if type_ == "timestamp"]
    hint = f"timestamps are {', '.join(times)}" if times else "add a column of type timestamp"
    if declaration.event_time not in types:
        raise SbonError("bad-event-time", f"there is no column {declaration.event_time!r}", where="event_time", hint=hint)
    if types[declaration.event_time] != "timestamp":
        problem = f"{declaration.event_time!r} is of type {types[declaration.event_time]}, not timestamp"
        raise SbonError("bad-event-time", problem, where="event_time", hint=hint)


def check_source(source: SourceDeclaration, declaration: StreamDeclaration) -> None:
    """Check that the source is of this stream and its name fits a stream's id; raise :class:`SbonError`."""
    if source.stream != declaration.name:
        raise SbonError("bad-source", f"a source of {source.stream!r} is not one of {declaration.name!r}", where="stream")
    if not re.fullmatch(r"[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?", source.name):
        hint = "lower-case letters, digits, '.', '_' and '-', at most 63"
        raise SbonError("bad-source", f"{source.name!r} is not a source's name", where="name", hint=hint)


def to_arrow(schema: Schema) -> Any:
    """Return the ``pyarrow.Schema`` of a stream's frames. Timestamps are microseconds in UTC; every column is nullable."""
    import pyarrow as pa

    return pa.schema([pa.field(column.name, arrow_type(column)) for column in schema])


def type_of(kind: Any) -> str:
    """Return the user's name of an Arrow type: as in a schema if possible, else Arrow's name."""
    import pyarrow as pa

    if pa.types.is_timestamp(kind):
        return "timestamp"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return next((name for name, known in arrow_types().items() if kind == known), str(kind))
