"""LOCAL-SEARCH: what NES's strategies place, improved move by move over all nodes. Ours.

Whatever the hierarchy: a link costs its rate times the latency between its ends. Nodes are taken to have room until one refuses;
then what it and the others that operators would go to have left is asked, and the search goes on with that, as long as it finds
what keeps to it.
"""

from __future__ import annotations

from functools import partial

import msgspec
import numpy as np

from sbon_node.errors import SbonError
from sbon_node.placement.all_pairs import all_pairs_ms
from sbon_node.placement.instance import Instance, numbers
from sbon_node.placement.mapping import finish
from sbon_node.placement.moves import Moves
from sbon_node.placement.network_view import NetworkView
from sbon_node.placement.problem import Assignment, Placement, PlacementProblem
from sbon_node.placement.repair import WIDTH, improved
from sbon_node.placement.room import Room
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.solver import penalised
from sbon_node.placement.strategies.bottom_up import bottom_up
from sbon_node.placement.strategies.ifcop import ifcop
from sbon_node.placement.strategies.top_down import top_down

STARTS = (bottom_up, top_down, ifcop)


async def local_search(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> Placement:
    """Raises :class:`SbonError` ``no-room``, or ``delay-bound`` where nothing found keeps to the bound."""
    before = view.questions
    if not problem.operators:
        return finish("local-search", problem, [], view, before)
    unhurried = msgspec.structs.replace(problem.bounds, max_delay_ms=None)
    placed = await _starts(msgspec.structs.replace(problem, bounds=unhurried), view, settings)
    room = Room(problem, view)
    hosts = view.nodes()
    nodes = sorted({*hosts, *problem.pinned.values()})
    number = {node: i for i, node in enumerate(nodes)}
    latency_ms = await all_pairs_ms(view, nodes, "local-search")
    while True:
        able = [numbers([node for node in hosts if node not in room.rejected[o.id]], number) for o in problem.operators]
        instance = Instance(problem, nodes, latency_ms, able, room.free(nodes))
        starts = [numbers([one.hosts()[o.id] for o in problem.operators], number) for one in placed]
        found = np.array([await view.compute(partial(improved, instance, start)) for start in starts])
        costs = penalised(instance, instance.evaluate(found))
        best = found[costs.argmin()]
        if instance.evaluate(best[None]).overload[0] > 0.0:
            raise await room.nowhere()
        if await room.grants(instance.named(best.tolist())):
            break
        await room.learn({nodes[host] for few in Moves(instance, best).cheapest(WIDTH) for host in few.tolist()})
    reason = f"no better place for it on {len(hosts)} nodes, from {placed[int(costs.argmin())].strategy}'s placement on"
    assignments = [Assignment(operator=o, node=n, reason=reason) for o, n in instance.named(best.tolist()).items()]
    return finish("local-search", problem, assignments, view, before, cores=room.cores())


async def _starts(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> list[Placement]:
    """Of the strategies that find room; where none does, the last one's refusal is raised. None of them looks at delay."""
    found: list[Placement] = []
    refusal: SbonError | None = None
    for strategy in STARTS:
        try:
            found.append(await strategy(problem, view, settings))
        except SbonError as error:
            refusal = error
    if not found and refusal is not None:
        raise refusal
    return found
