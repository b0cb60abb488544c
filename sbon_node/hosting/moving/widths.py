"""Bounds of the positions in calls of a move, by the inputs of the operator and the limits of this node. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sized

from sbon_node.engine.alignment import Cut
from sbon_node.streams.outbox.copies import StreamState
from sbon_node.streams.outbox.ledger import Tail
from sbon_protocol.api.operators import OperatorSpec
from sbon_protocol.errors import ProtocolError


def check_tail(spec: OperatorSpec, tail: Tail, field: str = "tail") -> None:
    """Raise :class:`ProtocolError` unless the tail has an offset for each input of the operator."""
    _check_width(spec, f"{field}.offsets", tail.offsets)


def check_cut(spec: OperatorSpec, cut: Cut, batches: Iterable[Sized] = ()) -> None:
    """Raise :class:`ProtocolError` unless the cut and each of the batches after it have an entry for each input."""
    _check_width(spec, "cut.offsets", cut.offsets)
    for batch in batches:
        _check_width(spec, "batches", batch)


def check_stream(spec: OperatorSpec, stream: StreamState, *, max_subscribers: int) -> None:
    """Raise :class:`ProtocolError` for a tail of another width than the inputs, or for too many subscriptions."""
    check_tail(spec, stream.tail, "stream.tail")
    if (count := len(stream.subscriptions)) > max_subscribers:
        raise ProtocolError("invalid", f"stream.subscriptions: {count} entries, at most {max_subscribers} are allowed")


def _check_width(spec: OperatorSpec, field: str, inputs: Sized) -> None:
    if len(inputs) != len(spec.inputs):
        raise ProtocolError("invalid", f"{field}: {len(inputs)} entries, {spec.id} has {len(spec.inputs)} inputs")
