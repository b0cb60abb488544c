"""The strategies with which the SBON paper compares (section 4.1): each prefers some nodes for an operator, in some order."""

from collections.abc import Callable, Sequence

from sbon_node.placement.model.network_view import NetworkView
from sbon_node.placement.model.problem import Operator, PlacementProblem
from sbon_node.placement.selection.mapping import along, bounded, by_latency, first_with_capacity
from sbon_node.placement.selection.partial import Partial
from sbon_node.placement.settings import PlacementSettings
from sbon_protocol.api.placement import Assignment, Placement
from sbon_protocol.errors import SbonError

Preferred = Callable[[Operator], tuple[Sequence[str], str]]
"""Returns the nodes to ask for an operator, in order, and the reason for the first that has capacity."""


async def consumer(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> Placement:
    """CONSUMER: all operators at the consumer's node, the first by name if several, as if all streams were shipped whole.

    Without capacity there, take the nearest node that has some.
    """
    node = consumer_of(problem)

    def preferred(operator: Operator) -> tuple[Sequence[str], str]:
        return by_latency(view, node, operator.refused), f"at or nearest to consumer node {node}"

    return await _in_turn("consumer", problem, view, settings, preferred)


async def producer(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> Placement:
    """PRODUCER: each operator at a random upstream producer. Without capacity there, the nearest node that has some is taken."""

    def preferred(operator: Operator) -> tuple[Sequence[str], str]:
        node = view.rng.choice(producers_of(problem, operator.id))
        return by_latency(view, node, operator.refused), f"at or nearest to producer node {node}"

    return await _in_turn("producer", problem, view, settings, preferred)


async def random_choice(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> Placement:
    """RANDOM: each operator at the first node with capacity within the bound on delay, if any, in an order drawn for it alone."""

    def preferred(operator: Operator) -> tuple[Sequence[str], str]:
        nodes = view.nodes()
        view.rng.shuffle(nodes)
        return nodes, "drawn at random"

    return await _in_turn("random", problem, view, settings, preferred, keeps_bound=True)


async def ip_multicast(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> Placement:
    """IP MULTICAST: each operator at the first router that its producers' routes share.

    The paper places operators "at nodes that would be routers hosting branches of an IP multicast tree rooted at each producer".
    That tree is the union of the unicast routes from the producers to the consumers; the paper leaves open which branch is meant.
    This router adds no delay to these routes. Where it may not host or has no capacity, the next router on the path to the
    consumer is taken, then the nodes nearest to it. Raises :class:`SbonError` ``no-routes`` where the view knows none.
    """
    end = consumer_of(problem)

    def preferred(operator: Operator) -> tuple[Sequence[str], str]:
        routes = [_route(view, node, end) for node in producers_of(problem, operator.id)]
        shared = [node for node in routes[0] if all(node in route for route in routes)]
        reason = f"at or after router {shared[0]}, where the routes of {len(routes)} producers meet"
        return along(shared, view, operator), reason

    return await _in_turn("ip-multicast", problem, view, settings, preferred)


async def _in_turn(
    name: str,
    problem: PlacementProblem,
    view: NetworkView,
    settings: PlacementSettings,
    preferred: Preferred,
    *,
    keeps_bound: bool = False,
) -> Placement:
    async def attempt(partial: Partial) -> list[Assignment]:
        assignments: list[Assignment] = []
        for operator in problem.operators:
            (nodes, reason), bound = preferred(operator), partial if keeps_bound else None
            assignments.append(await first_with_capacity(operator, nodes, view, assignments, problem.operators, reason, bound))
        return assignments

    return await bounded(name, problem, view, settings, attempt)


def consumer_of(problem: PlacementProblem) -> str:
    """Return the node of the pinned vertex that sends nothing; the first by name if several."""
    sources = {edge.source for edge in problem.edges}
    return min(problem.pinned[vertex] for vertex in problem.pinned if vertex not in sources)


def producers_of(problem: PlacementProblem, vertex: str) -> list[str]:
    """Return the nodes of the pinned vertices upstream of ``vertex``, sorted."""
    inputs: dict[str, list[str]] = {}
    for edge in problem.edges:
        inputs.setdefault(edge.target, []).append(edge.source)
    producers: set[str] = set()
    pending, seen = [vertex], {vertex}
    while pending:
        for source in inputs.get(pending.pop(), []):
            if source in problem.pinned:
                producers.add(problem.pinned[source])
            elif source not in seen:
                seen.add(source)
                pending.append(source)
    return sorted(producers)


def _route(view: NetworkView, source: str, target: str) -> list[str]:
    route = view.route(source, target)
    if route is None:
        hint = "routes are known in experiments on generated topologies; take another strategy"
        raise SbonError("no-routes", "which routers packets pass is not known", where="strategy", hint=hint)
    return route
