"""IP MULTICAST: operators go where the routes of the query's streams meet (SBON, section 4.1).

The paper places them "at nodes that would be routers hosting branches of an IP multicast tree rooted at each producer", the tree
being the union of the unicast routes from the producers to the consumers, and leaves open which of the branches. Here an operator
goes to the first router that the routes of all producers whose rows reach it have in common: on these routes to the consumer it
adds no delay.
"""

from __future__ import annotations

from sbon_node.errors import SbonError
from sbon_node.placement.mapping import along, first_with_room
from sbon_node.placement.network_view import NetworkView
from sbon_node.placement.partial import Partial
from sbon_node.placement.problem import Assignment, Placement, PlacementProblem
from sbon_node.placement.sequential import bounded
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.strategies.consumer import consumer_of
from sbon_node.placement.strategies.producer import producers_of


async def ip_multicast(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> Placement:
    """Where that router may not host or has no room, the next one on the way to the consumer, then the nodes nearest to it.

    Raises :class:`SbonError` ``no-routes`` where the view knows none.
    """
    end = consumer_of(problem)

    async def attempt(_: Partial) -> list[Assignment]:
        assignments: list[Assignment] = []
        for operator in problem.operators:
            routes = [_route(view, node, end) for node in producers_of(problem, operator.id)]
            shared = [node for node in routes[0] if all(node in route for route in routes)]
            wishes = along(shared, view, operator)
            reason = f"at or after router {shared[0]}, where the routes of {len(routes)} producers meet"
            assignments.append(await first_with_room(operator, wishes, view, assignments, problem.operators, reason))
        return assignments

    return await bounded("ip-multicast", problem, view, settings, attempt)


def _route(view: NetworkView, source: str, target: str) -> list[str]:
    route = view.route(source, target)
    if route is None:
        hint = "routes are known in experiments on generated topologies; take another strategy"
        raise SbonError("no-routes", "which routers packets pass is not known", where="strategy", hint=hint)
    return route
