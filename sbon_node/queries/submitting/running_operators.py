"""Running operators of other queries that a new one may read: found along the streams, from the sources of its plan on."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import NamedTuple

from sbon_node.context import Context
from sbon_node.model.running_computation import MAX_OFFERED_INPUTS, RunningComputation
from sbon_protocol.api.catalogue import is_source
from sbon_protocol.api.durability import STRENGTH, Durability
from sbon_protocol.api.plan import Plan
from sbon_protocol.api.query_ids import is_sink
from sbon_protocol.api.sharing import OfferedOperator, StreamOffer
from sbon_protocol.calls import MAX_STREAMS, AskStreams, StreamOffers
from sbon_protocol.codec import decode_record
from sbon_protocol.errors import ProtocolError, SbonError

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
            if from_now or (known.offer.earliest == FIRST and self._begins_first(stream, begins)):
                running.append(ReadableOperator(stream, known.node, operator, known.offer.latest if from_now else 0))
        return running

    def _begins_first(self, stream: str, known: dict[str, bool], depth: int = 0) -> bool:
        """Return whether the sources behind a stream retain their first frames, so that whatever reads them has begun there.

        False as well if not all streams on the way are known, or if one is among its own readers: peers may tell lies.
        """
        if stream in known or depth > MOST_ROUNDS:
            return known.get(stream, False)
        known[stream] = False
        of = self.streams.get(stream)
        if of is not None and of.offer.operator is None:
            known[stream] = is_source(stream) and of.offer.earliest == FIRST
        elif of is not None and of.offer.operator is not None:
            known[stream] = all(self._begins_first(read, known, depth + 1) for read in of.offer.operator.inputs)
        return known[stream]

    def whole(self) -> set[str]:
        """Return the streams behind which all operators are known, and none is among its own readers."""
        known: dict[str, bool] = {}
        return {stream for stream in self.streams if self._is_whole(stream, known)}

    def _is_whole(self, stream: str, known: dict[str, bool], depth: int = 0) -> bool:
        if is_source(stream):
            return True
        if stream in known or depth > MOST_ROUNDS:
            return known.get(stream, False)
        known[stream] = False
        of = self.streams.get(stream)
        if of is not None and of.offer.operator is not None:
            known[stream] = all(self._is_whole(read, known, depth + 1) for read in of.offer.operator.inputs)
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
    return [offer for offer in offers if offer.stream in streams and _names_itself(offer)]


def _names_itself(offer: StreamOffer) -> bool:
    return offer.operator is None or offer.operator.computation.id == offer.stream


def _depth(plan: Plan) -> int:
    """Return the most operators on a path through the plan."""
    depths: dict[str, int] = {}
    for one in plan.operators:
        depths[one.id] = 1 + max((depths.get(read.stream, 0) for read in one.inputs), default=0)
    return max(depths.values(), default=0)
