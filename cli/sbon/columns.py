"""Schemas as text, ``ts timestamp, delay double``. Pure, and without Arrow, so that commands start quickly."""

from __future__ import annotations

from sbon_protocol.api.columns import DECIMAL, named_fields, plain_type

from .model import Column


def columns_of(text: str) -> list[Column]:
    """Return the columns of ``ts timestamp, delay double``; the node checks types. Raise :class:`SbonError` ``bad-schema``."""
    return [Column(name.strip("`"), _named(type_)) for _, name, type_ in named_fields(text)]


def _named(text: str) -> str:
    """Return the type as the node writes it: ``integer`` is ``int``, ``decimal(5)`` is ``decimal(5,0)``."""
    type_ = plain_type(text)
    decimal = DECIMAL.match(type_)
    return f"decimal({decimal[1] or 10},{decimal[2] or 0})" if decimal else type_
