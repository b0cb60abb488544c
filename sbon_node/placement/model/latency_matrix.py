"""Latencies between the nodes of a pool: estimates, replaced by measurements on request."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from sbon_node.placement.model.instance import Floats, Ints
from sbon_node.placement.model.network_view import UNKNOWN_MS, NetworkView
from sbon_protocol.errors import SbonError

NEARBY = 0.1
"""Share of the pool's median latency. At this distance, the error of one node's estimates counts a third for another node."""
NOTHING_MISSED = 0.5
BATCH = 64
"""Pairs measured at once. The next ones follow only after these, in case a node refuses."""


class LatencyMatrix:
    """One-way latencies in milliseconds, [n, n] over ``nodes``.

    ``estimated_ms`` holds the first estimates, ``ms`` the current values, and ``measured`` the pairs measured here. ``trouble``
    is the reason why not all was measured. ``lost`` are nodes without a known coordinate: they count as far away.
    """

    def __init__(self, view: NetworkView, nodes: Sequence[str], lost: Sequence[str] = ()) -> None:
        self._view, self.nodes = view, nodes
        self.estimated_ms = view.latencies_ms(nodes, nodes)
        away = [number for number, node in enumerate(nodes) if node in lost]
        self.estimated_ms[away], self.estimated_ms[:, away] = UNKNOWN_MS, UNKNOWN_MS
        np.fill_diagonal(self.estimated_ms, 0.0)
        self.ms = self.estimated_ms.copy()
        self.measured = np.eye(len(nodes), dtype=np.bool_)
        self._unanswered = np.zeros_like(self.measured)
        self.trouble = ""
        self.asked = 0
        """Pairs requested so far."""
        scale = NEARBY * max(float(np.median(self.estimated_ms)), 1e-3)
        self._near: Floats = np.exp(-self.estimated_ms / scale)
        self._missed, self._weight = np.zeros_like(self.ms), self._near.copy()
        self._fresh: list[tuple[int, int]] = []
        self._believed_ms = self.estimated_ms.copy()

    @property
    def open(self) -> NDArray[np.bool_]:
        """Pairs that have not been measured, and still may be."""
        return ~(self.measured | self._unanswered)

    async def measure(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Measure pairs of node numbers, the most wanted first.

        The first node of a pair measures. Measured pairs are not measured again. Pairs without an answer, because a node is away,
        are not asked again either. Once this node reaches the limit on measurements, no more are made.
        """
        wanted = [pair for pair in dict.fromkeys(pairs) if not self.measured[pair] and not self._unanswered[pair]]
        seen: set[tuple[int, int]] = set()
        wanted = [(a, b) for a, b in wanted if (b, a) not in seen and not seen.add((a, b))]  # type: ignore[func-returns-value]
        for start in range(0, len(wanted), BATCH):
            if self.trouble:
                return
            batch = wanted[start : start + BATCH]
            self.asked += len(batch)
            names = [(self.nodes[a], self.nodes[b]) for a, b in batch]
            try:
                measured_ms = await self._view.measure(names)
            except SbonError as error:
                self.trouble = error.message
                return
            for (a, b), pair in zip(batch, names, strict=True):
                if pair in measured_ms:
                    self._keep(a, b, measured_ms[pair])
                else:
                    self._unanswered[a, b] = self._unanswered[b, a] = True

    def learn_pairs(self, pairs: Iterable[tuple[int, int, float]]) -> None:
        """Take measurements (a, b, milliseconds) that others have made."""
        for a, b, ms in pairs:
            self._keep(a, b, ms)

    def measured_pairs(self) -> list[tuple[int, int, float]]:
        """Return the measurements (a, b, milliseconds), each pair once."""
        pairs = np.argwhere(np.triu(self.measured, 1)).tolist()
        return [(a, b, float(self.ms[a, b])) for a, b in pairs]

    def _keep(self, a: int, b: int, ms: float) -> None:
        self.ms[a, b] = self.ms[b, a] = ms
        self.measured[a, b] = self.measured[b, a] = True
        self._fresh.append((a, b))

    def believed_ms(self) -> Floats:
        """Return measurements, and elsewhere estimates corrected by the errors measured nearby.

        Nodes near each other share much of the path to a third node, so their coordinates have much the same error for it. The
        correction is the mean error, weighted by the nearness of the ends, with ``NOTHING_MISSED`` as the weight of an error of
        zero. The returned array is the same each time; later measurements change it.
        """
        if self._fresh:
            rows = self._learn()
            estimate_ms = self._missed[rows] + self._missed[:, rows].T
            weight = self._weight[rows] + self._weight[:, rows].T
            weight += NOTHING_MISSED
            estimate_ms /= weight
            estimate_ms += self.estimated_ms[rows]
            np.maximum(estimate_ms, 0.0, out=estimate_ms)
            np.copyto(estimate_ms, self.ms[rows], where=self.measured[rows])
            self._believed_ms[rows], self._believed_ms[:, rows] = estimate_ms, estimate_ms.T
        return self._believed_ms

    def _learn(self) -> Ints:
        """Add the errors of the fresh pairs, and return the rows that changed.

        The error of a pair (a, b) is added for [a, x] with all x, weighted by the nearness of x to b.
        """
        ends, others = np.array([*self._fresh, *((b, a) for a, b in self._fresh)]).T
        order = np.argsort(ends, kind="stable")
        ends, others = ends[order], others[order]
        missed = self.ms[ends, others] - self.estimated_ms[ends, others]
        near = self._near[others]
        rows, starts = np.unique(ends, return_index=True)
        self._weight[rows] += np.add.reduceat(near, starts)
        near *= missed[:, None]
        self._missed[rows] += np.add.reduceat(near, starts)
        self._fresh = []
        return rows


MAX_PAIRS = 9_000_000
"""Most ordered pairs of nodes: 3,000 nodes, a matrix of 72 MB."""
PART = 200_000
"""Pairs between two pauses."""


def check_pairs(nodes: Sequence[str], strategy: str) -> None:
    """Check the number of nodes. Raises :class:`SbonError` ``too-large`` beyond ``MAX_PAIRS``."""
    many = len(nodes)
    if many**2 > MAX_PAIRS:
        message = f"{strategy} uses the latencies between all nodes; of {many:,} these are more than {MAX_PAIRS:,}"
        hint = "take hybrid, relaxation or opb, which look at a part of the nodes"
        raise SbonError("too-large", message, where="strategy", hint=hint)


async def all_pairs_ms(view: NetworkView, nodes: Sequence[str], strategy: str) -> Floats:
    """Return the one-way latencies [n, n] that the view knows. Raises as :func:`check_pairs`."""
    check_pairs(nodes, strategy)
    many = len(nodes)
    latency_ms = np.empty((many, many))
    step = max(PART // max(many, 1), 1)
    for start in range(0, many, step):
        latency_ms[start : start + step] = view.latencies_ms(nodes[start : start + step], nodes)
        await view.pause()
    return latency_ms
