"""ANTS: placement for the least latency by queueing, by routing, scouting and enforcement ants (Lakshmanan, Strom, 2008).

The ants of one query walk over the placing node's knowledge. The cells are the nodes with the least detour between the pinned
ends; each is asked once for its load and capacity. Latencies are not measured anew. The steps of an ant at a cell are in files of
their own, and need only the cell (:mod:`~sbon_node.papers.ants.algorithm.routing`,
:mod:`~sbon_node.papers.ants.algorithm.scouting`).

Ants minimise latency under every objective. If no scout finds hosts for all tasks, more ants walk, and stray farther, then
among twice as many nodes, up to all.
"""

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from sbon_node.papers.ants.algorithm.cell import Cell
from sbon_node.papers.ants.algorithm.chain import next_chain
from sbon_node.papers.ants.algorithm.colony import Colony, Scouted, assigned
from sbon_node.papers.ants.algorithm.terrain import Terrain
from sbon_node.placement.model.latency_matrix import all_pairs_ms
from sbon_node.placement.model.network_view import NOTHING, NetworkView
from sbon_node.placement.model.problem import Operator, PlacementProblem, has_capacity
from sbon_node.placement.model.queueing import MAX_LOAD, Server
from sbon_node.placement.selection.capacity import KnownCapacity
from sbon_node.placement.selection.discovery import Offer, ask_offers
from sbon_node.placement.selection.mapping import finish
from sbon_node.placement.settings import PlacementSettings
from sbon_protocol.api.placement import Placement


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
                among = f"scouts on {len(pool)} nodes"
                by_operator = {one.operator: one for reports in reports_by_chain for one in assigned(reports, among)}
                return finish("ants", problem, [by_operator[operator.id] for operator in problem.operators], view, before)
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


def _place(problem: PlacementProblem, colony: Colony, settings: PlacementSettings) -> list[list[Scouted]] | None:
    """Return the reports for each chain, the enforced one first; None if a chain found no place."""
    hosts: dict[str, str] = {}
    reports_by_chain: list[list[Scouted]] = []
    while (chain := next_chain(problem, hosts)) is not None:
        reports = colony.place(chain, settings.routing_ants, settings.scouting_ants, settings.ant_tries)
        if not reports or not colony.enforce(reports[0]):
            return None
        hosts |= reports[0].hosts()
        reports_by_chain.append(reports)
    return reports_by_chain


def _homeless(problem: PlacementProblem, offers: Mapping[str, Offer]) -> Operator:
    """Return the first operator that no node would take even alone, or the first of all."""
    for operator in problem.operators:
        if not any(has_capacity([operator.needs], offer.free) for offer in offers.values()):
            return operator
    return problem.operators[0]


def _overloaded(operator: Operator, offers: Mapping[str, Offer]) -> dict[str, str]:
    """Return for each node whose server could not keep up with the operator's rows the reason."""
    reasons = {}
    for node, offer in offers.items():
        load, more = float(offer.server.traffic().load), operator.rows_s * operator.service.mean_ms / 1e3 / offer.server.speed
        if load + more > MAX_LOAD:
            reasons[node] = f"has the capacity for it, but not the time: it would be busy for {load + more:.2f} s each second"
    return reasons
