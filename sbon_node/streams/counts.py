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


class SpillCount(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator's inputs have spilled to disk while they were held back, in all and at present; bytes as credits count."""

    frames: int = 0
    bytes: int = 0
    now_bytes: int = 0
