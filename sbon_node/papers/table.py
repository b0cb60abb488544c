"""The papers that a node is built with. The core is given them, and imports none."""

from __future__ import annotations

from sbon_node.placement.strategies.ants import plug_in as ants
from sbon_node.placement.strategies.nes import plug_in as nes
from sbon_node.placement.strategies.opb import plug_in as opb
from sbon_node.placement.strategies.registry import OWN, Strategies
from sbon_node.placement.strategies.sand import plug_in as sand

STRATEGIES = Strategies(OWN, opb.STRATEGIES, nes.STRATEGIES, sand.STRATEGIES, ants.STRATEGIES)
"""All strategies but ``auto``."""
