"""The sources pinned to this node: attached, run, resumed, dropped with their stream; streams of results, and posts of rows."""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable
from typing import NamedTuple

import msgspec
import pyarrow as pa
import structlog

from sbon_node.base.tasks import Tasks
from sbon_node.connectors.access.secrets import check_no_secrets
from sbon_node.connectors.interface import AWAY
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sinks.results import StreamSinkOptions
from sbon_node.connectors.sources.push import Post, PostBuffer, Pushable
from sbon_node.connectors.sources.registry import check_moves, may_end, open_source
from sbon_node.connectors.sources.result import QUERY, ResultSource, check_not_result, query_of
from sbon_node.connectors.sources.runner import SourceRunner
from sbon_node.connectors.sources.sample import Beginning, RowSample, read_beginning, with_beginning
from sbon_node.context import Context
from sbon_node.hosting.standby.source import SourceBackups
from sbon_node.model.records import SourceRegister
from sbon_node.model.schema import check_source, check_stream
from sbon_node.model.shown import shown_source
from sbon_node.net.peers import Caller
from sbon_node.ownership.catalogue import Catalogue
from sbon_protocol.api.catalogue import CatalogEntry, SourceDeclaration, StreamDeclaration, is_source
from sbon_protocol.api.columns import Schema
from sbon_protocol.api.durability import REPLICATED
from sbon_protocol.api.states import source_states
from sbon_protocol.api.states.lifecycle import LOST, UNREACHABLE
from sbon_protocol.api.streams import Pushed, SourceInfo, StreamInfo, unknown_at
from sbon_protocol.calls import MAX_POST_HOPS, AttachSource, DescribeSources, PostRows, RowsPosted, SourceStates
from sbon_protocol.codec import MAX_PAYLOAD_BYTES, decode_record
from sbon_protocol.errors import ProtocolError, SbonError

log = structlog.get_logger()


class HostedSource(msgspec.Struct, frozen=True, kw_only=True):
    """The stored identity of a source with frames in the outbox. A stream declared again under its name is a different one."""

    source: SourceDeclaration
    stream: StreamDeclaration
    version: int


BEGINNING_S = 2.0
"""Seconds that the reading of a source's beginning for a plan may take."""


class TakenSample(NamedTuple):
    """A sample of a source; ``rows`` is the expected number of all its rows, ``read_rows_s`` as in :class:`Beginning`."""

    sample: RowSample
    rows: float | None = None
    read_rows_s: float | None = None


class SourceHost:
    """Runs a :class:`SourceRunner` for every source of the catalogue that names this node."""

    def __init__(self, context: Context, catalogue: Catalogue, settings: ConnectorSettings, backups: SourceBackups) -> None:
        self._context, self._catalogue, self._settings, self._backups = context, catalogue, settings, backups
        self._wanted: dict[str, HostedSource] = {}
        self._running: dict[str, HostedSource] = {}
        self._runners: dict[str, SourceRunner] = {}
        self._refused: dict[str, str] = {}
        self._beginnings: dict[str, tuple[HostedSource, Beginning]] = {}
        self._reading = asyncio.Lock()
        self._tasks = Tasks()
        catalogue.listen(self._changed)
        context.server.handle(AttachSource, self._handle_attach)
        context.server.handle(DescribeSources, self._handle_describe)

    def start(self, backed: Collection[str] = ()) -> None:
        """Resume the sources of an earlier run, and delete the remains of those that are gone.

        Of the sources ``backed``, which other nodes host, this node keeps a backup.
        """
        for entry in self._catalogue.entries.values():
            self._changed(entry)
        context = self._context
        left = {*context.store.all("source", HostedSource), *filter(is_source, context.outbox.streams())}
        # Of a source that this node is about to go on with, the stream may be here before the catalogue says so.
        for source_id in sorted(left - self._wanted.keys() - set(backed)):
            self._tasks.start(f"switch {source_id}", self._switch(source_id))

    async def close(self) -> None:
        await self._tasks.close()

    async def attach(self, source: SourceDeclaration) -> None:
        """Attach a source at the node that it names, or at this one if it names none.

        Raises :class:`SbonError` for options that the connector refuses, and for an unreachable node.
        """
        source = msgspec.structs.replace(source, node=source.node or self._context.name)
        check_no_secrets(source.options)
        if source.node == self._context.name:
            await self._attach_here(source)
        else:
            await self._context.call(source.node, AttachSource(source=source))
            # The source's node pushes the entry to all members, and this node may be the last.
            try:
                await self._catalogue.pull(source.node)
            except SbonError as error:
                log.info("catalogue-pull-failed", member=source.node, reason=str(error))

    async def all(self) -> list[StreamInfo]:
        """Return every stream of the catalogue as :meth:`describe` does."""
        return [await self.describe(name) for name in self._catalogue.entries]

    async def describe(self, name: str) -> StreamInfo:
        """Return the stream with the states of its sources; each node reports only its own sources."""
        entry = self._catalogue.entry(name)
        nodes = sorted({s.node for s in entry.sources})
        answers = await asyncio.gather(*(self._ask(node, name) for node in nodes))
        unanswered = {node for node, infos in zip(nodes, answers, strict=True) if infos is None}
        reported = {(node, info.source.name): info for node, infos in zip(nodes, answers, strict=True) for info in infos or ()}
        infos_of = (reported.get((s.node, s.name)) or unreported_source(s, unanswered) for s in entry.sources)
        return StreamInfo(
            entry=msgspec.structs.replace(entry, sources=tuple(shown_source(s) for s in entry.sources)),
            sources=tuple(msgspec.structs.replace(info, source=shown_source(info.source)) for info in infos_of),
        )

    def report(self, source_id: str) -> SourceInfo | None:
        """Return the report of a source that runs, or has run, on this node."""
        runner = self._runners.get(source_id)
        return runner.describe() if runner is not None else None

    def reports_of(self, streams: Iterable[str]) -> list[SourceInfo]:
        """Return reports for local sources among these streams; those of an earlier run are ``idle``, not lost, after a start."""
        return [report for source_id in streams if (report := self._report_of(source_id)) is not None]

    def _report_of(self, source_id: str) -> SourceInfo | None:
        if source_id in self._running:
            return self._report_of_running(source_id, self._running[source_id])
        stored = self._context.store.get("source", source_id, HostedSource)
        return SourceInfo(source=stored.source, state=source_states.IDLE, finite=may_end(stored.source)) if stored else None

    def reports(self) -> list[SourceInfo]:
        """Return the reports of all sources on this node, in the order of their ids."""
        return [self._report_of_running(source_id, hosted) for source_id, hosted in sorted(self._running.items())]

    def _report_of_running(self, source_id: str, hosted: HostedSource) -> SourceInfo:
        if (runner := self._runners.get(source_id)) is not None:
            return runner.describe()
        refused = self._refused.get(source_id, "")
        return SourceInfo(source=hosted.source, state=f"{source_states.FAILED}: {refused}", trouble=refused)

    def runner(self, source_id: str) -> SourceRunner | None:
        """Return the runner of a source that runs, or has run, on this node."""
        return self._runners.get(source_id)

    async def sample(self, source_id: str) -> TakenSample | None:
        """Return a sample of a source of this node: of the rows that have passed or, if these are fewer, of its beginning."""
        hosted = self._running.get(source_id)
        if hosted is None:
            return None
        beginning = await self._beginning(hosted)
        runner = self._runners.get(source_id)
        passed = runner.sample if runner is not None else RowSample()
        if beginning is None:
            return TakenSample(passed) if passed.seen else None
        report = runner.describe() if runner is not None else None
        rows, read_rows_s = beginning.rows, beginning.read_rows_s
        if report is not None and report.read_share and report.rows >= passed.seen >= beginning.sample.seen:
            rows = report.rows / report.read_share
        if runner is not None and report is not None and read_rows_s is not None and not report.paced:
            read_rows_s = runner.observed_rows_s or read_rows_s
        sample = passed if passed.seen >= beginning.sample.seen else beginning.sample
        return TakenSample(sample, max(rows, float(sample.seen)) if rows is not None else None, read_rows_s)

    async def _beginning(self, hosted: HostedSource) -> Beginning | None:
        """Return the beginning of a finite source, which is read once; None if it has none or cannot be read in time."""
        name = hosted.source.id
        async with self._reading:
            known = self._beginnings.get(name)
            if known is not None and known[0] == hosted:
                return known[1]
            beginning = None
            try:
                opened = open_source(hosted.source, hosted.stream, self._settings, self._context.clock)
                if opened.finite:
                    async with self._context.clock.timeout(BEGINNING_S):
                        beginning = await read_beginning(opened, self._context.clock, name, self._settings.sample_rows)
            except (SbonError, TimeoutError) as error:
                log.info("source-not-sampled", source=name, reason=str(error))
            if beginning is not None:
                self._beginnings[name] = (hosted, beginning)
            return beginning

    async def _ask(self, node: str, name: str) -> list[SourceInfo] | None:
        """Ask a node for its sources of a stream; None if it gives no valid answer."""
        try:
            answer = await self._context.ask(node, DescribeSources(stream=name), SourceStates)
            infos: list[SourceInfo] = [decode_record(value, SourceInfo) for value in answer.sources]
            return [info for info in infos if info.source.node == node]
        except (SbonError, ProtocolError) as error:
            log.info("sources-not-described", stream=name, node=node, reason=str(error))
            return None

    def check_here(self, source: SourceDeclaration) -> bool:
        """Check that a replicated source could run here, and return whether it is finite.

        Raises :class:`SbonError` ``source-bound``, and as :meth:`attach` for options that are refused here.
        """
        check_moves(source.connector)
        opened = open_source(source, self._catalogue.entry(source.stream).declaration, self._settings, self._context.clock)
        opened.check()
        return opened.finite

    async def go_on(self, source: SourceDeclaration) -> None:
        """Run a source of which this node was the backup, and tell all members."""
        declaration = self._catalogue.entry(source.stream).declaration
        hosted = HostedSource(source=source, stream=declaration, version=source.version)
        self._context.store.put("source", source.id, hosted)
        await self._catalogue.move(source)

    def _moved(self, source: SourceDeclaration, register: SourceRegister) -> None:
        """Release a source that another node hosts by now."""
        present = msgspec.structs.replace(source, node=register.host, epoch=register.epoch)
        self._tasks.start(f"moved {source.id}", self._catalogue.move(present))

    async def _attach_here(self, source: SourceDeclaration) -> None:
        self._context.drained.check()
        if source.durability == REPLICATED:
            check_moves(source.connector)
        check_no_secrets(source.options)
        check_not_result(entry := self._catalogue.entry(source.stream))
        declaration = entry.declaration
        check_source(source, declaration)
        opened = open_source(source, declaration, self._settings, self._context.clock)
        opened.check()
        known = source.row_bytes is not None and source.rows_s is not None
        beginning = None
        if opened.finite and not known:
            beginning = await read_beginning(opened, self._context.clock, source.id, self._settings.sample_rows)
        source = self._catalogue.named(with_beginning(source, beginning))
        if source.durability == REPLICATED:
            self._backups.attach(source)
        await self._catalogue.attach(source)
        named = (source.stream, source.name)
        hosted = next((hosted for hosted in self._wanted.values() if (hosted.source.stream, hosted.source.name) == named), None)
        if hosted is not None and beginning is not None:
            self._beginnings[hosted.source.id] = (hosted, beginning)

    def _changed(self, entry: CatalogEntry) -> None:
        """Start new sources, and stop those that are gone or have changed."""
        name, stream = entry.declaration.name, entry.declaration
        own = {
            s.id: HostedSource(source=s, stream=stream, version=entry.version)
            for s in entry.sources
            if s.node == self._context.name
        }
        before = {i: hosted for i, hosted in self._wanted.items() if hosted.stream.name == name}
        for source_id in before.keys() - own.keys():
            del self._wanted[source_id]
            self._beginnings.pop(source_id, None)
        self._wanted |= own
        for source_id in sorted(before.keys() | own.keys()):
            if before.get(source_id) != own.get(source_id):
                self._tasks.start(f"switch {source_id}", self._switch(source_id))

    async def _switch(self, source_id: str) -> None:
        """Start and stop runners until they match the catalogue, however often it changes meanwhile."""
        while True:
            await self._tasks.stop(f"run {source_id}")
            self._backups.close(source_id)
            self._runners.pop(source_id, None)
            self._running.pop(source_id, None)
            wanted = self._wanted.get(source_id)
            try:
                self._drop_earlier(source_id, wanted)
            except SbonError as error:
                log.warning("source-not-switched", source=source_id, reason=str(error))
                await self._context.clock.sleep(self._context.settings.retry_s)
                continue
            if wanted is not None:
                self._run(wanted)
            if self._running.get(source_id) == self._wanted.get(source_id):
                return

    def _drop_earlier(self, source_id: str, wanted: HostedSource | None) -> None:
        """Delete frames of an earlier stream of that name, which another query may have read."""
        store = self._context.store
        stored = store.get("source", source_id, HostedSource)
        if wanted is None or (stored is not None and stored != wanted):
            present = self._catalogue.node_of(source_id)
            self._context.outbox.drop_stream(source_id, moved=present not in ("", self._context.name))
            store.delete("source", source_id)
        if wanted is not None and stored != wanted:
            store.put("source", source_id, wanted)

    def _run(self, wanted: HostedSource) -> None:
        context, source = self._context, wanted.source
        self._running[source.id] = wanted
        self._refused.pop(source.id, None)
        try:
            opened = open_source(source, wanted.stream, self._settings, context.clock)
        except SbonError as error:
            log.warning("source-refused", source=source.id, reason=str(error))
            self._refused[source.id] = str(error)
            return
        runner = SourceRunner(
            source,
            wanted.stream,
            opened,
            outbox=context.outbox,
            clock=context.clock,
            settings=self._settings,
            dead_letters=context.data_dir / "dead-letters",
            backup=self._backups.of(source, self._moved),
        )
        self._runners[source.id] = runner
        self._tasks.start(f"run {source.id}", runner.run())

    async def _handle_attach(self, call: AttachSource, caller: Caller) -> None:
        source: SourceDeclaration = decode_record(call.source, SourceDeclaration)
        if source.node != self._context.name:
            raise SbonError("unknown-node", f"this is {self._context.name}, not {source.node}", where="node")
        await self._attach_here(source)

    async def _handle_describe(self, call: DescribeSources, caller: Caller) -> SourceStates:
        return SourceStates(sources=tuple(report for report in self.reports() if report.source.stream == call.stream))


def unreported_source(source: SourceDeclaration, unanswered: Collection[str]) -> SourceInfo:
    """Describe a source that its node does not report; those in ``unanswered`` are silent."""
    state, trouble = (UNREACHABLE, "") if source.node in unanswered else (LOST, unknown_at(source.node))
    return SourceInfo(source=source, state=state, trouble=trouble, finite=may_end(source))


# -- Streams that queries make: declared and attached by the query's sink, at its node ---------------------------------

LOOKS, LOOK_S = 50, 0.1
"""Looks for a source that is about to be opened, and the time between two."""


class ResultStreams:
    """Implements :class:`sbon_node.connectors.sinks.results.ResultStreams`."""

    def __init__(self, context: Context, catalogue: Catalogue, sources: SourceHost) -> None:
        self._context, self._catalogue, self._sources = context, catalogue, sources

    async def make(self, query: str, options: StreamSinkOptions, schema: Schema) -> None:
        declaration = StreamDeclaration(name=options.stream, schema=schema, event_time=options.event_time)
        check_stream(declaration)
        await self._catalogue.create(declaration)
        node, made_by = self._context.name, {"query": query}
        source = SourceDeclaration(stream=options.stream, name=QUERY, node=node, connector=QUERY, options=made_by)
        await self._catalogue.attach(source)

    async def source(self, query: str, stream: str, schema: Schema) -> ResultSource:
        for _ in range(LOOKS):
            if (found := self._opened(query, stream, schema)) is not None:
                return found
            await self._context.clock.sleep(LOOK_S)
        raise SbonError(AWAY, "its source is not open yet", where=stream)

    def _opened(self, query: str, stream: str, schema: Schema) -> ResultSource | None:
        declared = self._declared(query, stream)
        if declared is None:
            raise SbonError("sink-lost", f"the stream {stream!r} was dropped", where=query)
        if self._catalogue.entry(stream).declaration.schema != schema:
            raise SbonError("sink-lost", f"another stream {stream!r} was declared at the same time", where=query)
        runner = self._sources.runner(declared.id)
        if runner is None or not isinstance(runner.source, ResultSource):
            return None
        if runner.state == source_states.FAILED:
            raise SbonError("sink-lost", f"the source of the stream {stream!r} has failed: {runner.reason}", where=query)
        if runner.state == source_states.ENDED:
            runner.source.resume(runner.position)
            return runner.source
        return runner.source if runner.source.is_open else None

    def _declared(self, query: str, stream: str) -> SourceDeclaration | None:
        """Return the source of the query's stream; None if there is none."""
        entry = self._catalogue.entries.get(stream)
        return next((one for one in entry.sources if query_of(one) == query), None) if entry else None

    async def drop(self, query: str, stream: str, schema: Schema) -> None:
        if self._declared(query, stream) is None:
            return
        if self._catalogue.entry(stream).declaration.schema == schema:
            await self._catalogue.drop(stream)
        else:
            await self._catalogue.detach(stream, QUERY)

    def end(self, query: str, stream: str, schema: pa.Schema) -> None:
        declared = self._declared(query, stream)
        runner = self._sources.runner(declared.id) if declared is not None else None
        if runner is not None and isinstance(runner.source, ResultSource):
            runner.source.fail(f"the query {query} is over, and its result is not whole", schema)


# -- Rows posted to a stream at any node: taken by its source here, or passed on to the source's node ------------------

CONNECTOR = "http"
MAX_MEDIA_TYPE = 512
"""Characters of a media type that are passed on; those that a source knows are shorter."""


class Pushes:
    """Accepts posts at this node, of clients and of nodes that pass them on.

    A post that is passed on is one message, of at most 4 MiB, and goes over at most :data:`MAX_POST_HOPS` nodes.
    """

    def __init__(self, context: Context, catalogue: Catalogue, sources: SourceHost, settings: ConnectorSettings) -> None:
        self._context, self._catalogue, self._sources, self._settings = context, catalogue, sources, settings
        self._buffer = PostBuffer(settings, context.clock)
        context.server.handle(PostRows, self._handle)

    async def push(self, stream: str, source: str, post: Post) -> Pushed:
        """Pass a post to its source; return once all of it is durable.

        Raises :class:`SbonError`: ``unknown-stream``, ``unknown-source``, ``source-elsewhere``, ``ambiguous-source``;
        ``source-behind``, ``source-paused``, ``source-stopped``, ``post-unknown`` if the client should retry later; and the
        source's own refusals.
        """
        return await self._push(stream, source, post, 0)

    async def _handle(self, call: PostRows, caller: Caller) -> RowsPosted:
        post = Post(call.media_type, _whole(call.body), call.key)
        return RowsPosted(answer=await self._push(call.stream, call.source, post, call.hops))

    async def _push(self, stream: str, source: str, post: Post, hops: int) -> Pushed:
        taking = self._taking(stream, source)
        if isinstance(taking, SourceDeclaration):
            return await self._pass_on(taking, post, hops)
        name = taking.declaration.id
        if taking.state == source_states.PAUSED:
            raise SbonError("source-paused", f"it is paused: {taking.reason}", where=name, hint="post it again a little later")
        if taking.state != source_states.RUNNING:
            hint = f"see: sbon stream show {stream}"
            raise SbonError("source-stopped", f"the source is {taking.state} {taking.reason}".strip(), where=name, hint=hint)
        if self._context.outbox.pressure(name):
            raise SbonError("source-behind", "all of its readers are too far behind", where=name, hint="post it again later")
        assert isinstance(taking.source, Pushable)
        return await taking.source.push(post)

    def _taking(self, stream: str, source: str) -> SourceRunner | SourceDeclaration:
        """Return the source of that name, or the only one, that takes rows here, or its declaration if it is elsewhere."""
        entry = self._catalogue.entry(stream)
        named = [declared for declared in entry.sources if source in ("", declared.name)]
        here = {declared.name: runner for declared in named if (runner := self._sources.runner(declared.id)) is not None}
        taking = {name: runner for name, runner in here.items() if isinstance(runner.source, Pushable)}
        if len(taking) == 1:
            return next(iter(taking.values()))
        if taking:
            raise _ambiguous(f"{stream} has several sources here that take rows", taking)
        known = [declared for declared in named if declared.connector == CONNECTOR]
        if any(declared.node == self._context.name for declared in known):
            raise SbonError("source-stopped", "the source does not run yet", where="source", hint="post it again a little later")
        if not known:
            which = f"no source {source!r}" if source else "no source"
            hint = f"sbon stream attach {stream} --connector {CONNECTOR}"
            raise SbonError("unknown-source", f"{stream} has {which} that takes rows", where="source", hint=hint)
        if len(known) > 1:
            places = ", ".join(f"{declared.name} at {declared.node}" for declared in known)
            raise _ambiguous(f"{stream} has several sources that take rows, and none here: {places}", [one.name for one in known])
        return known[0]

    async def _pass_on(self, source: SourceDeclaration, post: Post, hops: int) -> Pushed:
        """Pass a post on to the node of its source, which may know where the source has gone from there."""
        context, node, where = self._context, source.node, f"{source.stream}/{source.name}"
        if context.presence.away(node):
            backup = "its backup has taken it over, or " if source.durability == REPLICATED else ""
            hint = f"post it again once {backup}that node is back"
            raise SbonError("source-stopped", f"its node {node} {context.presence.absence(node)}", where=where, hint=hint)
        if hops >= MAX_POST_HOPS:
            member = context.membership.get(node)
            hint = f"post to that node{f' at http://{member.api}' if member is not None else ''}"
            raise SbonError("source-elsewhere", f"the source {where} that takes rows is at {node}", where="source", hint=hint)
        most_bytes = min(self._settings.push_max_bytes, MAX_PAYLOAD_BYTES)
        body = await self._buffer.read_post(post, most_bytes, where)
        media_type = post.media_type[:MAX_MEDIA_TYPE]
        call = PostRows(source.stream, source.name, media_type, body, post.key, hops + 1)
        try:
            answer = await context.ask(node, call, RowsPosted, timeout_s=self._settings.push_timeout_s)
            return decode_record(answer.answer, Pushed)
        except (SbonError, ProtocolError) as error:
            if isinstance(error, SbonError) and error.code not in ("peer-unreachable", "node-away", "bad-reply"):
                raise
            again = "with the same Idempotency-Key, and it counts once" if post.key else "though its rows may then be there twice"
            message = f"no answer from its node {node}, where it may be stored: {error}"
            raise SbonError("post-unknown", message, where=where, hint=f"post it again, {again}") from error
        finally:
            self._buffer.release(len(body))


async def _whole(body: bytes) -> AsyncIterator[bytes]:
    yield body


def _ambiguous(message: str, names: Iterable[str]) -> SbonError:
    hint = f"choose with source={'|'.join(sorted(names))}"
    return SbonError("ambiguous-source", message, where="source", hint=hint)
