"""Query records: replicated registers of three acceptors, and the newest states that this node, as an acceptor, knows.

A state that one acceptor has accepted need not be chosen. So what is decided by a record is decided by a majority of its
acceptors; this node's own knowledge is for lists, for the choice of work, and for a reader without a majority.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec
import structlog

from sbon_node.model.records import QueryDefinition, QueryEnd, QueryRecord, QueryRegister
from sbon_node.model.shown import shown_plan
from sbon_node.ownership.acceptors import QUERY_OVER, REFUSED
from sbon_node.ownership.consensus.acceptor import Forgotten, Report, UnknownInstance
from sbon_node.ownership.consensus.changes import Verdict
from sbon_node.ownership.consensus.states import ACCEPTORS, Acceptor, State, chosen, ranked
from sbon_node.ownership.registered import Changed, Held, Packed, Registered
from sbon_node.ownership.store.acceptor_store import AcceptorStore, digest_of
from sbon_node.ownership.store.query_keys import QUERY, key_of, operator_key, query_of
from sbon_node.ownership.store.registers import Attached, Registers
from sbon_protocol.api.placement import Placement
from sbon_protocol.api.states import query_states
from sbon_protocol.api.states.query_states import LIVE
from sbon_protocol.errors import SbonError

log = structlog.get_logger()

RecordStep = Callable[[QueryRecord], QueryRecord | None]


class Records:
    """Records of queries, at most ``most`` kept or created here; ``distance_ms`` estimates the latency to a node."""

    def __init__(self, store: AcceptorStore, registers: Registers, most: int, distance_ms: Callable[[str], float]) -> None:
        self._store, self._registers, self._most, self._distance_ms = store, registers, most, distance_ms
        self._registered = Registered[QueryRecord](registers, self)
        self._known: dict[str, QueryRecord] = {}
        for key, state in store.states.items():
            self._accepted(key, state)
        store.listen(self._accepted)

    # -- records known to this node -----------------------------------------------------------------------------------

    def all(self) -> list[QueryRecord]:
        """Return the records of which this node is an acceptor, as it knows them."""
        me = self._store.me
        records = [record for uid, record in self._known.items() if me in self.acceptors(uid)]
        return sorted(records, key=lambda r: (r.submitted_ms, r.id))

    def get(self, query: str) -> QueryRecord | None:
        """Return the record of a uid, as this node knows it."""
        return self._known.get(query)

    def find(self, query: str) -> QueryRecord | None:
        """Return a record by its uid; by its name, that of the live query or else of the newest."""
        named = [record for record in self.all() if record.called == query and not record.withdrawn]
        return self._known.get(query) or max(named, key=lambda r: (r.state in LIVE, r.submitted_ms), default=None)

    def acceptors(self, query: str) -> tuple[Acceptor, ...]:
        """Return the record's acceptors, as far as this node knows them."""
        configuration = self._registers.configuration(key_of(query))
        return () if configuration is None else configuration.members

    def for_new(self, query: str) -> tuple[Acceptor, ...]:
        """Return the acceptors of a new record: this node, the nearest other one and one by rendezvous, if there are so many.

        A change by this node takes one round trip to the nearest. Live members come first; a member that is away may be one of
        three, if there are too few others.
        """
        me, alive = self._store.me, self._registers.candidates(alive=True)
        if len(alive) < ACCEPTORS:
            return chosen(key_of(query), self._registers.candidates(), (me, *alive))
        nearest = min((one for one in ranked(key_of(query), alive) if one != me), key=lambda one: self._distance_ms(one.node))
        return chosen(key_of(query), alive, (me, nearest))

    # -- records of a majority ----------------------------------------------------------------------------------------

    async def read(self, query: str) -> QueryRecord | None:
        """Return the record of a uid at some moment of the call; raise ``no-majority`` if too few acceptors answer."""
        return await self._newest(query, await self._registers.read(key_of(query)))

    async def create(self, record: QueryRecord, acceptors: tuple[Acceptor, ...]) -> QueryRecord:
        """Create a record, whose uid is new; raise ``too-many-queries`` if there is no room, or ``no-majority``."""
        await self._make_room()
        parts = split(record)
        outcome = await self._registers.create(key_of(record.id), parts.content, acceptors, parts.attached, alone=True)
        if outcome.verdict != Verdict.APPLIED or outcome.state is None:
            raise SbonError("record-changed", f"there is a record of {record.id} already", where=record.id)
        return await self._chosen(record.id, outcome.state, parts.value)

    async def change(self, query: str, step: RecordStep) -> Changed[QueryRecord]:
        """Change a record by compare-and-set, and again while others change it at the same time.

        Raises ``record-unknown`` if no node that answers has it, ``no-majority``, or the error of ``step`` for the record that
        a majority has.
        """

        def checked(record: QueryRecord) -> QueryRecord | None:
            changed = step(record)
            if changed is not None:
                query_states.LIFECYCLE.check_transition(record.state, changed.state, query)
            return changed

        return await self._registered.change(key_of(query), checked, self._accepted_here(query))

    def unfinished(self) -> list[str]:
        """Return queries that are not over and cleaned up, as this node knows them, whether or not it is still an acceptor."""
        return sorted(uid for uid, record in self._known.items() if record.state in LIVE or not record.cleaned)

    def behind(self) -> list[str]:
        """Return queries of which this node missed a change that it has read since, or keeps a copy though others replaced it."""
        states = self._store.states
        known = ((uid, record, states.get(key_of(uid))) for uid, record in self._known.items())
        late = [uid for uid, record, state in known if state is not None and state.version < record.version]
        replaced = [uid for uid in self._known if self._registers.is_replaced(key_of(uid))]
        return sorted({*late, *replaced})

    async def refresh(self, query: str) -> None:
        """Bring all acceptors of the record, and of its operators, up to date, if one has missed a change; forget a record that
        others keep instead of this node.

        Raises ``no-majority``.
        """
        answers = await self._registers.accepted(key_of(query), self.acceptors(query))
        known = self._known.get(query)
        if known is not None and not _is_over(known) and any(isinstance(one, Forgotten) for one in answers):
            # This node has missed the end, which all acceptors of that time knew.
            self._registers.forget(key_of(query), end=QUERY_OVER)
            self._known.pop(query, None)
            return
        await self._registers.level(key_of(query), answers)
        if self._store.state(key_of(query)) is None:
            self._known.pop(query, None)
        record = await self.read(query)
        if record is not None and (record.state in LIVE or not record.cleaned) and record.placement is not None:
            for key in map(operator_key, record.components):
                configuration = self._registers.configuration(key)
                acceptors = self.acceptors(query) if configuration is None else configuration.members
                await self._registers.level(key, await self._registers.accepted(key, acceptors))

    def end(self, query: str) -> str:
        """Return the end of a query whose record this node has deleted, :data:`QUERY_OVER` or :data:`REFUSED`; else nothing."""
        return self._store.end(key_of(query))

    # -- the form of records ------------------------------------------------------------------------------------------

    def packed(self, value: QueryRecord, before: Held[QueryRecord]) -> Packed[QueryRecord]:
        return split(value, before.value)

    async def unpacked(self, key: str, state: State, *alike: QueryRecord) -> Held[QueryRecord]:
        """Of a state whose documents are gone, since it was changed meanwhile, return the later one."""
        record = await self._newest(query_of(key), state, *alike)
        if record is None:
            raise self.missing(key)
        return Held(record, record.version)

    def missing(self, key: str) -> SbonError:
        """Return the error for a record that no node has: over, if this node has deleted it."""
        query = query_of(key)
        if code := self.end(query):
            return SbonError(code, f"{query} is over, and its record is deleted", where=query)
        return SbonError("record-unknown", f"no node that answers has a record of {query}", where="query")

    def deleted(self, key: str) -> SbonError:
        query = query_of(key)
        return SbonError(QUERY_OVER, f"{query} is over, and nodes have deleted its record", where=query)

    # -- the end ------------------------------------------------------------------------------------------------------

    async def forget(self, query: str) -> bool:
        """Delete this node's copy of a record that is over and cleaned up; return whether it is gone.

        It stays while an acceptor may have an earlier state, which a majority could take for the newest once copies of the end
        are gone, or has none yet, which a late message could bring.
        """
        known = self._known.get(query)
        if known is None:
            return True
        others = [one for one in self.acceptors(query) if one != self._store.me]
        answers = await self._registers.accepted(key_of(query), others)
        if not _is_over(known) or not all(_is_cleaned(answer) for answer in answers):
            if Report(None) in answers:  # It has missed all messages, which may still come.
                await self._settle(query)
            return False
        self._registers.forget(key_of(query), end=REFUSED if known.refused else QUERY_OVER)
        self._known.pop(query, None)
        return True

    async def _settle(self, query: str) -> None:
        try:
            await self._registers.settle(key_of(query))
        except SbonError as error:
            log.info("record-not-settled", query=query, code=error.code, reason=str(error))

    async def _make_room(self) -> None:
        """Forget the oldest queries that are over, if too many are here."""
        records = self.all()
        ended = [record.id for record in records if record.state not in LIVE and record.cleaned]
        left = len(records)
        for query in ended:
            if left < self._most:
                return
            left -= await self.forget(query)
        if left >= self._most:
            message = f"{self._most} queries are recorded at this node, and run or have hosts that do not know of their end"
            raise SbonError("too-many-queries", message, hint="stop one, start their hosts again, or submit elsewhere")

    # -- inside -------------------------------------------------------------------------------------------------------

    def _accepted_here(self, query: str) -> Held[QueryRecord] | None:
        """Return the record as this node knows it; it may have accepted it alone."""
        record, state = self._known.get(query), self._store.state(key_of(query))
        if record is None:
            return None
        is_stored = state is not None and state.version == record.version and state.tokens
        return Held(record, record.version, chosen=False, token=state.tokens[-1] if is_stored and state is not None else "")

    def _accepted(self, key: str, state: State) -> None:
        if not key.startswith(QUERY):
            return
        query = key.removeprefix(QUERY)
        try:
            known = self._known.get(query)
            self._known[query] = joined(state, self._document, () if known is None else (known,))
        except SbonError as error:  # Sent by a peer.
            log.warning("record-refused", key=key, reason=str(error))

    def _document(self, digest: str) -> bytes:
        """Return a document that this node keeps, as an acceptor does with those of its registers."""
        content = self._store.documents.get(digest)
        if content is None:
            raise SbonError("document-unknown", f"the document {digest} is not here", where=digest)
        return content

    async def _newest(self, query: str, state: State | None, *records: QueryRecord) -> QueryRecord | None:
        """Return the record of a state; of a later one, if documents are gone because it was changed since."""
        while state is not None:
            try:
                return await self._chosen(query, state, *records)
            except SbonError as error:
                later = await self._registers.read(key_of(query)) if error.code == "document-unknown" else state
                if later == state:
                    raise
                state = later
        return None

    async def _chosen(self, query: str, state: State, *records: QueryRecord) -> QueryRecord:
        """Return the record of a state, and remember it if this node is one of its acceptors.

        Documents that neither the ``records`` nor this node has come from an acceptor; raises ``document-unknown``.
        """
        known = self._known.get(query)
        alike = records if known is None else (known, *records)
        here = {digest for record in alike for digest in references(record)}
        missing = [digest for digest in references(decoded(state)) if digest not in here]
        documents = await self._registers.documents.get(missing, state.configuration.members)
        record, known = joined(state, documents.__getitem__, alike), self._known.get(query)
        if known is not None and known.version <= record.version:
            self._known[query] = record
        return record


def _is_cleaned(answer: object) -> bool:
    """Return whether an acceptor has accepted the end, has already deleted its copy, or has lost its disk."""
    if isinstance(answer, Forgotten | UnknownInstance):
        return True
    return isinstance(answer, Report) and answer.accepted is not None and _is_over(decoded(answer.accepted.state))


def _is_over(record: QueryRegister) -> bool:
    """Return whether the query is over and its hosts know it: the last change of its record."""
    return record.state not in LIVE and record.cleaned


T = TypeVar("T")


def split(record: QueryRecord, before: QueryRecord | None = None) -> Packed[QueryRecord]:
    """Return the record as a register with documents, without those that the record ``before`` had: only new ones are sent."""
    documents: dict[str, bytes] = {}

    def digest(content: object) -> str:
        if content is None:
            return ""
        encoded = msgspec.msgpack.encode(content)
        name = digest_of(encoded)
        documents[name] = encoded
        return name

    definition = QueryDefinition(sql=record.sql, sink=record.sink, plan=record.plan, submission=record.submission)
    record = msgspec.structs.replace(
        record,
        definition_digest=digest(definition),
        placement_digest=digest(record.placement),
        end_digest=digest(_end_of(record)),
    )
    for known in () if before is None else references(before):
        documents.pop(known, None)
    register = QueryRegister(**{name: getattr(record, name) for name in QueryRegister.__struct_fields__})
    return Packed(msgspec.msgpack.encode(register), Attached(references(record), documents), record)


def references(register: QueryRegister) -> tuple[str, ...]:
    """Return the digests of its documents."""
    return tuple(filter(None, (register.definition_digest, register.placement_digest, register.end_digest)))


def decoded(state: State) -> QueryRegister:
    """Return the value of a query's register; raise ``bad-record`` for anything else."""
    return _decoded(state.value, QueryRegister)


def joined(state: State, content: Callable[[str], bytes], known: Iterable[QueryRecord] = ()) -> QueryRecord:
    """Return the record of a register's state, with documents by digest from ``content`` unless a ``known`` record has them.

    Raises ``bad-record``, or the error of ``content``.
    """
    register, records = decoded(state), [one for one in known if one.definition_digest]
    if not register.definition_digest:  # Stored before there were documents.
        return msgspec.structs.replace(_decoded(state.value, QueryRecord), version=state.version)

    def same(field: str) -> QueryRecord | None:
        return next((one for one in records if getattr(one, field) == getattr(register, field)), None)

    fields: dict[str, Any] = {name: getattr(register, name) for name in QueryRegister.__struct_fields__}
    definition = same("definition_digest") or _decoded(content(register.definition_digest), QueryDefinition)
    fields |= {name: getattr(definition, name) for name in QueryDefinition.__struct_fields__}
    if (one := same("placement_digest")) is not None:
        fields["placement"] = one.placement
    elif register.placement_digest:
        fields["placement"] = _decoded(content(register.placement_digest), Placement)
    record = QueryRecord(**fields, version=state.version)
    if (one := same("end_digest")) is not None:
        return msgspec.structs.replace(record, last=one.last, query_usage=one.query_usage)
    return _with_end(record, _decoded(content(register.end_digest), QueryEnd)) if register.end_digest else record


def _end_of(record: QueryRecord) -> QueryEnd | None:
    """Return the document of its end, without what its other documents have."""
    if record.last is None and record.query_usage is None:
        return None
    last = record.last and msgspec.structs.replace(record.last, sql="", plan=None, placement=None)
    return QueryEnd(last=last, query_usage=record.query_usage)


def _with_end(record: QueryRecord, end: QueryEnd) -> QueryRecord:
    shown = {"sql": record.sql, "plan": shown_plan(record.plan), "placement": record.placement}
    last = end.last and msgspec.structs.replace(end.last, **shown)
    return msgspec.structs.replace(record, last=last, query_usage=end.query_usage)


def _decoded(content: bytes, type_: type[T]) -> T:
    try:
        return msgspec.msgpack.decode(content, type=type_)
    except msgspec.MsgspecError as error:
        raise SbonError("bad-record", str(error), where="query", hint="do all nodes run the same version?") from error
