"""Reuse: a new query reads running operators of other queries in place of its own.

An operator of equal signature gives the rows of the query's own if it has begun where that would begin: its first frame is still
retained, and so are the first frames of all its sources. An operator that contains these rows gives them to a residual one. It is
shared where that carries less data over the network than operators of its own.

Source: SBON (Pietzuch et al., ICDE 2006), section 3.2; docs/design.md, section 10.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import structlog
from msgspec.structs import replace

from sbon_node.connectors.sinks.results import STREAM
from sbon_node.context import Context
from sbon_node.ownership.consensus.states import Acceptor
from sbon_node.ownership.operators import OperatorRegisters
from sbon_node.queries.submitting.beginnings import RESULT
from sbon_node.queries.submitting.planning import Planning
from sbon_node.queries.submitting.running_operators import HostedStream, ReadableOperator, RunningOperators, find_running
from sbon_node.queries.submitting.shared_plan import Choice, with_shared
from sbon_node.queries.submitting.step_times import StepTimes
from sbon_protocol.api.columns import Schema
from sbon_protocol.api.operators import Computation
from sbon_protocol.api.plan import ContainedOperator, Plan, PlannedOperator, SharedOperator
from sbon_protocol.api.queries import QuerySpec, Submission
from sbon_protocol.api.query_ids import sink_of
from sbon_protocol.api.sharing import EQUAL, NEVER
from sbon_protocol.api.strategies import DEFAULT_STRATEGY, Bounds
from sbon_protocol.calls import DestroyComponents, OperatorShared, ShareOperator
from sbon_protocol.errors import SbonError

log = structlog.get_logger()


WORTH = 1.1
"""Sharing may carry that many times the data of operators of its own: fewer operators need fewer cores and less memory."""


class EqualOperators(NamedTuple):
    """The equal operators that may be read in place of each operator of a plan, and the streams on the paths to them."""

    by_operator: Mapping[str, list[ReadableOperator]]
    streams: Mapping[str, HostedStream]

    def of(self, operator: str) -> list[ReadableOperator]:
        return self.by_operator.get(operator, [])


class Reuse:
    """Finds operators to share for this node's new queries, and refers to them."""

    def __init__(self, context: Context, planning: Planning, registers: OperatorRegisters) -> None:
        self._context, self._planning, self._registers = context, planning, registers

    async def shared(
        self,
        plan: Plan,
        spec: QuerySpec,
        query: str,
        consumer: str,
        without: Collection[str] = (),
        times: StepTimes | None = None,
        *,
        equal: bool = True,
    ) -> Plan:
        """Return the plan with running operators in place of its own, where there are some that may be read and that pays.

        ``without`` are operators that cannot be shared. Nothing is referred to yet. A query with bounds shares nothing: the delay
        up to a shared operator is not its own to decide. One that begins now is planned once more, from a later moment on.
        Without ``equal`` only operators that contain others' rows are shared: equal ones are chosen elsewhere.
        """
        if not _may_share(spec):
            return plan
        running = await find_running(self._context, plan, contained=_may_contain(spec))
        readable = self._readable(running, plan, spec, consumer, without)
        alone, shared = await self._planned(plan, running, readable, spec, query, consumer, times, equal=equal)
        return shared if shared is not None and await self._pays(shared, alone, spec, consumer) else alone

    def _readable(
        self, running: RunningOperators, plan: Plan, spec: QuerySpec, consumer: str, without: Collection[str] = ()
    ) -> list[ReadableOperator]:
        """Return the operators that may be read, the nearest to the consumer first."""
        from_now = plan.since_ms is not None and all(one.source.connector != RESULT for one in plan.sources)
        readable, whole = running.readable(self._planning.durability(spec), without, from_now=from_now), running.whole()
        return sorted(
            (one for one in readable if one.id in whole), key=lambda one: (self._latency_ms(one.node, consumer), one.id)
        )

    async def _planned(
        self,
        plan: Plan,
        running: RunningOperators,
        readable: Sequence[ReadableOperator],
        spec: QuerySpec,
        query: str,
        consumer: str,
        times: StepTimes | None,
        *,
        equal: bool,
    ) -> tuple[Plan, Plan | None]:
        """Return the plan, made once more if operators may contain its rows, and the same with those to be shared, if any."""
        offers = running.offers(readable, plan) if _may_contain(spec) else ()
        alternatives: tuple[ContainedOperator, ...] = ()
        if offers:
            try:
                proposed = await self._planning.propose(spec, query, times, offers)
            except SbonError as error:  # Alone it can be planned: nobody else's operators may refuse it.
                log.info("offers-not-planned", query=query, offers=len(offers), code=error.code, reason=str(error))
            else:
                plan, alternatives = proposed.without_alternatives(), proposed.alternatives
        fitting = _equal_to(plan, readable, running) if equal else {}
        to_stream = isinstance(spec, Submission) and spec.sink.kind == STREAM
        choices = self._choices(plan, fitting, alternatives, readable, consumer, to_stream=to_stream)
        return plan, with_shared(plan, choices, running.streams) if choices else None

    async def offers(self, plan: Plan, spec: QuerySpec, without: Collection[str] = ()) -> EqualOperators:
        """Return the equal operators that may be read in place of the plan's own, except ``without``."""
        if not _may_share(spec):
            return EqualOperators({}, {})
        running = await find_running(self._context, plan, contained=False)
        readable = running.readable(self._planning.durability(spec), without, from_now=False)
        return EqualOperators(_equal_to(plan, readable, running), running.streams)

    def _choices(
        self,
        plan: Plan,
        fitting: Mapping[str, Sequence[ReadableOperator]],
        alternatives: Sequence[ContainedOperator],
        readable: Sequence[ReadableOperator],
        consumer: str,
        *,
        to_stream: bool,
    ) -> dict[str, Choice]:
        """Return the nearest ``fitting`` operator for each of the plan, else the nearest that contains its rows."""
        by_id = {one.id: one for one in readable}
        chosen: dict[str, Choice] = {}
        taken: set[str] = set()
        for one in plan.operators:
            # Each of two equal branches needs rows of its own.
            equal = [other for other in fitting.get(one.id, ()) if other.id not in taken]
            if equal:
                nearest = self._nearest(equal, consumer)
                chosen[one.id] = Choice(nearest)
                taken.add(nearest.id)
                continue
            residuals = [other for other in alternatives if other.operator.id == one.id and other.offered in by_id]
            residuals = [other for other in residuals if _keeps_promises(other, plan, to_stream=to_stream)]
            if residuals:
                nearest = self._nearest([by_id[other.offered] for other in residuals], consumer)
                chosen[one.id] = Choice(nearest, next(other for other in residuals if other.offered == nearest.id))
        return chosen

    def _nearest(self, running: Iterable[ReadableOperator], consumer: str) -> ReadableOperator:
        """Return the operator whose node is nearest to the consumer, as far as known."""
        return min(running, key=lambda one: (self._latency_ms(one.node, consumer), one.id))

    def _latency_ms(self, node: str, consumer: str) -> float:
        if node == consumer:
            return 0.0
        one_way_ms = self._context.directory.estimate_rtt_ms(node, consumer).one_way_ms
        return float("inf") if one_way_ms is None else one_way_ms

    async def _pays(self, shared: Plan, alone: Plan, spec: QuerySpec, consumer: str) -> bool:
        """Return whether the query carries hardly more data with the shared operators than alone, both placed by hybrid.

        Also if its own operators have no place.
        """
        goal = replace(spec, strategy=DEFAULT_STRATEGY)
        try:
            with_own = (await self._planning.place(alone, goal, consumer)).usage
        except SbonError:
            return True
        try:
            with_shared_ones = (await self._planning.place(shared, goal, consumer)).usage
        except SbonError:
            return False
        log.info("sharing-weighed", operators=[one.id for one in shared.shared], shared=with_shared_ones, alone=with_own)
        return with_shared_ones <= WORTH * with_own

    # -- references -----------------------------------------------------------------------------------------------------

    async def refer(
        self,
        plan: Plan,
        spec: QuerySpec,
        query: str,
        consumer: str,
        acceptors: tuple[Acceptor, ...],
        times: StepTimes | None = None,
    ) -> Plan:
        """Refer to the plan's shared operators, and have their frames kept; return the plan with their present hosts.

        A query from now on is planned once more then: rows count from a moment after its shared operators began to keep frames.
        Raises :class:`SbonError`, with the operator as ``where``, if one cannot be shared; nothing is referred to then.
        """
        present = {one.id: one for one in plan.shared}
        tasks = [self._refer(one, query, plan, acceptors) for one in plan.shared]
        try:
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            referred = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
            present |= {one.id: one for one, _ in referred}
            failed = next((outcome for outcome in outcomes if isinstance(outcome, BaseException)), None)
            if failed is not None:
                raise failed
            if plan.since_ms is not None and referred:
                first = {one.id: first for one, first in referred if first}
                plan = await self._planned_after(plan, first, spec, query, consumer, times)
        except BaseException:
            await asyncio.shield(self.give_back(present.values(), query))
            raise
        return replace(plan, shared=tuple(present.values()))

    async def _planned_after(
        self, plan: Plan, first: Mapping[str, int], spec: QuerySpec, query: str, consumer: str, times: StepTimes | None
    ) -> Plan:
        """Return the plan with a later moment from which rows count; it reads operators' frames from ``first`` on."""
        own = await self._planning.plan(spec, query, times)
        running = await find_running(self._context, own, contained=True)
        shared = {one.id for one in plan.shared}
        readable = [
            one._replace(after=first.get(one.id, 1) - 1)
            for one in self._readable(running, own, spec, consumer)
            if one.id in shared
        ]
        _, later = await self._planned(own, running, readable, spec, query, consumer, times, equal=False)
        if later is None or _reading(later, query) != _reading(plan, query):
            raise SbonError("operator-unknown", "it has changed meanwhile", where=min(shared))
        return later

    async def _refer(
        self, shared: SharedOperator, query: str, plan: Plan, acceptors: tuple[Acceptor, ...]
    ) -> tuple[SharedOperator, int]:
        """Refer to an operator; return it with its present host, and the first frame that is kept for its readers."""
        try:
            register = await self._registers.refer(shared.id, query)
            call = ShareOperator(
                operator=shared.id,
                digest=shared.digest,
                query=query,
                readers=plan.readers(shared.id, sink_of(query)),
                first=1 if plan.since_ms is None else 0,
                acceptors=acceptors,
            )
            answer = await self._context.ask(register.host, call, OperatorShared)
        except SbonError as error:
            raise SbonError(error.code, error.message, where=shared.id, hint=error.hint) from error
        return replace(shared, node=register.host), answer.first

    async def give_back(self, shared: Iterable[SharedOperator], query: str) -> None:
        """Give back the references of a query that does not run after all, as far as nodes answer."""
        await asyncio.gather(*(self._give_back(one, query) for one in shared))

    async def _give_back(self, shared: SharedOperator, query: str) -> None:
        call = DestroyComponents(query=query, components=(shared.id,))
        for end in (self._context.call(shared.node, call), self._registers.release(shared.id, query)):
            try:
                await end
            except SbonError as error:
                log.info("reference-not-given-back", operator=shared.id, query=query, code=error.code, reason=str(error))


def _may_share(spec: QuerySpec) -> bool:
    return spec.reuse != NEVER and spec.bounds == Bounds()


def _may_contain(spec: QuerySpec) -> bool:
    return spec.reuse != EQUAL and spec.on_error == "fail"


def _reading(plan: Plan, query: str) -> dict[str, tuple[str, ...]]:
    """Return the readers of each shared operator."""
    return {one.id: plan.readers(one.id, sink_of(query)) for one in plan.shared}


def _equal_to(plan: Plan, readable: Sequence[ReadableOperator], running: RunningOperators) -> dict[str, list[ReadableOperator]]:
    """Return the operators that are equal to each of the plan; none if rows count from now on."""
    if plan.since_ms is not None:
        return {}
    return {one.id: [other for other in readable if _is_equal(one, plan, other, running)] for one in plan.operators}


def _is_equal(own: PlannedOperator, plan: Plan, other: ReadableOperator, running: RunningOperators) -> bool:
    """Return whether an operator gives the rows of the plan's own, in columns of the same types; names do not count.

    Joins of equal signature may promise different watermarks, if they have several bounds in time.
    """
    computation = other.operator.computation
    if not own.signature or own.signature != computation.signature or _types(own.schema) != _types(computation.schema):
        return False
    if len({read.view for read in own.inputs}) < 2:
        return True
    signatures = {one.id: one.signature for one in plan.operators} | {one.source.id: one.source.id for one in plan.sources}
    return _watermarks(own, signatures.get) == _watermarks(computation, running.signature)


def _types(schema: Schema) -> list[str]:
    return [field.type for field in schema]


def _watermarks(computation: Computation, signature: Callable[[str], str | None]) -> list[tuple[str, int, int]]:
    """Return each input's signature, the position of its event time, and its lag, in order."""
    found = []
    for read in computation.inputs:
        names = [field.name for field in read.schema]
        at = names.index(read.event_time) if read.event_time in names else -1
        found.append((signature(read.stream) or "", at, read.lag_ms))
    return sorted(found)


def _keeps_promises(one: ContainedOperator, plan: Plan, *, to_stream: bool) -> bool:
    """Return whether the residual serves its readers: a stream that a query makes has no reader that could wait longer."""
    if plan.since_ms is not None and one.operator.has_state:
        return False  # It would lack the rows of groups that are open now.
    return not (to_stream and one.later_ms and one.operator.id in plan.outputs)
