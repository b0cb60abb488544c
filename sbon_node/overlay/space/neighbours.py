"""Neighbours that a node measures regularly: random ones, which hold the whole map together, and the nearest ones.

Random neighbours alone place distant nodes well and close ones badly; near ones alone fold the map. A slot keeps its neighbour
as long as it can, since the filter of that link needs its last samples.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Container, Mapping

SCOUTS = 0.25
"""Share of the near slots for nodes that seem nearest and were never measured; otherwise a wrong coordinate stays undetected."""


class Neighbours:
    """``random_slots`` slots, then ``near_slots``; each holds a name or nothing."""

    def __init__(self, random_slots: int, near_slots: int, rng: random.Random) -> None:
        self._random, self._rng = random_slots, rng
        self._slots: list[str | None] = [None] * (random_slots + near_slots)
        self._by_name: dict[str, int] = {}
        self._turn = -1

    def __len__(self) -> int:
        """The number of neighbours."""
        return len(self._by_name)

    @property
    def slots(self) -> int:
        return len(self._slots)

    def names(self) -> list[str]:
        return [name for name in self._slots if name is not None]

    def slot_of(self, name: str) -> int | None:
        return self._by_name.get(name)

    def admit(self, name: str) -> int | None:
        """Return the name's slot: its present one, or a free one, random ones first; None where all are taken."""
        slot = self._by_name.get(name)
        if slot is None and len(self._by_name) < len(self._slots):
            slot = self._slots.index(None)
            self._put(slot, name)
        return slot

    def forget(self, name: str) -> int | None:
        """Remove a name; return its slot."""
        slot = self._by_name.pop(name, None)
        if slot is not None:
            self._slots[slot] = None
        return slot

    def renew(self, estimates_ms: Mapping[str, float], *, near: bool, measured: Container[str] = ()) -> list[tuple[int, str]]:
        """Fill free random slots at random, and with ``near`` the others with the nearest; return the changed slots.

        Candidates come with their estimated round-trip times; a share ``SCOUTS`` of the near slots goes to those not
        ``measured``. A neighbour that has lost its slot is in none.
        """
        for name in [name for name in self._by_name if name not in estimates_ms]:
            self.forget(name)
        fresh: list[tuple[int, str]] = []
        free = [slot for slot in range(self._random) if self._slots[slot] is None]
        if free:
            others = sorted(name for name in estimates_ms if self._by_name.get(name, self._random) >= self._random)
            for slot, name in zip(free, self._rng.sample(others, min(len(free), len(others))), strict=False):
                self.forget(name)
                self._put(slot, name)
                fresh.append((slot, name))
        return fresh + self._renew_near(estimates_ms, measured) if near else fresh

    def next(self) -> str | None:
        """Return the next neighbour to measure."""
        for _ in self._slots:
            self._turn = (self._turn + 1) % len(self._slots)
            name = self._slots[self._turn]
            if name is not None:
                return name
        return None

    def _renew_near(self, estimates_ms: Mapping[str, float], measured: Container[str]) -> list[tuple[int, str]]:
        many = len(self._slots) - self._random
        near = {name for name in self._slots[: self._random] if name is not None}
        others = [(rtt_ms, name) for name, rtt_ms in estimates_ms.items() if name not in near]
        nearest = [name for _, name in heapq.nsmallest(many - int(SCOUTS * many), others)]
        near.update(nearest)
        left = ((name in measured, rtt_ms, name) for rtt_ms, name in others if name not in near)
        nearest += [name for *_, name in heapq.nsmallest(many - len(nearest), left)]
        chosen = set(nearest)
        for slot in range(self._random, len(self._slots)):
            tenant = self._slots[slot]
            if tenant is not None and tenant not in chosen:
                self.forget(tenant)
        fresh: list[tuple[int, str]] = []
        for name in nearest:
            if name not in self._by_name:
                slot = self._slots.index(None, self._random)
                self._put(slot, name)
                fresh.append((slot, name))
        return fresh

    def _put(self, slot: int, name: str) -> None:
        self._slots[slot] = name
        self._by_name[name] = slot
