"""Clusters for tests that watch running queries for a long virtual time: their rows share frames, so that few batches run."""

from __future__ import annotations

from functools import partial

import msgspec

from sbon_lab.simulation.cluster import CONFIG
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.overlay.space.settings import SpaceSettings
from tests.nodes import clusters

CALM = msgspec.structs.replace(CONFIG, connectors=ConnectorSettings(linger_s=0.5), space=SpaceSettings(algorithm="vivaldi"))
"""Ten times as many rows in a frame as by default, and the quicker algorithm for coordinates."""
in_calm_cluster = partial(clusters.in_cluster, config=CALM)
