"""Routes about the node itself and the members it knows: health, metrics, log levels, events, draining, diagnosis."""

import asyncio
from collections.abc import AsyncGenerator, Collection
from typing import get_args

import structlog
from aiohttp import web

from sbon_node.api.routes.bodies import (
    DoctorQuery,
    DrainQuery,
    EventsQuery,
    JoinBody,
    LeaveQuery,
    MachineUsageQuery,
    MembersQuery,
)
from sbon_node.api.routes.route import ApiCall, EventStream, Plain, Route
from sbon_node.api.server.serving import SERVING, not_ready
from sbon_node.base.events import Bus, Kind, Level, NodeEvent
from sbon_node.base.logging.levels import LogLevels, levels, set_levels
from sbon_node.net.transport import Address
from sbon_node.operations.examination import Examination
from sbon_protocol.api.moves import DrainStep, NodeDrained
from sbon_protocol.api.nodes import (
    DebugDump,
    Joined,
    MachineUsagePoint,
    MemberInfo,
    NodeStatus,
    PairInfo,
    Readiness,
    Reason,
    Resources,
    RttRequest,
)
from sbon_protocol.errors import SbonError

log = structlog.get_logger()


async def healthz(call: Plain) -> web.Response:
    """Whether the process answers."""
    return web.Response(text="ok\n")


async def readyz(call: Plain) -> Readiness:
    """Whether the node can do its work, with reasons for restrictions. If it cannot, the worst reason is the problem, and its
    details list all.
    """
    readiness = _readiness(call)
    if readiness.ready:
        return readiness
    worst = readiness.reasons[0]
    lines = tuple(f"{reason.code}: {reason.message}" for reason in readiness.reasons)
    raise SbonError(worst.code, worst.message, where="node", hint=worst.hint, details=lines)


def _readiness(call: Plain) -> Readiness:
    state = call.request.app[SERVING].state()
    if state == "ready":
        return call.node.operations.readiness()
    refusal = not_ready(state)
    reason = Reason(code=refusal.code, weight="unready", message=refusal.message, hint=refusal.hint)
    return Readiness(ready=False, reasons=(reason,))


async def metrics(call: Plain) -> web.Response:
    """The metrics of the node, for Prometheus."""
    # Most nodes are never scraped, and its library takes memory.
    from sbon_node.api.routes.metrics import CONTENT_TYPE, Scrape, page

    serving, snapshot = call.request.app[SERVING], call.node.operations.metrics_snapshot()
    requests, connections = serving.requests, serving.connections()
    scrape = Scrape(snapshot, _readiness(call), requests.snapshot(), requests.under_way, connections)
    return web.Response(body=page(scrape), headers={"Content-Type": CONTENT_TYPE})


async def log_levels(call: Plain) -> LogLevels:
    """Log levels: the general one, and those of modules and libraries."""
    return levels()


async def set_log_levels(call: ApiCall[None, LogLevels]) -> LogLevels:
    """Changes log levels until the node's next start."""
    set_levels(call.body)
    log.warning("log-levels-set", level=call.body.level, loggers=call.body.loggers)
    return levels()


async def debug(call: Plain) -> DebugDump:
    """Configuration, tasks, the ends of the logs and versions, for a dump; secrets are hidden."""
    return await call.node.operations.debug_dump()


async def resources(call: Plain) -> Resources:
    """Memory of each process of the node, and parts of its disk: streams, checkpoints and others, the largest first."""
    return await call.node.operations.resources()


async def doctor(call: ApiCall[DoctorQuery, None]) -> Examination:
    """Examines the machine, the node, and its place among its peers, who are asked to reach back; takes some seconds."""
    return await call.node.operations.examine(everywhere=call.query.all)


def drain(call: ApiCall[DrainQuery, None]) -> EventStream[DrainStep | NodeDrained]:
    """Has the node take no part in queries any more, for good: it moves its operators to other nodes, and leaves unless
    something cannot move. Sends each step, and at last the end.
    """
    return EventStream(call.node.operations.drain(dry_run=call.query.dry_run))


KINDS: tuple[Kind, ...] = get_args(Kind)
LEVEL_WORDS: tuple[Level, ...] = get_args(Level)


def kinds_of(text: str) -> tuple[Kind, ...]:
    """Parse kinds such as ``membership,logs``; empty means all. Raises :class:`SbonError` ``bad-request``."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    unknown = [word for word in words if word not in KINDS]
    if unknown:
        hint = f"known: {', '.join(KINDS)}"
        raise SbonError("bad-request", f"there are no events of kind {unknown[0]!r}", where="kinds", hint=hint)
    return tuple(kind for kind in KINDS if not words or kind in words)


def level_of(text: str) -> Level:
    """Raises :class:`SbonError` ``bad-request``."""
    for level in LEVEL_WORDS:
        if level == text:
            return level
    raise SbonError("bad-request", f"there is no level {text!r}", where="level", hint=f"known: {', '.join(LEVEL_WORDS)}")


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


async def status(call: Plain) -> NodeStatus:
    """The node call: engine, operators, coordinate, counters."""
    return call.node.operations.status()


async def usage(call: ApiCall[MachineUsageQuery, None]) -> list[MachineUsagePoint]:
    """Processor and memory of the node asked and of its engine: the newest points, the oldest first."""
    return call.node.operations.usage.points(call.query.after_ms)


async def members(call: ApiCall[MembersQuery, None]) -> list[MemberInfo]:
    """Every node as the one asked sees it, by name; or by distance from one of them."""
    return call.node.operations.distances.members(call.query.near, call.query.within_ms)


async def rtt(call: ApiCall[None, RttRequest]) -> list[PairInfo]:
    """Round-trip times between nodes, measured where that is wanted."""
    return await call.node.operations.distances.rtt(call.body)


async def join(call: ApiCall[None, JoinBody]) -> Joined:
    """Joins the cluster of the nodes at these addresses."""
    return Joined(
        members=await call.node.membership.join([Address.parse(text, field="addresses") for text in call.body.addresses])
    )


async def leave(call: ApiCall[LeaveQuery, None]) -> None:
    """Leaves for good; then the node stops. Refused with ``node-in-use`` while queries need it, unless forced."""
    await call.node.adaptation.leaving.leave_and_stop(force=call.query.force)


ROUTES = (
    Route("GET", "/v1/status", status),
    Route("GET", "/v1/usage", usage),
    Route("GET", "/v1/members", members, refusals=(404,)),
    Route("POST", "/v1/rtt", rtt, refusals=(404,)),
    Route("POST", "/v1/join", join, uncut=True),
    Route("POST", "/v1/leave", leave, uncut=True, refusals=(409,)),
    Route("GET", "/healthz", healthz, always=True, media="text/plain"),
    Route("GET", "/readyz", readyz, always=True),
    Route("GET", "/metrics", metrics, media="text/plain"),
    Route("GET", "/v1/log", log_levels, always=True),
    Route("PUT", "/v1/log", set_log_levels, always=True, refusals=(404,)),
    Route("GET", "/v1/debug", debug, always=True),
    Route("GET", "/v1/debug/resources", resources, always=True, refusals=(503,)),
    Route("POST", "/v1/doctor", doctor, refusals=(409,)),
    Route("POST", "/v1/drain", drain, refusals=(503,)),
    Route("GET", "/v1/events", events),
)
