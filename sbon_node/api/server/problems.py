"""The HTTP statuses of the user's errors, by their codes."""

_CODES = {
    403: "not-the-reader forbidden-user forbidden-host forbidden-origin outside-roots outside-endpoints",
    405: "method-not-allowed",
    408: "post-too-slow body-too-slow",
    409: "node-drained already-there move-cancelled move-committed move-superseded move-under-way not-movable "
    "already-followed not-followable query-over not-retained too-many-sinks record-lost",
    410: "stream-dropped",
    413: "too-large",
    415: "unsupported-format not-json",
    421: "source-elsewhere",
    422: "planning-too-long planning-too-large planner-lost key-reused",
    429: "too-many-measurements too-many-requests too-many-plans source-busy",
    500: "internal",
    503: "no-capacity delay-bound throughput-bound zone-failed zones-busy no-majority ballot-exhausted peer-unreachable "
    "unreachable node-away not-aligned not-level not-settled copy-stalled data-dir low-disk not-stored "
    "too-many-connections starting stopping planner-busy source-behind source-paused post-unknown source-stopped",
    504: "timeout",
    507: "disk-full",
}
_STATUS = {code: status for status, codes in _CODES.items() for code in codes.split()}
RETRY_AFTER_S = {"source-behind": 5, "source-paused": 5}
"""Seconds to wait before repeating a temporarily rejected request, where more than 1."""
_BY_END = {
    "-unknown": 404,
    "-not-found": 404,
    "-taken": 409,
    "-exists": 409,
    "-in-use": 409,
    "-unreachable": 503,
    "-too-large": 413,
}


def status_of(code: str) -> int:
    """Return the HTTP status of an error's code; 400 by default."""
    if code in _STATUS:
        return _STATUS[code]
    if code.startswith(("unknown-", "no-such-")):
        return 404
    by_end = (status for end, status in _BY_END.items() if code.endswith(end))
    return next(by_end, 503 if code.startswith("engine-") else 400)
