"""Rows for a follower, and reports of a sink that delivers by itself."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from sbon_protocol.api.bounded import Counted, PerSecond
from sbon_protocol.api.shown import Shown
from sbon_protocol.api.states.query_states import QueryState

FOLLOW = "follow"
"""The sink whose rows a follower reads; any other sink delivers by itself."""
STREAM_SINK = "stream"
"""The sink that makes the result a stream."""


class Rows(Shown, frozen=True, kw_only=True, tag="rows", tag_field="event"):
    """The rows of a frame.

    ``stream`` and ``number`` identify it: a client drops frames that it has already seen.
    """

    stream: str
    number: int
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    watermark_ms: int
    delay_ms: int
    """Time from the oldest row's entry into the overlay until its delivery to this client."""
    sink: str = ""
    """The further sink whose rows these are: acknowledge them there, and follow it again; empty for the query's first sink."""


class Reader(Shown, frozen=True, kw_only=True, tag="reader", tag_field="event"):
    """The begin of the rows: acknowledgements name this ``word``, which nobody else knows."""

    word: str


class Finished(Shown, frozen=True, kw_only=True, tag="finished", tag_field="event"):
    """The end of the rows: all sources ended (``finished``), the query was stopped, or it failed for ``reason``."""

    state: QueryState
    reason: str = ""


SAMPLE_ROWS, SAMPLE_COLUMNS, SAMPLE_TEXT = 6, 24, 100


class Sample(Shown, frozen=True, kw_only=True):
    """The newest rows of a query as texts: the first columns, long values cut; None is NULL."""

    columns: Annotated[tuple[Annotated[str, Meta(max_length=128)], ...], Meta(max_length=SAMPLE_COLUMNS)]
    rows: Annotated[tuple[tuple[Annotated[str, Meta(max_length=SAMPLE_TEXT)] | None, ...], ...], Meta(max_length=SAMPLE_ROWS)]


class SinkDelay(Shown, frozen=True, kw_only=True):
    """Delay of the newest rows from their source to the sink, at most ``error_ms`` wrong; None where it is unknown.

    It ends when the rows arrive at the consumer's node. ``frames`` count, ``undated`` frames do not, since the clock of a node on
    their way was unknown. Among the rows of a frame, the oldest counts.
    """

    frames: Counted = 0
    undated: Counted = 0
    p50_ms: PerSecond | None = None
    p95_ms: PerSecond | None = None
    error_ms: PerSecond | None = None


class SinkReport(Shown, frozen=True, kw_only=True):
    """State of a sink that delivers by itself."""

    state: str
    """A state of :mod:`.states.sink_states`, with its reason after a colon."""
    rows: Counted | None = 0
    """Delivered rows, over all restarts; None while the sink cannot be opened again."""
    refused: Counted = 0
    """Rows that the destination refused because of their content."""
    dead_letters: str = ""
    """The file, on the consumer's node, that keeps the refused rows."""
    retries: Counted = 0
    """Tries that failed temporarily since the node's start."""


class FurtherReport(msgspec.Struct, frozen=True, kw_only=True):
    """State of a further sink, as its host reports it."""

    component: str
    rows: Counted | None = None
    """Rows that it has delivered, or that its follower has acknowledged; None if unknown."""
    begins_after: Counted = 0
    """Rows of the result that it does not get, since it was added after them."""
    report: SinkReport | None = None
    """None for a follower's."""
