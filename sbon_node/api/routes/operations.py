"""Routes for a node's operation: health, readiness, metrics, log levels, draining, and diagnosis."""

from __future__ import annotations

import structlog
from aiohttp import web

from sbon_node.api.routes.route import Asked, Plain, Route
from sbon_node.api.server.serving import SERVING, not_ready
from sbon_node.errors import SbonError
from sbon_node.logging.levels import LogLevels, levels, set_levels
from sbon_node.operations.debug_dump_types import DebugDump
from sbon_node.operations.examination import Examination
from sbon_node.operations.readiness import Readiness, Reason

log = structlog.get_logger()


async def healthz(asked: Plain) -> web.Response:
    """Whether the process answers."""
    return web.Response(text="ok\n")


async def readyz(asked: Plain) -> Readiness:
    """Whether the node can do its work, with reasons for restrictions. If it cannot, the worst reason is the problem, and its
    details list all.
    """
    found = _readiness(asked)
    if found.ready:
        return found
    worst = found.reasons[0]
    lines = tuple(f"{reason.code}: {reason.message}" for reason in found.reasons)
    raise SbonError(worst.code, worst.message, where="node", hint=worst.hint, details=lines)


def _readiness(asked: Plain) -> Readiness:
    state = asked.request.app[SERVING].state()
    if state == "ready":
        return asked.interface.operations.readiness()
    refusal = not_ready(state)
    reason = Reason(code=refusal.code, weight="unready", message=refusal.message, hint=refusal.hint)
    return Readiness(ready=False, reasons=(reason,))


async def metrics(asked: Plain) -> web.Response:
    """The metrics of the node, for Prometheus."""
    from sbon_node.api.routes.metrics import (  # most nodes are never scraped, and its library takes memory
        CONTENT_TYPE,
        Scrape,
        page,
    )

    serving = asked.request.app[SERVING]
    scrape = Scrape(
        asked.interface.operations.figures(),
        _readiness(asked),
        serving.requests.snapshot(),
        serving.requests.under_way,
        serving.connections(),
    )
    return web.Response(body=page(scrape), headers={"Content-Type": CONTENT_TYPE})


async def log_levels(asked: Plain) -> LogLevels:
    """Log levels: the general one, and those of modules and libraries."""
    return levels()


async def set_log_levels(asked: Asked[None, LogLevels]) -> LogLevels:
    """Changes log levels until the node's next start."""
    set_levels(asked.body)
    log.warning("log-levels-set", level=asked.body.level, loggers=asked.body.loggers)
    return levels()


async def debug(asked: Plain) -> DebugDump:
    """Configuration, tasks, the ends of the logs and versions, for a dump; secrets are hidden."""
    return await asked.interface.operations.debug_dump()


async def doctor(asked: Plain) -> Examination:
    """Examines the machine, the node, and its place among its peers, who are asked to reach back; takes some seconds."""
    return await asked.interface.operations.examine()


async def drain(asked: Plain) -> None:
    """Has the node take no part in queries any more, for good. Refused with ``node-in-use`` while anything lives on it."""
    asked.interface.operations.drain()


ROUTES = (
    Route("GET", "/healthz", healthz, always=True, media="text/plain"),
    Route("GET", "/readyz", readyz, always=True),
    Route("GET", "/metrics", metrics, media="text/plain"),
    Route("GET", "/v1/log", log_levels, always=True),
    Route("PUT", "/v1/log", set_log_levels, always=True, refusals=(404,)),
    Route("GET", "/v1/debug", debug, always=True),
    Route("POST", "/v1/doctor", doctor, refusals=(409,)),
    Route("POST", "/v1/drain", drain, uncut=True, refusals=(409,)),
)
