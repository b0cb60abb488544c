"""The sinks this node hosts: opened, resumed after a restart, followed, closed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing
from typing import Literal

import msgspec
import structlog

from sbon_node.connectors.follow_sink import FollowSink
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sink_runner import SinkRunner, check_sink, open_sink
from sbon_node.control.claims import OVER, claim
from sbon_node.control.context import Context
from sbon_node.control.report import Finished, Rows, SinkSpec
from sbon_node.engine.interface import Schema
from sbon_node.errors import SbonError
from sbon_node.net.peers import Caller
from sbon_node.net.transport import Address
from sbon_node.streams.link import Link
from sbon_node.tasks import Tasks
from sbon_protocol.calls import OpenSink, ReportState
from sbon_protocol.codec import decode_record

log = structlog.get_logger()


class SinkOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What the consumer's node is told: take the streams of ``inputs`` (stream, node) and deliver them as ``spec`` says."""

    query: str
    part: str
    inputs: tuple[tuple[str, str], ...]
    schema: Schema
    spec: SinkSpec
    epoch: int = 1


class HostedSink(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored of a sink, so that a restart resumes it.

    ``done`` are the frames a follower has taken, by stream; ``ended`` the streams whose last frame is among them.
    """

    order: SinkOrder
    holder: str
    done: dict[str, int] = {}
    ended: tuple[str, ...] = ()


class SinkHost:
    """This node's sinks. Each takes its streams through links of its own and acknowledges what it has durably delivered."""

    def __init__(self, context: Context, settings: ConnectorSettings) -> None:
        self._context, self._settings = context, settings
        self._hosted = context.store.all("sink", HostedSink)
        self._stored = tuple(self._hosted)
        self._closing = False
        self._followed: dict[str, FollowSink] = {}
        self._runners: dict[str, SinkRunner] = {}
        self._tasks = Tasks()
        context.server.handle(OpenSink, self._open)

    def start(self) -> None:
        """Resumes the sinks of an earlier run, each as soon as its record's holder confirms it."""
        for query in self._stored:
            hosted = self._hosted.get(query)
            if hosted is not None:
                self._tasks.start(f"resume {hosted.order.part}", self._resume(hosted))

    async def close(self) -> None:
        """Stops delivering; all sinks stay on disk. None is opened any more."""
        self._closing = True
        await self._tasks.close()
        for query in sorted({*self._followed, *self._runners}):
            await self._shut(query)

    def rows(self, query: str) -> int:
        """Rows delivered by this run of the node."""
        if query in self._runners:
            return self._runners[query].rows
        return self._followed[query].rows if query in self._followed else 0

    def hosted(self) -> tuple[str, ...]:
        """The parts of queries that end here."""
        return tuple(sorted(hosted.order.part for hosted in self._hosted.values()))

    async def destroy(self, query: str, parts: tuple[str, ...], holder: str) -> None:
        """Closes the query's sink here, if it is one of ``parts``; what it has delivered stays. One that has taken no frame
        leaves nothing behind."""
        hosted = self._hosted.get(query)
        if hosted is None or hosted.holder != holder or hosted.order.part not in parts:
            return
        for task in (f"resume {hosted.order.part}", f"sink {hosted.order.part}"):
            await self._tasks.stop(task)
        runner = self._runners.get(query)
        await self._shut(query, unsubscribe=True)
        if runner is not None:
            runner.discard()
        self._context.store.delete("sink", query)
        self._hosted.pop(query, None)

    # -- following ----------------------------------------------------------------------------------------------------

    async def follow(self, query: str, after: dict[str, int]) -> AsyncIterator[Rows | Finished]:
        """Rows from the frames after those numbers; ends with a Finished once every input has ended and is acknowledged."""
        async with aclosing(self._follow_sink(query).follow(after)) as events:
            async for event in events:
                yield event

    async def acknowledge(self, query: str, numbers: dict[str, int]) -> None:
        """The follower has durably taken all frames up to these numbers: stored first, then told upstream."""
        sink = self._follow_sink(query)
        hosted = self._hosted[query]
        ended = sink.ends(numbers)
        done = {stream: max(hosted.done.get(stream, 0), numbers.get(stream, 0)) for stream, _ in hosted.order.inputs}
        stored = msgspec.structs.replace(hosted, done=done, ended=tuple(sorted(ended)))
        self._context.store.put("sink", query, stored)
        self._context.steps("position-write")
        self._hosted[query] = stored
        sink.acknowledge(numbers)

    def _follow_sink(self, query: str) -> FollowSink:
        sink = self._followed.get(query)
        if sink is None:
            raise SbonError("not-followable", f"no sink of {query!r} can be followed at this node", where="query")
        return sink

    # -- running ------------------------------------------------------------------------------------------------------

    async def _open(self, call: OpenSink, caller: Caller) -> None:
        order: SinkOrder = decode_record(call.sink, SinkOrder)
        self._check(order)
        check_sink(order.spec.kind, order.spec.options)
        hosted = HostedSink(order=order, holder=call.holder)
        self._context.store.put("sink", order.query, hosted)
        self._hosted[order.query] = hosted
        try:
            self._run(hosted, fresh=True)
        except SbonError:
            self._context.store.delete("sink", order.query)
            del self._hosted[order.query]
            raise

    def _check(self, order: SinkOrder) -> None:
        settings, where = self._context.settings, self._context.name
        if self._closing:
            raise SbonError("node-away", "this node is going away", where=where)
        if order.query in self._hosted:
            raise SbonError("sink-exists", f"{order.query} has a sink here already", where=where)
        if len(self._hosted) >= settings.max_sinks:
            raise SbonError("too-many-sinks", f"{settings.max_sinks} sinks are here already", where=where)
        if len(order.inputs) > settings.max_inputs:
            raise SbonError("too-many-inputs", f"{len(order.inputs)} inputs", where=order.part, hint="raise control.max_inputs")

    async def _resume(self, hosted: HostedSink) -> None:
        order = hosted.order
        try:
            epoch = await claim(self._context, hosted.holder, order.query, order.part, order.epoch)
        except SbonError as error:
            log.info("sink-given-up", sink=order.part, reason=str(error))
            await self._stored_at_last(lambda: self._context.store.delete("sink", order.query))
            self._hosted.pop(order.query, None)
            return
        hosted = msgspec.structs.replace(hosted, order=msgspec.structs.replace(order, epoch=epoch))
        await self._stored_at_last(lambda: self._context.store.put("sink", order.query, hosted))
        self._hosted[order.query] = hosted
        try:
            self._run(hosted, fresh=False)
        except SbonError as error:
            log.warning("sink-not-resumed", sink=order.part, reason=str(error))
            await self._report(hosted, "failed", str(error))

    async def _stored_at_last(self, change: Callable[[], None]) -> None:
        """A full disk is waited out."""
        while True:
            try:
                change()
                return
            except SbonError as error:
                log.warning("sink-not-stored", reason=str(error))
            await self._context.clock.sleep(self._context.settings.retry_s)

    def _run(self, hosted: HostedSink, *, fresh: bool) -> None:
        context, order = self._context, hosted.order
        if order.spec.kind == "follow":
            links = [self._link(order, stream, node, hosted.done.get(stream, 0)) for stream, node in order.inputs]
            sink = FollowSink(order.query, links, context.clock, hosted.ended)
            self._followed[order.query] = sink
            work: Coroutine[object, object, None] = sink.run()
        else:
            file_sink = open_sink(order.spec.kind, order.spec.options, order.schema, context.steps, fresh=fresh)
            done = file_sink.positions()
            links = [self._link(order, stream, node, done.get(stream, 0)) for stream, node in order.inputs]
            runner = SinkRunner(order.query, file_sink, links, context.clock, self._settings)
            self._runners[order.query] = runner
            work = runner.run()
        self._tasks.start(f"sink {order.part}", self._deliver(hosted, work))

    async def _deliver(self, hosted: HostedSink, work: Coroutine[object, object, None]) -> None:
        """Runs a sink until all its inputs have ended, or it fails for good, and tells the record's holder which."""
        order = hosted.order
        try:
            await work
        except SbonError as error:
            log.warning("sink-failed", sink=order.part, reason=str(error))
            await self._report(hosted, "failed", str(error))
        except Exception as error:
            await self._report(hosted, "failed", f"{type(error).__name__}: {error}")
            raise
        else:
            log.info("sink-finished", sink=order.part)
            await self._report(hosted, "finished", "")

    async def _report(self, hosted: HostedSink, state: Literal["finished", "failed"], reason: str) -> None:
        order = hosted.order
        report = ReportState(query=order.query, part=order.part, state=state, reason=reason[:500])
        while True:
            try:
                await self._context.tell(hosted.holder, report)
            except SbonError as error:
                if error.code in OVER:
                    return
                await self._context.clock.sleep(self._context.settings.retry_s)
            else:
                return

    def _link(self, order: SinkOrder, stream: str, node: str, done: int) -> Link:
        context = self._context
        return Link(
            stream,
            order.part,
            locate=self._locator(node),
            peers=context.peers,
            clock=context.clock,
            settings=context.stream_settings,
            rng=context.rng,
            start_after=done,
            steps=context.steps,
        )

    def _locator(self, node: str) -> Callable[[], Address]:
        return lambda: self._context.membership.address_of(node)

    async def _shut(self, query: str, *, unsubscribe: bool = False) -> None:
        sinks = [s for s in (self._followed.pop(query, None), self._runners.pop(query, None)) if s is not None]
        for sink in sinks:
            await sink.close(unsubscribe=unsubscribe)
