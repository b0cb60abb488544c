"""What a follower is given, and what is told of a sink that delivers by itself."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from sbon_node.engine.interface import Counted

QueryState = Literal["placing", "running", "finished", "stopped", "failed", "unreachable"]
"""Of a query; ``unreachable`` is none of its record's own, but what is told of it while the record's holder does not answer."""

LIVE: frozenset[QueryState] = frozenset({"placing", "running"})
"""Of a query that is not over."""

FOLLOW = "follow"
"""The sink whose rows are had by following the query; any other delivers by itself."""


class Rows(msgspec.Struct, frozen=True, kw_only=True, tag="rows", tag_field="event"):
    """The rows of one frame. ``stream`` and ``number`` identify it: a client drops what it has seen already."""

    stream: str
    number: int
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    watermark_ms: int
    delay_ms: int
    """From the oldest row's entry into the overlay until it was handed to this client."""


class Finished(msgspec.Struct, frozen=True, kw_only=True, tag="finished", tag_field="event"):
    """No row will follow: all sources ended (``finished``), or the query was stopped, or it failed for ``reason``."""

    state: QueryState
    reason: str = ""


class SinkReport(msgspec.Struct, frozen=True, kw_only=True):
    """How a sink stands that delivers by itself."""

    state: str
    """``running``, ``paused: reason`` or ``finished``."""
    rows: Counted = 0
    """Delivered, restarts included."""
    refused: Counted = 0
    """Not taken at the other end, for what is in them."""
    dead_letters: str = ""
    """The file, on the consumer's node, that keeps these."""
    retries: Counted = 0
    """Tries that failed for the time being, since the node's start."""
