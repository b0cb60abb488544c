"""Reuse: what a host says of a running operator that other queries may read.

Source: SBON (Pietzuch et al., ICDE 2006), section 3.2.
"""

import hashlib
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from sbon_protocol.api.bounded import Counted
from sbon_protocol.api.columns import Schema
from sbon_protocol.api.durability import LOCAL, Durability
from sbon_protocol.api.operators import Computation
from sbon_protocol.api.plan import Rate

Reuse = Literal["auto", "equal", "never"]
"""Which running operators of other queries a query may read in place of its own: equal ones, also those that contain its rows,
or none.
"""

EQUAL: Final = "equal"

NEVER: Final = "never"

MAX_REFERENCES = 64
"""Most queries that refer to one operator, its own included."""
MAX_READERS = 64
"""Most readers of one stream in an answer."""
Text = Annotated[str, Meta(max_length=160)]


class StreamReader(msgspec.Struct, frozen=True, kw_only=True):
    """An operator or sink that reads a stream, and the node that it reads at."""

    component: Text
    node: Text


class OfferedOperator(msgspec.Struct, frozen=True, kw_only=True):
    """An operator that runs at a host, as far as another query needs to know it.

    ``queries`` are the uids of those that it runs for; ``rate`` is that of its rows, None before they are measured.
    """

    computation: Computation
    rate: Rate | None = None
    durability: Durability = LOCAL
    queries: Annotated[tuple[Text, ...], Meta(max_length=MAX_REFERENCES)] = ()

    @property
    def signature(self) -> str:
        return self.computation.signature

    @property
    def schema(self) -> Schema:
        return self.computation.schema

    @property
    def inputs(self) -> tuple[str, ...]:
        """Return the streams that it reads."""
        return tuple(read.stream for read in self.computation.inputs)

    @property
    def digest(self) -> str:
        """Return a digest of all on which rows and watermarks depend."""
        return digest_of(self.computation, self.durability)


def digest_of(computation: Computation, durability: Durability) -> str:
    """Return a digest of what an operator computes of which streams, with its signature and durability."""
    inputs = [(one.stream, one.schema, one.view, one.event_time, one.lag_ms, one.by_position) for one in computation.inputs]
    modes = (computation.on_error, computation.groups_per_batch, durability)
    parts = (computation.signature, computation.fragment, inputs, computation.schema, modes)
    return hashlib.sha256(msgspec.msgpack.encode(parts)).hexdigest()[:32]


class StreamOffer(msgspec.Struct, frozen=True, kw_only=True):
    """A stream at its host: its first retained frame, its readers, and the ``operator`` that makes it, None for a source.

    ``readers`` are operators alone, no sinks. ``watermark_ms`` is that of its ``latest`` frame, None before the first. A stream
    that has ``ended`` has no watermark; ``greatest_ms`` is the greatest event time of its rows, None if it is not known.
    """

    stream: Text
    earliest: Counted
    latest: Counted = 0
    watermark_ms: int | None = None
    readers: Annotated[tuple[StreamReader, ...], Meta(max_length=MAX_READERS)] = ()
    operator: OfferedOperator | None = None
    ended: bool = False
    greatest_ms: int | None = None
