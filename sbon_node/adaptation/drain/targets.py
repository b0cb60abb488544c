"""Choice of a node to which an operator moves: the least network usage between its present neighbours, with capacity for it."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sbon_node.context import Context
from sbon_node.placement.model.from_plan import problem_of
from sbon_node.placement.model.network_view import Point
from sbon_node.placement.model.problem import Edge
from sbon_node.placement.solvers.geometric_median import median_positions
from sbon_node.placing import LiveNetworkView
from sbon_node.queries.describing.lookup import QueryLookup
from sbon_protocol.api.queries import QueryInfo
from sbon_protocol.errors import SbonError


class MoveTargets:
    """Chooses among live nodes as placement does: near the operator's virtual coordinate, then by their answers.

    The best ``candidates`` are asked at a time.
    """

    def __init__(self, context: Context, lookup: QueryLookup, candidates: int) -> None:
        self._context, self._lookup, self._candidates = context, lookup, candidates

    async def choose(self, query: str, operator: str, refused: Collection[str]) -> str:
        """Return the node with capacity whose links to the operator's neighbours cost least: sum rate x latency.

        Neither this node nor those ``refused`` are chosen. Raises :class:`SbonError` ``no-capacity`` with a line for each node
        that was asked, ``peer-unreachable`` with those that gave no answer, if there are any, and as
        :meth:`sbon_node.queries.describing.lookup.QueryLookup.show`.
        """
        info, _ = await self._lookup.show(query)
        if info.plan is None:
            raise SbonError("query-not-placed", f"the query {info.id} has not been placed", where=operator, hint="ask again")
        needs = next((one.needs for one in info.plan.operators if one.id == operator), None)
        if needs is None:
            raise SbonError("operator-unknown", f"{info.id} has no such operator", where=operator)
        view = LiveNetworkView(self._context)
        ranked = [one for one in _ranked(info, operator, view) if one != self._context.name and one not in refused]
        reasons, silent = list[str](), list[str]()
        for first in range(0, len(ranked), self._candidates):
            asked = ranked[first : first + self._candidates]
            answers = await view.ask_all(asked, needs)
            for node in asked:
                if answers[node].accepted:
                    return node
                reasons.append(f"{node}: {answers[node].reason}")
            silent += [node for node in asked if answers[node].free is None]
        if silent:
            message = f"no answer from {', '.join(silent)}"
            raise SbonError("peer-unreachable", message, where=operator, hint="ask again", details=tuple(silent))
        message = "; ".join(reasons[: self._candidates]) or "there is no other node"
        raise SbonError("no-capacity", message, where=operator, hint="add a node, or stop a query", details=tuple(reasons))


def _ranked(info: QueryInfo, operator: str, view: LiveNetworkView) -> list[str]:
    """Return all nodes, those with the least network usage first; without coordinates, those nearest to the median."""
    assert info.plan is not None
    problem = problem_of(info.plan, info.consumer, None, info)
    hosts = {**problem.pinned, **info.hosts()}
    edges = [edge for edge in problem.edges if operator in (edge.source, edge.target)]
    neighbours = {edge.source if edge.target == operator else edge.target for edge in edges}
    points = {one: point for one in sorted(neighbours & set(hosts)) if (point := view.coordinate(hosts[one])) is not None}
    nodes = view.nodes()
    if points:
        nodes = _nearest_first(operator, edges, points, view, nodes)
    usage = {node: _usage(operator, node, edges, hosts, view) for node in nodes}
    return sorted(nodes, key=lambda node: usage[node])


def _nearest_first(
    operator: str, edges: list[Edge], points: Mapping[str, Point], view: LiveNetworkView, nodes: list[str]
) -> list[str]:
    virtual = median_positions([operator], edges, points)[operator]
    near = [node for node, _ in view.nearest(virtual, len(nodes)) if node in nodes]
    return [*near, *(node for node in nodes if node not in set(near))]


def _usage(operator: str, node: str, edges: list[Edge], hosts: Mapping[str, str], view: LiveNetworkView) -> float:
    """Return the network usage of the operator's links if it ran at ``node``: bytes/s x ms."""
    ends = ((hosts.get(edge.target if edge.source == operator else edge.source), edge.rate_bytes_s) for edge in edges)
    return sum(max(rate, 1.0) * view.latency_ms(node, other) for other, rate in ends if other is not None)
