"""SAND at a node, which may be the coordinator of zones of any query."""

from __future__ import annotations

from sbon_node.papers.interface import Paper
from sbon_node.papers.sand.service import ZoneCoordinators
from sbon_node.placement.settings import PlacementSettings
from sbon_node.workflow.context import Context


class Sand(Paper):
    """The coordinators of one node."""

    def __init__(self, context: Context, placement: PlacementSettings) -> None:
        self.coordinators = ZoneCoordinators(context, placement)
