"""Followers of queries: at any node, which relays the rows if the query's sink is at another node.

A relayed follower is as one at the consumer: frame numbers go to the sink and back, and the sink keeps what nobody has
acknowledged. So it may go on at any node, after either node has restarted.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from typing import Literal

import msgspec
import structlog

from sbon_node.base.tasks import Loop, check_cancelled
from sbon_node.connectors.sinks.follow import rows_of
from sbon_node.context import Context
from sbon_node.hosting.sinks.host import SinkHost
from sbon_node.hosting.sinks.open_sinks import error_of_silent
from sbon_node.model.frames import Frame
from sbon_node.queries.describing.lookup import QueryLookup, ask_for_queries, decoded
from sbon_node.queries.sinks.further_sinks import SinkRequests
from sbon_protocol.api.delivery import FOLLOW, Finished, Rows
from sbon_protocol.api.queries import QueryInfo, SinkRequest, SinkSpec
from sbon_protocol.api.query_ids import name_of, part_of
from sbon_protocol.api.states.query_states import LIVE
from sbon_protocol.calls import AcknowledgeRows, FollowedRows, FollowRows
from sbon_protocol.errors import SbonError

log = structlog.get_logger()

ANY_SINK = "any"
"""In place of a sink's id: the first one, or else one of the follower's own."""
MAX_WORDS = 1024
"""Followers of queries at other nodes, past ones included, whose acknowledgements are taken; the longest unknown goes."""
LOOK_S = 5.0
"""Seconds between two looks for followers that have left."""
NOT_FOLLOWABLE = "not-followable"
Purpose = Literal["take", "hold", "end"]
_PATIENCE = 6
"""A relayed call may take so many times ``control.call_timeout_s``: its answer may be large, and the link slow."""


class Follows(Loop):
    """Lets users of this node follow any query of the cluster."""

    def __init__(self, context: Context, sinks: SinkHost, lookup: QueryLookup, requests: SinkRequests) -> None:
        super().__init__("followers that left")
        self._context, self._sinks, self._lookup, self._requests = context, sinks, lookup, requests
        self._slots = asyncio.Semaphore(context.settings.relayed_followers)
        self._consumers: dict[str, str] = {}
        self._relayed_words: dict[str, str] = {}
        """The queries that followers at this node read from other nodes, by the followers' words."""

    async def follow(
        self, query: str, after: Mapping[str, int], sink: str = "", word: str = ""
    ) -> AsyncGenerator[Rows | Finished, None]:
        """Yield rows of the frames after those numbers; end with a Finished once every input has ended and is acknowledged.

        They are those of the first sink, of the further ``sink`` of that id, or, for :data:`ANY_SINK`, of a further one that is
        added where the first has a follower, or delivers by itself. A reader acknowledges them by the secret ``word``.

        Raises ``already-followed``, ``consumer-unreachable``, ``not-followable`` if the sink delivers by itself or is not open
        yet, and the errors of :class:`~sbon_node.queries.describing.lookup.QueryLookup` and :class:`SinkRequests`.
        """
        if sink == ANY_SINK:
            rows = self._any(query, after, word)
        elif sink:
            rows = self._further(query, after, sink, word)
        else:
            rows = self._sinks.follow(query, after, word=word) if self._is_here(query) else self._relayed(query, after, word)
        async with aclosing(rows) as events:
            async for event in events:
                yield event

    async def _any(self, query: str, after: Mapping[str, int], word: str) -> AsyncGenerator[Rows | Finished, None]:
        has_begun = False
        try:
            async with aclosing(self.follow(query, after, word=word)) as events:
                async for event in events:
                    has_begun = True
                    yield event
                return
        except SbonError as error:
            if has_begun or after or not await self._needs_own(query, error):
                raise
        added = await self._requests.add(query, SinkRequest(sink=SinkSpec(), temporary=True))
        async with aclosing(self._further(query, {}, added.id, word)) as events:
            async for event in events:
                yield event

    async def _needs_own(self, query: str, error: SbonError) -> bool:
        """Return whether a follower needs a sink of its own, as the error of the first sink says."""
        if error.code != NOT_FOLLOWABLE:
            return error.code == "already-followed"
        info, _ = await self._lookup.show(query)
        return info.state in LIVE and info.sink.kind != FOLLOW

    async def _further(self, query: str, after: Mapping[str, int], sink: str, word: str) -> AsyncGenerator[Rows | Finished, None]:
        here = (one for one in self._sinks.components() if part_of(one.component) == sink)
        if not any(query in (one.query, name_of(one.query)) for one in here):
            hint = "follow it at its node, as sbon query show names it; a follower that leaves for long is removed: follow anew"
            raise SbonError("unknown-sink", f"{query} has no sink {sink!r} at this node", where="sink", hint=hint)
        async with aclosing(self._sinks.follow(query, after, sink, word)) as events:
            async for event in events:
                yield msgspec.structs.replace(event, sink=sink) if isinstance(event, Rows) else event

    async def _run(self) -> None:
        """Remove the sinks of followers that have left this node for good."""
        settings = self._context.settings
        while True:
            await self._context.clock.sleep(min(LOOK_S, settings.follower_grace_s / 2))
            for order in self._sinks.idle_followers(settings.follower_grace_s):
                try:
                    await self._requests.remove(order.query, part_of(order.component), order.claim)
                except SbonError as error:
                    check_cancelled()
                    log.info("follower-not-removed", sink=order.component, code=error.code, reason=str(error))

    async def acknowledge(self, query: str, numbers: Mapping[str, int], sink: str = "", word: str = "") -> None:
        """Store that the follower has durably taken all frames up to these numbers, then acknowledge them upstream.

        Raises ``not-the-reader`` unless ``word`` is that of the follower whose turn it is, or was last.
        """
        if sink or self._is_here(query):
            await self._sinks.acknowledge(query, numbers, lambda one: not one.node and one.word == word, sink)
            return
        if name_of(self._relayed_words.get(word, "")) != name_of(query):
            hint = "acknowledge with the word of the reader event, once the rows are read again"
            raise SbonError("not-the-reader", "only who reads the rows acknowledges them", where=query, hint=hint)
        consumer = self._consumers.get(query) or await self._find(query)
        if isinstance(consumer, Finished):
            raise SbonError(NOT_FOLLOWABLE, f"{query!r} is over: {consumer.state}", where="query")
        try:
            await self._context.call(consumer, AcknowledgeRows(query=query, numbers=dict(numbers)))
        except SbonError as error:
            self._consumers.pop(query, None)
            raise error_of_silent(consumer, error, "the rows arrive", code="consumer-unreachable") from error

    def _is_here(self, query: str) -> bool:
        try:
            self._sinks.followed(query)
        except SbonError as error:
            if error.code != NOT_FOLLOWABLE:
                raise
            return False
        return True

    async def _relayed(self, query: str, after: Mapping[str, int], word: str) -> AsyncGenerator[Rows | Finished, None]:
        consumer = await self._find(query)
        if isinstance(consumer, Finished):
            yield consumer
            return
        self._relayed_words.pop(word, None)
        self._relayed_words[word] = query
        if len(self._relayed_words) > MAX_WORDS:
            del self._relayed_words[next(iter(self._relayed_words))]
        relay = _Relay(self._context, consumer, query, self._slots)
        task = f"hold {relay.follower}"
        self._tasks.start(task, relay.hold())
        try:
            async with aclosing(relay.rows(dict(after))) as events:
                async for event in events:
                    yield event
        except SbonError as error:
            self._consumers.pop(query, None)
            over = await self._find(query) if error.code == NOT_FOLLOWABLE else None
            if not isinstance(over, Finished):
                raise error_of_silent(consumer, error, "the rows arrive", code="consumer-unreachable") from error
            yield over
        finally:
            await self._tasks.stop(task)
            self._tasks.start(f"end {relay.follower}", relay.end())

    async def _find(self, query: str) -> str | Finished:
        """Return the node of the query's sink, or the query's end. Raises ``not-followable``, and if no node knows the query."""
        members = [member.name for member in self._context.membership.members() if not self._context.presence.away(member.name)]
        asking = [asyncio.ensure_future(ask_for_queries(self._context, name, query)) for name in members]
        ended: QueryInfo | None = None
        try:
            for answered in asyncio.as_completed(asking):
                answer = await answered
                queries, components = answer.queries or (), answer.components
                live = next((info for info in queries if info.state in LIVE), None)
                sink = next((one.node for one in components if one.component == f"{one.query}.sink"), None)
                if live is not None or sink is not None:
                    return self._found(query, sink or (live.consumer if live is not None else ""))
                ended = max((*queries, *([ended] if ended else [])), key=lambda info: info.submitted_ms, default=None)
        finally:
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
        if ended is None:
            ended = (await self._lookup.show(query))[0]
            if ended.state in LIVE:
                return self._found(query, ended.consumer)
        return Finished(state=ended.state, reason=ended.reason)

    def _found(self, query: str, consumer: str) -> str:
        if consumer == self._context.name:
            self._sinks.followed(query)  # which says why it cannot be followed here
        self._consumers[query] = consumer
        if len(self._consumers) > self._context.settings.max_sinks:
            del self._consumers[next(iter(self._consumers))]
        return consumer


class _Relay:
    """One following of a query whose sink is at the node ``consumer``."""

    def __init__(self, context: Context, consumer: str, query: str, slots: asyncio.Semaphore) -> None:
        self._context, self._consumer, self._query, self._slots = context, consumer, query, slots
        self.follower = f"{context.rng.getrandbits(64):016x}"
        self._holds = False

    async def rows(self, at: dict[str, int]) -> AsyncGenerator[Rows | Finished, None]:
        """Yield rows of the frames after those numbers, and the query's end."""
        context = self._context
        while True:
            async with self._slots:
                answer = await self._call("take", at, context.settings.follow_wait_s)
            self._query, self._holds = answer.query, True
            for sent in answer.frames:
                at[sent.stream] = sent.number
                born_ms = context.membership.clocks.own_ms(sent.born_ms, self._consumer)
                at_sink = {name: getattr(sent, name) for name in ("stream", "number", "payload", "watermark_ms")}
                frame = Frame(**at_sink, rows=0, born_ms=born_ms)
                yield await rows_of(frame, context.clock, context.computing)
            if answer.end is not None and not answer.frames:
                yield decoded(answer.end, Finished)
                return

    async def hold(self) -> None:
        """Keep the turn while the follower is busy with its rows."""
        settings = self._context.settings
        while True:
            await self._context.clock.sleep(settings.component_timeout_s)
            if self._holds:
                with suppress(SbonError):  # the next call for rows gets the error
                    await self._call("hold")

    async def end(self) -> None:
        """Let others follow at once."""
        with suppress(SbonError):
            await self._call("end")

    async def _call(self, purpose: Purpose, after: Mapping[str, int] | None = None, wait_s: float = 0.0) -> FollowedRows:
        call = FollowRows(query=self._query, follower=self.follower, after=dict(after or {}), purpose=purpose, wait_s=wait_s)
        timeout_s = wait_s + _PATIENCE * self._context.settings.call_timeout_s
        return await self._context.ask(self._consumer, call, FollowedRows, timeout_s=timeout_s)
