"""A changing set of names with random draws in constant time; seed and history determine the draws. Pure."""

from __future__ import annotations

import random


class Roster:
    def __init__(self) -> None:
        self._names: list[str] = []
        self._at: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._at

    def names(self) -> list[str]:
        """Return the names in no meaningful order."""
        return list(self._names)

    def add(self, name: str) -> None:
        if name not in self._at:
            self._at[name] = len(self._names)
            self._names.append(name)

    def discard(self, name: str) -> None:
        at = self._at.pop(name, None)
        if at is None:
            return
        last = self._names.pop()
        if last != name:
            self._names[at] = last
            self._at[last] = at

    def sample(self, rng: random.Random, most: int) -> list[str]:
        """Return at most ``most`` different names, drawn at random."""
        if most >= len(self._names):
            return list(self._names)
        names: dict[str, None] = {}
        while len(names) < most:
            names[self._names[int(rng.random() * len(self._names))]] = None
        return list(names)
