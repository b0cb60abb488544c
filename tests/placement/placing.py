"""Placement by a strategy's name, as a node places queries."""

from __future__ import annotations

from sbon_node.papers.table import STRATEGIES
from sbon_node.placement.model.network_view import NetworkView
from sbon_node.placement.model.problem import PlacementProblem
from sbon_node.placement.selection import bounds
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.strategies.registry import Strategy
from sbon_protocol.api.placement import Placement


async def place(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings, by: str | Strategy) -> Placement:
    return await bounds.place(problem, view, settings, STRATEGIES.named(by) if isinstance(by, str) else by)
