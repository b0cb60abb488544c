"""The parts of a node with which its optimizer works; its decisions, and joint moves with other nodes, take the same."""

from __future__ import annotations

from typing import NamedTuple

from sbon_node.adaptation.decision import Link, once_a_node
from sbon_node.adaptation.settings import AdaptationSettings
from sbon_node.adaptation.view import AdaptingView
from sbon_node.hosting.neighbours import neighbours
from sbon_node.hosting.operators import OperatorHost
from sbon_node.ownership.acceptors import RecordAcceptors
from sbon_node.placement.settings import PlacementSettings
from sbon_node.workflow.context import Context


class OptimizerParts(NamedTuple):
    """Parts that a node's optimizer is given, and from which each decision reads."""

    context: Context
    operators: OperatorHost
    records: RecordAcceptors
    settings: AdaptationSettings
    placement: PlacementSettings

    async def links_of(self, operator: str) -> tuple[Link, ...]:
        """Return the links of an operator of this node to all queries that read it, as :func:`once_a_node`.

        Errors are those of :func:`~sbon_node.hosting.neighbours.neighbours`.
        """
        found = await neighbours(self.context, self.operators, operator)
        return once_a_node([Link(one.component, one.node, one.rate_bytes_s or 0.0, one.reads) for one in found])

    def state_bytes(self, operator: str) -> int:
        """Return the measured size of an operator's state; 0 while it is unknown."""
        measures = self.operators.ports.described(operator)
        return (measures.state_bytes or 0) if measures is not None else 0

    def view(self, beside: str = "") -> AdaptingView:
        """Return the network for one look: measured within a period, without nodes that are half overloaded.

        The capacity that the query ``beside`` holds at other nodes counts as free.
        """
        return AdaptingView(self.context, self.settings.period_s, self.settings.overload / 2, beside=beside)
