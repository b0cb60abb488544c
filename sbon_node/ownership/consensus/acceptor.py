"""The acceptor of a register: a record, and how each request changes it.

A record must be on disk before the answer is sent. An acceptor that lost its records has another instance, and answers
:class:`UnknownInstance` to requests for the lost one. An empty promise instead would let a majority forget what it has accepted.
"""

from typing import NamedTuple

import msgspec

from sbon_node.ownership.consensus.states import NO_BALLOT, Accepted, Acceptor, Ballot, State


class Prepare(msgspec.Struct, frozen=True, tag="prepare"):
    """Request to refuse all lesser ballots from now on, and to report the accepted state."""

    acceptor: Acceptor
    ballot: Ballot


class Accept(msgspec.Struct, frozen=True, tag="accept"):
    """Request to accept a state, and to promise the proposer's next ballot as well.

    With this promise the next change by the same proposer takes one round trip (section 2.2.1 of the paper).
    """

    acceptor: Acceptor
    ballot: Ballot
    state: State
    following: Ballot


class Read(msgspec.Struct, frozen=True, tag="read"):
    """Request to report the accepted state, without a promise."""

    acceptor: Acceptor


class Promise(msgspec.Struct, frozen=True, tag="promise"):
    """Answer to :class:`Prepare`."""

    ballot: Ballot
    accepted: Accepted | None


class Acceptance(msgspec.Struct, frozen=True, tag="acceptance"):
    """Answer to :class:`Accept`."""

    ballot: Ballot


class Refusal(msgspec.Struct, frozen=True, tag="refusal"):
    """Answer to a request of ``ballot``, which is less than the ``promised`` one."""

    ballot: Ballot
    promised: Ballot


class Report(msgspec.Struct, frozen=True, tag="report"):
    """Answer to :class:`Read`."""

    accepted: Accepted | None


class UnknownInstance(msgspec.Struct, frozen=True, tag="unknown-instance"):
    """Answer to a request for another acceptor than this one: for a disk that was lost, or at an address that moved; or for one
    that others have replaced, and that has deleted its copy.
    """

    acceptor: Acceptor


class Forgotten(msgspec.Struct, frozen=True, tag="forgotten"):
    """Answer to any request for a register that is over: its last state was at all acceptors, and this one has deleted it."""


class MissingDocuments(msgspec.Struct, frozen=True, tag="missing-documents"):
    """Answer to an :class:`Accept` whose state refers to documents that the acceptor has not; nothing has changed."""

    ballot: Ballot
    digests: tuple[str, ...]


Request = Prepare | Accept | Read
Answer = Promise | Acceptance | Refusal | Report | UnknownInstance | Forgotten | MissingDocuments


class AcceptorRecord(msgspec.Struct, frozen=True):
    """The durable state of an acceptor for one register."""

    promised: Ballot = NO_BALLOT
    accepted: Accepted | None = None


class Reaction(NamedTuple):
    """The record to store, and the answer to send afterwards."""

    record: AcceptorRecord
    answer: Answer


def react(me: Acceptor, record: AcceptorRecord, request: Request) -> Reaction:
    """Return the acceptor's reaction. A request that comes twice is answered twice, and changes the record once."""
    if request.acceptor != me:
        return Reaction(record, UnknownInstance(me))
    if isinstance(request, Prepare):
        return _promise(record, request)
    if isinstance(request, Accept):
        return _accept(record, request)
    return Reaction(record, Report(record.accepted))


def _promise(record: AcceptorRecord, request: Prepare) -> Reaction:
    if request.ballot < record.promised:
        return Reaction(record, Refusal(request.ballot, record.promised))
    kept = AcceptorRecord(request.ballot, record.accepted)
    return Reaction(kept, Promise(request.ballot, record.accepted))


def _accept(record: AcceptorRecord, request: Accept) -> Reaction:
    if record.accepted is not None and record.accepted.ballot == request.ballot:
        return Reaction(record, Acceptance(request.ballot))
    if request.ballot < record.promised:
        return Reaction(record, Refusal(request.ballot, record.promised))
    kept = AcceptorRecord(max(request.ballot, request.following), Accepted(request.ballot, request.state))
    return Reaction(kept, Acceptance(request.ballot))
