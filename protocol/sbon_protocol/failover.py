"""Requests by which a node takes over the sink of a node that is lost (see SPEC.md, sinks that are taken over)."""

from __future__ import annotations

from typing import Annotated, Any

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
