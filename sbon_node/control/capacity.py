"""What a node can take on, what it has promised, and what is left: pure bookkeeping, told the time."""

from __future__ import annotations

from typing import NamedTuple

from sbon_node.engine.interface import EngineCapacity, Needs
from sbon_node.errors import SbonError


class _Held(NamedTuple):
    """``deadline`` is None for what stays until it is released."""

    needs: Needs
    owner: str
    deadline: float | None


class Reservations:
    """Room held by operator id, each for the ``owner`` who asked for it. A reservation lapses at its deadline unless it was
    confirmed by an instantiation."""

    def __init__(self, capacity: EngineCapacity) -> None:
        self._capacity = capacity
        self._held: dict[str, _Held] = {}

    def refusal(self, needs: Needs, now: float) -> str:
        """Why there is no room for ``needs``; empty where there is."""
        free, count = self.free(now)
        if count >= self._capacity.operators:
            return f"hosts {count} operators, its limit is {self._capacity.operators}"
        if needs.cores > free.cores:
            return f"{free.cores:.2f} cores free, {needs.cores:.2f} needed"
        if needs.memory_mb > free.memory_mb:
            return f"{free.memory_mb:.0f} MB free, {needs.memory_mb:.0f} needed"
        if needs.bandwidth_bytes_s > free.bandwidth_bytes_s:
            return f"{free.bandwidth_bytes_s:.0f} B/s free, {needs.bandwidth_bytes_s:.0f} needed"
        return ""

    def reserve(self, operator: str, needs: Needs, now: float, deadline: float, owner: str = "") -> None:
        """Idempotent by operator and owner, but for the deadline, which is the last one's.

        Raises :class:`SbonError` ``no-room``, or ``operator-exists`` where another owner holds room under that id, or it runs.
        """
        self._lapse(now)
        held = self._held.get(operator)
        if held is not None and (held.deadline is None or (held.owner, held.needs) != (owner, needs)):
            raise SbonError("operator-exists", "there is an operator of that id", where=operator)
        if held is None and (reason := self.refusal(needs, now)):
            raise SbonError("no-room", reason, where=operator)
        self._held[operator] = _Held(needs, owner, deadline)

    def confirm(self, operator: str, needs: Needs, now: float, owner: str = "") -> None:
        """What was reserved is here to stay until it is released; raises :class:`SbonError` ``not-reserved``."""
        self._lapse(now)
        held = self._held.get(operator)
        if held is None or held.deadline is None or (held.owner, held.needs) != (owner, needs):
            raise SbonError("not-reserved", "no such room is held for it", where=operator, hint="reserve it first")
        self._held[operator] = held._replace(deadline=None)

    def keep(self, operator: str, needs: Needs, owner: str = "") -> None:
        """It was here before a restart, and stays, whether there is room or not."""
        self._held[operator] = _Held(needs, owner, None)

    def release(self, operator: str, owner: str = "") -> None:
        """What ``owner`` holds under that id is free again; unknown ones, and those of others, are left alone."""
        held = self._held.get(operator)
        if held is not None and held.owner == owner:
            del self._held[operator]

    def free(self, now: float) -> tuple[Needs, int]:
        """What is left, and how many operators are held."""
        self._lapse(now)
        held = [one.needs for one in self._held.values()]
        left = Needs(
            cores=self._capacity.cores - sum(n.cores for n in held),
            memory_mb=self._capacity.memory_mb - sum(n.memory_mb for n in held),
            bandwidth_bytes_s=self._capacity.bandwidth_bytes_s - sum(n.bandwidth_bytes_s for n in held),
        )
        return left, len(held)

    def operators(self) -> tuple[str, ...]:
        """Those that are here to stay."""
        return tuple(sorted(o for o, held in self._held.items() if held.deadline is None))

    def promised(self, now: float) -> tuple[str, ...]:
        """Those that room is held for until they come, or their time is up."""
        self._lapse(now)
        return tuple(sorted(o for o, held in self._held.items() if held.deadline is not None))

    def _lapse(self, now: float) -> None:
        self._held = {o: held for o, held in self._held.items() if held.deadline is None or held.deadline > now}
