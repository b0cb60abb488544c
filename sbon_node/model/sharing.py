"""Reuse: what a host says of a running operator that other queries may read.

Source: SBON (Pietzuch et al., ICDE 2006), section 3.4.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from sbon_node.model.bounded import Counted
from sbon_node.model.columns import Schema
from sbon_node.model.durability import LOCAL, Durability

Reuse = Literal["auto", "never"]
"""Whether a query may read running operators of other queries in place of its own."""

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
    """An operator that runs at a host, as far as another query needs to know it; ``inputs`` are the streams that it reads.

    ``queries`` are the uids of those that it runs for.
    """

    signature: Annotated[str, Meta(max_length=64)]
    inputs: Annotated[tuple[Text, ...], Meta(max_length=4096)]
    schema: Schema
    durability: Durability = LOCAL
    queries: Annotated[tuple[Text, ...], Meta(max_length=MAX_REFERENCES)] = ()


class StreamOffer(msgspec.Struct, frozen=True, kw_only=True):
    """A stream at its host: its first retained frame, its readers, and the ``operator`` that makes it, None for a source.

    ``watermark_ms`` is that of its ``latest`` frame, None before the first.
    """

    stream: Text
    earliest: Counted
    latest: Counted = 0
    watermark_ms: int | None = None
    readers: Annotated[tuple[StreamReader, ...], Meta(max_length=MAX_READERS)] = ()
    operator: OfferedOperator | None = None
