"""This node as a coordinator of the zones of other nodes' queries, and of its own."""

from __future__ import annotations

from sbon_node.net.peers import Caller
from sbon_node.papers.sand.algorithm.coordinators import Coordinators
from sbon_node.placement.settings import PlacementSettings
from sbon_node.workflow.context import Context
from sbon_node.workflow.coordinating import send_to_coordinator
from sbon_node.workflow.network_view import LiveNetworkView
from sbon_protocol.messages import Call
from sbon_protocol.zones import AddSubtree, InvalidateMap, MapOperator, OperatorMapped, OperatorRemapped, PlacedOperators

STRANGERS = ""
"""All callers that are no members count as one, and cannot be the coordinator of anything."""


class ZoneCoordinators:
    """Serves the messages of coordinators with this node's knowledge of the network."""

    def __init__(self, context: Context, settings: PlacementSettings) -> None:
        self._context = context
        self.table = Coordinators(context.name, settings, LiveNetworkView(context), context.clock.now, self._send)
        for call_type in (AddSubtree, OperatorMapped, MapOperator, InvalidateMap, OperatorRemapped):
            context.server.handle(call_type, self._serve)

    async def _serve(self, call: Call, caller: Caller) -> PlacedOperators | None:
        return await self.table.serve(call, STRANGERS if self._context.presence.away(caller.node) else caller.node)

    async def _send(self, node: str, message: Call, within_s: float) -> PlacedOperators | None:
        return await send_to_coordinator(self._context, node, message, within_s)
