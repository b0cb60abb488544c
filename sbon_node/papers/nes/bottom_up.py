"""BOTTOM-UP: each operator as near to its sources as capacity allows (NES, Bottom-Up Strategy).

The paper marks a placement as failed where no node on the path to the sink has capacity. Here the nodes nearest to the preferred
node are asked next, and the placement fails where none has capacity.
"""

from __future__ import annotations

from sbon_node.papers.nes.hierarchy import hierarchy
from sbon_node.placement.model.network_view import NetworkView
from sbon_node.placement.model.problem import PlacementProblem
from sbon_node.placement.selection.mapping import along, finish, first_with_capacity
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.strategies.sbon.consumer import consumer_of
from sbon_protocol.api.placement import Assignment, Placement


async def bottom_up(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> Placement:
    """Place the query from the sources towards the sink.

    An operator with one input goes to the node of that input. An operator with several goes to the node where their paths to the
    sink first meet. Without capacity there, the next node on the path to the sink that has some is taken. Raises
    :class:`SbonError` ``no-capacity``.
    """
    before = view.probes
    tree = await hierarchy(view, consumer_of(problem), problem.pinned.values(), settings.neighbours)
    at, assignments = dict(problem.pinned), list[Assignment]()
    for operator in problem.operators:
        start = tree.meeting(at[edge.source] for edge in problem.edges if edge.target == operator.id)
        reason = f"at {start}, where its inputs meet on their way to {tree.sink}, or after it"
        candidate_nodes = along(tree.path(start), view, operator)
        assignments.append(await first_with_capacity(operator, candidate_nodes, view, assignments, problem.operators, reason))
        at[operator.id] = assignments[-1].node
    return finish("bottom-up", problem, assignments, view, before)
