"""Keys of the registers of queries."""

from __future__ import annotations

from typing import Final

QUERY: Final = "query/"


def key_of(query: str) -> str:
    """Return the key of the record of a query, by its uid."""
    return f"{QUERY}{query}"
