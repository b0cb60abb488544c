"""The strategies by name. Each is an async function of problem, view and settings, the same for the daemon and experiments."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from sbon_node.placement.model.network_view import NetworkView
from sbon_node.placement.model.problem import PlacementProblem
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.strategies.ants.centralized import centralized
from sbon_node.placement.strategies.ants.strategy import ants
from sbon_node.placement.strategies.hybrid.auto import auto
from sbon_node.placement.strategies.hybrid.hybrid import hybrid
from sbon_node.placement.strategies.nes.bottom_up import bottom_up
from sbon_node.placement.strategies.nes.ifcop import ifcop
from sbon_node.placement.strategies.nes.local_search import local_search
from sbon_node.placement.strategies.nes.top_down import top_down
from sbon_node.placement.strategies.opb.min_delay import min_delay
from sbon_node.placement.strategies.opb.opb import opb
from sbon_node.placement.strategies.sand.edge import edge
from sbon_node.placement.strategies.sand.edge_plus import edge_plus
from sbon_node.placement.strategies.sand.in_network import in_network
from sbon_node.placement.strategies.sand.in_network_plus import in_network_plus
from sbon_node.placement.strategies.sbon.consumer import consumer
from sbon_node.placement.strategies.sbon.ip_multicast import ip_multicast
from sbon_node.placement.strategies.sbon.optimal import optimal
from sbon_node.placement.strategies.sbon.producer import producer
from sbon_node.placement.strategies.sbon.random_choice import random_choice
from sbon_node.placement.strategies.sbon.relaxation import relaxation
from sbon_protocol.api.placement import Placement
from sbon_protocol.api.strategies import AUTO as AUTO
from sbon_protocol.api.strategies import DEFAULT_STRATEGY as DEFAULT_STRATEGY
from sbon_protocol.api.strategies import check_strategy

Strategy = Callable[[PlacementProblem, NetworkView, PlacementSettings], Awaitable[Placement]]

STRATEGIES: dict[str, Strategy] = {
    "relaxation": relaxation,
    "hybrid": hybrid,
    "optimal": optimal,
    "ip-multicast": ip_multicast,
    "producer": producer,
    "consumer": consumer,
    "random": random_choice,
    "opb": opb,
    "min-delay": min_delay,
    "bottom-up": bottom_up,
    "top-down": top_down,
    "ifcop": ifcop,
    "local-search": local_search,
    "edge": edge,
    "edge+": edge_plus,
    "in-network": in_network,
    "in-network+": in_network_plus,
    "ants": ants,
    "centralized": centralized,
}


def strategy_named(name: str) -> Strategy:
    """Return the strategy of that name. Raises :class:`SbonError` ``unknown-strategy``, which lists the known names."""
    check_strategy(name)
    return auto if name == AUTO else STRATEGIES[name]
