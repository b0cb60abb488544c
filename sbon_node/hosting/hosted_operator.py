"""An operator as its host stores it, and the messages about it to the record's acceptors."""

from __future__ import annotations

import msgspec

from sbon_node.model.operators import OperatorSpec
from sbon_node.model.states import operator_states
from sbon_node.registers.states import Acceptor
from sbon_protocol.calls import ClaimComponent, ReportState


class HostedOperator(msgspec.Struct, frozen=True, kw_only=True):
    """The stored state of an operator, from which a restart resumes it.

    ``acceptors`` kept the query's record at its start, the submitter first, which has reserved the capacity.
    """

    spec: OperatorSpec
    acceptors: tuple[Acceptor, ...]

    @property
    def submitter(self) -> str:
        return self.acceptors[0].node

    def claim(self) -> ClaimComponent:
        """Return the request for its next epoch, after a restart."""
        spec = self.spec
        return ClaimComponent(query=spec.query, component=spec.id, epoch=spec.epoch)

    def failure(self, reason: str) -> ReportState:
        """Return the report that it has failed for good."""
        return ReportState(
            query=self.spec.query,
            component=self.spec.id,
            state=operator_states.FAILED,
            reason=reason[:500],
            epoch=self.spec.epoch,
        )
