"""A list of queries as far as they are known, and who did not answer for the others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from sbon_node.control.report import QueryInfo

UNANSWERED_HEADER = "Sbon-Unanswered"
MAX_NAMED = 100
"""Members that the header names at most: a response's head is bounded."""


class Unanswered(NamedTuple):
    """A member that did not answer, and what it is to the node that asked: ``dead``, ``away``, ``suspect`` or ``alive``."""

    node: str
    state: str

    def __str__(self) -> str:
        return f"{self.node} ({self.state})"


class QueryList(list[QueryInfo]):
    """``unanswered`` may hold records of others still."""

    def __init__(self, queries: Iterable[QueryInfo] = (), unanswered: Iterable[Unanswered] = ()) -> None:
        super().__init__(queries)
        self.unanswered = tuple(unanswered)


def header_of(unanswered: Iterable[Unanswered]) -> str:
    """``new-york=dead, paris=away``: names and states hold neither of the signs."""
    return ", ".join(f"{one.node}={one.state}" for one in tuple(unanswered)[:MAX_NAMED])


def unanswered_of(header: str) -> tuple[Unanswered, ...]:
    """What :func:`header_of` made; anything else is passed over."""
    pairs = (part.strip().partition("=") for part in header.split(","))
    return tuple(Unanswered(node, state) for node, _, state in pairs if node and state)
