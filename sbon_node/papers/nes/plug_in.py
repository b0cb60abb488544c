"""NES's strategies by name."""

from __future__ import annotations

from collections.abc import Mapping

from sbon_node.papers.nes.bottom_up import bottom_up
from sbon_node.papers.nes.ifcop import ifcop
from sbon_node.papers.nes.local_search import local_search
from sbon_node.papers.nes.top_down import top_down
from sbon_node.placement.strategies.profiles import BY_HOSTS, KNOWN, NOTHING_SENT, REFUSED, Profile
from sbon_node.placement.strategies.registry import Registered

STRATEGIES: Mapping[str, Registered] = {
    "bottom-up": Registered(bottom_up, Profile("the hierarchy", NOTHING_SENT, BY_HOSTS, REFUSED)),
    "top-down": Registered(top_down, Profile("the hierarchy", NOTHING_SENT, BY_HOSTS, REFUSED)),
    "ifcop": Registered(ifcop, Profile("the hierarchy, latencies along it", NOTHING_SENT, BY_HOSTS, REFUSED)),
    "local-search": Registered(local_search, Profile(KNOWN, NOTHING_SENT, BY_HOSTS, REFUSED)),
}
