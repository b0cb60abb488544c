"""Sinks of queries: where their rows go, and how far they are."""

from __future__ import annotations

from typing import Any

import msgspec

from .shown import Shown

FOLLOW = "follow"
"""The sink whose rows a follower reads; any other sink delivers by itself."""


class SinkSpec(Shown, frozen=True, kw_only=True):
    """A sink with its options (docs/connectors.md): ``SinkSpec(kind="file", options={"path": "/srv/rows.csv"})``.

    With ``failover``, another node takes the sink over if its node is lost.
    """

    kind: str = FOLLOW
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    failover: bool = False
    claim: str = ""
    """Set by the node, and not shown."""


class SinkReport(Shown, frozen=True, kw_only=True):
    state: str
    rows: int | None = 0
    refused: int = 0
    dead_letters: str = ""
    retries: int = 0


class SinkRequest(Shown, frozen=True, kw_only=True):
    """A further sink for a query that runs. It begins with the ``earliest`` row, or ``now``; by default with the earliest if no
    row is gone.
    """

    sink: SinkSpec
    consumer: str = ""
    begin: str = ""
    temporary: bool = False


class SinkInfo(Shown, frozen=True, kw_only=True):
    """A further sink of a query at ``node``, which does not get the first ``begins_after`` rows."""

    id: str
    node: str
    sink: SinkSpec
    state: str
    reason: str = ""
    begins_after: int = 0
    rows: int | None = None
    temporary: bool = False
    delivery: SinkReport | None = None
