"""The papers that a node is built with. The core is given them, and imports none."""

from sbon_node.context import Context
from sbon_node.hosting.operators.room import Room
from sbon_node.papers.ants import plug_in as ants
from sbon_node.papers.ants.settings import AntSettings
from sbon_node.papers.interface import Paper
from sbon_node.papers.nes import plug_in as nes
from sbon_node.papers.opb import plug_in as opb
from sbon_node.papers.sand import plug_in as sand
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.strategies.registry import OWN, Strategies

STRATEGIES = Strategies(OWN, opb.STRATEGIES, nes.STRATEGIES, sand.STRATEGIES, ants.STRATEGIES)
"""All strategies but ``auto``."""


def papers_at(context: Context, room: Room, placement: PlacementSettings, walking: AntSettings) -> tuple[Paper, ...]:
    """Return the papers that do more at a node than their strategies, of which none runs yet."""
    return sand.Sand(context, placement), ants.Ants(context, room, placement, walking)
