"""OPB's strategies by name."""

from __future__ import annotations

from collections.abc import Mapping

from sbon_node.papers.opb.min_delay import min_delay
from sbon_node.papers.opb.opb import opb
from sbon_node.placement.strategies.profiles import BY_HOSTS, REFUSED, Profile
from sbon_node.placement.strategies.registry import Registered

STRATEGIES: Mapping[str, Registered] = {
    "opb": Registered(
        opb,
        Profile(
            "free cores of discovered nodes, measured links", "discoveries, and measurements of each pass", BY_HOSTS, REFUSED
        ),
    ),
    "min-delay": Registered(
        min_delay,
        Profile(
            "free cores of discovered nodes, latencies", "discoveries; measurements if the delay is bounded", BY_HOSTS, REFUSED
        ),
    ),
}
