"""Invariants of registers: chosen states form one history, and a name points to one running query.

The checks see what each acceptor has accepted. A state is chosen once a majority has accepted the same ballot.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable

from sbon_node.model.states.query_states import LIFECYCLE, RUNNING
from sbon_node.queries.records import decoded
from sbon_node.registers.states import Accepted, Acceptor, Ballot, State
from sbon_node.replication.query_keys import QUERY

Expect = Callable[[bool, str], None]
"""Fails with a text unless the condition holds."""


class RegisterChecks:
    """The history of all registers of one run."""

    def __init__(self, expect: Expect) -> None:
        self._expect = expect
        self._agreed: dict[tuple[str, Ballot], dict[Acceptor, None]] = {}
        self._seen: dict[tuple[Acceptor, str], Ballot] = {}
        self._history: dict[str, list[Ballot]] = {}
        self._chosen: dict[tuple[str, Ballot], State] = {}
        self._running: dict[str, str] = {}

    def accepted(self, acceptor: Acceptor, records: Iterable[tuple[str, Accepted]]) -> None:
        """Note what an acceptor has accepted."""
        for key, (ballot, state) in ((key, (one.ballot, one.state)) for key, one in records):
            if self._seen.get((acceptor, key)) == ballot:
                continue
            before = self._seen.get((acceptor, key), ballot)
            self._expect(before <= ballot, f"{acceptor.node} accepted {ballot} of {key} after {before}")
            self._seen[acceptor, key] = ballot
            agreed = self._agreed.setdefault((key, ballot), {})
            agreed[acceptor] = None
            if (key, ballot) not in self._chosen and state.configuration.has_quorum(agreed):
                self._chosen[key, ballot] = state
                self._follow(key, ballot, state)

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

    def _succeeds(self, key: str, before: State, after: State) -> None:
        change = f"{key} of version {before.version} became version {after.version}"
        self._expect(after.version >= before.version, change)
        same = after.version != before.version or after.value == before.value
        self._expect(same, f"{key} has two values of version {after.version}")
        if key.startswith(QUERY):
            was, now = decoded(before), decoded(after)
            self._expect(was.state not in LIFECYCLE.terminal or now.state == was.state, f"{change}: {was.state}, {now.state}")

    def _name(self, state: State) -> None:
        record = decoded(state)
        if record.state == RUNNING:
            other = self._running.setdefault(record.called, record.id)
            self._expect(other == record.id, f"two queries {record.called} run, {other} and {record.id}")
        elif self._running.get(record.called) == record.id:
            del self._running[record.called]
