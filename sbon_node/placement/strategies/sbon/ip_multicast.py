"""IP MULTICAST: operators go where the routes of the query's streams meet (SBON, section 4.1).

The paper places them "at nodes that would be routers hosting branches of an IP multicast tree rooted at each producer". That tree
is the union of the unicast routes from the producers to the consumers; the paper leaves open which branch is meant. Here an
operator goes to the first router that the routes of all producers upstream share: it adds no delay to these routes.
"""

from __future__ import annotations

from sbon_node.placement.model.network_view import NetworkView
from sbon_node.placement.model.problem import PlacementProblem
from sbon_node.placement.selection.mapping import along, first_with_capacity
from sbon_node.placement.selection.partial import Partial
from sbon_node.placement.selection.sequential import bounded
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.strategies.sbon.consumer import consumer_of
from sbon_node.placement.strategies.sbon.producer import producers_of
from sbon_protocol.api.placement import Assignment, Placement
from sbon_protocol.errors import SbonError


async def ip_multicast(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> Placement:
    """Place each operator at the first router that its producers' routes share.

    Where that router may not host or has no capacity, the next router on the path to the consumer is taken, then the nodes
    nearest to it.

    Raises :class:`SbonError` ``no-routes`` where the view knows none.
    """
    end = consumer_of(problem)

    async def attempt(_: Partial) -> list[Assignment]:
        assignments: list[Assignment] = []
        for operator in problem.operators:
            routes = [_route(view, node, end) for node in producers_of(problem, operator.id)]
            shared = [node for node in routes[0] if all(node in route for route in routes)]
            candidate_nodes = along(shared, view, operator)
            reason = f"at or after router {shared[0]}, where the routes of {len(routes)} producers meet"
            assignments.append(await first_with_capacity(operator, candidate_nodes, view, assignments, problem.operators, reason))
        return assignments

    return await bounded("ip-multicast", problem, view, settings, attempt)


def _route(view: NetworkView, source: str, target: str) -> list[str]:
    route = view.route(source, target)
    if route is None:
        hint = "routes are known in experiments on generated topologies; take another strategy"
        raise SbonError("no-routes", "which routers packets pass is not known", where="strategy", hint=hint)
    return route
