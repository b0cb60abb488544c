"""OPB's strategies by name."""

from collections.abc import Mapping

from sbon_node.papers.opb.opb import min_delay, opb
from sbon_node.placement.strategies.registry import BY_HOSTS, REFUSED, Profile, Registered

FREE, MEASURED = "free cores of discovered nodes, measured links", "discoveries, and measurements of each pass"
KNOWN, IF_BOUNDED = "free cores of discovered nodes, latencies", "discoveries; measurements if the delay is bounded"

STRATEGIES: Mapping[str, Registered] = {
    "opb": Registered(opb, Profile(FREE, MEASURED, BY_HOSTS, REFUSED)),
    "min-delay": Registered(min_delay, Profile(KNOWN, IF_BOUNDED, BY_HOSTS, REFUSED)),
}
