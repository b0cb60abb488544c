"""AUTO: the exact optimum where it can be had, HYBRID elsewhere.

The rule: where the placements are at most ``MAX_PLACEMENTS`` (hosts to the power of operators), and all ways between the hosts
and the query's endpoints are measured, or can be for at most ``PAIRS`` measurements an operator, which hybrid may ask for too,
``optimal`` takes the best by measured latencies. Where that cannot be, as a node answers no pings, too much was measured lately,
nothing may be measured, or ``optimal`` lacks its solver or cannot minimise what is asked for, ``hybrid`` does.
"""

from __future__ import annotations

from itertools import combinations

import msgspec

from sbon_node.errors import SbonError
from sbon_node.placement.network_view import NetworkView
from sbon_node.placement.problem import Placement, PlacementProblem
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.strategies.hybrid import hybrid
from sbon_node.placement.strategies.optimal import optimal
from sbon_node.placement.ways import Ways

MAX_PLACEMENTS = 1_000_000
PAIRS = 100
UNSOLVABLE = frozenset({"too-large", "input-missing", "unsupported-objective"})


async def auto(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> Placement:
    """The placement names the strategy that was taken, and why. Raises what that one raises."""
    before = view.questions
    why = await _inexact(problem, view, settings)
    if not why:
        try:
            placement = await optimal(problem, view, settings)
        except SbonError as error:
            if error.code not in UNSOLVABLE:
                raise
            why = error.message
        else:
            many = len(view.nodes()) ** len(problem.operators)
            return _told(placement, f"all ways are measured, and of {many:,} placements the best can be found", view, before)
    return _told(await hybrid(problem, view, settings), why, view, before)


async def _inexact(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> str:
    """Why not the exact optimum; empty where all that it takes is measured now."""
    hosts, many = view.nodes(), len(problem.operators)
    nodes = sorted({*hosts, *problem.pinned.values()})
    pairs = list(combinations(range(len(nodes)), 2))
    if not settings.measure:
        return "nothing may be measured"
    if len(hosts) ** many > MAX_PLACEMENTS:
        return f"{len(hosts)} hosts for {many} operators are more than {MAX_PLACEMENTS:,} placements"
    if len(pairs) > PAIRS * many:
        return f"{len(pairs)} pairs of nodes are more than the {PAIRS * many} that may be measured for {many} operators"
    ways = Ways(view, nodes)
    await ways.measure(pairs)
    if ways.trouble:
        return f"not all ways are measured: {ways.trouble}"
    missing = (ways.measured.size - int(ways.measured.sum())) // 2
    return f"{missing} of {len(pairs)} ways could not be measured" if missing else ""


def _told(placement: Placement, why: str, view: NetworkView, before: int) -> Placement:
    reason = f"auto took {placement.strategy}: {why}"
    return msgspec.structs.replace(placement, reason=reason, questions=view.questions - before)
