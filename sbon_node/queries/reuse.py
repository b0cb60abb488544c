"""Reuse: a new query reads running operators of other queries in place of its own.

An operator of equal signature gives the rows of the query's own if it has begun where that would begin: its first frame is still
retained, and so are the first frames of all its sources. Such operators are found along the streams: the nodes of the sources
know who reads them, and the hosts of these readers know who reads these in turn.

Source: SBON (Pietzuch et al., ICDE 2006), section 3.4; docs/design.md, section 10.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import structlog
from msgspec.structs import replace

from sbon_node.errors import SbonError
from sbon_node.model.catalogue import is_source
from sbon_node.model.columns import Schema
from sbon_node.model.durability import STRENGTH, Durability
from sbon_node.model.objective import Bounds
from sbon_node.model.operators import PlannedInput
from sbon_node.model.plan import Plan, PlannedOperator, SharedOperator
from sbon_node.model.queries import QuerySpec
from sbon_node.model.query_ids import is_sink
from sbon_node.model.sharing import NEVER, OfferedOperator, StreamOffer
from sbon_node.queries.operator_registers import OperatorRegisters
from sbon_node.registers.states import Acceptor
from sbon_node.workflow.context import Context
from sbon_protocol.calls import DestroyComponents
from sbon_protocol.codec import decode_record
from sbon_protocol.errors import ProtocolError
from sbon_protocol.sharing import MAX_STREAMS, AskStreams, OperatorShared, ShareOperator, StreamOffers

log = structlog.get_logger()

MOST_ROUNDS = 16
"""Most rounds of questions: the longest path of operators that may be shared."""
MOST_NODES = 64
"""Most nodes that are asked in one round."""
FIRST = 1
"""The number of a stream's first frame."""


class Found(NamedTuple):
    """A stream, and the node that hosts it."""

    node: str
    offer: StreamOffer


class Offer(NamedTuple):
    """A running operator, and the node that hosts it."""

    id: str
    node: str
    operator: OfferedOperator


class Offers(NamedTuple):
    """The running operators that may be read in place of each operator of a plan, and the streams by which they were found."""

    by_operator: Mapping[str, list[Offer]]
    found: Mapping[str, Found]

    def of(self, operator: str) -> list[Offer]:
        return self.by_operator.get(operator, [])


class Reuse:
    """Finds operators to share for this node's new queries, and refers to them."""

    def __init__(self, context: Context, registers: OperatorRegisters) -> None:
        self._context, self._registers = context, registers

    async def shared(
        self, plan: Plan, spec: QuerySpec, consumer: str, durability: Durability, without: Collection[str] = ()
    ) -> Plan:
        """Return the plan with running operators in place of its own, where there are equal ones that may be read.

        ``without`` are operators that cannot be shared. Nothing is referred to yet.
        """
        offers = await self.offers(plan, spec, durability, without)
        chosen: dict[str, Offer] = {}
        for one in plan.operators:
            taken = {offer.id for offer in chosen.values()}  # Each of two equal branches needs rows of its own.
            if fitting := [offer for offer in offers.of(one.id) if offer.id not in taken]:
                chosen[one.id] = self._nearest(fitting, consumer)
        return with_shared(plan, chosen, offers.found) if chosen else plan

    async def offers(self, plan: Plan, spec: QuerySpec, durability: Durability, without: Collection[str] = ()) -> Offers:
        """Return the running operators that may be read in place of the plan's own, except ``without``.

        A query with bounds shares nothing: the delay up to a shared operator is not its own to decide.
        """
        if spec.reuse == NEVER or spec.bounds != Bounds():
            return Offers({}, {})
        signatures = frozenset(one.signature for one in plan.operators if one.signature)
        found = await self._walk(plan, signatures)
        offers: dict[str, list[Offer]] = {}
        for stream, (node, offer) in sorted(found.items()):
            operator = offer.operator
            if operator is None or stream in without or offer.earliest != FIRST or not _begins_first(stream, found):
                continue
            if STRENGTH[operator.durability] >= STRENGTH[durability]:
                offers.setdefault(operator.signature, []).append(Offer(stream, node, operator))
        fitting = {
            one.id: [offer for offer in offers.get(one.signature, ()) if _fits(one.schema, offer.operator.schema)]
            for one in plan.operators
        }
        return Offers(fitting, found)

    def _nearest(self, offers: list[Offer], consumer: str) -> Offer:
        """Return the offer whose node is nearest to the consumer, as far as known."""

        def latency_ms(offer: Offer) -> float:
            if offer.node == consumer:
                return 0.0
            one_way_ms = self._context.directory.estimate_rtt_ms(offer.node, consumer).one_way_ms
            return float("inf") if one_way_ms is None else one_way_ms

        return min(offers, key=lambda offer: (latency_ms(offer), offer.id))

    async def _walk(self, plan: Plan, signatures: Collection[str]) -> dict[str, Found]:
        """Ask from the sources on, as far as operators are equal to those of the plan."""
        found: dict[str, Found] = {}
        asked: set[str] = set()
        at: dict[str, set[str]] = {}
        for planned in plan.sources:
            at.setdefault(planned.source.node, set()).add(planned.source.id)
        for _ in range(MOST_ROUNDS):
            if not at:
                break
            asked.update(*at.values())
            nodes = sorted(at)[:MOST_NODES]
            answers = await asyncio.gather(*(self._ask(node, sorted(at[node])[:MAX_STREAMS]) for node in nodes))
            at = {}
            for node, offers in zip(nodes, answers, strict=True):
                for offer in offers:
                    if offer.operator is not None and offer.operator.signature not in signatures:
                        continue
                    found[offer.stream] = Found(node, offer)
                    for reader in offer.readers:
                        if reader.component not in asked and not is_sink(reader.component):
                            at.setdefault(reader.node, set()).add(reader.component)
        return found

    async def _ask(self, node: str, streams: list[str]) -> list[StreamOffer]:
        """Return a node's offers; none where it does not answer: the query runs operators of its own then."""
        call, timeout_s = AskStreams(streams=tuple(streams)), self._context.settings.component_timeout_s
        try:
            answer = await self._context.ask(node, call, StreamOffers, timeout_s=timeout_s)
            offers: list[StreamOffer] = [decode_record(value, StreamOffer) for value in answer.offers]
        except (SbonError, ProtocolError) as error:
            self._context.counters.note("offers-missing", node=node, reason=str(error))
            return []
        return [offer for offer in offers if offer.stream in streams]

    # -- references -----------------------------------------------------------------------------------------------------

    async def refer(self, plan: Plan, query: str, sink: str, acceptors: tuple[Acceptor, ...]) -> Plan:
        """Refer to the plan's shared operators, and have their frames kept; return the plan with their present hosts.

        Raises :class:`SbonError`, with the operator as ``where``, if one cannot be shared; nothing is referred to then.
        """
        tasks = [self._refer(one, query, plan.readers(one.id, sink), acceptors) for one in plan.shared]
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        failed = next((outcome for outcome in outcomes if isinstance(outcome, BaseException)), None)
        if failed is not None:
            await self.give_back(plan.shared, query)
            raise failed
        return replace(plan, shared=tuple(one for one in outcomes if isinstance(one, SharedOperator)))

    async def _refer(
        self, shared: SharedOperator, query: str, readers: tuple[str, ...], acceptors: tuple[Acceptor, ...]
    ) -> SharedOperator:
        try:
            register = await self._registers.refer(shared.id, query)
            call = ShareOperator(
                operator=shared.id,
                signature=shared.operator.signature,
                query=query,
                readers=readers,
                first=FIRST if readers else 0,
                acceptors=acceptors,
            )
            await self._context.ask(register.host, call, OperatorShared)
        except SbonError as error:
            raise SbonError(error.code, error.message, where=shared.id, hint=error.hint) from error
        return replace(shared, node=register.host)

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


def with_shared(plan: Plan, chosen: Mapping[str, Offer], found: Mapping[str, Found]) -> Plan:
    """Return the plan with ``chosen`` offers in place of its operators, by id.

    Operators that feed these alone go, and those that feed the chosen ones at their hosts are shared as well: they must not end
    before them. ``found`` has these.
    """
    by_id = {one.id: one for one in plan.operators}
    by_signature = {one.signature: one for one in plan.operators}
    needed: dict[str, None] = {}
    shared: dict[str, SharedOperator] = {}

    def need(stream: str) -> None:
        operator = by_id.get(stream)
        if operator is None:
            return
        if stream in chosen:
            keep(chosen[stream].id)
        elif stream not in needed:
            needed[stream] = None
            for read in operator.inputs:
                need(read.stream)

    def keep(stream: str) -> None:
        if is_source(stream) or stream in shared:
            return
        node, offer = found[stream]
        assert offer.operator is not None
        for read in offer.operator.inputs:
            keep(read)
        inputs = tuple(PlannedInput(stream=read, schema=()) for read in offer.operator.inputs)
        replaced = by_signature[offer.operator.signature]
        operator = replace(replaced, id=stream, inputs=inputs, schema=offer.operator.schema)
        shared[stream] = SharedOperator(operator=operator, node=node, queries=offer.operator.queries)

    for output in plan.outputs:
        need(output)
    renamed = {own: offer.id for own, offer in chosen.items()}
    return replace(
        plan,
        operators=tuple(_reading(one, chosen) for one in plan.operators if one.id in needed),
        shared=tuple(shared.values()),
        outputs=tuple(renamed.get(output, output) for output in plan.outputs),
    )


def _reading(operator: PlannedOperator, chosen: Mapping[str, Offer]) -> PlannedOperator:
    def read(one: PlannedInput) -> PlannedInput:
        offer = chosen.get(one.stream)
        if offer is None:
            return one
        names = [field.name for field in offer.operator.schema]
        return replace(one, stream=offer.id, by_position=names != [field.name for field in one.schema])

    return replace(operator, inputs=tuple(read(one) for one in operator.inputs))


def _begins_first(stream: str, found: Mapping[str, Found], readers: Collection[str] = ()) -> bool:
    """Return whether the sources behind a stream retain their first frames, so that whatever reads them has begun there.

    False as well if not all streams on the way are known, or if one is among its own ``readers``: peers may tell lies.
    """
    known = found.get(stream)
    if known is None or stream in readers:
        return False
    operator = known.offer.operator
    if operator is None:
        return is_source(stream) and known.offer.earliest == FIRST
    return all(_begins_first(read, found, (*readers, stream)) for read in operator.inputs)


def _fits(own: Schema, offered: Schema) -> bool:
    """Return whether the columns have equal types, in order: names do not count."""
    return [field.type for field in own] == [field.type for field in offered]
