"""Single decisions of acceptors and proposers, request by request."""

from __future__ import annotations

from sbon_node.ownership.consensus.acceptor import (
    Accept,
    Acceptance,
    AcceptorRecord,
    Prepare,
    Promise,
    Refusal,
    Request,
    UnknownInstance,
    react,
)
from sbon_node.ownership.consensus.changes import CompareAndSet, FinishMove, Keep, StartMove, Verdict
from sbon_node.ownership.consensus.proposer import Blocked, Chosen, Lead, Proposer
from sbon_node.ownership.consensus.states import Accepted, Acceptor, Ballot, Configuration, State

A, B, C, D = (Acceptor(name, f"{name}0") for name in "abcd")
THREE = Configuration(0, (A, B, C))
FIRST = State(1, b"one", ("t1",), THREE)


def ballot(counter: int, node: str = "p") -> Ballot:
    return Ballot(counter, node, "0")


def accept(counter: int, state: State, acceptor: Acceptor = A) -> Accept:
    return Accept(acceptor, ballot(counter), state, ballot(counter + 1))


def proposer(change: CompareAndSet | Keep | StartMove | FinishMove, lead: Lead | None = None) -> Proposer:
    return Proposer(ballot=ballot(5), following=ballot(6), configuration=THREE, change=change, lead=lead)


def receivers(requests: tuple[Request, ...]) -> list[Acceptor]:
    return [request.acceptor for request in requests]


def test_an_acceptor_keeps_its_promises() -> None:
    record, answer = react(A, AcceptorRecord(), Prepare(A, ballot(3)))
    assert answer == Promise(ballot(3), None)
    assert react(A, record, Prepare(A, ballot(2))).answer == Refusal(ballot(2), ballot(3))
    assert react(A, record, accept(2, FIRST)).answer == Refusal(ballot(2), ballot(3))
    record, answer = react(A, record, accept(3, FIRST))
    assert answer == Acceptance(ballot(3))
    assert react(A, record, Prepare(A, ballot(3, "o"))).answer == Refusal(ballot(3, "o"), ballot(4))
    assert react(A, record, accept(3, FIRST)) == (record, Acceptance(ballot(3)))
    assert react(A, record, Prepare(A, ballot(9))).answer == Promise(ballot(9), Accepted(ballot(3), FIRST))


def test_an_acceptor_without_its_disk_answers_for_nobody_else() -> None:
    wiped = Acceptor("a", "a1")
    for request in (Prepare(A, ballot(3)), accept(3, FIRST)):
        assert react(wiped, AcceptorRecord(), request) == (AcceptorRecord(), UnknownInstance(wiped))


def test_a_register_is_created_in_two_round_trips_and_changed_in_one() -> None:
    creation = proposer(CompareAndSet(0, b"one", "t1"))
    assert receivers(creation.begin()) == [A, B, C]
    assert creation.receive(A, Promise(ballot(5), None)) == ()
    assert creation.receive(B, Promise(ballot(5), None)) == tuple(accept(5, FIRST, one) for one in (A, B, C))
    creation.receive(A, Acceptance(ballot(5)))
    assert creation.outcome is None
    creation.receive(C, Acceptance(ballot(5)))
    assert creation.outcome == Chosen(FIRST, Verdict.APPLIED, Lead(ballot(6), FIRST, THREE))
    change = proposer(CompareAndSet(1, b"two", "t2"), Lead(ballot(6), FIRST, THREE))
    assert {type(request) for request in change.begin()} == {Accept}


def test_a_proposer_follows_the_acceptors_to_their_successors() -> None:
    moved = State(1, b"one", ("t1",), Configuration(2, (B, C, D)))
    read = proposer(Keep())
    read.begin()
    read.receive(A, Promise(ballot(5), Accepted(ballot(3), FIRST)))
    assert receivers(read.receive(B, Promise(ballot(5), Accepted(ballot(4), moved)))) == [D]
    assert receivers(read.receive(D, Promise(ballot(5), None))) == [B, C, D]


def test_acceptors_change_through_majorities_of_both() -> None:
    move = proposer(StartMove((B, C, D)), Lead(ballot(5), FIRST, THREE))
    assert receivers(move.begin()) == [A, B, C, D]
    for one in (A, B):
        move.receive(one, Acceptance(ballot(5)))
    assert move.outcome is None
    move.receive(D, Acceptance(ballot(5)))
    assert isinstance(move.outcome, Chosen)
    assert move.outcome.state is not None
    assert move.outcome.state.configuration == Configuration(1, (A, B, C), (B, C, D))
    assert FinishMove(1)(move.outcome.state, THREE).state == State(1, b"one", ("t1",), Configuration(2, (B, C, D)))
    assert FinishMove(3)(move.outcome.state, THREE) == (move.outcome.state, Verdict.CONFLICT)
    assert StartMove((A, B, D))(move.outcome.state, THREE) == (move.outcome.state, Verdict.CONFLICT)


def test_a_proposer_is_blocked_once_no_majority_is_left() -> None:
    attempt = proposer(Keep())
    attempt.begin()
    attempt.receive(A, UnknownInstance(Acceptor("a", "a1")))
    assert attempt.outcome is None
    attempt.receive(B, Refusal(ballot(5), ballot(8, "q")))
    assert attempt.outcome == Blocked(ballot(8, "q"), (A,), uncertain=False)


def test_a_change_of_a_state_that_is_not_chosen_does_not_apply_to_another_of_its_version() -> None:
    chosen = State(3, b"failed", ("t1", "t2", "t3"), THREE)
    assert CompareAndSet(3, b"y", "t", base="t4")(chosen, THREE) == (chosen, Verdict.CONFLICT)
    assert CompareAndSet(3, b"y", "t", base="t2")(chosen, THREE) == (chosen, Verdict.CONFLICT)
    assert CompareAndSet(3, b"y", "t", base="t3")(chosen, THREE).verdict == Verdict.APPLIED
    assert CompareAndSet(3, b"y", "t")(chosen, THREE).verdict == Verdict.APPLIED


def test_a_proposer_does_not_guess_what_it_cannot_know() -> None:
    late = State(30, b"x", tuple(f"u{number}" for number in range(16)), THREE)
    assert CompareAndSet(2, b"y", "t", retried=True)(late, THREE).verdict == Verdict.UNKNOWN
    assert CompareAndSet(2, b"y", "t")(late, THREE).verdict == Verdict.CONFLICT
    assert CompareAndSet(20, b"y", "t", retried=True)(late, THREE).verdict == Verdict.CONFLICT
    assert CompareAndSet(2, b"y", "u3", retried=True)(late, THREE) == (late, Verdict.APPLIED)
