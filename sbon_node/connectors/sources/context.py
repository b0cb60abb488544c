"""Context from which a source is made."""

from dataclasses import dataclass

import pyarrow as pa

from sbon_node.base.clock import Clock
from sbon_node.connectors.settings import ConnectorSettings
from sbon_protocol.api.catalogue import SourceDeclaration, StreamDeclaration


@dataclass(frozen=True, slots=True)
class SourceContext:
    """Inputs of a source: its declarations, the stream's Arrow schema, the settings, and the node's clock."""

    declaration: SourceDeclaration
    stream: StreamDeclaration
    schema: pa.Schema
    settings: ConnectorSettings
    clock: Clock
