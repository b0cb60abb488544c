"""LOCAL-SEARCH: placements of NES's strategies, improved move by move over all nodes. Ours.

The search ignores the hierarchy: a link costs its rate times the latency between its ends. Nodes count as free until one refuses.
Then this node and the other preferred hosts are asked what they have left. The search continues with these capacities as long as
it finds placements that keep them.
"""

from functools import partial

import msgspec
import numpy as np

from sbon_node.papers.nes.hierarchy import bottom_up, top_down
from sbon_node.papers.nes.ifcop import ifcop
from sbon_node.placement.model.instance import Instance, numbers
from sbon_node.placement.model.latency_matrix import all_pairs_ms
from sbon_node.placement.model.network_view import NetworkView
from sbon_node.placement.model.problem import PlacementProblem
from sbon_node.placement.selection.capacity import KnownCapacity
from sbon_node.placement.selection.mapping import finish
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.solvers.exact import WIDTH, improved, penalised
from sbon_node.placement.solvers.moves import Moves
from sbon_protocol.api.placement import Assignment, Placement
from sbon_protocol.errors import SbonError

STARTS = (bottom_up, top_down, ifcop)


async def local_search(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> Placement:
    """Place the query. Raises :class:`SbonError` ``no-capacity``, or ``delay-bound`` where no placement keeps the bound."""
    before = view.probes
    if not problem.operators:
        return finish("local-search", problem, [], view, before)
    unhurried = msgspec.structs.replace(problem.bounds, max_delay_ms=None)
    placements = await _starts(msgspec.structs.replace(problem, bounds=unhurried), view, settings)
    capacity = KnownCapacity(problem, view)
    hosts = view.nodes()
    nodes = sorted({*hosts, *problem.pinned.values()})
    number = {node: i for i, node in enumerate(nodes)}
    latency_ms = await all_pairs_ms(view, nodes, "local-search")
    while True:
        able = [numbers([node for node in hosts if node not in capacity.rejected[o.id]], number) for o in problem.operators]
        instance = Instance(problem, nodes, latency_ms, able, capacity.free(nodes), loads_ms=capacity.loads_ms(nodes))
        starts = [numbers([placement.hosts()[o.id] for o in problem.operators], number) for placement in placements]
        refined = np.array([await view.compute(partial(improved, instance, start)) for start in starts])
        costs = penalised(instance, refined)
        best = refined[costs.argmin()]
        if instance.evaluate(best[None]).overload[0] > 0.0:
            raise await capacity.nowhere()
        if await capacity.grants(instance.named(best.tolist())):
            break
        await capacity.learn({nodes[host] for few in Moves(instance, best).cheapest(WIDTH) for host in few.tolist()})
    reason = f"no better place for it on {len(hosts)} nodes, from {placements[int(costs.argmin())].strategy}'s placement on"
    assignments = [Assignment(operator=o, node=n, reason=reason) for o, n in instance.named(best.tolist()).items()]
    return finish("local-search", problem, assignments, view, before, cores=capacity.cores())


async def _starts(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> list[Placement]:
    """Return the placements of the strategies that find capacity.

    Where none does, raise the last error. None of them considers delay.
    """
    placements: list[Placement] = []
    refusal: SbonError | None = None
    for strategy in STARTS:
        try:
            placements.append(await strategy(problem, view, settings))
        except SbonError as error:
            refusal = error
    if not placements and refusal is not None:
        raise refusal
    return placements
