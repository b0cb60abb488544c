"""Columns of a stream, a schema as a row of them, and both as text, ``ts timestamp, delay double``, and for Arrow."""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from sbon_protocol.api.shown import Shown
from sbon_protocol.errors import SbonError

DECIMAL = re.compile(r"(?:decimal|dec|numeric)(?:\(\s*(\d{1,2})\s*(?:,\s*(\d{1,2})\s*)?\))?\Z")
"""A decimal type, with its precision and scale."""
_SYNONYMS = {"bool": "boolean", "byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint", "real": "float"}
_SPACE = re.compile(r"\s*([(),])\s*")
_FIELD = re.compile(r"\s*(`[^`]*`|[^\s:,]+)(?:\s*:\s*|\s+)([A-Za-z_].*?)\s*\Z", re.DOTALL)


class Column(Shown, frozen=True):
    """A column; ``type`` is a Spark SQL type in lower case, as in DDL.

    Examples: ``bigint``, ``timestamp``, ``decimal(10,2)``.
    """

    name: str
    type: str


Schema = tuple[Column, ...]


def named_fields(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield number, name and type of each column in ``ts timestamp, delay double``, as written; raise ``bad-schema``."""
    for number, field in enumerate(fields_of(text), start=1):
        match = _FIELD.match(field)
        if match is None:
            problem = f"{field.strip()!r} is not a column" if field.strip() else "a column is missing"
            raise SbonError("bad-schema", problem, where=f"column {number}", hint="write: name type, name type, ...")
        yield number, match[1], match[2]


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


def plain_type(text: str) -> str:
    """Return a type in lower case, without spaces, and by its own name: ``INTEGER`` is ``int``."""
    name = _SPACE.sub(r"\1", text.strip().lower())
    return _SYNONYMS.get(name, name)


def arrow_type(column: Column) -> Any:
    """Return the ``pyarrow`` type of a column; timestamps are microseconds in UTC. Raises :class:`SbonError` ``bad-type``."""
    import pyarrow as pa

    decimal = DECIMAL.match(column.type)
    type_ = pa.decimal128(int(decimal[1] or 10), int(decimal[2] or 0)) if decimal else arrow_types().get(column.type)
    if type_ is None:
        raise SbonError("bad-type", f"no type {column.type!r}", where=f"column {column.name}")
    return type_


@cache
def arrow_types() -> dict[str, Any]:
    """Return the ``pyarrow`` type of each type but decimals."""
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
