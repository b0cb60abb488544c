"""One move of an operator away from this node: how far it is, as its driver, its users and listeners see it."""

from __future__ import annotations

from functools import partial

import msgspec

from sbon_node.base.events import OperatorChanged
from sbon_node.hosting.hosted_operator import HostedOperator
from sbon_node.model.records import MoveLease
from sbon_node.streams.outbox.signals import Signal
from sbon_protocol.api.moves import MoveProgress
from sbon_protocol.api.operators import OperatorSpec
from sbon_protocol.api.queries import MoveInfo
from sbon_protocol.api.query_ids import name_of
from sbon_protocol.api.states import move_states
from sbon_protocol.api.states.move_states import MoveState
from sbon_protocol.codec import decode_record
from sbon_protocol.errors import SbonError
from sbon_protocol.moving import MoveHow, OperatorMove


class StoredDeparture(msgspec.Struct, frozen=True, kw_only=True):
    """A move that may be committed, as its origin stores it: after a restart its register tells."""

    lease: MoveLease


class Departure:
    """One move, while it is under way and as long as its end is remembered; ``resumed`` after a restart, when it is committed."""

    def __init__(
        self, hosted: HostedOperator, lease: MoveLease, how: MoveHow = "follow", *, why: str = "", resumed: bool = False
    ) -> None:
        self.hosted, self.lease, self.why = hosted, lease, why
        self.stops = how == "stop"
        """Whether the operator stops before its state is copied."""
        first: MoveState = move_states.SWITCHING if resumed else move_states.STOPPING if self.stops else move_states.COPYING
        self.state = OperatorMove(step=first, attempt=lease.attempt, progress=MoveProgress())
        self.changed = Signal()
        self.frozen_s = 0.0
        self.failure: SbonError | None = None
        """Why it was given up; ``where`` is the target for failures of the target's."""
        self._unwanted: SbonError | None = None

    @property
    def is_over(self) -> bool:
        return self.state.step in move_states.OVER

    def moved(self, spec: OperatorSpec, origin: str, now_ms: int) -> OperatorSpec:
        """Return the specification for the target, with this move."""
        return spec.moved_from(origin, now_ms, self.why)

    def info(self) -> MoveInfo:
        """Return the move as users see it."""
        return MoveInfo(target=self.lease.target, step=self.state.step, progress=self.progress)

    @property
    def progress(self) -> MoveProgress:
        return decode_record(self.state.progress, MoveProgress)

    def paused_ms(self, now_s: float) -> int:
        """Return the time since the operator has been frozen; 0 before."""
        return round((now_s - self.frozen_s) * 1000) if self.frozen_s else 0

    def not_level(self, after_s: float) -> SbonError:
        """Return the error of a target that has not caught up in time."""
        hint = "choose a node with more free cores, or raise migration.follow_s"
        reason = f"it is {self.progress.frames_behind} frames behind after {after_s:g} s"
        return SbonError("not-level", reason, where=self.lease.target, hint=hint)

    def event(self, origin: str, change: str, reason: str) -> partial[OperatorChanged]:
        """Return the event that the origin publishes: ``moving``, ``moved`` or ``move-given-up``."""
        spec, target = self.hosted.spec, self.lease.target
        host, was = (target, origin) if change == move_states.MOVED else (origin, "")
        return partial(
            OperatorChanged,
            query=name_of(spec.query),
            operator=spec.id,
            change=change,
            host=host,
            was=was,
            target=target,
            reason=reason,
        )

    def withdraw(self, why: SbonError) -> None:
        """Let the move be given up, unless its commit has begun."""
        self._unwanted = why

    def check_wanted(self) -> None:
        """Raise the reason if it was withdrawn."""
        if self._unwanted is not None:
            raise self._unwanted

    def give_up(self, error: SbonError, now_s: float) -> None:
        """End the move, since the operator goes on at its origin, and remember why."""
        self.failure = error
        reason = str(error).removeprefix(f"{self.hosted.spec.id}: ")[:500]
        paused_ms = self.paused_ms(now_s)
        step = move_states.GIVEN_UP
        self.enter(msgspec.structs.replace(self.state, step=step, pause_ms=paused_ms, code=error.code, reason=reason))

    def enter(self, state: OperatorMove) -> None:
        move_states.LIFECYCLE.check(self.state.step, state.step, self.hosted.spec.id)
        self.state = state
        self.changed.notify()


def of_target(target: str, error: SbonError) -> SbonError:
    """Return an error of the target's as one that names it."""
    return SbonError(error.code, error.message, where=target, hint=error.hint)
