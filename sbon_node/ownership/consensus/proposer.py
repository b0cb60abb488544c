"""The proposer of a register: requests to send, and the meaning of the answers. It neither sends nor waits.

A ballot's promises must come from a quorum of the acceptors that the newest promised state names, whichever acceptors the
proposer knew at first. Each chosen change of acceptors went through majorities of the old and the new, so that a majority of
any earlier acceptors knows their successors.
"""

from collections.abc import Iterable
from typing import NamedTuple

from sbon_node.ownership.consensus.acceptor import (
    Accept,
    Acceptance,
    Answer,
    Forgotten,
    MissingDocuments,
    Prepare,
    Promise,
    Read,
    Refusal,
    Report,
    Request,
    UnknownInstance,
)
from sbon_node.ownership.consensus.changes import Change, Verdict
from sbon_node.ownership.consensus.states import NO_BALLOT, Accepted, Acceptor, Ballot, Configuration, State, newest


class Lead(NamedTuple):
    """A ballot that needs no promises any more, and the state that the register has then.

    A quorum has promised it together with its last acceptance of ``state``. Without a state, the register does not exist, and
    a quorum of ``configuration`` has promised the ballot; or this is the :func:`first_lead` of a register that nobody else
    creates.
    """

    ballot: Ballot
    state: State | None
    configuration: Configuration


def first_lead(ballot: Ballot, configuration: Configuration) -> Lead:
    """Return the lead that creates a register in one round trip, at acceptors that nobody else gives to the same key.

    Promises of a ballot exclude that a lesser ballot is chosen later, and tell the state that it may have chosen. Here there is
    no such state. A proposer creates the register only with this ballot; the others change a state that an acceptor has
    accepted, and read it first: an acceptor that has accepted this ballot refuses lesser ones. So each ballot with a state is
    greater than this one, and its quorum of promises reports the state that this one has chosen.

    The key must be new for this ballot: a later attempt, also of the same proposer, asks for promises.
    """
    return Lead(ballot, None, configuration)


class Chosen(NamedTuple):
    """The register had ``state`` at some moment of the attempt; None: it did not exist."""

    state: State | None
    verdict: Verdict
    lead: Lead | None = None


class Blocked(NamedTuple):
    """No quorum can agree to this ballot any more. ``promised`` is the greatest ballot among the refusals.

    ``unknown`` are acceptors that are gone for good. If ``uncertain``, the change may yet take effect.
    """

    promised: Ballot
    unknown: tuple[Acceptor, ...]
    uncertain: bool


class Proposer:
    """One attempt to change a register.

    Args:
        ballot: Greater than any this proposer used before for the register.
        following: Greater than ``ballot``; the acceptors promise it together with their acceptance.
        configuration: The acceptors as known here, or those of a new register.
        change: The function to apply.
        lead: Of this proposer's last attempt: its ballot is used instead of ``ballot``, and no promise is asked for. A lead
            without a state is ignored where it cannot create the register: another proposer may have created it since.

    ``outcome`` is None until the attempt is over.
    """

    def __init__(
        self, *, ballot: Ballot, following: Ballot, configuration: Configuration, change: Change, lead: Lead | None = None
    ) -> None:
        if lead is not None and lead.state is None:
            creates = lead.configuration == configuration and change(None, configuration).state is not None
            lead = lead if creates else None
        self._ballot = ballot if lead is None else lead.ballot
        self._following, self._initial, self._change, self._lead = following, configuration, change, lead
        self._promises: dict[Acceptor, Accepted | None] = {}
        self._prepared: dict[Acceptor, None] = {}
        self._accepted: dict[Acceptor, None] = {}
        self._refused: dict[Acceptor, Ballot] = {}
        self._unknown: dict[Acceptor, None] = {}
        self._forgotten: dict[Acceptor, None] = {}
        self._verdict = Verdict.CONFLICT
        self._proposed: State | None = None
        self.outcome: Chosen | Blocked | None = None

    @property
    def uncertain(self) -> bool:
        """Whether the change may take effect although the attempt ends without an outcome."""
        return self._proposed is not None

    @property
    def unknown(self) -> tuple[Acceptor, ...]:
        """Acceptors that are gone for good."""
        return tuple(self._unknown)

    def begin(self) -> tuple[Request, ...]:
        """Return the first requests."""
        if self._lead is not None:
            return self._propose(self._lead.state)
        return self._prepare(self._initial.members)

    def receive(self, acceptor: Acceptor, answer: Answer) -> tuple[Request, ...]:
        """Return the requests that follow from an answer. Answers to other ballots are ignored."""
        if self.outcome is not None:
            return ()
        if isinstance(answer, UnknownInstance):
            self._unknown[acceptor] = None
        elif isinstance(answer, Forgotten):
            self._forgotten[acceptor] = None
        elif isinstance(answer, Report | MissingDocuments) or answer.ballot != self._ballot:
            return ()
        elif isinstance(answer, Refusal):
            self._refused[acceptor] = max(answer.promised, self._refused.get(acceptor, NO_BALLOT))
        elif isinstance(answer, Promise):
            return self._promised(acceptor, answer)
        else:
            self._acknowledged(acceptor, answer)
        self._look_for_block()
        return ()

    def _prepare(self, acceptors: Iterable[Acceptor]) -> tuple[Request, ...]:
        missing = [acceptor for acceptor in acceptors if acceptor not in self._prepared]
        self._prepared.update(dict.fromkeys(missing))
        return tuple(Prepare(acceptor, self._ballot) for acceptor in missing)

    def _promised(self, acceptor: Acceptor, answer: Promise) -> tuple[Request, ...]:
        if self._proposed is not None:
            return ()
        self._promises[acceptor] = answer.accepted
        configuration = self._deciding()
        if not configuration.has_quorum(self._promises):
            requests = self._prepare(configuration.members)
            self._look_for_block()
            return requests
        accepted = newest(self._promises.values())
        return self._propose(None if accepted is None else accepted.state)

    def _deciding(self) -> Configuration:
        if self._proposed is not None:
            return self._proposed.configuration
        accepted = newest(self._promises.values())
        return self._initial if accepted is None else accepted.state.configuration

    def _propose(self, current: State | None) -> tuple[Request, ...]:
        state, self._verdict = self._change(current, self._initial)
        if state is None:
            self.outcome = Chosen(None, self._verdict, Lead(self._ballot, None, self._initial))
            return ()
        self._proposed = state
        before = state.configuration if current is None else current.configuration
        receivers = dict.fromkeys((*state.configuration.members, *before.members))
        self._refused.clear()
        return tuple(Accept(acceptor, self._ballot, state, self._following) for acceptor in receivers)

    def _acknowledged(self, acceptor: Acceptor, answer: Acceptance) -> None:
        self._accepted[acceptor] = None
        if self._proposed is not None and self._proposed.configuration.has_quorum(self._accepted):
            lead = Lead(self._following, self._proposed, self._proposed.configuration)
            self.outcome = Chosen(self._proposed, self._verdict, lead)

    def _look_for_block(self) -> None:
        if self.outcome is not None:
            return
        configuration = self._deciding()
        against = self._refused.keys() | self._unknown.keys() | self._forgotten.keys()
        if not configuration.has_quorum([one for one in configuration.members if one not in against]):
            if self._forgotten:
                # The register is over; what an acceptor still has is its last state.
                accepted, known = newest(self._promises.values()), None if self._lead is None else self._lead.state
                self.outcome = Chosen(known if accepted is None else accepted.state, Verdict.CONFLICT)
                return
            promised = max(self._refused.values(), default=NO_BALLOT)
            self.outcome = Blocked(promised, tuple(self._unknown), self.uncertain)


class Reader:
    """A read without a ballot, which disturbs no proposer: a quorum that reports the same state shows that it is chosen.

    ``outcome`` stays None where the reports differ; a :class:`Proposer` with :class:`~sbon_node.ownership.consensus.changes.Keep`
    then decides.
    """

    def __init__(self, configuration: Configuration) -> None:
        self._initial = configuration
        self._asked: dict[Acceptor, None] = {}
        self._reports: dict[Acceptor, Accepted | None] = {}
        self.outcome: Chosen | None = None

    def begin(self) -> tuple[Request, ...]:
        """Return the first requests."""
        return self._ask(self._initial.members)

    def receive(self, acceptor: Acceptor, answer: Answer) -> tuple[Request, ...]:
        """Return the requests that follow from an answer."""
        if self.outcome is not None or not isinstance(answer, Report):
            return ()
        self._reports[acceptor] = answer.accepted
        accepted = newest(self._reports.values())
        configuration = self._initial if accepted is None else accepted.state.configuration
        agreed = [one for one, report in self._reports.items() if _ballot(report) == _ballot(accepted)]
        if configuration.has_quorum(agreed):
            self.outcome = Chosen(None if accepted is None else accepted.state, Verdict.APPLIED)
            return ()
        return self._ask(configuration.members)

    def _ask(self, acceptors: Iterable[Acceptor]) -> tuple[Request, ...]:
        missing = [acceptor for acceptor in acceptors if acceptor not in self._asked]
        self._asked.update(dict.fromkeys(missing))
        return tuple(Read(acceptor) for acceptor in missing)


def _ballot(accepted: Accepted | None) -> Ballot:
    return NO_BALLOT if accepted is None else accepted.ballot
