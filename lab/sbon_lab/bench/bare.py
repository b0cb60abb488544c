"""The comparison side of the benchmark: bare Spark in a separate process, fed from memory over the engine's wire."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal, TypeVar

from sbon_lab.bench.bare_messages import REQUEST, BareCommand, BareRequest, QueryFailed, RowsOut, StartQuery
from sbon_lab.bench.rows import Outputs
from sbon_lab.bench.work import Work
from sbon_node.base.clock import Clock
from sbon_node.engine.settings import EngineSettings
from sbon_node.engine.spark.listener import Control, Listener, receive
from sbon_node.engine.spark.messages import (
    Close,
    Done,
    Fetch,
    Fetched,
    Message,
    Poll,
    Polled,
    Ready,
    Refused,
    Stop,
    answer_decoder,
    encode,
)
from sbon_node.engine.spark.wire import FEED_VARIABLE
from sbon_node.model.frames import Frame, FrameDraft, InputOffset
from sbon_node.streams.links.inbox import Inbox
from sbon_node.streams.links.span import InputSpan, fill
from sbon_node.streams.settings import StreamSettings
from sbon_protocol.errors import SbonError

_NO_BOUND = 2**62

A = TypeVar("A", bound=Message)


class BareFlow:
    """A query's inputs in memory, with the same batch limits as operators.

    ``shares`` are those of the inputs in a batch's rows, equal by default. A query with ``state`` may check for input after each
    batch without waiting: the rows that a window releases come in a batch of their own.
    """

    def __init__(
        self, inputs: int, clock: Clock, settings: StreamSettings, *, max_rows: int | None = None, shares: Sequence[float] = ()
    ) -> None:
        self.outputs = Outputs()
        self._clock, self._settings, self._max_rows = clock, settings, max_rows
        self._shares = shares or [1 / inputs] * inputs
        self._wrote: set[int] = set()
        """Inputs without a request since the last batch."""
        self._inboxes = [Inbox(f"source {position}", capacity_bytes=_NO_BOUND) for position in range(inputs)]

    async def arrive(self, drafts: Sequence[Sequence[FrameDraft]]) -> None:
        for inbox, of_input in zip(self._inboxes, drafts, strict=True):
            for draft in of_input:
                inbox.add(Frame(stream=inbox.stream, number=inbox.received + 1, payload=draft.payload, rows=draft.rows))

    async def answer(self, request: BareRequest) -> Message:
        """Answer a reader's request as the engine's adapter would, or take the query's report."""
        match request:
            case Poll():
                return Polled(offset=await self._poll(request.position, request.after, request.wait_s))
            case Fetch():
                inbox = self._inboxes[request.position]
                return Fetched(payloads=tuple(frame.payload for frame in inbox.frames(request.after, request.upto)))
            case QueryFailed():
                self.outputs.fail(request.reason)
            case RowsOut():
                self._wrote = set(range(len(self._inboxes))) if self._max_rows is not None else set()
                self.outputs.add(request.rows, request.at_s)
        return Done()

    async def _poll(self, position: int, after: InputOffset, wait_s: float) -> InputOffset:
        settings, inbox = self._settings, self._inboxes[position]
        share = self._shares[position]
        rows = int(self._max_rows * share) if self._max_rows is not None else None
        at_once = position in self._wrote
        self._wrote.discard(position)
        try:
            async with self._clock.timeout(0.0 if at_once else wait_s):
                while True:
                    span = InputSpan(after.frame, after, inbox.at)
                    fill([span], int(settings.batch_span_bytes * share), settings.batch_span_frames, rows)
                    if span.last is not None:
                        return InputOffset(frame=span.last.number)
                    await inbox.news.wait()
        except TimeoutError:
            return after


class Bare:
    """Bare Spark, with the engine's streaming settings for full speed, or ``plain`` with Spark's defaults."""

    def __init__(self, clock: Clock) -> None:
        self.pid = 0
        self._clock = clock
        self._flows: dict[str, BareFlow] = {}
        self._control: Control

    @asynccontextmanager
    async def running(self, kind: Literal["plain", "tuned"]) -> AsyncIterator[None]:
        """Run Spark: enter when its first job is done, leave when all its processes have ended."""
        listener = Listener(self._answer, REQUEST)
        address = await listener.open()
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "sbon_lab.bench.bare_spark",
            kind,
            env={**os.environ, FEED_VARIABLE: address, "PYSPARK_PYTHON": sys.executable},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            self._control = await self._connected(listener, process)
            self.pid = (await self._receive(Ready)).pid
            watching = asyncio.create_task(self._watch(process))
            try:
                yield
            finally:
                watching.cancel()
            self._control[1].write(encode(Close()))
            await process.wait()
        finally:
            if process.returncode is None:
                process.kill()  # its JVM reads from a pipe of this process and ends with it
                await process.wait()
            await listener.close()

    async def start(self, operator: str, reader: Literal["simple", "partitioned"], work: Work) -> BareFlow:
        limits = work.limits(StreamSettings())
        flow = self._flows[operator] = BareFlow(
            len(work.inputs), self._clock, StreamSettings(), max_rows=limits.grouped_rows or limits.rows, shares=work.shares
        )
        command = StartQuery(
            operator=operator,
            reader=reader,
            schemas=tuple(", ".join(f"{column.name} {column.type}" for column in schema) for schema in work.inputs),
            fragment=work.by_hand or work.fragment,
            event_time=work.event_time,
            wait_s=EngineSettings().poll_s,
        )
        await self._obey(command)
        return flow

    async def stop(self, operator: str) -> None:
        await self._obey(Stop(operator=operator))
        del self._flows[operator]

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        """Fail the waits for rows when the process ends."""
        code = await process.wait()
        for flow in self._flows.values():
            flow.outputs.fail(f"bare Spark ended with code {code}")

    async def _connected(self, listener: Listener[BareRequest], process: asyncio.subprocess.Process) -> Control:
        ended = asyncio.ensure_future(process.wait())
        either: list[asyncio.Future[Any]] = [listener.control, ended]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended.cancel()
        if not listener.control.done():
            raise RuntimeError(f"bare Spark did not start: code {process.returncode}")
        return listener.control.result()

    async def _obey(self, command: BareCommand) -> None:
        self._control[1].write(encode(command))
        await self._receive(Done)

    async def _receive(self, type_: type[A]) -> A:
        message = await receive(self._control[0], answer_decoder(type_))
        if message is None:
            raise RuntimeError("bare Spark is gone")
        if isinstance(message, Refused):
            raise message.error()
        return message

    async def _answer(self, request: BareRequest) -> Message:
        flow = self._flows.get(request.operator)
        if flow is None:
            raise SbonError("operator-stopped", "it does not run any more", where=request.operator)
        return await flow.answer(request)
