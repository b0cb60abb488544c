"""The interface between a node and the papers that it is built with, beside their strategies.

``Node`` makes the papers of the table once it has its room for operators, starts them before its operators, and closes them after
all that uses them. A paper whose strategies only compute has no part here.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from sbon_node.adaptation.decisions import LeaderDecisions
from sbon_node.adaptation.mover import RequestedMoves
from sbon_node.placement.model.queueing import Flow
from sbon_node.queries.assemble import Queries
from sbon_node.queries.submitting.hooks import SubmissionHook


class Service(Protocol):
    """Work in the background, from :meth:`start` to :meth:`close`."""

    def start(self) -> None: ...

    async def close(self) -> None: ...


class Leading(NamedTuple):
    """Parts of the node that look after the queries it leads, for a paper to use."""

    queries: Queries
    mover: RequestedMoves
    decisions: LeaderDecisions


class QueryWork(NamedTuple):
    """Work of a paper for queries: hooks of their submission, and services that look after running ones."""

    hooks: tuple[SubmissionHook, ...] = ()
    services: tuple[Service, ...] = ()


class Paper:
    """A paper at one node. Its constructor registers handlers of messages; a paper overrides the methods that it needs."""

    def start(self) -> None:
        """Start the services that other nodes use."""

    async def close(self) -> None:
        """End them."""

    def booked(self, query: str) -> Sequence[Flow]:
        """Return flows that will come here and that no operator has measured yet, without those of a query, if one is named."""
        return ()

    def for_queries(self, leading: Leading) -> QueryWork:
        """Return the work for queries that this node takes or leads."""
        return QueryWork()
