"""Queries that were ended at this node: a late call opens no sink of theirs.

The call may be on its way while its sender, cut off from this node, undoes the query and forgets it. An operator needs no such
memory: its end releases the reservation without which it is not started, and a late reservation lapses.
"""

from __future__ import annotations

from collections.abc import Iterable

from sbon_node.ownership.acceptors import QUERY_OVER
from sbon_node.ownership.consensus.states import Acceptor
from sbon_protocol.errors import SbonError


class EndedQueries:
    """The last ``most`` ends that nodes have asked for here, by query and node.

    Kept in memory only: a call that was sent before a restart is lost with its connection. A sink that is opened nevertheless,
    by a node that learns of the end later, is closed by :class:`~sbon_node.hosting.orphans.OrphanCheck`.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._ended: dict[tuple[str, str], None] = {}

    def add(self, query: str, node: str) -> None:
        """Remember that ``node`` has ended the query."""
        self._ended[query, node] = None
        while len(self._ended) > self._most:
            del self._ended[next(iter(self._ended))]

    def check(self, query: str, acceptors: Iterable[Acceptor], component: str) -> None:
        """Raise ``query-over`` if one of the acceptors of the query's record has ended the query.

        Any other node may ask for an end as well; as it has no say, it cannot keep a query from its start either.
        """
        if any((query, one.node) in self._ended for one in acceptors):
            raise SbonError(QUERY_OVER, "it ended before this part was started", where=component)
