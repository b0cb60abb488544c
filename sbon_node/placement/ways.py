"""Latencies between the nodes of a pool: estimated at first, measured where that is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from sbon_node.errors import SbonError
from sbon_node.placement.instance import Floats, Ints
from sbon_node.placement.network_view import UNKNOWN_MS, NetworkView

NEARBY = 0.1
"""Of the pool's median latency: where what was missed of one node's ways counts a third for another."""
NOTHING_MISSED = 0.5
BATCH = 64
"""Pairs asked for at once: the next ones are chosen only when these are measured, should a node refuse."""


class Ways:
    """One way, in milliseconds, [n, n] over ``nodes``: ``estimated_ms`` as it was before, ``ms`` as it is known now, ``measured``
    where that was measured here. ``trouble`` says why not all was measured. ``lost`` are nodes whose place nobody knows: they are
    taken for far away."""

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
        """Pairs so far."""
        scale = NEARBY * max(float(np.median(self.estimated_ms)), 1e-3)
        self._near: Floats = np.exp(-self.estimated_ms / scale)
        self._missed, self._weight = np.zeros_like(self.ms), self._near.copy()
        self._fresh: list[tuple[int, int]] = []
        self._believed_ms = self.estimated_ms.copy()

    @property
    def open(self) -> NDArray[np.bool_]:
        """What has not been measured, and may still be."""
        return ~(self.measured | self._unanswered)

    async def measure(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Pairs by number, the most wanted ones first; the first of each is who measures. What is measured is not measured again.

        What nobody answered, as a node is away, is not asked again, and others are; once this node says that so much may not be
        measured now, nothing more is.
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
                found = await self._view.measure(names)
            except SbonError as error:
                self.trouble = error.message
                return
            for (a, b), pair in zip(batch, names, strict=True):
                if pair in found:
                    self.ms[a, b] = self.ms[b, a] = found[pair]
                    self.measured[a, b] = self.measured[b, a] = True
                    self._fresh.append((a, b))
                else:
                    self._unanswered[a, b] = self._unanswered[b, a] = True

    def believed_ms(self) -> Floats:
        """Measured where that is known, else the estimate, corrected by what it missed of ways between nodes nearby.

        Nodes that are near each other are on much the same way to a third, so that coordinates are wrong about them by much the
        same: the mean of what was missed, weighed by nearness of the ends, with a weight for having missed nothing. It is the
        same array each time, and what has been measured since changes it.
        """
        if self._fresh:
            rows = self._learn()
            found = self._missed[rows] + self._missed[:, rows].T
            weight = self._weight[rows] + self._weight[:, rows].T
            weight += NOTHING_MISSED
            found /= weight
            found += self.estimated_ms[rows]
            np.maximum(found, 0.0, out=found)
            np.copyto(found, self.ms[rows], where=self.measured[rows])
            self._believed_ms[rows], self._believed_ms[:, rows] = found, found.T
        return self._believed_ms

    def _learn(self) -> Ints:
        """Adds what the fresh pairs missed, [a, x] for each pair (a, b) and every x as near to b as that is; all such a."""
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
