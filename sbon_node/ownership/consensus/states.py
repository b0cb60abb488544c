"""Ballots, acceptors and states of a register (CASPaxos: Rystsov, arXiv 1802.07000)."""

import hashlib
from collections.abc import Collection, Iterable, Sequence

import msgspec

from sbon_protocol.api.bounded import Counted


class Ballot(msgspec.Struct, frozen=True, order=True):
    """The number of an attempt to change a register. No two attempts have the same.

    ``counter`` never repeats at a proposer for the same register, over all its restarts; ``node`` and ``instance`` name the
    proposer.
    """

    counter: Counted
    node: str
    instance: str


NO_BALLOT = Ballot(0, "", "")
"""Less than the ballot of any attempt."""


class Acceptor(msgspec.Struct, frozen=True, order=True):
    """A node that keeps a copy of the register. A node whose disk was lost is another instance, thus another acceptor."""

    node: str
    instance: str


class Configuration(msgspec.Struct, frozen=True):
    """The acceptors of a register. During their change, ``joining`` are those that follow; else it is empty.

    ``era`` grows by one with each change, so that a change is two eras.
    """

    era: Counted
    acceptors: tuple[Acceptor, ...]
    joining: tuple[Acceptor, ...] = ()

    @property
    def members(self) -> tuple[Acceptor, ...]:
        """All acceptors that take part, each once."""
        return tuple(dict.fromkeys((*self.acceptors, *self.joining)))

    def has_quorum(self, agreed: Collection[Acceptor]) -> bool:
        """Whether ``agreed`` contains a majority, and during a change a majority of those that join too."""
        return _majority(self.acceptors, agreed) and (not self.joining or _majority(self.joining, agreed))


def _majority(acceptors: tuple[Acceptor, ...], agreed: Collection[Acceptor]) -> bool:
    return 2 * sum(acceptor in agreed for acceptor in acceptors) > len(acceptors)


class State(msgspec.Struct, frozen=True):
    """The content of a register, which travels together with its acceptors.

    ``version`` counts the changes of ``value``. ``tokens`` are the newest of these changes, the last one last: by its token a
    proposer learns whether an attempt without an answer took effect. ``references`` are the digests of the documents that the
    value refers to; an acceptor accepts the state only together with them.
    """

    version: Counted
    value: bytes
    tokens: tuple[str, ...]
    configuration: Configuration
    references: tuple[str, ...] = ()


class Accepted(msgspec.Struct, frozen=True):
    """The state that an acceptor has accepted last."""

    ballot: Ballot
    state: State


def newest(known: Collection[Accepted | None]) -> Accepted | None:
    """Return the one of the greatest ballot."""
    accepted = [one for one in known if one is not None]
    return max(accepted, key=lambda one: one.ballot, default=None)


ACCEPTORS = 3
"""Acceptors of a register: two of them agree, so that any one may be lost."""


def ranked(key: str, acceptors: Iterable[Acceptor]) -> list[Acceptor]:
    """Return the acceptors in the register's order by rendezvous hashing (Thaler and Ravishankar, IEEE/ACM ToN 1998).

    A member that joins or leaves does not change it for the others.
    """
    return sorted(acceptors, key=lambda one: (_weight(key, one.node), one), reverse=True)


def chosen(key: str, acceptors: Iterable[Acceptor], first: Sequence[Acceptor] = ()) -> tuple[Acceptor, ...]:
    """Return the acceptors of a new register: three, ``first`` and then the highest ranked; one, if there are fewer.

    Two acceptors would both be needed for each change, so that the loss of either would block the register.
    """
    order = tuple(dict.fromkeys((*first, *ranked(key, acceptors))))
    return order[:ACCEPTORS] if len(order) >= ACCEPTORS else order[:1]


def _weight(key: str, node: str) -> bytes:
    return hashlib.blake2b(f"{key}\0{node}".encode(), digest_size=8).digest()
