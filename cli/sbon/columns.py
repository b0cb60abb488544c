"""Schemas as text, ``ts timestamp, delay double``. Pure, and without Arrow, so that commands start quickly."""

from __future__ import annotations

import re

from sbon_protocol.errors import SbonError

from .model import Column

DECIMAL = re.compile(r"(?:decimal|dec|numeric)(?:\((\d+)(?:,(\d+))?\))?\Z")
"""A decimal type, with its precision and scale."""
_FIELD = re.compile(r"\s*(`[^`]*`|[^\s:,]+)(?:\s*:\s*|\s+)([A-Za-z_]+\s*(?:\([^)]*\))?)\s*\Z")
_SYNONYMS = {"bool": "boolean", "byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint", "real": "float"}


def columns_of(text: str) -> list[Column]:
    """Return the columns of ``ts timestamp, delay double``; the node checks types. Raise :class:`SbonError` ``bad-schema``."""
    columns = []
    for number, field in enumerate(re.split(r",(?![^()]*\))", text), start=1):
        match = _FIELD.match(field)
        if match is None:
            message = f"{field.strip()!r} is not a column" if field.strip() else "a column is missing"
            raise SbonError("bad-schema", message, where=f"column {number}", hint="write: name type, name type, ...")
        columns.append(Column(match[1].strip("`"), _named(match[2])))
    return columns


def _named(type_: str) -> str:
    """Return the type as the node writes it: ``integer`` is ``int``, ``decimal(5)`` is ``decimal(5,0)``."""
    name = re.sub(r"\s+", "", type_.lower())
    decimal = DECIMAL.match(name)
    return f"decimal({decimal[1] or 10},{decimal[2] or 0})" if decimal else _SYNONYMS.get(name, name)
