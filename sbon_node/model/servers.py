"""A node as a server of rows, as it reports itself to strategies that count with queues."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from sbon_node.model.bounded import PerSecond

MAX_FLOWS = 256


class ServedFlow(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of one operator: their rate, and the mean and squared coefficient of variation of the time that one takes."""

    rows_s: PerSecond
    row_ms: Annotated[float, Meta(ge=0, le=1e9)]
    row_scv: Annotated[float, Meta(ge=0, le=1e6)]


class ServerReport(msgspec.Struct, frozen=True, kw_only=True):
    """The flows that a node serves; all together make the load that its machine measures."""

    flows: Annotated[tuple[ServedFlow, ...], Meta(max_length=MAX_FLOWS)] = ()
