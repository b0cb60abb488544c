"""Acceptors and proposers under a random schedule, and the checks of what they do.

Messages are lost, come twice and in any order. Nodes crash, and lose their disks. Proposers give up, try again, and replace
acceptors.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import msgspec

from sbon_node.ownership.consensus.acceptor import Accept, Acceptance, AcceptorRecord, Answer, Prepare, Read, Request, react
from sbon_node.ownership.consensus.changes import Change, CompareAndSet, FinishMove, Keep, StartMove, Verdict
from sbon_node.ownership.consensus.proposer import Blocked, Chosen, Lead, Proposer, Reader, first_lead
from sbon_node.ownership.consensus.states import Acceptor, Ballot, Configuration, State

NODES = "abcde"
STEPS = 1200


@dataclass
class Site:
    """A node: ``down`` ignores messages and keeps its disk."""

    me: Acceptor
    record: AcceptorRecord = field(default_factory=AcceptorRecord)
    down: bool = False


@dataclass
class Client:
    """A proposer with at most one operation under way, which takes several attempts."""

    name: str
    known: Configuration
    counter: int = 0
    seen: int = 0
    lead: Lead | None = None
    change: Change | None = None
    least: int = 0
    attempt: Proposer | Reader | None = None
    joint: int = 0
    number: int = 0


@dataclass
class World:
    rng: random.Random
    sole: bool = False
    """Whether the first proposer alone creates the register, without promises."""
    sites: dict[str, Site] = field(default_factory=dict)
    flying: list[tuple[Client, Proposer | Reader, Acceptor, Request | Answer]] = field(default_factory=list)
    chosen: dict[Ballot, State] = field(default_factory=dict)
    accepted_by: dict[Ballot, list[Acceptor]] = field(default_factory=dict)
    contents: dict[int, tuple[bytes, tuple[str, ...]]] = field(default_factory=dict)
    never: list[str] = field(default_factory=list)
    read_version: int = 0
    done: int = 0
    moves: int = 0

    def __post_init__(self) -> None:
        self.sites = {name: Site(Acceptor(name, f"{name}0")) for name in NODES}
        first = Configuration(0, tuple(self.sites[name].me for name in NODES[:3]))
        self.clients = [Client(name, first) for name in ("p", "q", "r")]
        if self.sole:
            creator = self.clients[0]
            creator.number = creator.counter = 1
            creator.change = CompareAndSet(0, b"p1", "p1")
            creator.lead = first_lead(Ballot(1, "p", "0"), first)

    def run(self, steps: int = STEPS) -> None:
        actions = [self.deliver, self.lose, self.repeat, self.work, self.give_up, self.crash, self.recover, self.wipe]
        weights = [80, 2, 2, 15, 1.5, 0.3, 2, 0.15]
        for action in self.rng.choices(actions, weights, k=steps):
            action()
        self.check()

    def deliver(self) -> None:
        if self.flying:
            self.take(self.flying.pop(self.rng.randrange(len(self.flying))))

    def lose(self) -> None:
        if self.flying:
            self.flying.pop(self.rng.randrange(len(self.flying)))

    def repeat(self) -> None:
        if self.flying:
            self.flying.append(self.rng.choice(self.flying))

    def crash(self) -> None:
        self.rng.choice(list(self.sites.values())).down = True

    def recover(self) -> None:
        self.rng.choice(list(self.sites.values())).down = False

    def wipe(self) -> None:
        site = self.rng.choice(list(self.sites.values()))
        site.me = Acceptor(site.me.node, f"{site.me.node}{int(site.me.instance[1:]) + 1}")
        site.record = AcceptorRecord()

    def give_up(self) -> None:
        client = self.rng.choice(self.clients)
        if client.attempt is not None:
            self.end_attempt(client)

    def end_attempt(self, client: Client) -> None:
        """Ends it without an outcome, as a timeout or a crash of the proposer does."""
        if isinstance(client.change, CompareAndSet) and isinstance(client.attempt, Proposer) and client.attempt.uncertain:
            client.change = msgspec.structs.replace(client.change, retried=True)
        client.attempt = client.lead = None

    def work(self) -> None:
        client = self.rng.choice(self.clients)
        if client.attempt is not None:
            return
        if client.change is None:
            client.change, client.least = self.next_change(client), self.read_version
        if isinstance(client.change, Keep) and self.rng.random() < 0.7:
            client.attempt = Reader(client.known)
        else:
            client.counter += 2
            ballot, following = Ballot(client.counter, client.name, "0"), Ballot(client.counter + 1, client.name, "0")
            client.attempt = Proposer(
                ballot=ballot, following=following, configuration=client.known, change=client.change, lead=client.lead
            )
        client.lead = None
        self.send(client, client.attempt, client.attempt.begin())
        self.look(client)

    def next_change(self, client: Client) -> Change:
        if client.joint:
            return FinishMove(client.joint)
        draw = self.rng.random()
        if draw < 0.25 or (self.sole and not client.seen):
            return Keep()
        if draw < 0.5:
            return StartMove(tuple(self.sites[name].me for name in self.rng.sample(NODES, 3)))
        client.number += 1
        token = f"{client.name}{client.number}"
        return CompareAndSet(client.seen, token.encode(), token)

    def send(self, client: Client, attempt: Proposer | Reader, requests: tuple[Request, ...]) -> None:
        self.flying.extend((client, attempt, request.acceptor, request) for request in requests)

    def take(self, message: tuple[Client, Proposer | Reader, Acceptor, Request | Answer]) -> None:
        client, attempt, acceptor, content = message
        if isinstance(content, Prepare | Accept | Read):
            self.serve(client, attempt, acceptor, content)
        elif client.attempt is attempt:
            self.send(client, attempt, attempt.receive(acceptor, content))
            self.look(client)

    def serve(self, client: Client, attempt: Proposer | Reader, acceptor: Acceptor, request: Request) -> None:
        site = self.sites[acceptor.node]
        if site.down:
            return
        site.record, answer = react(site.me, site.record, request)
        self.flying.append((client, attempt, acceptor, answer))
        if isinstance(request, Accept) and isinstance(answer, Acceptance):
            agreed = self.accepted_by.setdefault(request.ballot, [])
            agreed.append(site.me)
            if request.state.configuration.has_quorum(agreed):
                self.chosen[request.ballot] = request.state

    def look(self, client: Client) -> None:
        """Takes the outcome of the client's attempt, where there is one."""
        outcome = None if client.attempt is None else client.attempt.outcome
        if isinstance(outcome, Blocked):
            client.counter = max(client.counter, outcome.promised.counter)
            self.end_attempt(client)
        elif isinstance(outcome, Chosen):
            change, client.attempt, client.change, client.lead = client.change, None, None, outcome.lead
            self.done += 1
            assert change is not None
            self.judge(client, change, outcome)

    def judge(self, client: Client, change: Change, outcome: Chosen) -> None:
        state = outcome.state
        version = 0 if state is None else state.version
        assert version >= client.least, "an operation returned less than one that had ended before it began"
        self.read_version = max(self.read_version, version)
        client.seen = version
        if state is not None:
            assert self.contents.setdefault(version, (state.value, state.tokens)) == (state.value, state.tokens)
            client.known = state.configuration
            client.joint = state.configuration.era if state.configuration.joining else 0
            self.moves += isinstance(change, FinishMove) and outcome.verdict == Verdict.APPLIED
        if isinstance(change, CompareAndSet):
            if outcome.verdict == Verdict.APPLIED:
                assert state is not None
                assert change.token in state.tokens
                assert state.tokens.index(change.token) - len(state.tokens) == change.expected - version
            elif outcome.verdict == Verdict.CONFLICT:
                assert version != change.expected
                self.never.append(change.token)

    def check(self) -> None:
        """The chosen states form one history, in which no version changes and none returns."""
        history = [state for _, state in sorted(self.chosen.items())]
        assert [state.version for state in history] == sorted(state.version for state in history), "the register went back"
        for state in history:
            assert self.contents.setdefault(state.version, (state.value, state.tokens)) == (state.value, state.tokens)
        longest = max(self.contents, default=0)
        for version, (value, tokens) in self.contents.items():
            assert len(tokens) == min(version, 16)
            assert value == tokens[-1].encode()
            after = self.contents.get(version + 1)
            assert after is None or after[1][:-1] == (*tokens,)[-15:]
        applied = [token for _, tokens in self.contents.values() for token in tokens]
        assert not set(applied) & set(self.never), "a change took effect that was reported as refused"
        assert longest >= self.read_version
