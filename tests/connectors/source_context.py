"""The context of a source that a test makes itself."""

from __future__ import annotations

import pyarrow as pa

from sbon_node.base.clock import Clock
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sources.context import SourceContext
from sbon_protocol.api.catalogue import SourceDeclaration, StreamDeclaration


def context_of(
    schema: pa.Schema, settings: ConnectorSettings | None = None, clock: Clock | None = None, event_time: str = "ts"
) -> SourceContext:
    """Return the context of a source ``one`` that expects 1,000 rows a second."""
    declaration = SourceDeclaration(stream="s", name="one", node="a", connector="test", options={}, rows_s=1e3)
    stream = StreamDeclaration(name="s", schema=(), event_time=event_time)
    return SourceContext(declaration, stream, schema, settings or ConnectorSettings(), clock or Clock())
