"""Capacities and loads learnt while one query is placed. A node counts as free until it refuses (SBON, section 3.1.3, step 5)."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from sbon_node.placement.model.instance import RESOURCES, Floats
from sbon_node.placement.model.network_view import UNKNOWN_MS, Answer, NetworkView, loads_above_least
from sbon_node.placement.model.problem import Operator, PlacementProblem, least, total
from sbon_node.placement.selection.mapping import no_capacity, nowhere_in_time
from sbon_protocol.api.placement import Candidate
from sbon_protocol.errors import SbonError

NEWS_MS = 5.0
"""How much more a node has to answer than it has published as its load, so that the query is placed anew with that."""
TOGETHER = "has capacity for it, but not for all of the query's operators that would have to go there"


class KnownCapacity:
    """Ask nodes for capacity, and keep what refusing nodes have left.

    ``rejected`` maps an operator to the nodes that do not take it even alone. Asking reserves nothing.
    """

    def __init__(self, problem: PlacementProblem, view: NetworkView) -> None:
        self._problem, self._view = problem, view
        self._needs = {operator.id: operator.needs for operator in problem.operators}
        self._free: dict[str, tuple[float, ...]] = {}
        self._granted: set[tuple[str, frozenset[str]]] = set()
        self._reasons: dict[tuple[str, str], str] = {}
        self._believed_ms: dict[str, float] = {}
        self.rejected: dict[str, set[str]] = {operator.id: set(operator.refused) for operator in problem.operators}

    def free(self, nodes: Sequence[str]) -> Floats:
        """Return the free capacity, shape [nodes, RESOURCES]; infinite where unknown."""
        everything = (np.inf,) * RESOURCES
        return np.array([self._free.get(node, everything) for node in nodes]).reshape(-1, RESOURCES)

    def loads_ms(self, nodes: Sequence[str]) -> Floats:
        """Return :func:`~sbon_node.placement.model.network_view.loads_above_least`, shape [nodes]."""
        self._believed_ms = {node: self._view.load_ms(node) for node in nodes}
        return np.array(list(loads_above_least(self._view, nodes).values()))

    def cores(self) -> dict[str, float]:
        """Return the free cores of each node where known."""
        return {node: free[0] for node, free in self._free.items()}

    async def grants(self, hosts: Mapping[str, str]) -> bool:
        """Return whether every node has capacity for all operators that ``hosts`` puts there, and no greater load than believed.

        Refusals and loads are kept.
        """
        together: dict[str, list[str]] = {}
        for operator, node in hosts.items():
            together.setdefault(node, []).append(operator)
        granted = True
        for node, operators in together.items():
            group = frozenset(operators)
            if (node, group) in self._granted:
                continue
            answer = await self._view.ask(node, total([self._needs[operator] for operator in operators]))
            if answer.accepted:
                self._granted.add((node, group))
            else:
                granted = False
                self._refused(node, operators, answer)
            if node in self._believed_ms:
                granted &= self._view.load_ms(node) <= self._believed_ms[node] + NEWS_MS
        return granted

    async def learn(self, nodes: Collection[str]) -> None:
        """Ask each node for its free capacity where that is unknown."""
        smallest = least(list(self._needs.values()))
        answers = await self._view.ask_all(sorted(node for node in nodes if node not in self._free), smallest)
        for node, answer in answers.items():
            self._free[node] = (*answer.capacity.amounts, np.inf)
            for operator, needs in self._needs.items():
                if not answer.accepted or any(n > f + 1e-9 for n, f in zip(needs.amounts, self._free[node], strict=False)):
                    self.rejected[operator].add(node)
                    if not answer.accepted and needs == smallest:
                        self._reasons[operator, node] = answer.reason

    async def refusal(
        self, operator: Operator, distances_ms: Mapping[str, float], because: Mapping[str, str] | None = None
    ) -> SbonError:
        """Return the error ``no-capacity``, with each node's reason to refuse the operator.

        Nodes that were not asked for the operator alone are asked now. For nodes that would take it, ``because`` gives the reason
        why they were left out, unless that was the rest of the query or the bound on delay. If the bound on delay left such a
        node out, the error is ``delay-bound``.
        """
        because = because or {}
        nodes = [node for node in self._view.nodes() if node not in operator.refused]
        unanswered = [node for node in nodes if (operator.id, node) not in self._reasons]
        answers = await self._view.ask_all(unanswered, self._needs[operator.id])
        for node, answer in answers.items():
            self._reasons[operator.id, node] = because.get(node, TOGETHER) if answer.accepted else answer.reason
        bound = self._problem.bounds.max_delay_ms
        if bound is not None and any(answer.accepted and node not in because for node, answer in answers.items()):
            return nowhere_in_time(bound)
        away_ms = sorted((distances_ms.get(node, UNKNOWN_MS), node) for node in nodes)
        reasons = [(node, ms, self._reasons[operator.id, node]) for ms, node in away_ms]
        return no_capacity(operator, [Candidate(node=n, distance_ms=ms, accepted=False, reason=why) for n, ms, why in reasons])

    async def nowhere(self, distances_ms: Mapping[str, float] | None = None) -> SbonError:
        """Return the error if no placement of all candidates keeps bounds, by distances from the first virtual coordinate."""
        bound = self._problem.bounds.max_delay_ms
        return await self.refusal(self._problem.operators[0], distances_ms or {}) if bound is None else nowhere_in_time(bound)

    def reason(self, operator: str, node: str) -> str:
        """Return why the node refuses the operator; empty if it accepts or was not asked."""
        if node not in self.rejected[operator]:
            return ""
        return self._reasons.get((operator, node), "not enough capacity")

    def _refused(self, node: str, operators: Sequence[str], answer: Answer) -> None:
        """Keep the capacity of a node that refuses these operators; if its resources suffice, their number is the limit."""
        free = answer.capacity.amounts
        fits = all(n <= f + 1e-9 for n, f in zip(total([self._needs[o] for o in operators]).amounts, free, strict=True))
        self._free[node] = (*free, float(len(operators) - 1) if fits else np.inf)
        for operator in self._needs:
            alone = [operator] == list(operators)
            if alone or any(n > f + 1e-9 for n, f in zip(self._needs[operator].amounts, free, strict=True)):
                self.rejected[operator].add(node)
        if len(operators) == 1:
            self._reasons[operators[0], node] = answer.reason
