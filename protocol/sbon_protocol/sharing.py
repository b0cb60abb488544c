"""Requests by which a query reads a running operator of another one (see SPEC.md, reuse)."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from sbon_protocol.messages import Call, Count, Line, Message

MAX_STREAMS = 256
"""Most streams in one question."""


class AskStreams(Call, frozen=True):
    """Ask a node what it knows of streams that it hosts: retained frames, readers, and the operators that make them."""

    streams: Annotated[tuple[Line, ...], Meta(max_length=MAX_STREAMS)]


class StreamOffers(Message, frozen=True):
    """An offer for each of the streams asked for that the answering node hosts."""

    offers: Annotated[tuple[Any, ...], Meta(max_length=MAX_STREAMS)]


class ShareOperator(Call, frozen=True):
    """Ask an operator's host to keep it for ``query``, which its register names by now, and its frames for ``readers``.

    Frames are kept from number ``first`` on, or with 0 from the next one on. The call is refused with ``not-retained`` if the
    first one is gone, and with ``operator-unknown`` if the operator's computation has another ``digest``: another node may have
    described it. ``acceptors`` keep the query's record. A repeated call changes nothing.
    """

    operator: Line
    digest: Line
    query: Line
    readers: Annotated[tuple[Line, ...], Meta(max_length=256)]
    first: Count
    acceptors: Annotated[tuple[Any, ...], Meta(max_length=16)]


class OperatorShared(Message, frozen=True):
    """The operator is kept. ``epoch`` is its present one, ``first`` the first frame that all readers get: 0 without readers."""

    epoch: Count
    first: Count
