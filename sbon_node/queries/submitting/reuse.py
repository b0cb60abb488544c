"""Reuse: a new query reads running operators of other queries in place of its own.

An operator of equal signature gives the rows of the query's own if it has begun where that would begin: its first frame is still
retained, and so are the first frames of all its sources. An operator that contains these rows gives them to a residual one. It is
shared where that carries less data over the network than operators of its own.

Source: SBON (Pietzuch et al., ICDE 2006), section 3.2; docs/design.md, section 10.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import structlog
from msgspec.structs import replace

from sbon_node.connectors.sinks.results import STREAM
from sbon_node.context import Context
from sbon_node.model.running_computation import MAX_OFFERED_INPUTS, RunningComputation
from sbon_node.ownership.consensus.states import Acceptor
from sbon_node.ownership.operators import OperatorRegisters
from sbon_node.queries.submitting.planning import RESULT, Planning, StepTimes
from sbon_protocol.api.catalogue import is_source
from sbon_protocol.api.durability import STRENGTH, Durability
from sbon_protocol.api.operators import Computation, PlannedInput
from sbon_protocol.api.plan import ContainedOperator, Plan, PlannedOperator, Rate, SharedOperator
from sbon_protocol.api.queries import QuerySpec, Submission
from sbon_protocol.api.query_ids import is_sink, sink_of
from sbon_protocol.api.sharing import EQUAL, NEVER, OfferedOperator, StreamOffer
from sbon_protocol.api.strategies import DEFAULT_STRATEGY, Bounds
from sbon_protocol.calls import MAX_STREAMS, AskStreams, DestroyComponents, OperatorShared, ShareOperator, StreamOffers
from sbon_protocol.codec import decode_record
from sbon_protocol.errors import ProtocolError, SbonError

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
        if later is None or _readers(later, query) != _readers(plan, query):
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


def _readers(plan: Plan, query: str) -> dict[str, tuple[str, ...]]:
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
    if not own.signature or own.signature != computation.signature:
        return False
    if [field.type for field in own.schema] != [field.type for field in computation.schema]:
        return False
    if len({read.view for read in own.inputs}) < 2:
        return True
    signatures = {one.id: one.signature for one in plan.operators} | {one.source.id: one.source.id for one in plan.sources}
    return _watermarks(own, signatures.get) == _watermarks(computation, running.signature)


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


# -- A plan with running operators of other queries in place of its own -----------------------------------------------


@dataclass(frozen=True, slots=True)
class Choice:
    """A running operator in place of one of the plan: an equal one, or by the ``alternative`` one that contains its rows."""

    running: ReadableOperator
    alternative: ContainedOperator | None = None


def with_shared(plan: Plan, chosen: Mapping[str, Choice], streams: Mapping[str, HostedStream]) -> Plan:
    """Return the plan with ``chosen`` operators in place of its own, by their ids.

    Operators that feed these alone go, and those that feed the chosen ones at their hosts are shared as well: they must not end
    before them. ``streams`` has these.
    """
    by_id = {one.id: one for one in plan.operators}
    rates = plan.rates()
    needed: dict[str, None] = {}
    shared: dict[str, SharedOperator] = {}

    def need(stream: str) -> None:
        operator = by_id.get(stream)
        if operator is None or stream in needed:
            return
        choice = chosen.get(stream)
        if choice is None:
            needed[stream] = None
            for read in operator.inputs:
                need(read.stream)
            return
        if choice.alternative is not None:
            needed[stream] = None
            keep(choice.running.id, _expected(choice.running, Rate.of_all(rates[read.stream] for read in operator.inputs)))
        else:
            keep(choice.running.id, operator.rate, operator)

    def keep(stream: str, rate: Rate, equal: PlannedOperator | None = None) -> None:
        if is_source(stream) or stream in shared:
            return
        offered = streams[stream].offer.operator
        assert offered is not None
        for read in offered.inputs:
            keep(read, rate)
        operator = _planned(offered.computation, rate, equal)
        shared[stream] = SharedOperator(
            operator=operator, node=streams[stream].node, digest=offered.digest, queries=offered.queries
        )

    for output in plan.outputs:
        need(output)
    renamed = {own: choice.running.id for own, choice in chosen.items() if choice.alternative is None}
    taken = [choice for own, choice in chosen.items() if own in needed or renamed.get(own) in shared]
    longer_ms = sum(choice.alternative.longer_ms for choice in taken if choice.alternative is not None)
    after = {choice.running.id: choice.running.after for choice in taken if choice.running.after}
    return replace(
        plan,
        operators=tuple(_reading(one, chosen, longer_ms) for one in plan.operators if one.id in needed),
        shared=tuple(shared.values()),
        outputs=tuple(renamed.get(output, output) for output in plan.outputs),
        starts={**plan.starts, **after},
    )


def _expected(running: ReadableOperator, inputs: Rate) -> Rate:
    """Return the rate of an operator that contains the rows: as measured; only a join has more than the plan's ``inputs``.

    A rate that was measured for a moment alone would not compare with the plan's, which are expected for long.
    """
    measured = running.operator.rate
    if measured is None:
        return inputs
    joins = len({read.view for read in running.operator.computation.inputs}) > 1
    return measured if joins or measured.bytes_s <= inputs.bytes_s else inputs


def _planned(computation: Computation, rate: Rate, equal: PlannedOperator | None) -> PlannedOperator:
    """Return an offered operator as one of a plan, with the estimates of an ``equal`` one of the plan."""
    inputs = tuple(PlannedInput(stream=read.stream, schema=()) for read in computation.inputs)
    if equal is not None:
        return replace(equal, id=computation.id, inputs=inputs, schema=computation.schema)
    fields = {name: getattr(computation, name) for name in Computation.__struct_fields__}
    return PlannedOperator(**{**fields, "inputs": inputs}, rate=rate)


def _reading(operator: PlannedOperator, chosen: Mapping[str, Choice], longer_ms: int) -> PlannedOperator:
    """Return the operator as it reads ``chosen`` ones: its inputs may be that much further ahead of each other."""
    own = chosen.get(operator.id)
    if own is not None and own.alternative is not None:
        return own.alternative.operator

    def read(one: PlannedInput) -> PlannedInput:
        if one.ahead_ms is not None:
            one = replace(one, ahead_ms=one.ahead_ms + longer_ms)
        choice = chosen.get(one.stream)
        if choice is None:
            return one
        if choice.alternative is not None:
            return replace(one, lag_ms=one.lag_ms + choice.alternative.later_ms)
        names = [field.name for field in choice.running.operator.schema]
        return replace(one, stream=choice.running.id, by_position=names != [field.name for field in one.schema])

    return replace(operator, inputs=tuple(read(one) for one in operator.inputs))


# -- Running operators that a new query may read: asked for along the streams, from the sources of its plan on --------

MOST_ROUNDS = 16
"""Most rounds of questions: the longest path of operators that may be shared."""
MOST_NODES = 64
"""Most nodes that are asked in one round."""
MOST_FOUND = 1024
"""Most streams that one query looks at."""
MOST_OFFERS = 64
"""Most operators whose rows are compared with those that the plan needs."""
MOST_CHARACTERS = 4096
"""Longest fragment that is compared."""
FIRST = 1
"""The number of a stream's first frame."""


class HostedStream(NamedTuple):
    """A stream, and the node that hosts it."""

    node: str
    offer: StreamOffer


class ReadableOperator(NamedTuple):
    """A running operator that may be read after its frame ``after``, and the node that hosts it."""

    id: str
    node: str
    operator: OfferedOperator
    after: int = 0


class RunningOperators:
    """The streams that were found, by id."""

    def __init__(self, streams: Mapping[str, HostedStream]) -> None:
        self.streams = streams

    def signature(self, stream: str) -> str:
        """Return the signature of a source or an operator; empty if it is not known."""
        known = self.streams.get(stream)
        if known is None:
            return ""
        return stream if known.offer.operator is None else known.offer.operator.signature

    def readable(self, durability: Durability, without: Collection[str], *, from_now: bool) -> list[ReadableOperator]:
        """Return operators, by id, whose rows are those of one that begins now: all that their sources still have.

        A query ``from_now`` on may also read those that began at any time: it asks later for the time from which rows count, and
        all of them come in frames after those that there are.
        """
        running, begins = [], dict[str, bool]()
        for stream, known in sorted(self.streams.items()):
            operator = known.offer.operator
            if operator is None or stream in without or STRENGTH[operator.durability] < STRENGTH[durability]:
                continue
            if from_now or (known.offer.earliest == FIRST and self._are_all_behind(stream, self._retains_first, begins)):
                running.append(ReadableOperator(stream, known.node, operator, known.offer.latest if from_now else 0))
        return running

    def whole(self) -> set[str]:
        """Return the streams behind which all operators are known, and none is among its own readers."""
        known: dict[str, bool] = {}
        return {stream for stream in self.streams if self._are_all_behind(stream, is_source, known)}

    def _retains_first(self, stream: str) -> bool:
        """Return whether a source retains its first frame, so that whatever reads it has begun there."""
        of = self.streams.get(stream)
        return of is not None and is_source(stream) and of.offer.operator is None and of.offer.earliest == FIRST

    def _are_all_behind(self, stream: str, holds: Callable[[str], bool], known: dict[str, bool], depth: int = 0) -> bool:
        """Return whether something ``holds`` for a stream, or for all that it is made of.

        False as well if not all streams on the way are known, or if one is among its own readers: peers may tell lies.
        """
        if holds(stream):
            return True
        if stream in known or depth > MOST_ROUNDS:
            return known.get(stream, False)
        known[stream] = False
        of = self.streams.get(stream)
        if of is not None and of.offer.operator is not None:
            inputs = of.offer.operator.inputs
            known[stream] = all(self._are_all_behind(read, holds, known, depth + 1) for read in inputs)
        return known[stream]

    def offers(self, running: Collection[ReadableOperator], plan: Plan) -> tuple[RunningComputation, ...]:
        """Return the first ones that may contain rows of the plan, at most :data:`MOST_OFFERS`, for the planner to decide."""
        own = {one.signature for one in plan.operators}
        # Streams of which those of the plan may be computed: the plan's own, and operators over these.
        near = own | {one.source.id for one in plan.sources}
        left, offers = list(running), list[RunningComputation]()
        for _ in range(MOST_ROUNDS):
            over = [one for one in left if near.issuperset(map(self.signature, one.operator.inputs))]
            if not over:
                break
            left = [one for one in left if one not in over]
            near |= {one.operator.signature for one in over}
            for one in over:
                computation = one.operator.computation
                inputs = tuple(map(self.signature, one.operator.inputs))
                is_small = len(inputs) <= MAX_OFFERED_INPUTS and len(computation.fragment) <= MOST_CHARACTERS
                if computation.signature not in own and is_small:
                    offers.append(RunningComputation(computation=computation, inputs=inputs))
        return tuple(offers[:MOST_OFFERS])


async def find_running(context: Context, plan: Plan, *, contained: bool) -> RunningOperators:
    """Ask from the sources on, as far as operators are equal to those of the plan, or with ``contained`` near enough to have
    their rows.

    All rounds together take no longer than one answer may: a node that is silent costs each submission that time.
    """
    signatures = {one.signature for one in plan.operators}
    near = _depth(plan) + 1 if contained else 0
    found: dict[str, HostedStream] = {}
    asked: set[str] = set()
    at: dict[str, set[str]] = {}
    for planned in plan.sources:
        at.setdefault(planned.source.node, set()).add(planned.source.id)
    until = context.clock.now() + context.settings.component_timeout_s
    for number in range(MOST_ROUNDS):
        left_s = until - context.clock.now()
        if not at or len(found) >= MOST_FOUND or left_s <= 0:
            break
        asked.update(*at.values())
        nodes = [node for node in sorted(at) if not context.presence.away(node)][:MOST_NODES]
        answers = await asyncio.gather(*(_ask(context, node, sorted(at[node])[:MAX_STREAMS], left_s) for node in nodes))
        at = {}
        for node, offers in zip(nodes, answers, strict=True):
            for offer in offers:
                if offer.operator is not None and offer.operator.signature not in signatures and number > near:
                    continue
                found[offer.stream] = HostedStream(node, offer)
                for reader in offer.readers:
                    if reader.component not in asked and not is_sink(reader.component):
                        at.setdefault(reader.node, set()).add(reader.component)
    return RunningOperators(found)


async def _ask(context: Context, node: str, streams: list[str], timeout_s: float) -> list[StreamOffer]:
    """Return a node's offers; none where it does not answer: the query runs operators of its own then."""
    try:
        answer = await context.ask(node, AskStreams(streams=tuple(streams)), StreamOffers, timeout_s=timeout_s)
        offers: list[StreamOffer] = [decode_record(value, StreamOffer) for value in answer.offers]
    except (SbonError, ProtocolError) as error:
        context.counters.note("offers-missing", node=node, reason=str(error))
        return []
    own = [offer for offer in offers if offer.stream in streams]
    return [offer for offer in own if offer.operator is None or offer.operator.computation.id == offer.stream]


def _depth(plan: Plan) -> int:
    """Return the most operators on a path through the plan."""
    depths: dict[str, int] = {}
    for one in plan.operators:
        depths[one.id] = 1 + max((depths.get(read.stream, 0) for read in one.inputs), default=0)
    return max(depths.values(), default=0)
