"""Schemas as text (``name type, name type``), their types, and the checks of declarations."""

import re
import unicodedata
from typing import Any

from sbon_protocol.api.catalogue import SourceDeclaration, StreamDeclaration
from sbon_protocol.api.columns import Column, Schema
from sbon_protocol.errors import SbonError

TYPES = ("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "binary", "date", "timestamp")
"""The allowed types of a column, beside ``decimal(p,s)``; timestamps are microseconds in UTC."""

MAX_COLUMNS = 1000

_SYNONYMS = {"bool": "boolean", "byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint", "real": "float"}
MAX_NAME = 128
_NAME = re.compile(rf"[^\W\d]\w{{0,{MAX_NAME - 1}}}\Z")
NAME_HINT = f"letters, digits and _, not beginning with a digit; at most {MAX_NAME}"
_DECIMAL = re.compile(r"(?:decimal|dec|numeric)(?:\(\s*(\d{1,2})\s*(?:,\s*(\d{1,2})\s*)?\))?\Z")
_SPACE = re.compile(r"\s*([(),])\s*")
_FIELD = re.compile(r"\s*(`[^`]*`|[^\s:,]+)(?:\s*:\s*|\s+)([A-Za-z_].*?)\s*\Z", re.DOTALL)


def parse_schema(text: str) -> Schema:
    """Parse ``ts timestamp, delay double`` (or ``name: type``); raise :class:`SbonError` ``bad-schema`` or ``bad-type``."""
    columns: list[Column] = []
    for number, field in enumerate(fields_of(text), start=1):
        match = _FIELD.match(field)
        if match is None:
            problem = f"{field.strip()!r} is not a column" if field.strip() else "a column is missing"
            raise SbonError("bad-schema", problem, where=f"column {number}", hint="write: name type, name type, ...")
        columns.append(
            Column(unicodedata.normalize("NFC", match[1].strip("`")), type_named(match[2], where=f"column {number}, {match[1]}"))
        )
    schema = tuple(columns)
    check_schema(schema)
    return schema


def fields_of(text: str) -> list[str]:
    """Split the text at the commas between columns; those within brackets of any kind belong to a type."""
    fields, depth = [""], 0
    for character in text:
        depth += (character in "(<[") - (character in ")>]" and depth > 0)
        if character == "," and not depth:
            fields.append("")
        else:
            fields[-1] += character
    return fields


def type_named(text: str, *, where: str = "") -> str:
    """Return the type's own name (``integer`` is ``int``); raise :class:`SbonError` ``bad-type``."""
    name = _SPACE.sub(r"\1", text.strip().lower())
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
    """Return the user's name of an Arrow type: as in a schema if possible, else Arrow's name."""
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
