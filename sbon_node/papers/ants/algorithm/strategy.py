"""ANTS: placement for the least latency by queueing, by routing, scouting and enforcement ants (Lakshmanan, Strom, 2008).

The ants of one query walk over the placing node's knowledge. The cells are the nodes with the least detour between the pinned
ends; each is asked once for its load and capacity. Latencies are not measured anew. The steps of an ant at a cell are in files of
their own, and need only the cell (:mod:`~sbon_node.papers.ants.algorithm.routing`,
:mod:`~sbon_node.papers.ants.algorithm.scouting`, :mod:`~sbon_node.papers.ants.algorithm.enforcement`).

Ants minimise latency under every objective. If no scout finds hosts for all tasks, more ants walk, and stray farther, then
among twice as many nodes, up to all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from sbon_node.papers.ants.algorithm.cell import Cell
from sbon_node.papers.ants.algorithm.chain import next_chain
from sbon_node.papers.ants.algorithm.colony import Colony, Report
from sbon_node.papers.ants.algorithm.terrain import Terrain
from sbon_node.placement.model.all_pairs import all_pairs_ms
from sbon_node.placement.model.network_view import NOTHING, NetworkView
from sbon_node.placement.model.problem import Operator, PlacementProblem, has_capacity
from sbon_node.placement.model.queueing import MAX_LOAD, Server
from sbon_node.placement.selection.capacity import KnownCapacity
from sbon_node.placement.selection.mapping import finish
from sbon_node.placement.selection.offers import Offer, ask_offers
from sbon_node.placement.settings import PlacementSettings
from sbon_protocol.api.placement import Assignment, Candidate, Placement


async def ants(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> Placement:
    """Place the query. Raises :class:`SbonError` ``no-capacity``."""
    before = view.probes
    if not problem.operators:
        return finish("ants", problem, [], view, before)
    capacity, offers = KnownCapacity(problem, view), dict[str, Offer]()
    nearest, wide = _by_detour(problem, view), settings.pool
    while True:
        pool = nearest[:wide]
        offers |= await ask_offers(problem, view, [node for node in pool if node not in offers])
        reports_by_chain = await view.compute(partial(_place, problem, await _colony(problem, view, pool, offers), settings))
        if reports_by_chain is not None:
            hosts = {operator: node for reports in reports_by_chain for operator, node in reports[0].hosts().items()}
            if await capacity.grants(hosts):
                return finish("ants", problem, _assignments(problem, reports_by_chain, len(pool)), view, before)
            refused = [node for node in set(hosts.values()) if np.isfinite(capacity.free([node])).any()]
            offers |= {node: offers[node]._replace(free=NOTHING) for node in refused}
        elif wide >= len(nearest):
            operator = _homeless(problem, offers)
            raise await capacity.refusal(operator, {}, _overloaded(operator, offers))
        else:
            wide *= 2


def _by_detour(problem: PlacementProblem, view: NetworkView) -> list[str]:
    """Return all nodes that may host, by their detour between two pinned ends, least first."""
    ends, hosts = sorted(set(problem.pinned.values())), view.nodes()
    away_ms = np.sort(view.latencies_ms(ends, hosts), axis=0)[:2].sum(axis=0)
    return [hosts[number] for number in np.argsort(away_ms, kind="stable").tolist()]


async def _colony(problem: PlacementProblem, view: NetworkView, pool: Sequence[str], offers: Mapping[str, Offer]) -> Colony:
    """Build the colony. Pinned ends are cells as well, even if they may host nothing, because ants pass them."""
    nodes = sorted({*pool, *problem.pinned.values()})
    terrain = await view.compute(partial(Terrain, nodes, await all_pairs_ms(view, nodes, "ants")))
    no_offer = Offer(Server(), NOTHING)
    cells = {node: Cell(node, terrain.neighbours[node], terrain.weights, *offers.get(node, no_offer)) for node in nodes}
    return Colony(cells, terrain.path_ms, view.rng)


def _place(problem: PlacementProblem, colony: Colony, settings: PlacementSettings) -> list[list[Report]] | None:
    """Return the reports for each chain, the enforced one first; None if a chain found no place."""
    hosts: dict[str, str] = {}
    reports_by_chain: list[list[Report]] = []
    while (chain := next_chain(problem, hosts)) is not None:
        reports = colony.place(chain, settings.routing_ants, settings.scouting_ants, settings.ant_tries)
        if not reports or not colony.enforce(reports[0]):
            return None
        hosts |= reports[0].hosts()
        reports_by_chain.append(reports)
    return reports_by_chain


def _homeless(problem: PlacementProblem, offers: Mapping[str, Offer]) -> Operator:
    """Return the first operator that no node would take even alone, or the first of all."""
    alone = (
        operator
        for operator in problem.operators
        if not any(has_capacity([operator.needs], offer.free) for offer in offers.values())
    )
    return next(alone, problem.operators[0])


def _overloaded(operator: Operator, offers: Mapping[str, Offer]) -> dict[str, str]:
    """Return for each node whose server could not keep up with the operator's rows the reason."""
    reasons = {}
    for node, offer in offers.items():
        load, more = float(offer.server.traffic().load), operator.rows_s * operator.service.mean_ms / 1e3 / offer.server.speed
        if load + more > MAX_LOAD:
            reasons[node] = f"has the capacity for it, but not the time: it would be busy for {load + more:.2f} s each second"
    return reasons


def _assignments(problem: PlacementProblem, reports_by_chain: Sequence[Sequence[Report]], cells: int) -> list[Assignment]:
    """Return the assignments.

    An operator's candidates are the nodes that scouts reported for it, with the least latency reported there.
    """
    assignments: dict[str, Assignment] = {}
    for reports in reports_by_chain:
        least: dict[str, dict[str, float]] = {}
        for report in reports:
            for operator, node in report.hosts().items():
                costs = least.setdefault(operator, {})
                costs[node] = min(costs.get(node, report.cost_ms), report.cost_ms)
        best = reports[0]
        why = (
            f"least latency by queueing ({best.latency_ms:.1f} ms for {best.chain.id}) of {len(reports)} scouts on {cells} nodes"
        )
        for operator, node in best.hosts().items():
            candidates = tuple(
                Candidate(node=other, distance_ms=0.0, accepted=True, predicted=cost)
                for other, cost in sorted(least[operator].items(), key=lambda pair: (pair[1], pair[0]))
            )
            assignments[operator] = Assignment(operator=operator, node=node, reason=why, candidates=candidates)
    return [assignments[operator.id] for operator in problem.operators]
