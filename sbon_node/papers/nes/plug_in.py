"""NES's strategies by name."""

from collections.abc import Mapping

from sbon_node.papers.nes.hierarchy import bottom_up, top_down
from sbon_node.papers.nes.ifcop import ifcop
from sbon_node.papers.nes.local_search import local_search
from sbon_node.placement.strategies.registry import BY_HOSTS, KNOWN, NOTHING_SENT, REFUSED, Profile, Registered

STRATEGIES: Mapping[str, Registered] = {
    "bottom-up": Registered(bottom_up, Profile("the hierarchy", NOTHING_SENT, BY_HOSTS, REFUSED)),
    "top-down": Registered(top_down, Profile("the hierarchy", NOTHING_SENT, BY_HOSTS, REFUSED)),
    "ifcop": Registered(ifcop, Profile("the hierarchy, latencies along it", NOTHING_SENT, BY_HOSTS, REFUSED)),
    "local-search": Registered(local_search, Profile(KNOWN, NOTHING_SENT, BY_HOSTS, REFUSED)),
}
