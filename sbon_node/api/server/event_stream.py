"""Server-sent events: a node's report, step by step, over one HTTP response (WHATWG HTML, section 9.2).

An event has its struct's tag as name and JSON as data. For rows its id is the reader's position in each stream: a reader that
comes back sends it as ``Last-Event-ID`` and continues from there.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import TypeVar

import msgspec
import structlog
from aiohttp import web

from sbon_node.api.encoding import decode, encode
from sbon_node.api.routes.route import EventStream
from sbon_protocol.api.delivery import Rows
from sbon_protocol.api.nodes import Problem
from sbon_protocol.errors import SbonError

log = structlog.get_logger()
Event = TypeVar("Event", bound=msgspec.Struct)

MAX_POSITION_BYTES = 16_384
REFUSAL_GRACE_S = 0.5
"""A rejection within these seconds becomes an HTTP status; a later rejection is the last event of the response."""


def position_of(text: str) -> dict[str, int]:
    """Return a follower's frames, numbers by stream as JSON: ``after``, else the ``Last-Event-ID`` of an earlier response."""
    if not text:
        return {}
    if len(text) > MAX_POSITION_BYTES:
        raise SbonError("bad-request", "the position is too long", where="after")
    try:
        position = decode(text.encode(), dict[str, int])
    except (SbonError, UnicodeEncodeError) as error:
        hint = 'frame numbers by stream, as JSON: {"stream": 7}'
        raise SbonError("bad-request", "the position cannot be read", where="after", hint=hint) from error
    if any(number < 0 for number in position.values()):
        raise SbonError("bad-request", "a position holds frame numbers, 0 for none", where="after")
    return position


async def stream_events(request: web.Request, stream: EventStream[Event], *, keepalive_s: float) -> web.StreamResponse:
    """Send all events; raise :class:`SbonError` if they are rejected at once.

    The iterator is closed in every case: the events over, the reader gone, the node stopping.
    """
    events, last_numbers = stream.events, dict(stream.position or {})
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
    step = _step(events)
    try:
        done, _ = await asyncio.wait({step}, timeout=min(REFUSAL_GRACE_S, keepalive_s))
        if done and (error := step.exception()) is not None:
            raise error
        await response.prepare(request)
        if stream.first is not None:
            await response.write(_frame(stream.first, last_numbers))
        while (event := await _outcome(step, response, keepalive_s)) is not None:
            await response.write(_frame(event, last_numbers))
            if isinstance(event, Problem):
                break
            step = _step(events)
        await response.write_eof()
    finally:
        await _close(step, events)
    return response


def _step(events: AsyncIterator[Event]) -> asyncio.Future[Event | None]:
    return asyncio.ensure_future(anext(events, None))


async def _outcome(
    step: asyncio.Future[Event | None], response: web.StreamResponse, keepalive_s: float
) -> Event | Problem | None:
    """Return the next event, or None after the last; send comments meanwhile to show that the connection lives."""
    while not step.done():
        done, _ = await asyncio.wait({step}, timeout=keepalive_s)
        if not done:
            await response.write(b": alive\n\n")
    try:
        return step.result()
    except SbonError as error:
        return Problem.of(error)
    except Exception as error:
        log.error("events-failed", exc_info=error)
        return Problem(code="internal", message="the node failed; its log gives the reason")


def _frame(event: msgspec.Struct, last_numbers: dict[str, int]) -> bytes:
    name = event.__struct_config__.tag
    head = f"event: {name}\n"
    if isinstance(event, Rows):
        last_numbers[event.stream] = event.number
        head += f"id: {msgspec.json.encode(last_numbers).decode()}\n"
    return head.encode() + b"data: " + encode(event) + b"\n\n"


async def _close(step: asyncio.Future[Event | None], events: AsyncIterator[Event]) -> None:
    step.cancel()
    await asyncio.wait({step})
    if not step.cancelled():
        step.exception()  # retrieved, so that the loop does not log it
    close = getattr(events, "aclose", None)
    if close is not None:
        await close()
