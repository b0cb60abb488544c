"""Components of queries that a node hosts, with the acceptors of their records."""

from __future__ import annotations

from typing import NamedTuple

from sbon_node.ownership.consensus.states import Acceptor
from sbon_protocol.codec import decode_record
from sbon_protocol.errors import ProtocolError, SbonError


class HostedComponent(NamedTuple):
    """An operator or sink of this node; ``acceptors`` kept its query's record when it was started."""

    query: str
    component: str
    acceptors: tuple[Acceptor, ...]


def acceptors_of(values: tuple[object, ...], component: str) -> tuple[Acceptor, ...]:
    """Return the acceptors in a call; raise ``bad-acceptors`` if there are none, or others than acceptors."""
    try:
        acceptors: tuple[Acceptor, ...] = tuple(decode_record(value, Acceptor) for value in values)
    except ProtocolError as error:
        raise SbonError("bad-acceptors", str(error), where=component) from error
    if not acceptors:
        raise SbonError("bad-acceptors", "no node keeps the query's record", where=component)
    return acceptors
