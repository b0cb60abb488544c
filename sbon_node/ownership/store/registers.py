"""The client of registers: reads and compare-and-set through a majority of acceptors, with retries."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

import msgspec
import structlog

from sbon_node.base.backoff import Backoff
from sbon_node.context import Context
from sbon_node.net.peers import Caller
from sbon_node.ownership.consensus.acceptor import Accept, Answer, MissingDocuments, Read, Refusal, Report, Request
from sbon_node.ownership.consensus.changes import Change, CompareAndSet, FinishMove, Keep, StartMove
from sbon_node.ownership.consensus.proposer import Blocked, Chosen, Lead, Proposer, Reader, first_lead
from sbon_node.ownership.consensus.states import Acceptor, Ballot, Configuration, State, newest
from sbon_node.ownership.store.acceptor_store import MAX_VALUE_BYTES, NONE, AcceptorStore, DocumentStore, verified
from sbon_protocol.api.bounded import MAX_COUNT
from sbon_protocol.calls import AskRegister, FetchDocuments, FetchedDocuments, RegisterAnswer
from sbon_protocol.codec import decode_record
from sbon_protocol.errors import ProtocolError, SbonError

log = structlog.get_logger()

T = TypeVar("T")

KEPT = 4096
"""Registers whose acceptors and leads a client remembers; the longest unused go."""
FIRST_PAUSE_S = 0.05
UNDECIDED = frozenset({"no-majority", "ballot-exhausted"})
"""Codes of errors after which nobody can say what the register has."""


class Found(NamedTuple):
    """Result of a search: the register's acceptors, or None; ``silent`` are the nodes that gave no answer."""

    configuration: Configuration | None
    silent: list[str]


class Attached(NamedTuple):
    """The documents of a value: the digests of all, and the content of those that no earlier value referred to."""

    references: tuple[str, ...] = ()
    documents: Mapping[str, bytes] = NONE


UNATTACHED = Attached()


class Registers:
    """Registers of the whole cluster, for a node that may or may not be an acceptor of them.

    Every method raises ``no-majority`` if too few acceptors answer within ``control.call_timeout_s``: a change may take effect
    nevertheless, and a later change with the same expected version tells. It raises ``ballot-exhausted`` if an acceptor has
    promised so great a ballot that there is no greater one.
    """

    def __init__(self, context: Context, store: AcceptorStore) -> None:
        self._context, self._store = context, store
        self.documents = Documents(context, store.documents)
        self._ballots = Ballots(context, store)
        self._known: dict[str, Configuration] = {}
        self._leads: dict[str, Lead] = {}
        self._refused: dict[str, SbonError] = {}
        self._behind: dict[str, bool] = {}
        self._unfinished: dict[asyncio.Task[Answer | None], None] = {}

    async def close(self) -> None:
        """End the requests under way."""
        tasks = list(self._unfinished)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- operations ---------------------------------------------------------------------------------------------------

    async def read(self, key: str) -> State | None:
        """Return the register's state at some moment of the call; None if there is no such register."""
        configuration = await self._configuration(key)
        if configuration is None:
            return None
        reader = Reader(configuration)
        await self._converse(key, reader)
        if reader.outcome is not None:
            return self._noted(key, reader.outcome).state
        return (await self._decide(key, configuration, Keep())).state

    async def create(
        self, key: str, value: bytes, acceptors: tuple[Acceptor, ...], attached: Attached = UNATTACHED, *, alone: bool = False
    ) -> Chosen:
        """Create a register at ``acceptors``, unless they have it already.

        It takes one round trip if this node ``alone`` ever creates the key, and does it once: see
        :func:`~sbon_node.ownership.consensus.proposer.first_lead`.
        """
        if alone:
            _keep(self._leads, key, first_lead(self._ballots.next(key), Configuration(0, acceptors)))
        return await self.compare_and_set(key, 0, value, acceptors, attached)

    async def compare_and_set(
        self,
        key: str,
        expected: int,
        value: bytes,
        acceptors: tuple[Acceptor, ...] = (),
        attached: Attached = UNATTACHED,
        *,
        base: str = "",
    ) -> Chosen:
        """Set ``value``, with the documents ``attached`` to it, if the register has the ``expected`` version.

        Its newest token must be ``base``, if that is given. The outcome's verdict tells whether the change took effect, its state
        what the register had then.

        Raises ``unknown-register`` if no node has it and no ``acceptors`` are given to create it, ``too-large``.
        """
        for content in (value, *attached.documents.values()):
            if len(content) > MAX_VALUE_BYTES:
                raise SbonError("too-large", f"{len(content)} bytes in a register", where=key)
        self.documents.remember(attached.documents)
        configuration = Configuration(0, acceptors) if acceptors else await self._configuration(key)
        if configuration is None:
            raise SbonError("unknown-register", f"no node keeps {key}", where=key)
        token = f"{self._context.rng.getrandbits(64):016x}"
        change = CompareAndSet(expected, value, token, base=base, references=attached.references)
        return await self._decide(key, configuration, change, attached.documents)

    async def move(self, key: str, acceptors: tuple[Acceptor, ...]) -> Chosen:
        """Replace the register's acceptors, through majorities of both the old and the new ones."""
        configuration = await self._configuration(key)
        if configuration is None:
            raise SbonError("unknown-register", f"no node keeps {key}", where=key)
        outcome = await self._decide(key, configuration, StartMove(acceptors))
        state = outcome.state
        if state is not None and state.configuration.joining:
            outcome = await self._decide(key, state.configuration, FinishMove(state.configuration.era))
        return outcome

    async def prepare(self, key: str, acceptors: tuple[Acceptor, ...]) -> State | None:
        """Return the register's state, or None; a creation at these acceptors takes one round trip then."""
        return (await self._decide(key, Configuration(0, acceptors), Keep())).state

    def behind(self) -> list[str]:
        """Return registers of which an acceptor may have missed a change by this node; all acceptors are present now."""
        away = self._context.presence.away
        known = {key: self.configuration(key) for key in self._behind}
        return [key for key, one in known.items() if one is None or not any(away(member.node) for member in one.members)]

    async def settle(self, key: str) -> State | None:
        """Read the register, and bring all its acceptors up to date."""
        self._behind.pop(key, None)
        self._leads.pop(key, None)
        configuration = await self._configuration(key)
        return None if configuration is None else (await self._decide(key, configuration, Keep())).state

    async def catch_up(self, key: str) -> None:
        """Bring all acceptors up to date; delete this node's copy if others have replaced it as an acceptor meanwhile."""
        state, own = await self.settle(key), self._store.state(key)
        if state is None or own is None or self._store.me in state.configuration.members:
            return
        if own.configuration.era <= state.configuration.era:
            self._store.retire(key, state.configuration.era)
            self._let_go(key)

    def forget(self, key: str, *, end: str = "") -> None:
        """Delete this node's copy, and what it would propose later; with its ``end`` in a word for ever."""
        self._store.forget(key, end=end)
        self._let_go(key)

    def _let_go(self, key: str) -> None:
        for remembered in (self._known, self._leads, self._behind):
            remembered.pop(key, None)

    async def accepted(self, key: str, acceptors: Iterable[Acceptor]) -> list[Answer | None]:
        """Ask each acceptor for what it has accepted; None for no answer."""
        return await asyncio.gather(*(self._ask(key, Read(one)) for one in acceptors))

    async def level(self, key: str, answers: Iterable[Answer | None]) -> None:
        """Bring all acceptors up to date if what they have accepted differs, by their ``answers``, or if this node keeps a copy
        and is none of them; see :meth:`catch_up`.
        """
        states = [one.accepted and one.accepted.state for one in answers if isinstance(one, Report)]
        differ = len({state and (state.version, state.configuration.era) for state in states}) > 1
        if differ or self.is_replaced(key):
            await self.catch_up(key)

    def is_replaced(self, key: str) -> bool:
        """Return whether this node keeps a copy, but is none of the newest acceptors that it knows."""
        known = self.configuration(key)
        return self._store.state(key) is not None and known is not None and self._store.me not in known.members

    def configuration(self, key: str) -> Configuration | None:
        """Return the newest acceptors known here."""
        state, known = self._store.state(key), self._known.get(key)
        if state is not None and (known is None or known.era <= state.configuration.era):
            return state.configuration
        return known

    async def find(self, key: str) -> Found:
        """Ask all members for the register."""
        members = self.candidates()
        answers = await asyncio.gather(*(self._ask(key, Read(one)) for one in members))
        silent = [one.node for one, answer in zip(members, answers, strict=True) if answer is None]
        accepted = newest([answer.accepted for answer in answers if isinstance(answer, Report)])
        if accepted is None:
            return Found(None, silent)
        self._keep(key, accepted.state.configuration)
        return Found(accepted.state.configuration, silent)

    def kept(self, prefix: str) -> list[str]:
        """Return the keys with that prefix of which this node keeps a copy."""
        return [key for key in self._store.states if key.startswith(prefix)]

    def candidates(self, *, alive: bool = False) -> list[Acceptor]:
        """Return all members, or those ``alive``, as acceptors, this node included; without nodes that have left for good."""
        members = self._context.membership.members()
        states = ("alive",) if alive else ("alive", "suspect", "away", "dead")
        return [Acceptor(member.name, member.instance) for member in members if member.state in states and member.instance]

    # -- attempts -----------------------------------------------------------------------------------------------------

    async def _configuration(self, key: str) -> Configuration | None:
        """Return the acceptors as known here, else as another node knows them.

        Raises ``no-majority`` if nodes that may have the register do not answer: two of three acceptors would be among them.
        """
        if (known := self.configuration(key)) is not None:
            return known
        found = await self.find(key)
        if found.configuration is None and len(found.silent) > 1:
            raise _no_majority(key, f"no answer from {', '.join(found.silent)}, which may keep it")
        return found.configuration

    async def _decide(
        self, key: str, configuration: Configuration, change: Change, documents: Mapping[str, bytes] = NONE
    ) -> Chosen:
        """Attempt the change until it is decided. The ``documents`` are new with it; acceptors have the others."""
        settings, clock = self._context.settings, self._context.clock
        deadline = clock.now() + settings.call_timeout_s
        backoff = Backoff(FIRST_PAUSE_S, settings.retry_s, self._context.rng)
        searched = False
        # What this node alone has accepted, perhaps of a proposer that is gone, is found only by a ballot above that one's.
        self._ballots.learn(key, self._store.promised(key))
        while True:
            attempt = Proposer(
                ballot=self._ballots.next(key),
                following=self._ballots.next(key),
                configuration=configuration,
                change=change,
                lead=self._leads.pop(key, None),
            )
            await self._converse(key, attempt, documents)
            outcome = attempt.outcome
            if isinstance(outcome, Chosen):
                return self._noted(key, outcome)
            if attempt.uncertain and isinstance(change, CompareAndSet):
                change = msgspec.structs.replace(change, retried=True)
            refused = self._refused.pop(key, None)
            if refused is not None and (clock.now() >= deadline or len(configuration.members) == 1):
                raise refused
            if isinstance(outcome, Blocked):
                self._ballots.learn(key, outcome.promised)
            if attempt.unknown and not searched:  # Others may have replaced more of the acceptors than this node knows.
                searched, found = True, (await self.find(key)).configuration
                if found is not None and found.era > configuration.era:
                    configuration = found
                    continue
            if clock.now() >= deadline:
                nodes = ", ".join(one.node for one in configuration.members)
                raise _no_majority(key, f"too few of the nodes {nodes} answer or agree", configuration)
            await clock.sleep(backoff.next_s())

    def _noted(self, key: str, outcome: Chosen) -> Chosen:
        if outcome.lead is not None:
            _keep(self._leads, key, outcome.lead)
        if outcome.state is not None:
            self._keep(key, outcome.state.configuration)
        return outcome

    def _keep(self, key: str, configuration: Configuration) -> None:
        known = self._known.get(key)
        if known is None or known.era <= configuration.era:
            _keep(self._known, key, configuration)

    async def _converse(self, key: str, attempt: Proposer | Reader, documents: Mapping[str, bytes] = NONE) -> None:
        """Send the attempt's requests until it has an outcome, or no more answers come.

        Requests without an answer by then go on, so that all acceptors learn of the change.
        """
        asked: dict[asyncio.Task[Answer | None], Acceptor] = {}

        def send(requests: Iterable[Request]) -> None:
            for request in requests:
                name = f"ask {request.acceptor.node} {key}"
                task = asyncio.get_running_loop().create_task(self._ask(key, request, documents), name=name)
                self._unfinished[task] = None
                task.add_done_callback(lambda done: self._unfinished.pop(done, None))
                asked[task] = request.acceptor

        send(attempt.begin())
        while asked and attempt.outcome is None:
            await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
            for task in [task for task in asked if task.done()]:
                acceptor, answer = asked.pop(task), task.result()
                if answer is not None:
                    send(attempt.receive(acceptor, answer))

    def _serve(self, key: str, request: Request, documents: Mapping[str, bytes]) -> Answer:
        """Answer as an acceptor; remember why this node cannot, to tell it if no majority does without it."""
        try:
            return self._store.serve(key, request, documents)
        except SbonError as error:
            _keep(self._refused, key, error)
            raise

    async def _answer(self, key: str, request: Request, documents: Mapping[str, bytes]) -> Answer:
        node = request.acceptor.node
        if node == self._context.name:
            return self._serve(key, request, documents)
        call = AskRegister(key=key, request=request, documents=tuple(documents.values()))
        timeout_s = self._context.settings.component_timeout_s
        reply = await self._context.ask(node, call, RegisterAnswer, timeout_s=timeout_s)
        answer: Answer = decode_record(reply.answer, Answer)
        return answer

    async def _ask(self, key: str, request: Request, documents: Mapping[str, bytes] = NONE) -> Answer | None:
        """Return an acceptor's answer; None if it gives none. An acceptor that misses documents is asked once more with them."""
        node = request.acceptor.node
        try:
            if not isinstance(request, Accept):
                return await self._answer(key, request, NONE)
            references, members = request.state.references, request.state.configuration.members
            new = {digest: content for digest, content in documents.items() if digest in references}
            answer = await self._answer(key, request, new)
            if isinstance(answer, MissingDocuments):
                missing = [digest for digest in references if digest in answer.digests]
                others = [one for one in members if one != request.acceptor]
                answer = await self._answer(key, request, await self.documents.get(missing, others))
            if isinstance(answer, Refusal):
                # The others may accept it nevertheless. Then only a ballot above the promised one reaches this acceptor.
                self._ballots.learn(key, answer.promised)
                _keep(self._behind, key, True)
            return answer
        except (SbonError, ProtocolError) as error:
            log.debug("register-not-asked", key=key, node=node, reason=str(error))
            if isinstance(request, Accept):
                _keep(self._behind, key, True)
            return None


def _keep(kept: dict[str, T], key: str, value: T) -> None:
    kept.pop(key, None)
    kept[key] = value
    while len(kept) > KEPT:
        del kept[next(iter(kept))]


def _no_majority(key: str, message: str, configuration: Configuration | None = None) -> SbonError:
    """Return the error; its details are the acceptors of which a majority is needed, where these are known."""
    hint = "start these nodes again, relieve them if they are overloaded, or restore the network to them"
    acceptors = () if configuration is None else tuple(one.node for one in configuration.acceptors)
    return SbonError("no-majority", message, where=key, hint=hint, details=acceptors)


# -- Documents for this node's use: from its own disk, from memory, or from an acceptor that has them -----------------

REMEMBERED_BYTES = 16 * 1024 * 1024
"""Bytes of documents that a node remembers without being an acceptor of their registers; the oldest go."""


class Documents:
    """Documents of the whole cluster's registers, found by digest."""

    def __init__(self, context: Context, store: DocumentStore) -> None:
        self._context, self._store = context, store
        self._remembered: dict[str, bytes] = {}
        context.server.handle(FetchDocuments, self._handle)

    def remember(self, documents: Mapping[str, bytes]) -> None:
        """Keep documents in memory, for acceptors that miss them and for the next reader."""
        for digest, content in documents.items():
            self._remembered.pop(digest, None)
            self._remembered[digest] = content
        size = sum(map(len, self._remembered.values()))
        while size > REMEMBERED_BYTES:
            size -= len(self._remembered.pop(next(iter(self._remembered))))

    async def get(self, digests: Iterable[str], acceptors: Iterable[Acceptor]) -> dict[str, bytes]:
        """Return documents by digest; raise ``document-unknown`` if no acceptor that answers has one of them."""
        documents, missing = {}, []
        for digest in digests:
            content = self._remembered.get(digest) or self._store.get(digest)
            if content is None:
                missing.append(digest)
            else:
                documents[digest] = content
        for node in [one.node for one in acceptors if one.node != self._context.name]:
            if not missing:
                break
            fetched = await self._fetch(node, tuple(missing))
            self.remember(fetched)
            documents.update(fetched)
            missing = [digest for digest in missing if digest not in fetched]
        if missing:
            raise SbonError("document-unknown", f"no acceptor that answers has the document {missing[0]}", where=missing[0])
        return documents

    async def _fetch(self, node: str, digests: tuple[str, ...]) -> dict[str, bytes]:
        """Return those of the documents that a node has; none if it does not answer, or sends others."""
        try:
            timeout_s = self._context.settings.component_timeout_s
            reply = await self._context.ask(node, FetchDocuments(digests=digests), FetchedDocuments, timeout_s=timeout_s)
            return verified(reply.documents, digests, node)
        except SbonError as error:
            if error.code in ("bad-digest", "too-large"):
                self._context.counters.refuse("document-refused", peer=node, field=error.where, reason=str(error))
            log.info("documents-not-fetched", node=node, code=error.code, reason=str(error))
            return {}

    async def _handle(self, call: FetchDocuments, caller: Caller) -> FetchedDocuments:
        found = map(self._store.get, call.digests)
        return FetchedDocuments(documents=tuple(content for content in found if content is not None))


LIFE_BITS = 24
"""Low bits of a ballot's counter: the number of this node's life, so that no two lives use the same ballot."""
KEPT_BALLOTS = 4096
"""Registers of which a greater number than this node's own is remembered."""


class Lives(msgspec.Struct, frozen=True):
    """The number of lives of this node as a proposer: its starts, and the times that it forgot its numbers."""

    count: int = 0


class Ballots:
    """Ballots of this node as a proposer, which it has not used for the same register in any life.

    A number that was learnt from one register is used for that register alone: whoever claims the greatest of all for one
    harms no other.
    """

    def __init__(self, context: Context, store: AcceptorStore) -> None:
        self._context, self._store = context, store
        self._number = 0
        self._learnt: dict[str, int] = {}
        self._begin_life()

    def __len__(self) -> int:
        """Return the number of registers of which a greater number than this node's own is remembered."""
        return len(self._learnt)

    def learn(self, key: str, ballot: Ballot) -> None:
        """Let the next ballots for the register be greater than ``ballot``."""
        number = ballot.counter >> LIFE_BITS
        if number <= max(self._number, self._learnt.get(key, 0)):
            return
        if key not in self._learnt and len(self._learnt) >= KEPT_BALLOTS:
            # The numbers that are forgotten come again, in ballots of another life.
            self._begin_life()
            self._learnt.clear()
        self._learnt[key] = number

    def next(self, key: str) -> Ballot:
        """Return a ballot for the register, greater than all that were learnt of it; raise ``ballot-exhausted``."""
        number = max(self._number, self._learnt.get(key, 0)) + 1
        counter = number << LIFE_BITS | self._life
        if counter > MAX_COUNT:
            raise SbonError("ballot-exhausted", f"no ballot is greater than the one that was promised for {key}", where=key)
        if key in self._learnt:
            self._learnt[key] = number
        else:
            self._number = number
        me = self._store.me
        return Ballot(counter, me.node, me.instance)

    def _begin_life(self) -> None:
        lives = self._context.store.get("proposer", "self", Lives) or Lives()
        self._life = lives.count + 1
        self._context.store.put("proposer", "self", Lives(self._life), sync=True)
