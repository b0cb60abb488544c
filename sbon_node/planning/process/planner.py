"""Planner of a node, in a process of its own.

The process starts with the first text, handles one request at a time, and is replaced when it is lost.
"""

import asyncio
import itertools
import sys
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from typing import Protocol

import msgspec
import psutil
import structlog

from sbon_node.base.clock import Clock
from sbon_node.base.executors import run_to_end
from sbon_node.model.measurements import Recall
from sbon_node.planning.process import messages
from sbon_node.planning.process.messages import PlanRequest as PlanRequest
from sbon_node.planning.sql.settings import QuerySettings
from sbon_protocol.api.catalogue import CatalogEntry
from sbon_protocol.api.columns import Schema
from sbon_protocol.api.plan import ProposedPlan
from sbon_protocol.errors import SbonError

log = structlog.get_logger()

WORKER = "sbon_node.planning.process.worker"
PATIENCE = 4.0
"""Multiple of the processor-time limit after which the node kills the process.

The process bounds its processor time itself; this covers a busy machine and a hanging process.
"""
START_S = 20.0

CLIENT: ContextVar[str] = ContextVar("client", default="")
"""The API client's address, or the peer's name, for which the running task works."""
ATTEMPTS = 2
"""Tries of a text whose process ended during the work, because another cause may have ended it."""
MAX_RESTARTS = 20
"""Most restarts of a plan whose process ended because of another text."""

Analyse = Callable[[str, tuple[Schema, ...]], Awaitable[Schema]]
"""Maps a fragment and its views' schemas to its output's schema; raises :class:`SbonError`."""


class ProcessLostError(Exception):
    """The process ended before it answered; ``refusal`` tells the user why, if the node ended it for lack of an answer."""

    def __init__(self, reason: str, refusal: SbonError | None = None) -> None:
        super().__init__(reason)
        self.refusal = refusal


class PlannerProcess:
    """One process at a time."""

    def __init__(self, settings: QuerySettings, clock: Clock) -> None:
        self._settings, self._clock = settings, clock
        self._process: asyncio.subprocess.Process | None = None
        self._starts = 0

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    @property
    def running(self) -> int:
        """Number of the running process, from 1 on; 0 if none runs. A plan lives only as long as its process."""
        return self._starts if self._process is not None and self._process.returncode is None else 0

    async def exchange(self, request: messages.Request) -> messages.Reply:
        """Return the reply to one request; raise :class:`ProcessLostError`. The caller sends one request at a time."""
        if not self.running:
            await self.end()
            await self._start()
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        limit_s, before_s = START_S + PATIENCE * self._settings.plan_cpu_s, _processor_time_s(process.pid)
        try:
            async with self._clock.timeout(limit_s):
                process.stdin.write(messages.framed(request))
                await process.stdin.drain()
                head = await process.stdout.readexactly(messages.LENGTH_BYTES)
                return messages.decode_reply(await process.stdout.readexactly(int.from_bytes(head, "big")))
        except TimeoutError as error:
            spent_s = _processor_time_s(process.pid) - before_s
            await self.end()
            is_starved = spent_s < self._settings.plan_cpu_s
            refusal = messages.too_starved(spent_s, limit_s) if is_starved else messages.too_long(self._settings)
            raise ProcessLostError("it did not answer in time", refusal) from error
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            await self.end()
            raise ProcessLostError(f"it ended with {process.returncode}") from error

    async def _start(self) -> None:
        command = (sys.executable, "-P", "-m", WORKER, str(self._settings.planner_memory_mb))
        pipe = asyncio.subprocess.PIPE
        try:
            self._process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, start_new_session=True)
        except OSError as error:
            message = f"the planner process cannot be started: {error.strerror}"
            raise SbonError("planner-busy", message, hint="look at the limits of processes and memory of this machine") from error
        self._starts += 1
        log.info("planner-started", pid=self._process.pid)

    def kill(self) -> None:
        """Kill the process; an exchange in progress fails."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def end(self) -> None:
        """End the process, if it exists, completely. No exchange may be in progress."""
        self.kill()
        if self._process is not None:
            with suppress(ConnectionError):
                await self._process.communicate()
            self._process = None


def _processor_time_s(pid: int) -> float:
    try:
        spent = psutil.Process(pid).cpu_times()
    except psutil.Error:
        return 0.0
    return float(spent.user + spent.system)


class Planner(Protocol):
    """Plans and checks texts. Every method raises :class:`SbonError` for a text that it refuses."""

    async def plan(self, request: PlanRequest, analyse: Analyse, recall: Recall) -> ProposedPlan: ...

    async def check_fragment(self, fragment: str, inputs: int) -> None:
        """Check a peer's fragment against the allow-list."""

    async def close(self) -> None: ...


class ProcessPlanner:
    """Planner in a separate process, started with the first text and ended when idle."""

    def __init__(self, settings: QuerySettings, clock: Clock) -> None:
        self._settings, self._clock = settings, clock
        self._process = PlannerProcess(settings, clock)
        self._turns = Turns(clock)
        self._texts: Counter[str] = Counter()
        self._clients: Counter[str] = Counter()
        self._numbers = itertools.count(1)
        self._idle: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def pid(self) -> int | None:
        """Id of the process, while it exists."""
        return self._process.pid

    async def plan(self, request: PlanRequest, analyse: Analyse, recall: Recall) -> ProposedPlan:
        known: dict[bytes, messages.Continue] = {}
        with self._admitted():
            lost = 0
            for _ in range(MAX_RESTARTS):
                try:
                    return await self._planned(self._begin_plan(request), analyse, recall, known)
                except _ReplacedError as replaced:  # begin again, with the answers received so far
                    lost += replaced.by_this
                    if lost >= ATTEMPTS:
                        raise messages.process_lost() from replaced
            raise messages.too_busy(self._settings)

    async def check_fragment(self, fragment: str, inputs: int) -> None:
        """Check a fragment when it is the peer's turn. Reserved capacity bounds the number of fragments."""
        with self._used():
            reply = await self._exchange(messages.CheckFragment(fragment=fragment, inputs=inputs, settings=self._settings))
            if isinstance(reply, messages.Refused):
                raise reply.error()

    async def close(self) -> None:
        self._closed = True
        if self._idle is not None:
            self._idle.cancel()
            await asyncio.wait([self._idle])
        self._process.kill()
        async with self._turns.turn(""):
            await run_to_end(self._process.end())

    def _begin_plan(self, request: PlanRequest) -> messages.PlanText:
        """Begin a plan with only the streams that the text names."""
        present = {name: entry for name, entry in request.catalog.items() if not entry.dropped}
        named = _named(request.text, present)
        others = tuple(name for name in present if name not in named)
        plan, request = next(self._numbers), msgspec.structs.replace(request, catalog=named)
        return messages.PlanText(plan=plan, request=request, others=others, settings=self._settings)

    async def _planned(
        self, begin: messages.PlanText, analyse: Analyse, recall: Recall, known: dict[bytes, messages.Continue]
    ) -> ProposedPlan:
        reply = await self._exchange(begin)
        kept_by = self._process.running
        try:
            while True:
                match reply:
                    case messages.Planned(plan=plan):
                        return plan
                    case messages.Refused():
                        raise reply.error()
                    case messages.AskSchema() | messages.AskMeasured():
                        question = msgspec.msgpack.encode(reply)
                        if question not in known:
                            known[question] = await _answered(reply, analyse, recall)
                        answer = msgspec.structs.replace(known[question], plan=begin.plan)
                        reply = await self._exchange(answer, kept_by)
                    case _:
                        raise TypeError(f"no reply to a plan: {type(reply).__name__}")
        except asyncio.CancelledError:
            if kept_by == self._process.running and not self._closed:
                with suppress(_ReplacedError):
                    await self._exchange(messages.Forget(plan=begin.plan), kept_by)
            raise

    @contextmanager
    def _admitted(self) -> Iterator[None]:
        """Count the texts of each client, and of all; refuse texts beyond the limits."""
        client = CLIENT.get()
        if self._texts[client] >= self._settings.plans_per_client:
            raise messages.too_many(client, self._settings)
        if self._texts.total() >= self._settings.max_plans:
            raise messages.too_busy(self._settings)
        with _counted(self._texts, client), self._used():
            yield

    @contextmanager
    def _used(self) -> Iterator[None]:
        """Keep the process from ending as idle, and the client's turns from being forgotten."""
        if self._closed:
            raise SbonError("stopping", "this node is going away")
        client = CLIENT.get()
        if self._idle is not None:
            self._idle.cancel()
        try:
            with _counted(self._clients, client):
                yield
        finally:
            if client not in self._clients:
                self._turns.forget(client)
            if not self._clients and not self._closed:
                self._idle = asyncio.get_running_loop().create_task(self._end_idle(), name="idle planner")

    async def _end_idle(self) -> None:
        await self._clock.sleep(self._settings.planner_idle_s)
        async with self._turns.turn(""):
            await run_to_end(self._process.end())

    async def _exchange(self, request: messages.Request, kept_by: int | None = None) -> messages.Reply:
        """Exchange a request for its reply.

        A cancelled caller waits until the exchange ends: otherwise the next caller would take its reply.
        """
        async with self._turns.turn(CLIENT.get()):
            return await run_to_end(self._reply(request, kept_by))

    async def _reply(self, request: messages.Request, kept_by: int | None) -> messages.Reply:
        if kept_by not in (None, self._process.running):
            raise _ReplacedError(by_this=False)
        for attempt in range(1, ATTEMPTS + 1):
            if self._closed:
                raise SbonError("stopping", "this node is going away")
            try:
                reply = await self._process.exchange(request)
            except ProcessLostError as error:
                log.warning("planner-lost", reason=str(error), attempt=attempt)
                if error.refusal is not None:
                    raise error.refusal from error
                if kept_by is not None:
                    raise _ReplacedError(by_this=True) from error
                continue
            if isinstance(reply, messages.Refused) and reply.broken:
                await run_to_end(self._process.end())
            return reply
        raise messages.process_lost()


def _named(text: str, catalog: Mapping[str, CatalogEntry]) -> dict[str, CatalogEntry]:
    """Return the streams that a text may name, itself or by views."""
    named: dict[str, CatalogEntry] = {}
    texts = [text.lower()]
    while texts:
        read = texts.pop()
        new = {name: entry for name, entry in catalog.items() if name not in named and name in read}
        named |= new
        texts += [entry.declaration.sql.lower() for entry in new.values() if entry.declaration.sql]
    return named


@contextmanager
def _counted(counter: Counter[str], client: str) -> Iterator[None]:
    counter[client] += 1
    try:
        yield
    finally:
        counter[client] -= 1
        if not counter[client]:
            del counter[client]


class _ReplacedError(Exception):
    """The process that kept a plan is gone; ``by_this`` if it ended while it worked on this plan."""

    def __init__(self, *, by_this: bool) -> None:
        super().__init__("the planner process was replaced")
        self.by_this = by_this


async def _answered(question: messages.WorkerRequest, analyse: Analyse, recall: Recall) -> messages.Continue:
    try:
        if isinstance(question, messages.AskSchema):
            return messages.Continue(plan=0, schema=await analyse(question.fragment, question.inputs))
        return messages.Continue(plan=0, measured=await recall(question.sources, question.signatures, question.columns))
    except SbonError as error:
        return messages.Continue(plan=0, refused=messages.Refused.of(error))


# -- Turns of clients that wait for the planner: a busy client waits behind itself, not before others -----------------


class Turns:
    """One turn at a time, next for the waiting client whose turns have taken the least time.

    Each client's own requests keep their order.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._taken = False
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._spent_s: dict[str, float] = {}

    @asynccontextmanager
    async def turn(self, client: str) -> AsyncIterator[None]:
        if self._taken:
            await self._wait(client)
        self._taken = True
        begun = self._clock.now()
        try:
            yield
        finally:
            self._spent_s[client] = self._spent_s.get(client, 0.0) + self._clock.now() - begun
            self._pass_on()

    def forget(self, client: str) -> None:
        """Forget a client that has no request in progress."""
        self._spent_s.pop(client, None)

    async def _wait(self, client: str) -> None:
        called = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(called)
        try:
            await called
        except asyncio.CancelledError:
            if called.done() and not called.cancelled():
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        """Pass the turn to the next client; it stays taken until no client waits."""
        while self._waiting:
            client = min(self._waiting, key=lambda client: self._spent_s.get(client, 0.0))
            called = self._waiting[client].popleft()
            if not self._waiting[client]:
                del self._waiting[client]
            if not called.done():
                called.set_result(None)
                return
        self._taken = False
