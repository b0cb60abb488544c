"""OPB: hosts by optimization power, with bounds on throughput and delay (OPB, sections III.A and III.B, Figure 2).

OPB places operators phase by phase. It discovers nodes in windows of free capacity, those with most first, and opens a window
only when no node of the earlier windows fits. Among the discovered nodes with capacity within the bound, it takes the node with
the greatest power. It repeats passes until ``patience`` of them have brought no improvement. For operators downstream, each pass
uses the hosts of the pass before.

Departures from the paper:

- Figure 2's first window ends at the cores all operators need together, so that the nodes with most are never discovered; here it
  has no upper end. The figure stops at z < 0, after a window below zero; here the search stops at z <= 0.
- Equation 5 divides by zero where operators share a host, overflows, and depends on units: its exponent is a rate times a
  latency. Here it is a logarithm with epsilons. Delays are in milliseconds, cores in thousandths. The usage in the exponent is
  relative to that of a mean link of the query over its longest direct path. Without a bound on delay there is no second factor.
- Figure 2 compares only the path to the operator with the bound. Here the rest of the path, directly to the consumer, counts too,
  and so does the delay added to other operators on the same host. Branches can still end so far apart that no host for their join
  is within the bound. Then the join goes where the excess is least, and the next passes move one operator at a time while the
  others stay. If that does not help, everything is placed once more, each operator where rows arrive first.
- Nodes of earlier windows are kept when a new window is opened: that costs nothing, and they have capacity for lighter operators.
  A later pass does not discover a window again. Once a pass has succeeded, the next ones open all windows, because the nodes that
  have most left are seldom those on the path.
- Where measuring is allowed, the links of each pass are measured, and the next pass uses the measurements.
"""

import math
from collections.abc import Mapping
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from sbon_node.placement.model.network_view import Answer, NetworkView
from sbon_node.placement.model.problem import Operator, PlacementProblem
from sbon_node.placement.selection.capacity import KnownCapacity
from sbon_node.placement.selection.discovery import window_of
from sbon_node.placement.selection.mapping import bounded, delay_bound, finish, measured, unmeasured
from sbon_node.placement.selection.partial import Partial
from sbon_node.placement.settings import PlacementSettings
from sbon_protocol.api.placement import Assignment, Candidate, Placement
from sbon_protocol.errors import SbonError

Floats = NDArray[np.float64]

LEAST_USAGE, LEAST_MS, LEAST_LOG = 0.01, 0.1, 0.01
"""Epsilons.

They belong to the usage in the exponent, to the delay that divides a power, and to the logarithm of the power's base.
"""
MAX_PASSES = 30
Pass = Literal["power", "moves", "early"]
"""Kind of a pass.

``power`` places all operators anew by power, ``moves`` moves them one by one by power, and ``early`` places all anew where rows
arrive first.
"""
TRIED = 60
"""Nodes tried for the least excess over the bound, those with the shortest path first."""
SHOWN = 10
"""Candidates listed for each operator."""


async def opb(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> Placement:
    """Place the query. Raises :class:`SbonError` ``no-capacity``, or ``delay-bound`` where no pass keeps the bound."""
    probes, discoveries = view.probes, view.discoveries
    search = _Search(problem, view, settings)
    best: Placement | None = None
    failed: SbonError | None = None
    kind: Pass = "power"
    in_vain, missing_ms, early = 0, math.inf, False
    for _ in range(MAX_PASSES):
        try:
            result = await search.run(kind)
        except SbonError as error:
            if error.code not in ("no-capacity", "delay-bound"):
                raise
            better = best is None and search.missing_ms < 0.99 * missing_ms
            in_vain, missing_ms = 0 if better else in_vain + 1, search.missing_ms
            failed, kind = error, "moves" if error.code == "delay-bound" else "power"
            if best is None and kind == "moves" and not better and not early:
                kind, in_vain, early = "early", 0, True
        else:
            kind = "moves" if kind == "early" else kind
            in_vain += 1
            if best is None or result.usage < best.usage * (1 - 1e-9):
                best, in_vain = result, 0
        if in_vain >= settings.patience:
            break
    if best is not None:
        return msgspec.structs.replace(best, probes=view.probes - probes, discoveries=view.discoveries - discoveries)
    assert failed is not None
    if failed.code == "no-capacity":
        raise await KnownCapacity(problem, view).refusal(next(o for o in problem.operators if o.id == failed.where), {})
    raise failed


def phases(problem: PlacementProblem) -> dict[str, int]:
    """Return the phase number of every operator: one more than the greatest of its inputs. Producers have 0."""
    depths = dict.fromkeys(problem.pinned, 0)
    for operator in problem.operators:
        depths[operator.id] = 1 + max((depths[edge.source] for edge in problem.edges if edge.target == operator.id), default=0)
    return {operator.id: depths[operator.id] for operator in problem.operators}


class _Search:
    """Passes over one problem."""

    def __init__(self, problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> None:
        self._problem, self._view, self._settings = problem, view, settings
        phase = phases(problem)
        self._order = sorted(problem.operators, key=lambda operator: phase[operator.id])
        self._earlier: Mapping[str, str] = {}
        self.missing_ms = math.inf
        self._answers: dict[int, dict[str, Answer]] = {}
        sources = {edge.source for edge in problem.edges}
        producers = [node for vertex, node in problem.pinned.items() if vertex in sources]
        consumers = [node for vertex, node in problem.pinned.items() if vertex not in sources]
        span_ms = float(view.latencies_ms(producers, consumers).max(initial=0.0))
        rates = [edge.rate_bytes_s for edge in problem.edges]
        self._usage_scale = max(sum(rates) / len(rates) * span_ms, 1e-9) if rates else 1.0
        bound = problem.bounds.max_delay_ms
        cores = sum(operator.needs.cores for operator in problem.operators)
        if bound:
            cores += sum(operator.row_core_ms for operator in problem.operators) / (settings.processing_share * bound)
        self._width = settings.window_share * cores

    async def run(self, kind: Pass) -> Placement:
        """Run one pass; moves start from the result of the pass before.

        Once a pass has placed everything, all windows are open. Raises ``no-capacity``, which names the operator, or
        ``delay-bound``, with the excess in ``missing_ms``.
        """
        self._z = math.ceil(1 / self._settings.window_share)
        self._cache: list[str] = []
        partial = Partial(self._problem, self._view)
        while self._earlier and await self._open(partial):
            pass
        before = self._view.probes
        for operator, node in self._earlier.items() if kind == "moves" else ():
            partial.place(operator, node)
        self.missing_ms = math.inf
        assignments = {}
        for next_operator in self._order:
            assignments[next_operator.id] = await self._place(next_operator, partial, kind)
            await self._view.pause()
        trouble = await measured(partial, self._view, self._settings)
        self._earlier, self.missing_ms = dict(partial.hosts), partial.excess_ms()
        ordered = unmeasured([assignments[operator.id] for operator in self._problem.operators], trouble)
        return finish("opb", self._problem, ordered, self._view, before, cores=partial.cores())

    async def _open(self, partial: Partial) -> bool:
        """Open the next window; return whether there was one."""
        if self._z <= 0 or not self._problem.operators:
            return False
        first = self._z == math.ceil(1 / self._settings.window_share)
        self._z -= 1
        below = math.inf if first else (self._z + 1) * self._width
        if self._z not in self._answers:
            window = window_of(self._problem, self._settings, self._z * self._width, below)
            self._answers[self._z] = await self._view.discover(window)
        partial.know(self._answers[self._z])
        self._cache += self._answers[self._z]
        return True

    async def _place(self, operator: Operator, partial: Partial, kind: Pass) -> Assignment:
        """Place an operator by power on the discovered nodes.

        If none fits, more windows are opened; if none fits then, the operator goes where the excess over the bound is least.
        """
        partial.remove(operator.id)
        while True:
            nodes = [node for node in self._cache if node not in operator.refused]
            if not nodes and await self._open(partial):
                continue
            if not nodes:
                raise SbonError("no-capacity", f"no node has capacity for operator {operator.id}", where=operator.id)
            nodes = [node for node, fits in zip(nodes, partial.fits(operator, nodes).tolist(), strict=True) if fits]
            powers = self._powers(operator, nodes, partial) if nodes else np.empty(0)
            rank = powers if kind != "early" or not nodes else -partial.arrived_ms(operator, nodes)
            order = [i for i in np.argsort(-rank, kind="stable").tolist() if powers[i] > -math.inf]
            chosen = next((i for i in order if not partial.lateness(operator, nodes[i])), None)
            if chosen is not None:
                power = f"optimization power e^{powers[chosen]:.2f}, the greatest"
                reason = f"{'where rows arrive first' if kind == 'early' else power} in time, of {len(nodes)} with capacity"
                break
            if not await self._open(partial):
                if not nodes:
                    raise SbonError("no-capacity", f"no node has capacity for operator {operator.id}", where=operator.id)
                chosen = self._least_late(operator, nodes, powers, partial)
                reason = f"least beyond the bound on delay of {len(nodes)} with capacity"
                break
        partial.place(operator.id, nodes[chosen])
        shown = [chosen, *(i for i in order if i != chosen)][:SHOWN]
        power_of = {nodes[i]: f"power e^{powers[i]:.2f}" for i in shown}
        candidates = tuple(Candidate(node=node, distance_ms=0.0, accepted=True, reason=power) for node, power in power_of.items())
        return Assignment(operator=operator.id, node=nodes[chosen], reason=reason, candidates=candidates)

    def _least_late(self, operator: Operator, nodes: list[str], powers: Floats, partial: Partial) -> int:
        """Return the node with the least excess over the bound; of equals, that with most power."""
        tried: list[int] = np.argsort(partial.through_ms(operator, nodes), kind="stable")[:TRIED].tolist()
        return min(tried, key=lambda i: (round(partial.excess_ms(operator.id, nodes[i]), 3), -powers[i], i))

    def _powers(self, operator: Operator, nodes: list[str], partial: Partial) -> Floats:
        """Return the logarithm of equation 5 for each node, [nodes].

        It is negative infinity where the operator there would break the bound. Operators downstream are at their hosts of the
        pass before, in the first pass at the consumers.
        """
        usage, farthest_ms = np.zeros(len(nodes)), np.zeros(len(nodes))
        for edges, upstream in ((partial.inputs[operator.id], True), (partial.outputs[operator.id], False)):
            reached = np.zeros(len(nodes))
            for edge in edges:
                ends = self._ends(edge.source if upstream else edge.target, partial)
                ms = self._view.latencies_ms(ends, nodes).max(axis=0, initial=0.0)
                usage += edge.rate_bytes_s * ms
                reached = np.maximum(reached, ms)
            farthest_ms += reached
        cores = 1000.0 * partial.left(nodes)[:, 0]
        base = np.maximum(np.log(np.maximum(cores, 1e-9) / np.maximum(farthest_ms, LEAST_MS)), LEAST_LOG)
        powers: Floats = base / (usage / self._usage_scale + LEAST_USAGE)
        bound = self._problem.bounds.max_delay_ms
        if bound is not None:
            slack_ms = bound - partial.takes_ms(operator, nodes) - farthest_ms
            powers = np.where(slack_ms > 0, powers + np.log(np.maximum(slack_ms, 1e-300)), -math.inf)
        return powers

    def _ends(self, vertex: str, partial: Partial) -> tuple[str, ...]:
        placed = partial.node(vertex) or self._earlier.get(vertex)
        return (placed,) if placed is not None else partial.ends(vertex)


async def min_delay(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> Placement:
    """MIN-DELAY: every operator goes where the path through it is shortest (OPB, section IV.A).

    The path runs from the sources through the operator and then directly to the consumer, processing included. The paper searches
    all nodes, with a resource discovery for each operator. The greedy choice considers only the delay, and the capacity that
    earlier operators have taken. Raises :class:`SbonError` ``no-capacity``, or ``delay-bound`` where a path takes too long.
    """

    async def attempt(partial: Partial) -> list[Assignment]:
        return [await _place(operator, problem, view, settings, partial) for operator in problem.operators]

    return await bounded("min-delay", problem, view, settings, attempt)


async def _place(
    operator: Operator, problem: PlacementProblem, view: NetworkView, settings: PlacementSettings, partial: Partial
) -> Assignment:
    nodes_with_capacity = await view.discover(window_of(problem, settings, operator.needs.cores))
    partial.know(nodes_with_capacity)
    nodes = [node for node in nodes_with_capacity if node not in operator.refused]
    roomy = [node for node, fits in zip(nodes, partial.fits(operator, nodes).tolist(), strict=True) if fits]
    if not roomy:
        raise await KnownCapacity(problem, view).refusal(operator, {})
    through_ms = partial.through_ms(operator, roomy)
    best_ms, bound = float(through_ms.min()), problem.bounds.max_delay_ms
    for index in np.argsort(through_ms, kind="stable").tolist():
        if not partial.lateness(operator, roomy[index]):
            partial.place(operator.id, roomy[index])
            reason = f"shortest path through it of {len(roomy)} with capacity ({through_ms[index]:.1f} ms)"
            return Assignment(operator=operator.id, node=roomy[index], reason=reason)
    assert bound is not None
    raise delay_bound(bound, best_ms)
