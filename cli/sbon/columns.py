"""Schemas as text, ``ts timestamp, delay double``. Pure, and without Arrow, so that commands start quickly."""

from __future__ import annotations

import re

from sbon_protocol.errors import SbonError

from .model import Column

DECIMAL = re.compile(r"(?:decimal|dec|numeric)(?:\((\d+)(?:,(\d+))?\))?\Z")
"""A decimal type, with its precision and scale."""
_SPACE = re.compile(r"\s*([(),])\s*")
_FIELD = re.compile(r"\s*(`[^`]*`|[^\s:,]+)(?:\s*:\s*|\s+)([A-Za-z_].*?)\s*\Z", re.DOTALL)
_SYNONYMS = {"bool": "boolean", "byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint", "real": "float"}


def columns_of(text: str) -> list[Column]:
    """Return the columns of ``ts timestamp, delay double``; the node checks types. Raise :class:`SbonError` ``bad-schema``."""
    columns = []
    for number, field in enumerate(_fields_of(text), start=1):
        match = _FIELD.match(field)
        if match is None:
            message = f"{field.strip()!r} is not a column" if field.strip() else "a column is missing"
            raise SbonError("bad-schema", message, where=f"column {number}", hint="write: name type, name type, ...")
        columns.append(Column(match[1].strip("`"), _named(match[2])))
    return columns


def _fields_of(text: str) -> list[str]:
    """Split the text at the commas between columns; those within brackets of any kind belong to a type."""
    fields, depth = [""], 0
    for character in text:
        depth += (character in "(<[") - (character in ")>]" and depth > 0)
        if character == "," and not depth:
            fields.append("")
        else:
            fields[-1] += character
    return fields


def _named(type_: str) -> str:
    """Return the type as the node writes it: ``integer`` is ``int``, ``decimal(5)`` is ``decimal(5,0)``."""
    name = _SPACE.sub(r"\1", type_.strip().lower())
    decimal = DECIMAL.match(name)
    return f"decimal({decimal[1] or 10},{decimal[2] or 0})" if decimal else _SYNONYMS.get(name, name)
