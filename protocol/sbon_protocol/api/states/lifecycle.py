"""A lifecycle: all states of a thing, their meanings, and the transitions between them.

Each of the other files of this folder holds the lifecycle of one kind of thing. A node's own report of a thing has one of these
states. Where that report is missing, or the thing is not there any more, other nodes show a *derived* state; nothing ever
enters it. ``make states`` draws all of them in docs/states.md.

A lifecycle with events *drives*: state and event choose the transition, and that says what its owner does next
(:meth:`Lifecycle.on`). One without events only rejects other transitions (:meth:`Lifecycle.check_transition`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Generic, NamedTuple, TypeVar

from sbon_protocol.errors import BrokenInvariantError

S = TypeVar("S", bound=str)

PLANNED: Final = "planned"
UNREACHABLE: Final = "unreachable"
LOST: Final = "lost"
OVER: Final = "over"


class Transition(NamedTuple, Generic[S]):
    """A transition, and when it happens.

    ``event`` chooses it, for things of this ``kind``, or of any; the owner then carries out the ``instructions`` in turn.
    """

    before: S
    after: S
    when: str
    event: StrEnum | None = None
    instructions: tuple[StrEnum, ...] = ()
    kind: str = ""


class Rows(Generic[S]):
    """Makes the driving transitions of one lifecycle."""

    def __call__(
        self, befores: tuple[S, ...], event: StrEnum, after: S | None, *instructions: StrEnum, kind: str = ""
    ) -> tuple[Transition[S], ...]:
        """Return a transition from each state of ``befores``, which stays the state if ``after`` is None."""
        return tuple(Transition(before, after or before, event.value, event, instructions, kind) for before in befores)


@dataclass(frozen=True, kw_only=True)
class Lifecycle(Generic[S]):
    """States with their meanings. No transition leads from a ``terminal`` state.

    Removal of the thing may be reported as the state ``removed``, from any state.
    """

    subject: str
    initial: S
    states: Mapping[S, str]
    terminal: frozenset[S]
    transitions: tuple[Transition[S], ...]
    derived: Mapping[str, str]
    removed: S | None = None

    def check_transition(self, before: S, after: S, what: str) -> None:
        """Raise :class:`BrokenInvariantError` if ``what`` must not go from ``before`` to ``after``. It may keep its state."""
        if after in (before, self.removed) or any((before, after) == (one.before, one.after) for one in self.transitions):
            return
        raise BrokenInvariantError(f"the {self.subject} {what} is {before} and must not become {after}")

    def chosen(self, before: S, event: StrEnum, kind: str = "") -> Transition[S] | None:
        """Return the transition that the event chooses; None if it cannot happen in this state."""
        rows = (one for one in self.transitions if (one.before, one.event) == (before, event) and one.kind in ("", kind))
        return next(rows, None)

    def on(self, before: S, event: StrEnum, what: str, kind: str = "") -> Transition[S]:
        """Return the transition that the event chooses; raise :class:`BrokenInvariantError` if it cannot happen to ``what``."""
        row = self.chosen(before, event, kind)
        if row is None:
            raise BrokenInvariantError(f"the {self.subject} {what} is {before}, where {event.name} must not happen")
        return row
