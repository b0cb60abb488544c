"""Context from which a sink is made."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from sbon_node.clock import Clock
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.executors import Executor
from sbon_node.failpoints import Failpoints, unobserved


@dataclass(frozen=True, slots=True)
class SinkContext:
    """Name, schema and files of a sink.

    ``part`` names the sink, ``schema`` describes its rows. ``claim`` is a random word that identifies this opening of the sink;
    everything made for the sink carries it. ``fresh`` marks the first opening; otherwise the sink resumes an earlier run. The
    sink may keep files under ``data_dir``.
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
