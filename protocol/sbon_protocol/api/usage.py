"""Network usage of a query, by link and over time, and the raw counts of traffic that it is made of."""

import msgspec

from sbon_protocol.api.shown import Shown


class LinkUsage(Shown, frozen=True, kw_only=True):
    stream: str
    source_node: str
    target_node: str
    bytes: int
    latency_ms: float | None
    byte_ms: float | None
    """This query's part of the cost; None, as ``latency_ms``, if the latency is unknown."""
    queries: int = 1
    """Queries that share the reader, and divide the cost of the link."""


class QueryUsagePoint(Shown, frozen=True, kw_only=True):
    """Sums of network usage at ``at_ms``, by the clock of the query's leader, and the query's progress then.

    Progress is None if it was unknown.
    """

    at_ms: int
    byte_ms: float
    baseline_byte_ms: float
    rows_in: int | None = None
    """Rows that its operators had read from sources."""
    rows_out: int | None = None
    """Rows that its sink had delivered."""
    lag_ms: int | None = None
    """Lag of the slowest operator behind the newest source below it, in event time."""
    batch_ms: float | None = None
    """Longest time per batch among its operators."""
    held_back: int | None = None
    """Number of operators that waited for their readers, or for their other inputs."""


class QueryUsage(Shown, frozen=True, kw_only=True):
    """Network usage of a query against the consumer baseline; the sums are of known values.

    ``history`` are its sums so far, oldest first, since the query began or its leader started: dense for recent times.
    Differences between points, over the time between them, are network usage in bytes.
    """

    query: str
    strategy: str
    links: tuple[LinkUsage, ...]
    baseline: tuple[LinkUsage, ...]
    byte_ms: float
    baseline_byte_ms: float
    skipped: int = 0
    """Rows that its operators have skipped because of an expression's error."""
    at_ms: int = 0
    """Time of its computation, by the same clock as its history."""
    now: QueryUsagePoint | None = None
    """Its current values as a point of its history."""
    history: tuple[QueryUsagePoint, ...] = ()


class LinkCount(msgspec.Struct, frozen=True, kw_only=True):
    """Traffic to a subscriber, resent frames included; ``bytes`` are payload bytes.

    A subscription of a live source that fell too far behind has ``failed``, and lost ``dropped`` rows for good. ``frames_behind``
    are visible and not acknowledged, with ``bytes_behind`` as credits count; only the stream's host knows them.
    """

    frames: int = 0
    rows: int = 0
    bytes: int = 0
    saved_bytes: int = 0
    """Bytes of these that other subscribers bear, as one payload was sent for all."""
    received: int = 0
    acknowledged: int = 0
    failed: str = ""
    dropped: int = 0
    frames_behind: int = 0
    bytes_behind: int = 0


class StreamCount(msgspec.Struct, frozen=True, kw_only=True):
    """Visible output of a stream since its first frame, and its links by subscriber; ``bytes`` are payload bytes.

    ``dropped`` are the lost rows of all failed subscriptions, including those of queries that are over.
    """

    frames: int = 0
    rows: int = 0
    bytes: int = 0
    dropped: int = 0
    links: dict[str, LinkCount] = {}


class OutboxCount(msgspec.Struct, frozen=True, kw_only=True):
    """Totals of all streams of a node.

    ``shown`` (made visible) and ``sent`` count since the process started; the others are current: ``paused`` streams wait for
    their subscribers, which have yet to receive ``unreceived_bytes``.
    """

    shown_frames: int = 0
    shown_rows: int = 0
    shown_bytes: int = 0
    sent_frames: int = 0
    sent_rows: int = 0
    sent_bytes: int = 0
    sources: int = 0
    operators: int = 0
    paused: int = 0
    unreceived_bytes: int = 0
    subscriptions: int = 0
    failed_subscriptions: int = 0


class OutboxBytes(msgspec.Struct, frozen=True, kw_only=True):
    """Parts of the outbox's file: bytes of each stream's frames, as credits count, and of pages that new frames will reuse."""

    streams: dict[str, int]
    free_bytes: int


class SpillCount(Shown, frozen=True, kw_only=True):
    """Data that an operator's inputs spilled to disk while held back, in total and now; bytes as credits count."""

    frames: int = 0
    bytes: int = 0
    now_bytes: int = 0
