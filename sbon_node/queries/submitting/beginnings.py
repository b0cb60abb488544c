"""Where a query from now on begins: after all that its sources have when they are asked.

A source's watermark is its greatest event time less the stream's delay, so both of its newest frame are known at once. Rows of
later frames may be earlier than that, and do not count: the rows of the query are those whose event times are later. Of a source
that has ended the last frame is read once more, which says so; none of its rows count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from sbon_node.connectors.sources.event_time import LAST_MS
from sbon_node.context import Context
from sbon_node.ownership.catalogue import Catalogue
from sbon_protocol.api.plan import Plan, PlannedSource
from sbon_protocol.api.sharing import StreamOffer
from sbon_protocol.calls import AskStreams, StreamOffers
from sbon_protocol.codec import decode_record
from sbon_protocol.errors import SbonError

RESULT = "query"
"""The connector of results of queries, whose watermark says nothing of the rows that they have had."""


class Beginning(NamedTuple):
    """The earliest event time that counts, None for any, and the last frame of each source, by id, that is not read."""

    since_ms: int | None
    starts: Mapping[str, int]


async def beginning_now(context: Context, catalogue: Catalogue, plan: Plan) -> Beginning:
    """Ask the nodes of the plan's sources for their newest frames; raise :class:`SbonError` if one does not answer."""
    offers = await asyncio.gather(*(_ask(context, planned) for planned in plan.sources))
    times, starts = list[int](), dict[str, int]()
    for planned, offer in zip(plan.sources, offers, strict=True):
        source = planned.source
        if offer.watermark_ms is not None:
            times.append(offer.watermark_ms + catalogue.entry(source.stream).declaration.delay_ms)
        if offer.greatest_ms is not None:
            times.append(offer.greatest_ms)
        if source.connector != RESULT:
            starts[source.id] = max(0, offer.latest - offer.ended)
    if not times and any(offer.ended for offer in offers):
        times = [LAST_MS]
    return Beginning(min(max(times) + 1, LAST_MS) if times else None, starts)


async def _ask(context: Context, planned: PlannedSource) -> StreamOffer:
    source = planned.source
    answer = await context.ask(source.node, AskStreams(streams=(source.id,)), StreamOffers)
    offers: list[StreamOffer] = [decode_record(value, StreamOffer) for value in answer.offers]
    found = next((offer for offer in offers if offer.stream == source.id), None)
    if found is None:
        reason = f"{source.node} does not run {source.stream}/{source.name} yet"
        raise SbonError("source-starting", reason, where="begin", hint="try again in a moment")
    return found
