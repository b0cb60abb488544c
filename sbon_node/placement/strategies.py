"""The strategies by name: each an async function of problem, view and settings, the same for the daemon and experiments."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from sbon_node.placement.ants.strategy import ants
from sbon_node.placement.auto import auto
from sbon_node.placement.bottom_up import bottom_up
from sbon_node.placement.centralized import centralized
from sbon_node.placement.consumer import consumer
from sbon_node.placement.edge import edge
from sbon_node.placement.edge_plus import edge_plus
from sbon_node.placement.hybrid import hybrid
from sbon_node.placement.ifcop import ifcop
from sbon_node.placement.in_network import in_network
from sbon_node.placement.in_network_plus import in_network_plus
from sbon_node.placement.ip_multicast import ip_multicast
from sbon_node.placement.local_search import local_search
from sbon_node.placement.min_delay import min_delay
from sbon_node.placement.names import AUTO as AUTO
from sbon_node.placement.names import DEFAULT_STRATEGY as DEFAULT_STRATEGY
from sbon_node.placement.names import check_strategy
from sbon_node.placement.network_view import NetworkView
from sbon_node.placement.opb import opb
from sbon_node.placement.optimal import optimal
from sbon_node.placement.problem import Placement, PlacementProblem
from sbon_node.placement.producer import producer
from sbon_node.placement.random_choice import random_choice
from sbon_node.placement.relaxation import relaxation
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.top_down import top_down

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
    """Raises :class:`SbonError` ``unknown-strategy`` that lists the known ones."""
    check_strategy(name)
    return auto if name == AUTO else STRATEGIES[name]
