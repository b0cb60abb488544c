"""An operator as its host stores it, and the messages about it to the query holder."""

from __future__ import annotations

import msgspec

from sbon_node.hosting.claims import is_same_submission
from sbon_node.model.operators import OperatorSpec
from sbon_node.model.states import operator_states
from sbon_protocol.calls import ClaimComponent, DestroyComponents, ReportState


class HostedOperator(msgspec.Struct, frozen=True, kw_only=True):
    """The stored state of an operator, from which a restart resumes it.

    ``submitted_ms`` distinguishes submissions of its query's name; 0 where an earlier version stored it.
    """

    spec: OperatorSpec
    holder: str
    submitted_ms: int = 0

    def is_of(self, call: DestroyComponents, holder: str) -> bool:
        """Return whether the holder's call is about this operator's query and submission."""
        same = (self.spec.query, self.holder) == (call.query, holder)
        return same and is_same_submission(self.submitted_ms, call.submitted_ms)

    def claim(self) -> ClaimComponent:
        """Return the request for its next epoch, after a restart."""
        spec = self.spec
        return ClaimComponent(query=spec.query, component=spec.id, epoch=spec.epoch, submitted_ms=self.submitted_ms)

    def failure(self, reason: str) -> ReportState:
        """Return the report that it has failed for good."""
        return ReportState(
            query=self.spec.query,
            component=self.spec.id,
            state=operator_states.FAILED,
            reason=reason[:500],
            epoch=self.spec.epoch,
            submitted_ms=self.submitted_ms,
        )
