"""Checks that a stream's name is usable in a query."""

from __future__ import annotations

from sbon_node.planning.sql.syntax.lexical import RESERVED
from sbon_protocol.errors import SbonError


def check_name(stream: str) -> None:
    """Raise :class:`SbonError` ``bad-name`` unless a new stream's name is usable without quotes.

    Queries read existing streams with other names in back-quotes.
    """
    if stream in RESERVED:
        message = f"{stream!r} is a word of SQL: FROM {stream} would not be understood as the stream"
        raise SbonError("bad-name", message, where="name", hint=f"choose another, {stream}_stream for instance")
