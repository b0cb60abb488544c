"""What has moved over links: the raw figures of the bill."""

from __future__ import annotations

import msgspec


class LinkCount(msgspec.Struct, frozen=True, kw_only=True):
    """What was sent to one subscriber, resent frames included; ``bytes`` are of payload.

    A subscription of a live source that fell too far behind has ``failed``, and ``dropped`` rows it will never get.
    """

    frames: int = 0
    rows: int = 0
    bytes: int = 0
    received: int = 0
    acknowledged: int = 0
    failed: str = ""
    dropped: int = 0


class StreamCount(msgspec.Struct, frozen=True, kw_only=True):
    """What a stream has made visible since its first frame, and its links by subscriber; ``bytes`` are of payload.

    ``dropped`` are the rows all failed subscriptions have lost, those of queries that are over included.
    """

    frames: int = 0
    rows: int = 0
    bytes: int = 0
    dropped: int = 0
    links: dict[str, LinkCount] = {}


class OutboxCount(msgspec.Struct, frozen=True, kw_only=True):
    """All streams of a node together. What was ``shown`` (made visible) and ``sent`` counts since the process started; the rest
    is as it is now: ``paused`` streams wait for their subscribers, who have yet to receive ``unreceived_bytes``."""

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


class SpillCount(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator's inputs have spilled to disk while they were held back, in all and at present; bytes as credits count."""

    frames: int = 0
    bytes: int = 0
    now_bytes: int = 0
