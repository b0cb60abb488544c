"""AUTO: a strategy that suits the query, its adaptation and the nodes.

1. Ants place a query that ants adapt: both seek the least latency.
2. ``optimal`` places the query by measured latencies under two conditions. There are at most ``MAX_PLACEMENTS`` placements (hosts
   to the power of operators). All latencies between the hosts and the query's endpoints are measured, or at most ``PAIRS``
   measurements per operator, which hybrid may also make, complete them. Where the operators may move, these are at most
   ``PAIRS_ADAPTED``, about as many as hybrid makes: moves mend what a cheap placement has missed.
3. ``local-search`` places a query of ``LARGE`` operators or more that stays where it is placed, if most nodes have a configured
   parent: in hierarchies it finds the better placements (docs/figures/hierarchies.md).
4. ``hybrid`` places all others. So it does where a node answers no pings, too much was measured lately, nothing may be measured,
   or the strategy above lacks its solver, refuses so many nodes, or cannot minimise the objective.
"""

from collections.abc import Awaitable, Callable, Mapping
from itertools import combinations

import msgspec

from sbon_node.placement.model.latency_matrix import LatencyMatrix
from sbon_node.placement.model.network_view import NetworkView
from sbon_node.placement.model.problem import PlacementProblem
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.strategies.hybrid.hybrid import hybrid
from sbon_node.placement.strategies.sbon.optimal import optimal
from sbon_protocol.api.adaptation import ANTS, OFF
from sbon_protocol.api.placement import Placement
from sbon_protocol.errors import SbonError

MAX_PLACEMENTS = 1_000_000
PAIRS, PAIRS_ADAPTED = 100, 10
LARGE = 12
"""Operators of a large query."""
LOCAL_SEARCH = "local-search"
UNSOLVABLE = frozenset({"too-large", "input-missing", "unsupported-objective"})

Strategy = Callable[[PlacementProblem, NetworkView, PlacementSettings], Awaitable[Placement]]


async def auto(
    problem: PlacementProblem, view: NetworkView, settings: PlacementSettings, *, strategies: Mapping[str, Strategy]
) -> Placement:
    """Place the query by one of the ``strategies``; the placement names it and why. Raises the errors of that strategy."""
    before = view.probes
    if problem.adapt == ANTS:
        placement = await strategies[ANTS](problem, view, settings)
        return _with_reason(placement, "ants adapt the query, and seek the least latency as it does", view, before)
    why = await _inexact(problem, view, settings)
    if not why:
        many = len(view.nodes()) ** len(problem.operators)
        exactly = f"all latencies are measured, and {many:,} placements are few enough for an exact search"
        placed, why = await _tried(optimal, problem, view, settings)
        if placed is not None:
            return _with_reason(placed, exactly, view, before)
    if problem.adapt == OFF and len(problem.operators) >= LARGE and _is_hierarchy(view):
        placed, refused = await _tried(strategies[LOCAL_SEARCH], problem, view, settings)
        if placed is not None:
            large = f"{len(problem.operators)} operators over a hierarchy, which stay where they are placed"
            return _with_reason(placed, f"{why}; {large}", view, before)
        why = f"{why}; {refused}"
    return _with_reason(await hybrid(problem, view, settings), why, view, before)


async def _tried(
    strategy: Strategy, problem: PlacementProblem, view: NetworkView, settings: PlacementSettings
) -> tuple[Placement | None, str]:
    """Return the strategy's placement, or None and why it cannot place such a problem."""
    try:
        return await strategy(problem, view, settings), ""
    except SbonError as error:
        if error.code not in UNSOLVABLE:
            raise
        return None, error.message


def _is_hierarchy(view: NetworkView) -> bool:
    """Return whether most nodes have a configured parent."""
    nodes = view.nodes()
    return 2 * sum(view.parent(node) is not None for node in nodes) > len(nodes)


async def _inexact(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> str:
    """Return why the exact optimum is not taken; empty if all latencies it needs are measured now."""
    hosts, many = view.nodes(), len(problem.operators)
    nodes = sorted({*hosts, *problem.pinned.values()})
    pairs = list(combinations(range(len(nodes)), 2))
    if not settings.measure:
        return "nothing may be measured"
    if len(hosts) ** many > MAX_PLACEMENTS:
        return f"{len(hosts)} hosts for {many} operators are more than {MAX_PLACEMENTS:,} placements"
    budget, that = (PAIRS, "") if problem.adapt == OFF else (PAIRS_ADAPTED, " that can move")
    if len(pairs) > budget * many:
        return f"{len(pairs)} pairs of nodes are more than the {budget * many} that may be measured for {many} operators{that}"
    latencies = LatencyMatrix(view, nodes)
    await latencies.measure(pairs)
    if latencies.trouble:
        return f"not all latencies are measured: {latencies.trouble}"
    missing = (latencies.measured.size - int(latencies.measured.sum())) // 2
    return f"{missing} of {len(pairs)} latencies could not be measured" if missing else ""


def _with_reason(placement: Placement, why: str, view: NetworkView, before: int) -> Placement:
    reason = f"auto took {placement.strategy}: {why}"
    return msgspec.structs.replace(placement, reason=reason, probes=view.probes - before)
