"""Score of this node's own health (Lifeguard, section IV-A: local health multiplier). Pure.

A successful probe improves the score. It worsens with: asked helpers that send nothing at all (not even a nack), a failed probe
with no helper to ask, a suspicion of itself that the node has to refute, and a pause of its own process.
"""

from __future__ import annotations


class Awareness:
    """A score between 0 (well) and ``most``; timeouts are multiplied by :attr:`stretch`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.score = 0

    @property
    def stretch(self) -> int:
        return self.score + 1

    def succeeded(self) -> None:
        self.score = max(0, self.score - 1)

    def worsened(self, by: int = 1) -> None:
        self.score = min(self._most, self.score + by)
