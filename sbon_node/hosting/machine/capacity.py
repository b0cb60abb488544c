"""Capacity of a node: total, reserved and free. Pure; the caller passes the time.

An operator holds what it is measured to take (:func:`measured_cost`), and what was estimated for it until then. The number of
operators is a bound beside cores and memory.

A backup of an operator that another node runs takes no place and next to no cores: it stores frames and files. If its host is
lost, it goes on with the operator though that takes more than is free; the node then takes no further ones.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from msgspec.structs import asdict, replace

from sbon_node.engine.interface import EngineCapacity
from sbon_protocol.api.measures import OperatorMeasures
from sbon_protocol.api.nodes import ARRIVAL, BACKUP, FOLLOWER, HOSTED, RESERVED, CapacityUse, HeldCapacity, NodeCapacity
from sbon_protocol.api.operators import MOST_STATE_MB, OPERATOR_MEMORY_MB, Needs
from sbon_protocol.errors import SbonError

BACKUP_CORES = 0.05
"""Share of an operator's cores that its backup takes: replicated queries take 5 % more CPU (docs/figures/recovery.md)."""
UNCOUNTED = 2.0
"""All processor time of an engine for that which its operators count: about half counts for none (docs/design/measures.md)."""
LEAST_CORES = 0.01
"""Cores of an operator without rows: five take 0.02 (docs/figures/engine.md), and a margin."""
MB = 2**20

_WORDS: dict[CapacityUse, str] = {
    HOSTED: "operator",
    ARRIVAL: "arriving operator",
    FOLLOWER: "follower",
    BACKUP: "backup",
    RESERVED: "reservation",
}


def cost(needs: Needs, use: CapacityUse) -> Needs:
    """Return what an operator with these needs takes while it has that use."""
    return Needs(cores=BACKUP_CORES * needs.cores, memory_mb=0.0) if use == BACKUP else needs


def measured_cost(needs: Needs, measures: OperatorMeasures, *, speed: float, half_life_s: float) -> Needs:
    """Return what a running operator takes: its measures, and its estimated ``needs`` with the weight that is not observed yet.

    The weight of the estimate halves every ``half_life_s``. Cores have this node's ``speed``. The estimate of cores stays if the
    engine measures no processor time, and that of memory until the checkpoint's size is known. Bandwidth stays as reserved.
    """
    observed = min(1.0, measures.seconds * math.log(2) / half_life_s)
    cores, state_bytes = _measured_cores(measures, speed), measures.state_bytes
    memory_mb = None if state_bytes is None else OPERATOR_MEMORY_MB + min(MOST_STATE_MB, state_bytes / MB)
    return replace(needs, cores=_blend(needs.cores, cores, observed), memory_mb=_blend(needs.memory_mb, memory_mb, observed))


def _measured_cores(measures: OperatorMeasures, speed: float) -> float | None:
    rows_s, row_ms = measures.rows_in_s, measures.cpu_row_ms
    if rows_s is None or (rows_s > 0 and row_ms is None):
        return None
    return max(LEAST_CORES, UNCOUNTED * rows_s * (row_ms or 0.0) / 1e3 / speed)


def _blend(estimated: float, measured: float | None, observed: float) -> float:
    return estimated if measured is None else (1.0 - observed) * estimated + observed * measured


class _Reservation(NamedTuple):
    """Reserved capacity. ``deadline`` is None if it lasts until release; until the deadline it counts for ``holder``."""

    needs: Needs
    owner: str
    deadline: float | None
    holder: str = ""
    use: CapacityUse = HOSTED

    @property
    def present_use(self) -> CapacityUse:
        return self.use if self.deadline is None else RESERVED

    @property
    def takes_place(self) -> bool:
        return self.use != BACKUP


class Reservations:
    """Capacity held by operator id, each for the ``owner`` that asked for it.

    A reservation lapses at its deadline unless an instantiation confirms it. A holder with more than ``share`` of the reserved
    operators for longer than ``grace_s`` loses the excess to the next holder that asks for capacity. Until then it may take all
    capacity. ``measured`` returns what a running operator takes, given its id and its estimated needs.
    """

    def __init__(
        self,
        capacity: EngineCapacity,
        share: float = 0.5,
        grace_s: float = 15.0,
        measured: Callable[[str, Needs], Needs] = lambda _, needs: needs,
    ) -> None:
        self._capacity, self._grace_s, self._measured = capacity, grace_s, measured
        self._most = max(1, int(share * capacity.operators))
        self._reservations: dict[str, _Reservation] = {}
        self._excessive_since: dict[str, float] = {}
        """By holder: the time since which it has held more than its share."""

    def refusal(self, needs: Needs, now: float, holder: str | None = None, *, beside: str = "", use: CapacityUse = HOSTED) -> str:
        """Return why there is no capacity for ``needs``; empty if there is, or if others must release some for ``holder``.

        It names what takes the capacity. The capacity of the operators of the query ``beside`` counts as free. A backup is never
        refused: its operator shows nothing without one, and ``backups.most`` bounds their number.
        """
        if use == BACKUP:
            return ""
        given_up = self._given_up(now, holder, beside)
        free, places = self._left(given_up), self._places(given_up)
        if places >= self._capacity.operators:
            return f"{places} of {self._capacity.operators} places are taken{self._by_use(given_up, with_backups=False)}"
        if needs.cores > free.cores:
            reason = f"{free.cores:.2f} cores free, {needs.cores:.2f} needed"
        elif needs.memory_mb > free.memory_mb:
            reason = f"{free.memory_mb:.0f} MB free, {needs.memory_mb:.0f} needed"
        elif needs.bandwidth_bytes_s > free.bandwidth_bytes_s:
            reason = f"{free.bandwidth_bytes_s:.0f} B/s free, {needs.bandwidth_bytes_s:.0f} needed"
        else:
            return ""
        return f"{reason}{self._by_use(given_up)}"

    def reserve(
        self,
        operator: str,
        needs: Needs,
        now: float,
        deadline: float,
        owner: str = "",
        *,
        holder: str | None = None,
        use: CapacityUse = HOSTED,
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
            if reason := self.refusal(needs, now, holder, use=use):
                raise SbonError("no-capacity", reason, where=operator)
            for other in self._beyond_shares(holder, now):
                if self.refusal(needs, now, use=use):
                    del self._reservations[other]
        self._reservations[operator] = _Reservation(needs, owner, deadline, holder, use)
        self._note(now)

    def check_reserved(self, operator: str, needs: Needs, now: float, owner: str = "") -> None:
        """Raise :class:`SbonError` ``not-reserved`` unless ``owner`` holds this capacity for it."""
        self._lapse(now)
        reservation = self._reservations.get(operator)
        if reservation is None or reservation.deadline is None or (reservation.owner, reservation.needs) != (owner, needs):
            raise SbonError("not-reserved", "no such capacity is reserved for it", where=operator, hint="reserve it first")

    def confirm(self, operator: str, needs: Needs, now: float, owner: str = "") -> None:
        """Turn the reservation into capacity held until release; raises as :meth:`check_reserved` does."""
        self.check_reserved(operator, needs, now, owner)
        self._reservations[operator] = self._reservations[operator]._replace(deadline=None)

    def keep(self, operator: str, needs: Needs, owner: str = "", *, use: CapacityUse = HOSTED) -> None:
        """Hold the capacity of an operator that was here before a restart, or goes on here, even if none is free."""
        self._reservations[operator] = _Reservation(needs, owner, None, use=use)

    def owners(self, query: str, operators: Iterable[str]) -> dict[str, str]:
        """Return who has reserved capacity for those of the query's operators that do not run yet."""
        mine = {one: self._reservations[one] for one in operators if one in self._reservations and one.startswith(f"{query}.")}
        return {one: reservation.owner for one, reservation in mine.items() if reservation.deadline is not None}

    def release(self, operator: str, owner: str = "") -> None:
        """Release the capacity that ``owner`` holds under that id; ignore unknown ids and those of others."""
        reservation = self._reservations.get(operator)
        if reservation is not None and reservation.owner == owner:
            del self._reservations[operator]

    def free(self, now: float, holder: str | None = None, *, beside: str = "") -> Needs:
        """Return the free capacity; negative where an operator has gone on here after its host.

        Capacity that others must give up for ``holder``, and that of the query ``beside``, counts as free.
        """
        return self._left(self._given_up(now, holder, beside))

    def report(self, now: float) -> NodeCapacity:
        """Return the capacity in all, and what holds it, by the ids of the operators."""
        self._lapse(now)
        held = (
            HeldCapacity(operator=operator, use=one.present_use, **asdict(self._cost(operator, one)))
            for operator, one in sorted(self._reservations.items())
        )
        return NodeCapacity(
            operators=self._capacity.operators,
            cores=self._capacity.cores,
            memory_mb=self._capacity.memory_mb,
            bandwidth_bytes_s=self._capacity.bandwidth_bytes_s,
            taken=self._places(()),
            held=tuple(held),
        )

    def operators(self) -> tuple[str, ...]:
        """Operators whose capacity is held until release."""
        return tuple(sorted(o for o, reservation in self._reservations.items() if reservation.deadline is None))

    def promised(self, now: float) -> tuple[str, ...]:
        """Operators with a reservation that is neither confirmed nor lapsed."""
        self._lapse(now)
        return tuple(sorted(o for o, reservation in self._reservations.items() if reservation.deadline is not None))

    # -- held capacity -------------------------------------------------------------------------------------------------

    def _cost(self, operator: str, reservation: _Reservation) -> Needs:
        """Return what an operator takes, as measured once it runs here."""
        runs = reservation.deadline is None and reservation.takes_place
        return self._measured(operator, reservation.needs) if runs else cost(reservation.needs, reservation.use)

    def _given_up(self, now: float, holder: str | None, beside: str) -> set[str]:
        """Return the operators whose capacity counts as free for ``holder``, and for the query ``beside``."""
        self._lapse(now)
        given_up = set() if holder is None else set(self._beyond_shares(holder, now))
        if beside:
            given_up |= {operator for operator in self._reservations if operator.startswith(f"{beside}.")}
        return given_up

    def _left(self, given_up: Collection[str]) -> Needs:
        taken = [self._cost(operator, one) for operator, one in self._reservations.items() if operator not in given_up]
        return Needs(
            cores=self._capacity.cores - sum(needs.cores for needs in taken),
            memory_mb=self._capacity.memory_mb - sum(needs.memory_mb for needs in taken),
            bandwidth_bytes_s=self._capacity.bandwidth_bytes_s - sum(needs.bandwidth_bytes_s for needs in taken),
        )

    def _places(self, given_up: Collection[str]) -> int:
        return sum(one.takes_place for operator, one in self._reservations.items() if operator not in given_up)

    def _by_use(self, given_up: Collection[str], *, with_backups: bool = True) -> str:
        """Return in words what holds capacity; empty if nothing does."""
        holding = [one for operator, one in self._reservations.items() if operator not in given_up]
        uses = Counter(one.present_use for one in holding if with_backups or one.takes_place)
        words = (f"{count} {_WORDS[use]}{'s' * (count != 1)}" for use, count in sorted(uses.items()))
        return f" (held by {', '.join(words)})" if uses else ""

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
