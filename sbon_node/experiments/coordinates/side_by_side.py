"""Many nodes of one process that take their steps of ``refit`` at once: the daemon's code, several times as fast."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from sbon_node.space import refit
from sbon_node.space.local import LocalCoordinate
from sbon_node.space.settings import SpaceSettings


class SideBySide(LocalCoordinate):
    """A node's coordinate whose steps of ``refit`` wait for :meth:`settle`; all else is the daemon's."""

    def __init__(self, settings: SpaceSettings, rng: random.Random) -> None:
        super().__init__(settings, rng)
        self._due_steps = 0

    def _advance(self, steps: int) -> None:
        self._due_steps += steps

    @staticmethod
    def settle(nodes: Sequence[SideBySide]) -> None:
        """Take the due steps of nodes with the same settings; each moves as it would alone."""
        while due := [node for node in nodes if node._due_steps]:
            position, positions, rtt_ms, known = (
                np.stack(arrays)
                for arrays in zip(*((n._position, n._cache.positions, n._cache.rtt_ms, n._cache.known) for n in due), strict=True)
            )
            all_known = None if all(node._cache.whole for node in due) else known
            few = np.array([node._among_few for node in due])
            steps = min(node._due_steps for node in due)
            for _ in range(steps):
                fit = refit.step(position, positions, rtt_ms, all_known, height=due[0]._settings.height, few=few)
                position = fit.position
            for node, *fit_of_node in zip(due, fit.position, fit.share, strict=True):
                node._due_steps -= steps
                node._place(refit.Fit(*fit_of_node))
