"""AUTO: the exact optimum where it is affordable, HYBRID elsewhere.

``optimal`` places the query by measured latencies under two conditions. There are at most ``MAX_PLACEMENTS`` placements (hosts to
the power of operators). All latencies between the hosts and the query's endpoints are measured, or at most ``PAIRS`` measurements
per operator, which hybrid may also make, complete them. Otherwise ``hybrid`` does: where a node answers no pings, too much was
measured lately, nothing may be measured, or ``optimal`` lacks its solver or cannot minimise the objective.
"""

from __future__ import annotations

from itertools import combinations

import msgspec

from sbon_node.errors import SbonError
from sbon_node.model.placement import Placement
from sbon_node.placement.model.latency_matrix import LatencyMatrix
from sbon_node.placement.model.network_view import NetworkView
from sbon_node.placement.model.problem import PlacementProblem
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.strategies.hybrid.hybrid import hybrid
from sbon_node.placement.strategies.sbon.optimal import optimal

MAX_PLACEMENTS = 1_000_000
PAIRS = 100
UNSOLVABLE = frozenset({"too-large", "input-missing", "unsupported-objective"})


async def auto(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> Placement:
    """Place the query; the placement names the strategy taken and why. Raises the errors of that strategy."""
    before = view.probes
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
            return _with_reason(
                placement, f"all latencies are measured, and {many:,} placements are few enough for an exact search", view, before
            )
    return _with_reason(await hybrid(problem, view, settings), why, view, before)


async def _inexact(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> str:
    """Return why the exact optimum is not taken; empty if all latencies it needs are measured now."""
    hosts, many = view.nodes(), len(problem.operators)
    nodes = sorted({*hosts, *problem.pinned.values()})
    pairs = list(combinations(range(len(nodes)), 2))
    if not settings.measure:
        return "nothing may be measured"
    if len(hosts) ** many > MAX_PLACEMENTS:
        return f"{len(hosts)} hosts for {many} operators are more than {MAX_PLACEMENTS:,} placements"
    if len(pairs) > PAIRS * many:
        return f"{len(pairs)} pairs of nodes are more than the {PAIRS * many} that may be measured for {many} operators"
    latencies = LatencyMatrix(view, nodes)
    await latencies.measure(pairs)
    if latencies.trouble:
        return f"not all latencies are measured: {latencies.trouble}"
    missing = (latencies.measured.size - int(latencies.measured.sum())) // 2
    return f"{missing} of {len(pairs)} latencies could not be measured" if missing else ""


def _with_reason(placement: Placement, why: str, view: NetworkView, before: int) -> Placement:
    reason = f"auto took {placement.strategy}: {why}"
    return msgspec.structs.replace(placement, reason=reason, probes=view.probes - before)
