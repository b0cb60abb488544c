"""Streams of the catalogue that are results of queries, as their sinks see them."""

from typing import Annotated, Protocol

import msgspec
import pyarrow as pa
from msgspec import Meta

from sbon_node.connectors.sources.result import ResultSource
from sbon_protocol.api.columns import Schema

STREAM = "stream"
"""The kind of sink."""
STREAM_NAME = r"^[a-z][a-z0-9_]{0,62}$"


class StreamSinkOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the sink ``stream``. The node that takes the submission sets ``event_time``: a column of the result."""

    stream: Annotated[str, Meta(pattern=STREAM_NAME)]
    """lower case letters, digits and _ are allowed, at most 63, a letter first"""
    event_time: Annotated[str, Meta(max_length=256)] = ""
    """set by the node"""


class ResultStreams(Protocol):
    """The streams of the catalogue that are results of queries, at this node."""

    async def make(self, query: str, options: StreamSinkOptions, schema: Schema) -> None:
        """Declare the stream, with the query's sink as its source; raise ``stream-exists`` and others."""
        ...

    async def source(self, query: str, stream: str, schema: Schema) -> ResultSource:
        """Return the source once it is open. Raises ``sink-lost`` if the stream was dropped, or is another one."""
        ...

    async def drop(self, query: str, stream: str, schema: Schema) -> None:
        """Drop the stream, if it is that query's; of another one of that name, take the query's source away."""
        ...

    def end(self, query: str, stream: str, schema: pa.Schema) -> None:
        """End the stream, of that schema, as failed, if it is that query's and is not whole."""
        ...
