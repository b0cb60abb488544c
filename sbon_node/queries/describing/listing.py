"""A list of known queries, and the members that did not answer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from sbon_protocol.api.queries import QueryInfo

UNANSWERED_HEADER = "Sbon-Unanswered"
MAX_NAMED = 100
"""Most members that the header names, because a response's header is bounded."""


class Unanswered(NamedTuple):
    """A member that did not answer, and its state at the asking node: ``dead``, ``away``, ``suspect`` or ``alive``."""

    node: str
    state: str

    def __str__(self) -> str:
        return f"{self.node} ({self.state})"


class QueryList(list[QueryInfo]):
    """Known queries; ``unanswered`` members may hold more records."""

    def __init__(self, queries: Iterable[QueryInfo] = (), unanswered: Iterable[Unanswered] = ()) -> None:
        super().__init__(queries)
        self.unanswered = tuple(unanswered)


def header_of(unanswered: Iterable[Unanswered]) -> str:
    """Return ``new-york=dead, paris=away``; names and states contain neither separator."""
    return ", ".join(f"{answer.node}={answer.state}" for answer in tuple(unanswered)[:MAX_NAMED])


def unanswered_of(header: str) -> tuple[Unanswered, ...]:
    """Parse the result of :func:`header_of`; skip anything else."""
    pairs = (pair.strip().partition("=") for pair in header.split(","))
    return tuple(Unanswered(node, state) for node, _, state in pairs if node and state)
