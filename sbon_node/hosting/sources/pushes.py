"""Rows posted to a stream at any node: taken by its source here, or passed on to the source's node."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sources.push import Post, PostBuffer, Pushable
from sbon_node.connectors.sources.runner import SourceRunner
from sbon_node.context import Context
from sbon_node.hosting.sources.host import SourceHost
from sbon_node.net.peers import Caller
from sbon_node.ownership.catalogue import Catalogue
from sbon_protocol.api.catalogue import SourceDeclaration
from sbon_protocol.api.states import source_states
from sbon_protocol.api.streams import Pushed
from sbon_protocol.calls import MAX_POST_HOPS, PostRows, RowsPosted
from sbon_protocol.codec import MAX_PAYLOAD_BYTES, decode_record
from sbon_protocol.errors import ProtocolError, SbonError

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
            hint = "post it again a little later"
            raise SbonError("source-paused", f"the source is paused: {taking.reason}", where=name, hint=hint)
        if taking.state != source_states.RUNNING:
            raise SbonError("source-stopped", f"the source is {taking.state} {taking.reason}".strip(), where=name)
        if self._context.outbox.pressure(name):
            hint = "post it again later"
            raise SbonError("source-behind", "those who read the stream are too far behind", where=name, hint=hint)
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
            hint = "post it again a little later"
            raise SbonError("source-stopped", "the source does not run yet", where="source", hint=hint)
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
            hint = "post it again once that node is back"
            raise SbonError("source-stopped", f"its node {node} {context.presence.absence(node)}", where=where, hint=hint)
        if hops >= MAX_POST_HOPS:
            member = context.membership.get(node)
            hint = f"post to that node{f' at http://{member.api}' if member is not None else ''}"
            raise SbonError("source-elsewhere", f"the source {where} that takes rows is at {node}", where="source", hint=hint)
        most_bytes = min(self._settings.push_max_bytes, MAX_PAYLOAD_BYTES)
        body = await self._buffer.read(post, most_bytes, where)
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
