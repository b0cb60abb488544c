"""What a sink is made from."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from sbon_node.blocking import Blocking
from sbon_node.clock import Clock
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.steps import Steps, unobserved


@dataclass(frozen=True, slots=True)
class SinkContext:
    """``part`` names the sink, ``schema`` its rows. ``claim`` is a word of chance that names one opening of one sink; what was
    made for it bears it. ``fresh``: it is opened for the first time, and goes on where an earlier run was else. Files may be kept
    under ``data_dir``."""

    part: str
    claim: str
    fresh: bool
    schema: pa.Schema
    data_dir: Path
    blocking: Blocking
    settings: ConnectorSettings = field(default_factory=ConnectorSettings)
    clock: Clock = field(default_factory=Clock)
    steps: Steps = unobserved
