"""``GET /v1/events``: what happens at the node, as it happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection
from typing import get_args

from sbon_node.api.routes.bodies import EventsQuery
from sbon_node.api.routes.route import ApiCall, EventStream, Route
from sbon_node.base.events import Bus, Kind, Level, NodeEvent
from sbon_protocol.errors import SbonError

KINDS: tuple[Kind, ...] = get_args(Kind)
LEVEL_WORDS: tuple[Level, ...] = get_args(Level)


def kinds_of(text: str) -> tuple[Kind, ...]:
    """Parse kinds such as ``membership,logs``; empty means all. Raises :class:`SbonError` ``bad-request``."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    unknown = [word for word in words if word not in KINDS]
    if unknown:
        raise SbonError("bad-request", f"there are no events of kind {unknown[0]!r}", where="kinds", hint=_one_of(KINDS))
    return tuple(kind for kind in KINDS if not words or kind in words)


def level_of(text: str) -> Level:
    """Raises :class:`SbonError` ``bad-request``."""
    for level in LEVEL_WORDS:
        if level == text:
            return level
    raise SbonError("bad-request", f"there is no level {text!r}", where="level", hint=_one_of(LEVEL_WORDS))


def events(call: ApiCall[EventsQuery, None]) -> EventStream[NodeEvent]:
    """Streams events of the node from now on, without end; before them the last kept events, on request."""
    kinds, level = kinds_of(call.query.kinds), level_of(call.query.level)
    return EventStream(node_events(call.node.bus, kinds, level, call.settings.event_queue, call.query.past))


async def node_events(bus: Bus, kinds: Collection[Kind], level: Level, limit: int, past: int = 0) -> AsyncGenerator[NodeEvent]:
    """The last ``past`` that are kept, then every event from now on, until the generator is closed; at most ``limit`` wait."""
    woken = asyncio.Event()
    listener = bus.listen(kinds, level=level, limit=limit, wake=woken.set, past=past)
    try:
        while True:
            while (event := listener.take()) is not None:
                yield event
            woken.clear()
            await woken.wait()
    finally:
        bus.forget(listener)


def _one_of(words: Collection[str]) -> str:
    return f"known: {', '.join(words)}"


ROUTES = (Route("GET", "/v1/events", events),)
