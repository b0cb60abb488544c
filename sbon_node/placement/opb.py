"""OPB: hosts by optimization power, under bounds on throughput and delay (OPB, sections III.A and III.B, Figure 2).

Operators are placed phase by phase. Nodes are discovered in windows of what they have left, those with most first, and a window
is opened only when no node of those before will do. Among the nodes discovered the one with the greatest power is taken that has
room and keeps to the bound; passes are repeated, each reckoning with the hosts of the one before for operators downstream, until
``patience`` of them have brought nothing.

Where the paper cannot be followed to the letter:

- Figure 2's first window ends at the cores all operators need together, so that the nodes with most are never found; here it has
  no upper end. It stops at z < 0, after a window below zero; here at z <= 0.
- Equation 5 divides by zero where operators share a host, overflows, and depends on units: its exponent is a rate times a
  latency. Here it is a logarithm with epsilons; delays are in milliseconds, cores in thousandths, and the usage in the exponent
  is relative to that of a mean link of the query over its longest direct way. Without a bound on delay there is no second factor.
- Figure 2 compares only the way to the operator with the bound; here the rest of the way, straight to the consumer, counts too,
  as does what others on the same host lose. Where a pass still ends with no host within the bound, the next ranks by delay.
- What earlier windows brought is not dropped when a new one is opened: it costs nothing to keep, and has room for lighter
  operators. Nor is a window discovered again in a later pass; once a pass has succeeded the next ones open them all, for the
  nodes that have most left are seldom those on the way.
- Where measuring is allowed the links of each pass are measured, and the next one knows them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec
import numpy as np
from numpy.typing import NDArray

from sbon_node.errors import SbonError
from sbon_node.placement.bounded import measured
from sbon_node.placement.discovery import window_of
from sbon_node.placement.mapping import finish
from sbon_node.placement.network_view import Answer, NetworkView
from sbon_node.placement.partial import Partial
from sbon_node.placement.problem import Assignment, Candidate, Operator, Placement, PlacementProblem
from sbon_node.placement.room import Room
from sbon_node.placement.settings import PlacementSettings

Floats = NDArray[np.float64]

LEAST_USAGE, LEAST_MS, LEAST_LOG = 0.01, 0.1, 0.01
"""Epsilons: of the usage in the exponent, of the delay a power is divided by, and of the logarithm of what is raised."""
MAX_PASSES = 30
SHOWN = 10
"""Candidates told of each operator."""


async def opb(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> Placement:
    """Raises :class:`SbonError` ``no-room``, or ``delay-bound`` where no pass keeps to it."""
    questions, discoveries = view.questions, view.discoveries
    search = _Search(problem, view, settings)
    best: Placement | None = None
    failed: SbonError | None = None
    in_vain, by_delay = 0, False
    for _ in range(MAX_PASSES):
        try:
            placed = await search.run(by_delay=by_delay)
        except SbonError as error:
            if error.code not in ("no-room", "delay-bound"):
                raise
            failed, by_delay, in_vain = error, not by_delay, in_vain + 1
        else:
            by_delay, in_vain = False, in_vain + 1
            if best is None or placed.usage < best.usage * (1 - 1e-9):
                best, in_vain = placed, 0
        if in_vain >= settings.patience:
            break
    if best is not None:
        return msgspec.structs.replace(best, questions=view.questions - questions, discoveries=view.discoveries - discoveries)
    assert failed is not None
    if failed.code == "no-room":
        raise await Room(problem, view).refusal(next(o for o in problem.operators if o.id == failed.where), {})
    raise failed


def phases(problem: PlacementProblem) -> dict[str, int]:
    """The phase number of every operator: one more than the greatest of what it reads, that of producers being 0."""
    found = dict.fromkeys(problem.pinned, 0)
    for operator in problem.operators:
        found[operator.id] = 1 + max((found[edge.source] for edge in problem.edges if edge.target == operator.id), default=0)
    return {operator.id: found[operator.id] for operator in problem.operators}


class _Search:
    """Pass after pass over one problem."""

    def __init__(self, problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> None:
        self._problem, self._view, self._settings = problem, view, settings
        phase = phases(problem)
        self._order = sorted(problem.operators, key=lambda operator: phase[operator.id])
        self._earlier: Mapping[str, str] = {}
        self._found: dict[int, dict[str, Answer]] = {}
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

    async def run(self, *, by_delay: bool) -> Placement:
        """One pass, over all windows from the start where it ranks ``by_delay``, or an earlier one has placed everything; raises
        ``no-room`` or ``delay-bound``, and says of which operator."""
        self._z = math.ceil(1 / self._settings.window_share)
        self._cache: list[str] = []
        partial = Partial(self._problem, self._view)
        while (by_delay or self._earlier) and await self._open(partial):
            pass
        before = self._view.questions
        assignments = {one.id: await self._place(one, partial, by_delay=by_delay) for one in self._order}
        trouble = await measured(partial, self._view, self._settings)
        self._earlier = dict(partial.hosts)
        ordered = [assignments[operator.id] for operator in self._problem.operators]
        if trouble:
            ordered = [msgspec.structs.replace(one, reason=f"{one.reason}; not measured: {trouble}") for one in ordered]
        return finish("opb", self._problem, ordered, self._view, before, cores=partial.cores())

    async def _open(self, partial: Partial) -> bool:
        """The next window, if there is one."""
        if self._z <= 0 or not self._problem.operators:
            return False
        first = self._z == math.ceil(1 / self._settings.window_share)
        self._z -= 1
        below = math.inf if first else (self._z + 1) * self._width
        if self._z not in self._found:
            window = window_of(self._problem, self._settings, self._z * self._width, below)
            self._found[self._z] = await self._view.discover(window)
        partial.know(self._found[self._z])
        self._cache += self._found[self._z]
        return True

    async def _place(self, operator: Operator, partial: Partial, *, by_delay: bool) -> Assignment:
        roomy = False
        while True:
            nodes = [node for node in self._cache if node not in operator.refused]
            if nodes:
                fits = partial.fits(operator, nodes)
                roomy = roomy or bool(fits.any())
                through_ms = partial.through_ms(operator, nodes)
                bound = self._problem.bounds.max_delay_ms
                eligible = fits if bound is None else fits & (through_ms <= bound)
                powers = -through_ms if by_delay else self._powers(operator, nodes, partial)
                order = [i for i in np.argsort(-powers, kind="stable").tolist() if eligible[i] and powers[i] > -math.inf]
                chosen = next((i for i in order if not partial.lateness(operator, nodes[i])), None)
                if chosen is not None:
                    partial.place(operator.id, nodes[chosen])
                    what = "shortest way" if by_delay else f"optimization power e^{powers[chosen]:.2f}, the greatest"
                    return Assignment(
                        operator=operator.id,
                        node=nodes[chosen],
                        reason=f"{what} of {len(order)} with room and in time, of {len(nodes)} discovered",
                        candidates=_told(nodes, order, powers, chosen, by_delay=by_delay),
                    )
            if not await self._open(partial):
                break
        if roomy and self._problem.bounds.max_delay_ms is not None:
            message = f"no node with room for operator {operator.id} is within {self._problem.bounds.max_delay_ms:g} ms"
            hint = "allow more delay, or add nodes near the sources or the consumer"
            raise SbonError("delay-bound", message, where="max_delay_ms", hint=hint)
        raise SbonError("no-room", f"no node has room for operator {operator.id}", where=operator.id)

    def _powers(self, operator: Operator, nodes: list[str], partial: Partial) -> Floats:
        """The logarithm of equation 5 for each node, [nodes]; negative infinity where the operator there would break the bound.

        Operators downstream are where the pass before had them, in the first pass where the consumers are.
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


def _told(nodes: list[str], order: list[int], powers: Floats, chosen: int, *, by_delay: bool) -> tuple[Candidate, ...]:
    told = [chosen, *(i for i in order if i != chosen)][:SHOWN]
    return tuple(
        Candidate(
            node=nodes[i],
            distance_ms=0.0,
            accepted=True,
            reason=f"{-powers[i]:.1f} ms through it" if by_delay else f"power e^{powers[i]:.2f}",
        )
        for i in told
    )
