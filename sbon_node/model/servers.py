"""A node as a server of rows, as it reports itself to strategies that count with queues."""

from typing import Annotated

import msgspec
from msgspec import Meta

from sbon_protocol.api.bounded import PerSecond

MAX_FLOWS = 256
LEAST_SPEED, MOST_SPEED = 0.01, 100.0
"""Bounds of a server's speed: a wrong number makes no time infinite, and no work free."""


class ServedFlow(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of one operator: their rate, and mean and squared coefficient of variation of the time of one at speed 1."""

    rows_s: PerSecond
    row_ms: Annotated[float, Meta(ge=0, le=1e9)]
    row_scv: Annotated[float, Meta(ge=0, le=1e6)]


class ServerReport(msgspec.Struct, frozen=True, kw_only=True):
    """The speed of a node's cores, and the flows that it serves; all together make the load that its machine measures.

    ``other_load`` is that load where no operator has measured its rows: it belongs to other programs, as far as is known.
    """

    speed: Annotated[float, Meta(ge=LEAST_SPEED, le=MOST_SPEED)] = 1.0
    other_load: Annotated[float, Meta(ge=0, le=1)] = 0.0
    flows: Annotated[tuple[ServedFlow, ...], Meta(max_length=MAX_FLOWS)] = ()
