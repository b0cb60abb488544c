"""Broken rules of registers are noticed in what the acceptors have stored."""

from __future__ import annotations

import msgspec
import pytest

from sbon_lab.simulation.checks import CheckFailedError, RegisterChecks
from sbon_node.model.records import QueryRecord
from sbon_node.ownership.consensus.states import Accepted, Acceptor, Ballot, Configuration, State
from sbon_node.ownership.names import NameRecord
from sbon_protocol.api.plan import Plan
from sbon_protocol.api.queries import SinkSpec
from sbon_protocol.api.states import query_states
from sbon_protocol.api.states.query_states import QueryState

ACCEPTORS = tuple(Acceptor(node, f"i-{node}") for node in "abc")
FIRST = Ballot(1, "a", "i-a")


@pytest.fixture
def checks() -> RegisterChecks:
    def expect(condition: bool, otherwise: str) -> None:
        if not condition:
            raise CheckFailedError(otherwise)

    return RegisterChecks(expect)


def _store(checks: RegisterChecks, key: str, value: bytes, ballot: Ballot, *, version: int = 1, count: int = 2) -> None:
    """Let the first ``count`` acceptors store a state."""
    state = State(version, value, (), Configuration(0, ACCEPTORS))
    for acceptor in ACCEPTORS[:count]:
        checks.stored(acceptor, [(key, Accepted(ballot, state))])


def _query(state: QueryState) -> bytes:
    record = QueryRecord(
        id="q-1",
        sql="",
        state=state,
        consumer="a",
        sink=SinkSpec(kind="follow"),
        plan=Plan(text="", sources=(), operators=(), outputs=(), schema=()),
    )
    return msgspec.msgpack.encode(record)


def _name(uid: str) -> bytes:
    return msgspec.msgpack.encode(NameRecord(uid, "a"))


def test_two_states_of_one_ballot_are_noticed(checks: RegisterChecks) -> None:
    _store(checks, "name/q", _name("q-1"), FIRST, count=1)
    _store(checks, "name/q", _name("q-1"), FIRST)
    with pytest.raises(CheckFailedError, match="has two states"):
        _store(checks, "name/q", _name("q-2"), FIRST, count=3)


@pytest.mark.parametrize("state", query_states.LIFECYCLE.states)
def test_a_name_that_is_given_to_another_query_while_its_query_lives_is_noticed(
    checks: RegisterChecks, state: QueryState
) -> None:
    _store(checks, "name/q", _name("q-1"), FIRST)
    _store(checks, "query/q-1", _query(state), Ballot(2, "a", "i-a"))
    if state in query_states.LIVE:
        with pytest.raises(CheckFailedError, match=f"name/q is given to q-2, and q-1 is {state}"):
            _store(checks, "name/q", _name("q-2"), Ballot(3, "a", "i-a"), version=2)
    else:
        _store(checks, "name/q", _name("q-2"), Ballot(3, "a", "i-a"), version=2)
