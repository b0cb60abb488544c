"""Context from which a sink is made."""

from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from sbon_node.base.clock import Clock
from sbon_node.base.executors import Executor
from sbon_node.base.failpoints import Failpoints, unobserved
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sinks.delivery_position import DeliveryPosition
from sbon_node.connectors.sinks.results import ResultStreams
from sbon_protocol.api.columns import Schema
from sbon_protocol.api.query_ids import uid_of


@dataclass(frozen=True, slots=True)
class SinkContext:
    """Name, schema and files of a sink.

    ``component`` names the sink, ``schema`` describes its rows. ``claim`` is a word that identifies the sink; everything made
    for it carries it. ``fresh`` marks the first opening; otherwise the sink resumes an earlier run. The sink may keep files under
    ``data_dir``. ``epoch`` grows with each start of the sink and each node that takes it over. ``acknowledged`` is given to a
    sink that was taken over from another node: how far this node knows it to have delivered at least. ``inputs`` are the streams
    that it reads, and ``columns`` their schema; ``results`` makes streams of the catalogue.
    """

    component: str
    claim: str
    fresh: bool
    schema: pa.Schema
    data_dir: Path
    executor: Executor
    settings: ConnectorSettings = field(default_factory=ConnectorSettings)
    clock: Clock = field(default_factory=Clock)
    failpoint: Failpoints = unobserved
    epoch: int = 1
    acknowledged: DeliveryPosition | None = None
    inputs: tuple[str, ...] = ()
    columns: Schema = ()
    results: ResultStreams | None = None

    @property
    def query(self) -> str:
        """Return the uid of the sink's query."""
        return uid_of(self.component)
