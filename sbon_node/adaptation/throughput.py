"""A query's bound on throughput at an operator's host: pure, given the operator's measures and the free bandwidth."""

from __future__ import annotations

from sbon_node.adaptation.decision import KEEPS_THROUGHPUT, LACKS_THROUGHPUT, TOO_SLOW, Offer, Why
from sbon_node.adaptation.settings import AdaptationSettings
from sbon_protocol.api.measures import OperatorMeasures

BEHIND_S = 5.0
"""Time that an operator needs to read what waits at its host, from which on it falls behind its input.

At most ``streams.inbox_credit_bytes`` of each input wait, so an operator that reads more than a fifth of that in a
second never does.
"""


def lacks(
    least_bytes_s: float | None, measures: OperatorMeasures | None, free_bytes_s: float, settings: AdaptationSettings
) -> Why | None:
    """Return why the host is about to break the bound of ``least_bytes_s``; None while it keeps it, or without one.

    Either its operators reserve more bandwidth than it has (``free_bytes_s`` is negative: it had more when they came), or the
    operator sends too little although its input waits.
    """
    if least_bytes_s is None:
        return None
    if free_bytes_s < 0:
        return Why(LACKS_THROUGHPUT, f"operators here reserve {-free_bytes_s:,.0f} B/s more than this node has")
    if measures is None or measures.bytes_out_s is None or measures.bytes_out_s * settings.near_bound >= least_bytes_s:
        return None
    read_bytes_s = sum(read.bytes_s or 0.0 for read in measures.inputs)
    waiting_bytes = sum(read.waiting_bytes for read in measures.inputs)
    if waiting_bytes < BEHIND_S * read_bytes_s or not waiting_bytes:
        return None
    sends = f"it sends {measures.bytes_out_s:,.0f} B/s, and its bound is {least_bytes_s:,.0f} B/s"
    return Why(LACKS_THROUGHPUT, f"{sends}; {waiting_bytes:,} bytes of input wait, and it reads {read_bytes_s:,.0f} B/s")


def carries(way_ms: float, offer: Offer, *, bounded: bool) -> Why:
    """Return why the operator moves to the offer, a host with capacity, whatever it costs in usage, or why not.

    The rows of a query with a bound on delay may not take a longer way.
    """
    if bounded and offer.way_ms > way_ms:
        return Why(TOO_SLOW, f"through {offer.node} rows would take {offer.way_ms:.1f} ms instead of {way_ms:.1f} ms")
    return Why(KEEPS_THROUGHPUT, f"{offer.node} has the capacity, with {offer.usage:,.0f} bytes in transit")
