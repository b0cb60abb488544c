"""How well this node itself seems to be (Lifeguard, section IV-A: local health multiplier). Pure.

A probe that succeeds speaks for it. Against it speak: asked helpers that say nothing at all (not even that they had no answer
either), a failed probe where nobody could be asked, a suspicion of itself that it has to refute, and having stood still.
"""

from __future__ import annotations


class Awareness:
    """A score between 0 (well) and ``most``; times are stretched by :attr:`stretch`."""

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
