"""Routes for a node's operation: health, readiness, metrics, log levels, draining, and diagnosis."""

from __future__ import annotations

import structlog
from aiohttp import web

from sbon_node.api.routes.bodies import DoctorQuery, DrainQuery
from sbon_node.api.routes.route import ApiCall, EventStream, Plain, Route
from sbon_node.api.server.serving import SERVING, not_ready
from sbon_node.base.logging.levels import LogLevels, levels, set_levels
from sbon_node.operations.examination import Examination
from sbon_protocol.api.moves import DrainStep, NodeDrained
from sbon_protocol.api.nodes import DebugDump, Readiness, Reason, Resources
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
    from sbon_node.api.routes.metrics import (  # most nodes are never scraped, and its library takes memory
        CONTENT_TYPE,
        Scrape,
        page,
    )

    serving = call.request.app[SERVING]
    scrape = Scrape(
        call.node.operations.metrics_snapshot(),
        _readiness(call),
        serving.requests.snapshot(),
        serving.requests.under_way,
        serving.connections(),
    )
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


ROUTES = (
    Route("GET", "/healthz", healthz, always=True, media="text/plain"),
    Route("GET", "/readyz", readyz, always=True),
    Route("GET", "/metrics", metrics, media="text/plain"),
    Route("GET", "/v1/log", log_levels, always=True),
    Route("PUT", "/v1/log", set_log_levels, always=True, refusals=(404,)),
    Route("GET", "/v1/debug", debug, always=True),
    Route("GET", "/v1/debug/resources", resources, always=True, refusals=(503,)),
    Route("POST", "/v1/doctor", doctor, refusals=(409,)),
    Route("POST", "/v1/drain", drain, refusals=(503,)),
)
