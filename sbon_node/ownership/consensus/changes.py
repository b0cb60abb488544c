"""Changes of a register: functions from its current state to the next.

A change that does not apply returns the current state, which the proposer proposes again. So its outcome is as certain as that
of a change that applies.
"""

from enum import StrEnum
from typing import NamedTuple, Protocol

import msgspec

from sbon_node.ownership.consensus.states import Acceptor, Configuration, State

KEPT_TOKENS = 16
"""Changes after which a proposer can no longer learn whether its own took effect."""


class Verdict(StrEnum):
    """Whether a change took effect. ``UNKNOWN``: an earlier attempt may have, and others have changed the register since."""

    APPLIED = "applied"
    CONFLICT = "conflict"
    UNKNOWN = "unknown"


class Result(NamedTuple):
    """The state to propose; None for a register that does not exist and is not created."""

    state: State | None
    verdict: Verdict


class Change(Protocol):
    """A function without side effects, which several attempts may call."""

    def __call__(self, current: State | None, initial: Configuration) -> Result:
        """Return the result. ``initial`` has the acceptors of a new register."""


class Keep(msgspec.Struct, frozen=True):
    """No change: a read that settles what an unfinished change has left."""

    def __call__(self, current: State | None, initial: Configuration) -> Result:
        return Result(current, Verdict.APPLIED)


class CompareAndSet(msgspec.Struct, frozen=True):
    """A new value, with the documents it refers to, if the register has the expected version; version 0 creates it.

    ``retried`` says that an earlier attempt with this token ended without an answer. ``base`` is the newest token of the expected
    state. It is needed where that state may never be chosen: then another one of the same version is chosen instead.
    """

    expected: int
    value: bytes
    token: str
    retried: bool = False
    base: str = ""
    references: tuple[str, ...] = ()

    def __call__(self, current: State | None, initial: Configuration) -> Result:
        version = 0 if current is None else current.version
        if current is not None and self.token in current.tokens:
            return Result(current, Verdict.APPLIED)
        if version == self.expected and (current is None or self.base in ("", *current.tokens[-1:])):
            earlier, configuration = ((), initial) if current is None else (current.tokens, current.configuration)
            tokens = (*earlier, self.token)[-KEPT_TOKENS:]
            return Result(State(version + 1, self.value, tokens, configuration, self.references), Verdict.APPLIED)
        forgotten = self.retried and version > self.expected + KEPT_TOKENS
        return Result(current, Verdict.UNKNOWN if forgotten else Verdict.CONFLICT)


class StartMove(msgspec.Struct, frozen=True):
    """First half of a change of acceptors: from now on, majorities of both the old and the new ones decide."""

    acceptors: tuple[Acceptor, ...]

    def __call__(self, current: State | None, initial: Configuration) -> Result:
        if current is None:
            return Result(None, Verdict.CONFLICT)
        before = current.configuration
        if before.joining:
            return Result(current, Verdict.APPLIED if before.joining == self.acceptors else Verdict.CONFLICT)
        if before.acceptors == self.acceptors:
            return Result(current, Verdict.APPLIED)
        joint = Configuration(before.era + 1, before.acceptors, self.acceptors)
        return Result(msgspec.structs.replace(current, configuration=joint), Verdict.APPLIED)


class FinishMove(msgspec.Struct, frozen=True):
    """Second half: the new acceptors alone decide.

    ``era`` must be that of a first half that is known to be chosen. A first half that one acceptor has accepted is not enough:
    the old acceptors might never learn of it, and continue alone.
    """

    era: int

    def __call__(self, current: State | None, initial: Configuration) -> Result:
        if current is None or current.configuration.era != self.era or not current.configuration.joining:
            return Result(current, Verdict.CONFLICT)
        settled = Configuration(self.era + 1, current.configuration.joining)
        return Result(msgspec.structs.replace(current, configuration=settled), Verdict.APPLIED)
