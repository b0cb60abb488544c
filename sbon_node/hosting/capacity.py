"""Capacity of a node: total, reserved and free. Pure; the caller passes the time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from sbon_node.engine.interface import EngineCapacity
from sbon_node.errors import SbonError
from sbon_node.model.operators import Needs


class _Reservation(NamedTuple):
    """Reserved capacity. ``deadline`` is None if it lasts until release; until the deadline it counts for ``holder``."""

    needs: Needs
    owner: str
    deadline: float | None
    holder: str = ""


class Reservations:
    """Capacity held by operator id, each for the ``owner`` that asked for it.

    A reservation lapses at its deadline unless an instantiation confirms it. A holder with more than ``share`` of the reserved
    operators for longer than ``grace_s`` loses the excess to the next holder that asks for capacity. Until then it may take all
    capacity.
    """

    def __init__(self, capacity: EngineCapacity, *, share: float = 0.5, grace_s: float = 15.0) -> None:
        self._capacity, self._grace_s = capacity, grace_s
        self._most = max(1, int(share * capacity.operators))
        self._reservations: dict[str, _Reservation] = {}
        self._excessive_since: dict[str, float] = {}
        """By holder: the time since which it has held more than its share."""

    def refusal(self, needs: Needs, now: float, holder: str | None = None, *, beside: str = "") -> str:
        """Return why there is no capacity for ``needs``; empty if there is, or if others must release some for ``holder``.

        What operators of the query ``beside`` hold counts as free.
        """
        free, count = self.free(now, holder, beside=beside)
        if count >= self._capacity.operators:
            return f"hosts {count} operators, its limit is {self._capacity.operators}"
        if needs.cores > free.cores:
            return f"{free.cores:.2f} cores free, {needs.cores:.2f} needed"
        if needs.memory_mb > free.memory_mb:
            return f"{free.memory_mb:.0f} MB free, {needs.memory_mb:.0f} needed"
        if needs.bandwidth_bytes_s > free.bandwidth_bytes_s:
            return f"{free.bandwidth_bytes_s:.0f} B/s free, {needs.bandwidth_bytes_s:.0f} needed"
        return ""

    def reserve(
        self, operator: str, needs: Needs, now: float, deadline: float, owner: str = "", *, holder: str | None = None
    ) -> None:
        """Reserve capacity; idempotent by operator and owner, except that the last deadline counts.

        ``holder`` is the holder that the reservation counts for, by default its owner.

        Raises :class:`SbonError` ``no-capacity``, or ``operator-exists`` if another owner holds capacity under that id or the
        operator runs.
        """
        self._lapse(now)
        reservation = self._reservations.get(operator)
        if reservation is not None and (reservation.deadline is None or (reservation.owner, reservation.needs) != (owner, needs)):
            raise SbonError("operator-exists", "there is an operator of that id", where=operator)
        holder = owner if holder is None else holder
        if reservation is None:
            if reason := self.refusal(needs, now, holder):
                raise SbonError("no-capacity", reason, where=operator)
            for other in self._beyond_shares(holder, now):
                if self.refusal(needs, now):
                    del self._reservations[other]
        self._reservations[operator] = _Reservation(needs, owner, deadline, holder)
        self._note(now)

    def check(self, operator: str, needs: Needs, now: float, owner: str = "") -> None:
        """Raise :class:`SbonError` ``not-reserved`` unless ``owner`` holds this capacity for it."""
        self._lapse(now)
        reservation = self._reservations.get(operator)
        if reservation is None or reservation.deadline is None or (reservation.owner, reservation.needs) != (owner, needs):
            raise SbonError("not-reserved", "no such capacity is reserved for it", where=operator, hint="reserve it first")

    def confirm(self, operator: str, needs: Needs, now: float, owner: str = "") -> None:
        """Turn the reservation into capacity held until release; raises as :meth:`check` does."""
        self.check(operator, needs, now, owner)
        self._reservations[operator] = self._reservations[operator]._replace(deadline=None)

    def keep(self, operator: str, needs: Needs, owner: str = "") -> None:
        """Hold the capacity that an operator had before a restart, even if none is free."""
        self._reservations[operator] = _Reservation(needs, owner, None)

    def owners(self, query: str, operators: Iterable[str]) -> dict[str, str]:
        """Return who has reserved capacity for those of the query's operators that do not run yet."""
        mine = {one: self._reservations[one] for one in operators if one in self._reservations and one.startswith(f"{query}.")}
        return {one: reservation.owner for one, reservation in mine.items() if reservation.deadline is not None}

    def release(self, operator: str, owner: str = "") -> None:
        """Release the capacity that ``owner`` holds under that id; ignore unknown ids and those of others."""
        reservation = self._reservations.get(operator)
        if reservation is not None and reservation.owner == owner:
            del self._reservations[operator]

    def free(self, now: float, holder: str | None = None, *, beside: str = "") -> tuple[Needs, int]:
        """Return the free capacity and the number of operators held.

        Capacity that others must give up for ``holder``, and that of the query ``beside``, counts as free, and the operators as
        not held.
        """
        self._lapse(now)
        given_up = set() if holder is None else set(self._beyond_shares(holder, now))
        if beside:
            given_up |= {operator for operator in self._reservations if operator.startswith(f"{beside}.")}
        reserved = [reservation.needs for operator, reservation in self._reservations.items() if operator not in given_up]
        left = Needs(
            cores=self._capacity.cores - sum(n.cores for n in reserved),
            memory_mb=self._capacity.memory_mb - sum(n.memory_mb for n in reserved),
            bandwidth_bytes_s=self._capacity.bandwidth_bytes_s - sum(n.bandwidth_bytes_s for n in reserved),
        )
        return left, len(reserved)

    def operators(self) -> tuple[str, ...]:
        """Operators whose capacity is held until release."""
        return tuple(sorted(o for o, reservation in self._reservations.items() if reservation.deadline is None))

    def promised(self, now: float) -> tuple[str, ...]:
        """Operators with a reservation that is neither confirmed nor lapsed."""
        self._lapse(now)
        return tuple(sorted(o for o, reservation in self._reservations.items() if reservation.deadline is not None))

    def _lapse(self, now: float) -> None:
        self._reservations = {
            o: reservation
            for o, reservation in self._reservations.items()
            if reservation.deadline is None or reservation.deadline > now
        }
        self._note(now)

    def _reserved(self) -> dict[str, list[str]]:
        """Unconfirmed operators by holder, the oldest reservation first."""
        operators: dict[str, list[str]] = {}
        for operator, reservation in self._reservations.items():
            if reservation.deadline is not None:
                operators.setdefault(reservation.holder, []).append(operator)
        return operators

    def _note(self, now: float) -> None:
        excessive = (holder for holder, operators in self._reserved().items() if len(operators) > self._most)
        self._excessive_since = {holder: self._excessive_since.get(holder, now) for holder in excessive}

    def _beyond_shares(self, holder: str, now: float) -> list[str]:
        """Reservations that holders other than ``holder`` have held beyond their shares for too long."""
        late = [other for other, since in self._excessive_since.items() if other != holder and now - since >= self._grace_s]
        reserved = self._reserved() if late else {}
        return [operator for other in late for operator in reserved.get(other, [])[self._most :]]
