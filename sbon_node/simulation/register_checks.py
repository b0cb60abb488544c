"""Invariants of registers: a ballot has one state, chosen states form one history, and a name points to one live query.

The checks see what each acceptor has stored. A state is chosen once a majority has accepted the same ballot.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Mapping

import msgspec

from sbon_node.model.query_ids import is_sink
from sbon_node.model.records import MoveLease, OperatorRegister
from sbon_node.model.states.query_states import LIFECYCLE, LIVE, RUNNING
from sbon_node.queries.names import NAME, NameRecord
from sbon_node.queries.operator_registers import decoded as decoded_operator
from sbon_node.queries.record_documents import decoded
from sbon_node.registers.acceptor import AcceptorRecord
from sbon_node.registers.states import Accepted, Acceptor, Ballot, State
from sbon_node.replication.query_keys import OPERATOR, QUERY, key_of, operator_key, query_of

Expect = Callable[[bool, str], None]
"""Fails with a text unless the condition holds."""


class RegisterChecks:
    """The history of all registers of one run."""

    def __init__(self, expect: Expect) -> None:
        self._expect = expect
        self._proposed: dict[tuple[str, Ballot], State] = {}
        self._over: set[str] = set()
        self._agreed: dict[tuple[str, Ballot], dict[Acceptor, None]] = {}
        self._seen: dict[tuple[Acceptor, str], Ballot] = {}
        self._history: dict[str, list[Ballot]] = {}
        self._chosen: dict[tuple[str, Ballot], State] = {}
        self._running: dict[str, str] = {}
        self._leases: dict[str, list[MoveLease]] = {}
        """Moves that some acceptor has accepted, by operator."""
        self.moving: set[str] = set()
        """Attempts to move an operator that have been chosen."""
        self.moved: set[str] = set()
        """Those that have been committed."""

    def stored(self, acceptor: Acceptor, records: Mapping[str, AcceptorRecord]) -> None:
        """Note what an acceptor has stored, by the keys of its registers."""
        for key, record in records.items():
            if record.accepted is not None and self._seen.get((acceptor, key)) != record.accepted.ballot:
                self._accepted(acceptor, key, record.accepted)

    def _accepted(self, acceptor: Acceptor, key: str, accepted: Accepted) -> None:
        if key.startswith(OPERATOR) and query_of(key) in self._over:
            return  # Nobody may claim it, and its acceptors delete their copies one after another.
        ballot, state = accepted.ballot, accepted.state
        before = self._seen.get((acceptor, key), ballot)
        self._expect(before <= ballot, f"{acceptor.node} accepted {ballot} of {key} after {before}")
        self._seen[acceptor, key] = ballot
        proposed = self._proposed.setdefault((key, ballot), state)
        self._expect(proposed == state, f"{ballot} of {key} has two states")
        if key.startswith(QUERY) and decoded(state).state in LIFECYCLE.terminal:
            self._over.add(decoded(state).id)
        lease = decoded_operator(state).move if key.startswith(OPERATOR) else None
        if lease is not None:
            self._leases.setdefault(decoded_operator(state).id, []).append(lease)
        agreed = self._agreed.setdefault((key, ballot), {})
        agreed[acceptor] = None
        if (key, ballot) not in self._chosen and state.configuration.has_quorum(agreed):
            self._chosen[key, ballot] = state
            self.moving |= set() if lease is None else {lease.attempt}
            self._follow(key, ballot, state)

    def publishes(self, operator: str, process: str, epoch: int) -> None:
        """Check that the register of an operator names the process's node for its epoch, as far as a later one is chosen."""
        history = self._history.get(operator_key(operator), [])
        register = decoded_operator(self._chosen[operator_key(operator), history[-1]]) if history else None
        if register is None or register.epoch < epoch:
            return
        named = (register.host, register.epoch) == (process.partition("#")[0], epoch)
        self._expect(named, f"{process} publishes {operator} in epoch {epoch}, which {register.host} has in {register.epoch}")

    def complete(self, acceptor: Acceptor, missing: Collection[str]) -> None:
        """Check that an acceptor has all documents of the states that it has accepted."""
        self._expect(not missing, f"{acceptor.node} has accepted states without their documents {', '.join(missing)}")

    def _follow(self, key: str, ballot: Ballot, state: State) -> None:
        """Check a chosen state against the states before and after it."""
        history = self._history.setdefault(key, [])
        place = bisect_left(history, ballot)
        if place:
            self._succeeds(key, self._chosen[key, history[place - 1]], state)
        if place < len(history):
            self._succeeds(key, state, self._chosen[key, history[place]])
        insort(history, ballot)
        if key.startswith(QUERY) and history[-1] == ballot:
            self._name(state)
        if key.startswith(NAME) and place:
            self._given(key, self._chosen[key, history[place - 1]], state)

    def _succeeds(self, key: str, before: State, after: State) -> None:
        change = f"{key} of version {before.version} became version {after.version}"
        self._expect(after.version >= before.version, change)
        same = after.version != before.version or after.value == before.value
        self._expect(same, f"{key} has two values of version {after.version}")
        if key.startswith(QUERY):
            was, now = decoded(before), decoded(after)
            self._expect(was.state not in LIFECYCLE.terminal or now.state == was.state, f"{change}: {was.state}, {now.state}")
        if key.startswith(OPERATOR):
            self._owner(change, decoded_operator(before), decoded_operator(after), after.version - before.version)

    def _owner(self, change: str, was: OperatorRegister, now: OperatorRegister, versions: int) -> None:
        """Check that an operator has one owner in each epoch; until it starts in its first one, it may be placed again.

        An acceptor may have lost its disk with a version between the two, which then nobody has seen chosen.
        """
        self._expect(was.epoch <= now.epoch <= was.epoch + versions, f"{change}: epoch {was.epoch}, {now.epoch}")
        same = (was.host, was.instance) == (now.host, now.instance)
        self._expect(same or was.epoch < now.epoch or now.epoch == 1, f"{change}: {was.host}, {now.host} in epoch {now.epoch}")
        taken_over = is_sink(now.id) or versions > 1 or (was.backup, was.backup_instance) == (now.host, now.instance)
        if was.epoch < now.epoch and was.host != now.host and now.epoch > 1 and not taken_over:
            leases = self._leases.get(now.id, [])
            attempts = [one.attempt for one in leases if (one.target, one.instance) == (now.host, now.instance)]
            self._expect(bool(attempts), f"{change}: {was.host} did not move it to {now.host}")
            self.moved.add(was.move.attempt if was.move is not None else attempts[-1])

    def _given(self, key: str, before: State, after: State) -> None:
        """Check that a name which now points to another query pointed to one that is over."""
        was, now = (msgspec.msgpack.decode(state.value, type=NameRecord).uid for state in (before, after))
        history = self._history.get(key_of(was))
        if was == now or was in self._over or not history:
            return
        state = decoded(self._chosen[key_of(was), history[-1]]).state
        self._expect(state not in LIVE, f"{key} is given to {now}, and {was} is {state}")

    def _name(self, state: State) -> None:
        record = decoded(state)
        if record.state == RUNNING:
            other = self._running.setdefault(record.called, record.id)
            self._expect(other == record.id, f"two queries {record.called} run, {other} and {record.id}")
        elif self._running.get(record.called) == record.id:
            del self._running[record.called]
