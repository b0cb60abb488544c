"""SAND: its strategies by name, and a node as a coordinator of the zones of other nodes' queries, and of its own."""

from collections.abc import Mapping

from sbon_node.context import Context
from sbon_node.net.peers import Caller
from sbon_node.papers.interface import Paper
from sbon_node.papers.sand.algorithm.coordinators import Coordinators
from sbon_node.papers.sand.algorithm.strategies import edge, edge_plus, in_network, in_network_plus
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.strategies.registry import BY_HOSTS, Profile, Registered, Strategy
from sbon_node.placing import LiveNetworkView, send_to_coordinator
from sbon_protocol.base import Call
from sbon_protocol.papers.sand import AddSubtree, InvalidateMap, MapOperator, OperatorMapped, OperatorRemapped, PlacedOperators

NEXT_OWNER = "the next owner of the zone replaces a coordinator; else as for the others"
STRANGERS = ""
"""All callers that are no members count as one, and cannot be the coordinator of anything."""


def _by_zones(place: Strategy, knows: str) -> Registered:
    return Registered(place, Profile(knows, "zones to coordinators, and measurements", BY_HOSTS, NEXT_OWNER))


STRATEGIES: Mapping[str, Registered] = {
    "edge": _by_zones(edge, "rates, measured links of the placement"),
    "edge+": _by_zones(edge_plus, "rates and latencies between the ends"),
    "in-network": _by_zones(in_network, "rates and latencies, nodes on overlay routes"),
    "in-network+": _by_zones(in_network_plus, "rates and latencies, more nodes around the routes"),
}


class Sand(Paper):
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
