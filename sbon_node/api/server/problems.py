"""Errors over HTTP: the user's error as JSON, with the status of its code."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from sbon_protocol.errors import SbonError


class Problem(msgspec.Struct, frozen=True, kw_only=True, tag="problem", tag_field="event"):
    """An :class:`SbonError` as it travels; on an event stream it is the last event."""

    code: str
    message: str
    where: str = ""
    hint: str = ""
    details: tuple[str, ...] = ()

    @classmethod
    def of(cls, error: SbonError) -> Problem:
        return cls(code=error.code, message=error.message, where=error.where, hint=error.hint, details=error.details)

    def error(self) -> SbonError:
        return SbonError(self.code, self.message, where=self.where, hint=self.hint, details=self.details)


class _Rule(NamedTuple):
    prefix: str
    suffix: str
    status: int


_STATUS = {
    "no-capacity": 503,
    "delay-bound": 503,
    "throughput-bound": 503,
    "zone-failed": 503,
    "zones-busy": 503,
    "no-majority": 503,
    "ballot-exhausted": 503,
    "peer-unreachable": 503,
    "unreachable": 503,
    "node-away": 503,
    "not-the-reader": 403,
    "node-drained": 409,
    "already-there": 409,
    "move-cancelled": 409,
    "move-committed": 409,
    "move-superseded": 409,
    "move-under-way": 409,
    "not-movable": 409,
    "not-aligned": 503,
    "not-level": 503,
    "not-settled": 503,
    "copy-stalled": 503,
    "data-dir": 503,
    "low-disk": 503,
    "not-stored": 503,
    "timeout": 504,
    "forbidden-user": 403,
    "too-many-connections": 503,
    "starting": 503,
    "stopping": 503,
    "too-large": 413,
    "too-many-measurements": 429,
    "too-many-requests": 429,
    "too-many-plans": 429,
    "planner-busy": 503,
    "planning-too-long": 422,
    "planning-too-large": 422,
    "planner-lost": 422,
    "source-busy": 429,
    "source-behind": 503,
    "source-paused": 503,
    "post-unknown": 503,
    "source-stopped": 503,
    "source-elsewhere": 421,
    "key-reused": 422,
    "post-too-slow": 408,
    "body-too-slow": 408,
    "unsupported-format": 415,
    "forbidden-host": 403,
    "forbidden-origin": 403,
    "outside-roots": 403,
    "outside-endpoints": 403,
    "already-followed": 409,
    "not-followable": 409,
    "query-over": 409,
    "not-retained": 409,
    "too-many-sinks": 409,
    "record-lost": 409,
    "stream-dropped": 410,
    "disk-full": 507,
    "internal": 500,
    "method-not-allowed": 405,
    "not-json": 415,
}
RETRY_AFTER_S = {"source-behind": 5, "source-paused": 5}
"""Seconds to wait before repeating a temporarily rejected request, where more than 1."""
_RULES = (
    _Rule("unknown-", "", 404),
    _Rule("no-such-", "", 404),
    _Rule("", "-unknown", 404),
    _Rule("", "-not-found", 404),
    _Rule("", "-taken", 409),
    _Rule("", "-exists", 409),
    _Rule("", "-in-use", 409),
    _Rule("", "-unreachable", 503),
    _Rule("", "-too-large", 413),
    _Rule("engine-", "", 503),
)


def status_of(code: str) -> int:
    """Return the HTTP status of an error's code; 400 by default."""
    if code in _STATUS:
        return _STATUS[code]
    return next((r.status for r in _RULES if code.startswith(r.prefix) and code.endswith(r.suffix)), 400)
