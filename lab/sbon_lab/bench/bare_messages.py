"""Messages between the benchmark and bare Spark, beside those of :mod:`sbon_node.engine.spark.messages`."""

from typing import Literal

import msgspec

from sbon_node.engine.spark.messages import Close, Fetch, Message, Poll, Spent, Stop


class StartQuery(Message, frozen=True):
    """Start a query over inputs with the given DDL; ``event_time`` is empty for one without state."""

    operator: str
    reader: Literal["simple", "partitioned"]
    schemas: tuple[str, ...]
    fragment: str
    event_time: str
    wait_s: float


class RowsOut(Message, frozen=True):
    """A batch has so many rows, at this time of the monotonic clock."""

    operator: str
    rows: int
    at_s: float


class QueryFailed(Message, frozen=True):
    operator: str
    reason: str


BareCommand = StartQuery | Stop | Close
BareRequest = Poll | Fetch | Spent | RowsOut | QueryFailed

COMMAND: msgspec.msgpack.Decoder[BareCommand] = msgspec.msgpack.Decoder(BareCommand)
REQUEST: msgspec.msgpack.Decoder[BareRequest] = msgspec.msgpack.Decoder(BareRequest)
