"""The planner process: handles one request of its standard input at a time, and bounds its time and memory.

A plan is a coroutine of :func:`plan_query`. It stops when it requests an analysis or measurements, is kept meanwhile, and
continues with the answer. So a plan that waits for the engine blocks no other.
"""

import gc
import os
import resource
import signal
import sys
import time
import types
from collections.abc import Coroutine, Generator, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, BinaryIO

import msgspec

from sbon_node.model.measurements import Measured, Recall
from sbon_node.planning.process import messages
from sbon_node.planning.sql.checks.allowlist import check_fragment
from sbon_node.planning.sql.planner import plan_query
from sbon_node.planning.sql.settings import QuerySettings
from sbon_node.planning.sql.stages.assembly import Analyse
from sbon_protocol.api.catalogue import CatalogEntry, StreamDeclaration
from sbon_protocol.api.columns import Schema
from sbon_protocol.api.plan import ProposedPlan
from sbon_protocol.errors import SbonError

AGAIN_S = 0.1
"""Interval at which the alarm repeats: if an exception is swallowed, as in a destructor, the next is not."""
LEAST_S = 0.001
NICENESS = 5
RECURSION = 5_000
"""Python's recursion limit. The allow-list bounds expressions long before; this is for the parser, which uses many frames."""


class OutOfTime(BaseException):
    """The step has used its processor time; no library catches this error."""


class Stopwatch:
    """Bounds the code inside to some seconds of processor time."""

    def __init__(self) -> None:
        self._armed = False
        signal.signal(signal.SIGPROF, self._ring)

    def _ring(self, _signal: int, _frame: FrameType | None) -> None:
        if self._armed:
            raise OutOfTime

    def start(self, seconds: float) -> None:
        self._armed = True
        signal.setitimer(signal.ITIMER_PROF, max(seconds, LEAST_S), AGAIN_S)

    def stop(self) -> None:
        self._armed = False
        signal.setitimer(signal.ITIMER_PROF, 0.0)


@dataclass(slots=True)
class _PlanInProgress:
    """A plan in progress; ``spent_s`` is the processor time of its steps so far."""

    steps: Coroutine[messages.WorkerRequest, Any, ProposedPlan]
    settings: QuerySettings
    spent_s: float = 0.0


class Worker:
    """Answers requests; keeps the plans that wait for an answer to their own request."""

    def __init__(self) -> None:
        self._plans: dict[int, _PlanInProgress] = {}
        self._stopwatch = Stopwatch()

    def answer(self, request: messages.Request) -> bytes:
        """Return the framed reply, made within the limits of the request's settings."""
        if isinstance(request, messages.PlanText):
            steps = planned(_with_others(request), _analyse, request.settings, _recall)
            self._plans[request.plan] = _PlanInProgress(steps, request.settings)
        settings, spent_s = self._limits(request)
        begun = time.process_time()
        try:
            try:
                self._stopwatch.start(settings.plan_cpu_s - spent_s)
                reply = messages.framed(self._reply(request))
            finally:
                self._stopwatch.stop()
            if len(reply) - messages.LENGTH_BYTES > settings.max_plan_bytes:
                raise messages.plan_too_large(len(reply) - messages.LENGTH_BYTES, settings)
        except OutOfTime:
            reply = self._refused(request, messages.too_long(settings))
            gc.collect()
        except MemoryError:
            resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))  # to report it, and end
            reply = self._refused(request, messages.too_large(settings), broken=True)
        except RecursionError:
            reply = self._refused(request, messages.too_deep(settings))
        except SbonError as error:
            reply = self._refused(request, error)
        if isinstance(request, messages.PlanText | messages.Continue) and (state := self._plans.get(request.plan)) is not None:
            state.spent_s += time.process_time() - begun
        return reply

    def _refused(self, request: messages.Request, error: SbonError, *, broken: bool = False) -> bytes:
        if isinstance(request, messages.PlanText | messages.Continue):
            self._plans.pop(request.plan, None)
        return messages.framed(messages.Refused.of(error, broken=broken))

    def _limits(self, request: messages.Request) -> tuple[QuerySettings, float]:
        """Return the settings, and the processor time that the plan has taken so far."""
        if isinstance(request, messages.CheckFragment):
            return request.settings, 0.0
        state = self._plans.get(request.plan)
        return (state.settings, state.spent_s) if state is not None else (QuerySettings(), 0.0)

    def _reply(self, request: messages.Request) -> messages.Reply:
        match request:
            case messages.PlanText(plan=plan):
                return self._step(plan, None)
            case messages.Continue(plan=plan, schema=schema, measured=measured, refused=refused):
                return self._step(plan, next((answer for answer in (refused, schema, measured) if answer is not None), None))
            case messages.Forget(plan=plan):
                if (state := self._plans.pop(plan, None)) is not None:
                    state.steps.close()
                return messages.Done()
            case messages.CheckFragment():
                check_fragment(request.fragment, request.inputs, request.settings)
                return messages.Done()

    def _step(self, plan: int, answer: Schema | Measured | messages.Refused | None) -> messages.Reply:
        steps = self._plans[plan].steps
        try:
            return steps.throw(answer.error()) if isinstance(answer, messages.Refused) else steps.send(answer)
        except StopIteration as finished:
            del self._plans[plan]
            return messages.Planned(plan=finished.value)


def planned(
    request: messages.PlanRequest, analyse: Analyse, settings: QuerySettings, recall: Recall
) -> Coroutine[Any, Any, ProposedPlan]:
    return plan_query(**msgspec.structs.asdict(request), analyse=analyse, settings=settings, recall=recall)


def _with_others(begin: messages.PlanText) -> messages.PlanRequest:
    """Return the request with the streams that its text does not name, which serve for hints alone."""
    unread = (StreamDeclaration(name=name, schema=(), event_time="") for name in begin.others)
    others = {declaration.name: CatalogEntry(declaration=declaration) for declaration in unread}
    return msgspec.structs.replace(begin.request, catalog={**begin.request.catalog, **others})


@types.coroutine
def _answer_to(question: messages.WorkerRequest) -> Generator[messages.WorkerRequest, Any, Any]:
    return (yield question)


async def _analyse(fragment: str, inputs: tuple[Schema, ...]) -> Schema:
    schema: Schema = await _answer_to(messages.AskSchema(fragment=fragment, inputs=inputs))
    return schema


async def _recall(sources: Mapping[str, str], signatures: Sequence[str], columns: Mapping[str, Sequence[str]]) -> Measured:
    wanted = {source: tuple(names) for source, names in columns.items()}
    measured: Measured = await _answer_to(
        messages.AskMeasured(sources=dict(sources), signatures=tuple(signatures), columns=wanted)
    )
    return measured


def main() -> None:
    """Serve requests until the node closes the pipe. ``argv`` holds the memory limit in megabytes."""
    memory = int(sys.argv[1]) * 2**20
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_DATA, (memory, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.setrecursionlimit(RECURSION)
    _serve(sys.stdin.buffer, sys.stdout.buffer)


def _serve(requests: BinaryIO, replies: BinaryIO) -> None:
    worker = Worker()
    while (request := messages.read_request(requests)) is not None:
        replies.write(worker.answer(request))
        replies.flush()


if __name__ == "__main__":
    main()
