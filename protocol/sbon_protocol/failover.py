"""Requests about sinks whose readers begin amid a stream: those that another node takes over, and further ones (see SPEC.md)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from sbon_protocol.messages import Call, Count, Line, Message


class TakeOverSink(Call, frozen=True):
    """Ask a node to go on with the ``sink`` of a node that is lost; answered once the sink's register names it as the host."""

    sink: Any
    acceptors: Annotated[tuple[Any, ...], Meta(max_length=4096)]


class FenceReader(Call, frozen=True):
    """End the readers of ``stream`` that connect as ``subscriber`` below ``reader_epoch``, and ask how far they were."""

    stream: Line
    subscriber: Line
    reader_epoch: Count


class ReaderPosition(Message, frozen=True):
    """The last frame that the subscriber has ``acknowledged``; ``ended`` if that is the last of the stream."""

    acknowledged: Count
    ended: bool = False


class AddSink(Call, frozen=True):
    """Open a further sink of a query that runs, at the receiver."""

    sink: Any
    acceptors: Annotated[tuple[Any, ...], Meta(max_length=4096)]


class SinkAdded(Message, frozen=True):
    """The beginning of a further sink: without the first ``rows`` of the result, 0 for none."""

    rows: Count


class BeginReader(Call, frozen=True):
    """Keep the frames of ``stream`` for a further sink from now on; ``begin`` with the first one, or after the newest."""

    stream: Line
    subscriber: Line
    reader_epoch: Count
    begin: Literal["earliest", "now"]


class ReaderBegun(Message, frozen=True):
    """The last frame that the reader does not get, the ``rows`` up to there, and whether the stream has ``ended`` with it."""

    frame: Count
    rows: Count
    ended: bool = False


class AddQuerySink(Call, frozen=True):
    """Add a further sink to a query at the receiver, which keeps its record; ``claim`` is random, and marks a repeated call."""

    query: Line
    request: Any
    claim: Line


class RemoveQuerySink(Call, frozen=True):
    """Remove a further sink from a query at the receiver, which keeps its record. ``sink`` is its id within the query."""

    query: Line
    sink: Line
    claim: Line = ""


class QuerySink(Message, frozen=True):
    """A further sink of a query, as the record has it."""

    sink: Any
