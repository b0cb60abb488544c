"""An operator as its host stores it, and the messages about it to the record's acceptors."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from sbon_node.ownership.consensus.states import Acceptor
from sbon_protocol.api.operators import OperatorSpec
from sbon_protocol.api.states import operator_states
from sbon_protocol.calls import ClaimComponent, ReportState


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """A query that reads an operator of another one; ``acceptors`` kept its record when it referred to the operator first."""

    query: str
    acceptors: tuple[Acceptor, ...] = ()


class HostedOperator(msgspec.Struct, frozen=True, kw_only=True):
    """The stored state of an operator, from which a restart resumes it.

    ``acceptors`` kept the query's record at its start, the submitter first, which has reserved the capacity. It is kept for the
    queries in ``references`` as well, also once its own is over (``owner_over``).
    """

    spec: OperatorSpec
    acceptors: tuple[Acceptor, ...]
    references: tuple[Reference, ...] = ()
    owner_over: bool = False

    @property
    def submitter(self) -> str:
        return self.acceptors[0].node

    def claim(self) -> ClaimComponent:
        """Return the request for its next epoch, after a restart."""
        spec = self.spec
        return ClaimComponent(query=spec.query, component=spec.id, epoch=spec.epoch)

    @property
    def referring(self) -> tuple[str, ...]:
        return tuple(reference.query for reference in self.references)

    @property
    def readers(self) -> tuple[Reference, ...]:
        """Its own query, unless that is over, and those that refer to it."""
        own = () if self.owner_over else (Reference(query=self.spec.query, acceptors=self.acceptors),)
        return (*own, *self.references)

    def kept_for(self, queries: Iterable[str]) -> HostedOperator:
        """Return it with references of the other ones among the ``queries``; their acceptors have to be found."""
        known = {one.query: one for one in self.references}
        others = tuple(known.get(query, Reference(query=query)) for query in queries if query != self.spec.query)
        return msgspec.structs.replace(self, references=others)

    def failure(self, query: str, reason: str) -> ReportState:
        """Return the report to one of its queries that it has failed for good."""
        return ReportState(
            query=query, component=self.spec.id, state=operator_states.FAILED, reason=reason[:500], epoch=self.spec.epoch
        )
