"""The catalogue, known to every node: a join-semilattice of entries, pushed on change and compared periodically.

Of two entries for one name the greater ``version`` (the generation of the name) wins. Within a generation a drop wins over
everything, the smaller origin's declaration wins over the greater's, and sources are united by name: the later turn of a name
wins, of one turn the later epoch, and turns up to the last detached turn are removed. So any two nodes that have seen the same
entries, in whatever order, hold the same catalogue.

Dropped streams stay as tombstones for :data:`TOMBSTONE_S`, longer than the partitions and absences of up to seven days that SPEC
promises to heal without reviving anything. A node that is away for longer than a tombstone lasts may bring a dropped stream back,
which must then be dropped again; so may any node, if more than :data:`MAX_TOMBSTONES` names were dropped meanwhile.
"""

import asyncio
import hashlib
import random
from collections.abc import Callable, Iterable, Mapping

import msgspec
import structlog

from sbon_node.base.backoff import Backoff
from sbon_node.base.clock import Clock
from sbon_node.connectors.access.secrets import check_no_secrets
from sbon_node.context import Context
from sbon_node.model.schema import check_source, check_stream
from sbon_node.net.peers import Caller
from sbon_node.overlay.membership.table import Change
from sbon_protocol.api.catalogue import MAX_SOURCES_OF_A_STREAM, CatalogEntry, SourceDeclaration, StreamDeclaration, parts_of
from sbon_protocol.api.durability import LOCAL
from sbon_protocol.calls import CatalogueEntries, PullCatalogue, PushCatalogue
from sbon_protocol.codec import decode_record
from sbon_protocol.errors import ProtocolError, SbonError

log = structlog.get_logger()

MAX_VERSION = 2**53
PUSHED_LEAP = 1024
PULLED_LEAP = 2**20
"""Most by which a pulled entry's version, or a turn in it, may exceed the known value.

Pushed entries have a smaller limit. So no message makes a name unusable, and a node that was away for long catches up by pulling.
"""
TOMBSTONE_S = 30 * 86_400.0
MAX_TOMBSTONES = 2048
"""Most tombstones; the oldest are deleted first.

With ``control.max_streams`` live entries they still fit one comparison (``PullCatalogue``).
"""
MAX_DETACHED = 4 * MAX_SOURCES_OF_A_STREAM
"""Most names of detached sources that a stream remembers."""
MAX_REPLY_BYTES = 1024 * 1024
"""Most bytes of entries in one answer; the next comparison brings the rest."""

_encoded = msgspec.msgpack.Encoder(order="deterministic").encode


def merge(own: CatalogEntry | None, theirs: CatalogEntry) -> CatalogEntry:
    """Return the least upper bound of both entries: commutative, associative, idempotent."""
    if own is None or theirs.version > own.version:
        own = theirs
    elif theirs.version < own.version:
        theirs = own
    first, second = sorted((own, theirs), key=lambda e: (e.origin, _encoded(e.declaration)))
    sources: dict[str, SourceDeclaration] = {}
    detached = {name: max(e.detached.get(name, 0) for e in (own, theirs)) for name in {**own.detached, **theirs.detached}}
    for source in sorted(own.sources + theirs.sources, key=lambda s: (s.name, -s.turn, -s.epoch, s.node, _encoded(s))):
        if source.turn > detached.get(source.name, 0):
            sources.setdefault(source.name, source)
    dropped = own.dropped or theirs.dropped
    return CatalogEntry(
        declaration=first.declaration,
        sources=() if dropped else tuple(sources.values())[:MAX_SOURCES_OF_A_STREAM],
        version=own.version,
        origin=min(first.origin, second.origin),
        dropped=dropped,
        dropped_ms=max(own.dropped_ms, theirs.dropped_ms),
        detached={} if dropped else detached,
    )


def fingerprint(entry: CatalogEntry) -> str:
    return hashlib.sha256(_encoded(entry)).hexdigest()[:16]


def check_entry(entry: CatalogEntry) -> None:
    """Check that this node could have declared a peer's entry itself; raise :class:`SbonError`."""
    check_stream(entry.declaration)
    if not 1 <= entry.version <= MAX_VERSION or len(entry.sources) > MAX_SOURCES_OF_A_STREAM:
        raise SbonError("bad-entry", "the version, or the number of sources, is out of bounds", where=entry.declaration.name)
    if entry.dropped != (0 < entry.dropped_ms <= MAX_VERSION):
        raise SbonError("bad-entry", "a dropped stream has the time of its drop, and no other has", where=entry.declaration.name)
    if entry.declaration.sql and (entry.sources or entry.detached):
        raise SbonError("bad-entry", "a view has no sources", where=entry.declaration.name)
    if len(entry.detached) > MAX_DETACHED or not all(0 < turn <= MAX_VERSION for turn in entry.detached.values()):
        raise SbonError("bad-entry", "the sources that were detached are out of bounds", where=entry.declaration.name)
    for source in entry.sources:
        check_source(source, entry.declaration)
        check_no_secrets(source.options)
        if source.turn <= entry.detached.get(source.name, 0):
            raise SbonError("bad-entry", f"the source {source.name!r} was detached", where=entry.declaration.name)
        if source.version != entry.version:
            raise SbonError("bad-entry", f"the source {source.name!r} is of another version", where=entry.declaration.name)
        if source.durability == LOCAL and source.epoch > 1:
            raise SbonError("bad-entry", f"the source {source.name!r} is local, and has moved", where=entry.declaration.name)


def check_leap(own: CatalogEntry | None, theirs: CatalogEntry, most: int) -> None:
    """Raise :class:`SbonError` if the entry exceeds this node's by more than ``most`` versions or turns."""
    known = own.version if own is not None else 0
    if theirs.version > known + most:
        raise SbonError("bad-entry", f"version {theirs.version} leaps above {known}", where=theirs.declaration.name)
    turns: dict[str, int] = {}
    if own is not None and own.version == theirs.version:
        turns = dict(own.detached)
        turns.update({source.name: max(source.turn, turns.get(source.name, 0)) for source in own.sources})
    for name, turn in [*theirs.detached.items(), *((source.name, source.turn) for source in theirs.sources)]:
        if turn > turns.get(name, 0) + most:
            raise SbonError("bad-entry", f"the source {name!r} leaps to turn {turn}", where=theirs.declaration.name)
    epochs = {} if own is None else {source.id: source.epoch for source in own.sources}
    for source in theirs.sources:
        if source.epoch > epochs.get(source.id, 1) + most:
            message = f"the source {source.name!r} leaps to epoch {source.epoch}"
            raise SbonError("bad-entry", message, where=theirs.declaration.name)


class Catalogue:
    """This node's copy. Listeners receive every entry that changed, including this node's own changes."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._entries = context.store.all("catalogue", CatalogEntry)
        self._detach_secrets()
        self._listeners: list[Callable[[CatalogEntry], None]] = []
        self._pace = ComparisonInterval(context.clock, context.rng, context.settings.sync_interval_s)
        context.membership.listen(self._member_changed)
        context.server.handle(PushCatalogue, self._pushed)
        context.server.handle(PullCatalogue, self._pulled)

    def listen(self, listener: Callable[[CatalogEntry], None]) -> None:
        self._listeners.append(listener)

    def _detach_secrets(self) -> None:
        """Detach sources whose options hold a secret, as an earlier version of the program stored, here and so everywhere."""
        for name, entry in self._entries.items():
            cleaned = entry
            for source in entry.sources:
                try:
                    check_no_secrets(source.options)
                except SbonError as error:
                    hint = "attach it again with a reference (env: or file:), and change the secret: other nodes had it too"
                    log.warning("source-detached", stream=name, source=source.name, option=error.where, hint=hint)
                    sources = tuple(other for other in cleaned.sources if other is not source)
                    turn = max(source.turn, cleaned.detached.get(source.name, 0))
                    cleaned = msgspec.structs.replace(cleaned, sources=sources, detached={**cleaned.detached, source.name: turn})
            if cleaned is not entry:
                self._entries[name] = cleaned
                try:
                    self._context.store.put("catalogue", name, cleaned)
                    self._context.store.forget_deleted()
                except SbonError as error:
                    log.warning("secret-not-removed", stream=name, code=error.code, reason=str(error))

    @property
    def entries(self) -> Mapping[str, CatalogEntry]:
        """The streams that are not dropped, by name."""
        return {name: e for name, e in sorted(self._entries.items()) if not e.dropped}

    def entry(self, name: str) -> CatalogEntry:
        """Return the entry; raise :class:`SbonError` ``unknown-stream``."""
        entry = self._entries.get(name)
        if entry is None or entry.dropped:
            known = ", ".join(self.entries) or "there is none yet"
            raise SbonError("unknown-stream", f"there is no stream {name!r}", where="stream", hint=f"known: {known}")
        return entry

    def known(self, name: str) -> CatalogEntry | None:
        """Return the entry of a stream, dropped or not; None if this node knows of none, or no more."""
        return self._entries.get(name)

    def check_new(self, name: str, *, replace: bool = False) -> None:
        """Raise ``stream-exists`` if a stream or view has that name; to ``replace`` a view, only ``not-a-view`` for a stream."""
        if name in self.entries:
            kind = "view" if self._entries[name].declaration.sql else "stream"
            if replace and kind == "view":
                return
            if replace:
                hint = f"DROP STREAM {name} drops it with its sources and what they keep"
                raise SbonError("not-a-view", f"{name} is a stream, no view", where="name", hint=hint)
            hint = "choose another name, or drop it first"
            raise SbonError("stream-exists", f"the {kind} {name!r} exists already", where="name", hint=hint)

    async def create(self, declaration: StreamDeclaration, *, replace: bool = False) -> None:
        """Declare a stream, in place of a view that it is to ``replace``; raise ``stream-exists`` or ``too-many-streams``."""
        self.check_new(declaration.name, replace=replace)
        old = self._entries.get(declaration.name)
        if declaration.name not in self.entries and not self._has_capacity():
            raise SbonError("too-many-streams", f"the catalogue is full ({self._context.settings.max_streams})", where="name")
        version = old.version + 1 if old else 1
        if version > MAX_VERSION:
            hint = "choose another name"
            raise SbonError("stream-name-used-up", f"{declaration.name!r} has no version left", where="name", hint=hint)
        await self._change(CatalogEntry(declaration=declaration, version=version, origin=self._context.name))

    def named(self, source: SourceDeclaration) -> SourceDeclaration:
        """Return a source as :meth:`attach` would add it now, with its id; raise ``source-exists``."""
        entry = self.entry(source.stream)
        if entry.declaration.sql:
            hint = "attach it to a stream that the view reads"
            raise SbonError("is-a-view", f"{source.stream!r} is a view, which has no sources", where="stream", hint=hint)
        if any(s.name == source.name for s in entry.sources):
            hint = "give this one another name"
            raise SbonError("source-exists", f"{source.stream} has a source {source.name!r} already", where="name", hint=hint)
        if len(entry.sources) >= MAX_SOURCES_OF_A_STREAM:
            raise SbonError("too-many-sources", f"a stream has at most {MAX_SOURCES_OF_A_STREAM} sources", where="stream")
        return msgspec.structs.replace(source, version=entry.version, turn=entry.detached.get(source.name, 0) + 1, epoch=1)

    async def attach(self, source: SourceDeclaration) -> None:
        """Add a source that its node has accepted; raise ``source-exists``."""
        source, entry = self.named(source), self.entry(source.stream)
        await self._change(msgspec.structs.replace(entry, sources=(*entry.sources, source)))

    async def detach(self, stream: str, name: str) -> None:
        """Remove a source; raise ``unknown-source``, or ``too-many-sources`` if no more names can be remembered."""
        entry = self.entry(stream)
        source = next((s for s in entry.sources if s.name == name), None)
        if source is None:
            hint = f"there are {', '.join(s.name for s in entry.sources)}" if entry.sources else "it has none"
            raise SbonError("unknown-source", f"{stream} has no source {name!r}", where="source", hint=hint)
        detached = {**entry.detached, name: source.turn}
        if len(detached) > MAX_DETACHED:
            hint = "drop the stream and declare it anew"
            raise SbonError("too-many-sources", f"{MAX_DETACHED} names have been detached already", where=stream, hint=hint)
        kept = tuple(s for s in entry.sources if s is not source)
        await self._change(msgspec.structs.replace(entry, sources=kept, detached=detached))

    async def move(self, source: SourceDeclaration) -> None:
        """Note where a replicated source is now, and tell all members; ignore a source that is gone."""
        entry = self._entries.get(source.stream)
        if entry is None or all(one.id != source.id for one in entry.sources):
            return
        others = tuple(one for one in entry.sources if one.id != source.id)
        await self._change(msgspec.structs.replace(entry, sources=(*others, source)))

    def source(self, source_id: str) -> SourceDeclaration | None:
        """Return an attached source by its id."""
        entry = self._entries.get(parts_of(source_id).stream)
        return None if entry is None else next((one for one in entry.sources if one.id == source_id), None)

    def node_of(self, source_id: str) -> str:
        """Return the node of a source; empty if it is not attached, as far as this node knows."""
        return "" if (source := self.source(source_id)) is None else source.node

    def is_detached(self, source_id: str) -> bool:
        """Return whether a source was detached, or its stream dropped, as far as this node knows."""
        stream, version, name, turn = parts_of(source_id)
        entry = self._entries.get(stream)
        if entry is None or entry.version < version:
            return False
        return entry.version > version or entry.dropped or entry.detached.get(name, 0) >= turn

    async def drop(self, name: str) -> CatalogEntry:
        entry = self.entry(name)
        now_ms = self._context.clock.wall_ms()
        await self._change(msgspec.structs.replace(entry, sources=(), detached={}, dropped=True, dropped_ms=now_ms))
        return entry

    async def run(self) -> None:
        """Compare catalogues with a random member at intervals, and delete old tombstones.

        A comparison brings entries that a push missed. The intervals grow while no member and no stream changes, here or at the
        nodes that ask.
        """
        context = self._context
        while True:
            try:
                self._forget_tombstones()
                if others := context.membership.alive():
                    await self.pull(context.rng.choice(sorted(others)))
            except SbonError as error:
                log.debug("catalogue-not-compared", reason=str(error))
                self._pace.stir()
            await self._pace.pause()

    async def pull(self, member: str) -> None:
        """Take entries that ``member`` knows and this node does not; raise :class:`SbonError` if it is unreachable."""
        reply = await self._context.ask(member, PullCatalogue(fingerprints=self._fingerprints()), CatalogueEntries)
        self._merge_all(reply.entries, member, PULLED_LEAP)

    def _fingerprints(self) -> dict[str, str]:
        return {name: fingerprint(entry) for name, entry in self._entries.items()}

    def _member_changed(self, member: str, change: Change) -> None:
        if change in ("joined", "returned"):
            self._pace.stir()

    async def _change(self, entry: CatalogEntry) -> None:
        self._accept(merge(self._entries.get(entry.declaration.name), entry))
        push = PushCatalogue(entries=(self._entries[entry.declaration.name],))
        await asyncio.gather(*(self._push(member, push) for member in sorted(self._context.membership.alive())))

    async def _push(self, member: str, push: PushCatalogue) -> None:
        try:
            await self._context.call(member, push)
        except SbonError as error:
            log.info("catalogue-push-failed", member=member, reason=str(error))

    def _accept(self, entry: CatalogEntry) -> None:
        name = entry.declaration.name
        if self._entries.get(name) != entry:
            self._context.store.put("catalogue", name, entry)
            self._entries[name] = entry
            self._pace.stir()
            try:
                for listener in self._listeners:
                    listener(entry)
            except Exception:
                # The entry stays, whatever the listeners do.
                log.exception("listener-failed", stream=name)

    def _merge_all(self, values: Iterable[object], peer: str, most: int) -> None:
        for value in values:
            try:
                entry: CatalogEntry = decode_record(value, CatalogEntry)
                check_entry(entry)
                check_leap(self._entries.get(entry.declaration.name), entry, most)
            except (ProtocolError, SbonError) as error:
                self._context.counters.refuse("catalogue-entry-refused", peer=peer, reason=str(error))
                continue
            merged = merge(self._entries.get(entry.declaration.name), entry)
            if merged.dropped or entry.declaration.name in self.entries or self._has_capacity():
                self._accept(merged)
            else:
                self._context.counters.count("catalogue-full")
        self._forget_tombstones()

    def _has_capacity(self) -> bool:
        return len(self.entries) < self._context.settings.max_streams

    def _forget_tombstones(self) -> None:
        """Delete expired tombstones, and the oldest of too many."""
        dropped = sorted((e.dropped_ms, name) for name, e in self._entries.items() if e.dropped)
        oldest_ms = self._context.clock.wall_ms() - TOMBSTONE_S * 1000
        too_many = len(dropped) - MAX_TOMBSTONES
        for index, (dropped_ms, name) in enumerate(dropped):
            if dropped_ms < oldest_ms or index < too_many:
                self._context.store.delete("catalogue", name)
                del self._entries[name]
                log.info("tombstone-forgotten", stream=name, early=dropped_ms >= oldest_ms)

    async def _pushed(self, call: PushCatalogue, caller: Caller) -> None:
        self._merge_all(call.entries, caller.node, PUSHED_LEAP)

    async def _pulled(self, call: PullCatalogue, caller: Caller) -> CatalogueEntries:
        own = self._fingerprints()
        if call.fingerprints != own:
            self._pace.stir()
        unknown: list[CatalogEntry] = []
        size = 0
        for name, entry in sorted(self._entries.items()):
            if call.fingerprints.get(name) != own[name]:
                size += len(_encoded(entry))
                if unknown and size > MAX_REPLY_BYTES:
                    break
                unknown.append(entry)
        return CatalogueEntries(entries=tuple(unknown))


# -- Interval at which a node compares its catalogue with another node's ----------------------------------------------

SLOWEST = 8.0
"""Multiple of the interval: the longest pause."""


class ComparisonInterval:
    """Pauses that grow from ``interval_s`` to eight times that while nothing happens.

    Each pause varies at random by half its length. :meth:`stir` ends a long pause within an interval, and starts again from
    ``interval_s``.
    """

    def __init__(self, clock: Clock, rng: random.Random, interval_s: float) -> None:
        self._clock, self._rng, self._interval_s = clock, rng, interval_s
        self._backoff = Backoff(interval_s, SLOWEST * interval_s)
        self._stirred = asyncio.Event()

    def stir(self) -> None:
        self._stirred.set()

    async def pause(self) -> None:
        share = self._rng.uniform(0.5, 1.5)
        try:
            async with self._clock.timeout(self._backoff.next_s() * share):
                await self._stirred.wait()
        except TimeoutError:
            return
        self._stirred.clear()
        self._backoff.reset()
        await self._clock.sleep(self._interval_s * share)
