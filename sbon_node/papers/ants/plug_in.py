"""ANTS: its strategies by name, and the ants of a node."""

from collections.abc import Mapping, Sequence

from sbon_node.adaptation.whole import LeaderParts
from sbon_node.context import Context
from sbon_node.hosting.operators.room import Room
from sbon_node.papers.ants.algorithm.centralized import centralized
from sbon_node.papers.ants.algorithm.strategy import ants
from sbon_node.papers.ants.network.leader import AntLeader
from sbon_node.papers.ants.network.reuse import AntReuse
from sbon_node.papers.ants.network.service import AntService
from sbon_node.papers.ants.network.updates import AntUpdates
from sbon_node.papers.ants.settings import AntSettings
from sbon_node.papers.interface import Leading, Paper, QueryWork
from sbon_node.placement.model.queueing import Flow
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.strategies.registry import BY_HOSTS, KNOWN, REFUSED, Profile, Registered

EACH_ITS_OWN = "nothing as a whole: each node its own queue and neighbours"
BY_ANTS = "ants; local works against them"
ANTS_LOST = "its ants; what they reserved ends by itself; a host as for the others"

STRATEGIES: Mapping[str, Registered] = {
    "ants": Registered(ants, Profile(EACH_ITS_OWN, "ants from node to node", BY_ANTS, ANTS_LOST)),
    "centralized": Registered(centralized, Profile(f"{KNOWN}; queues of all nodes", "a probe to each node", BY_HOSTS, REFUSED)),
}


class Ants(Paper):
    """The ants of one node."""

    def __init__(self, context: Context, room: Room, placement: PlacementSettings, settings: AntSettings) -> None:
        self._context, self._placement = context, placement
        self.service = AntService(context, room, settings)
        self.leader = AntLeader(context, self.service)

    def start(self) -> None:
        self.service.start()

    async def close(self) -> None:
        await self.service.close()

    def booked(self, query: str) -> Sequence[Flow]:
        return self.service.booked(query)

    def for_queries(self, leading: Leading) -> QueryWork:
        queries, mover, decisions = leading
        parts = LeaderParts(self._context, queries.leader, mover, decisions, self._placement)
        updates = AntUpdates(parts, self.leader, self.service.settings)
        return QueryWork((AntReuse(self._context, self.leader, queries.reuse, self._placement),), (updates,))
