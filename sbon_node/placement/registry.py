"""The strategies by name: each an async function of problem, view and settings, the same for the daemon and experiments."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from sbon_node.placement.names import AUTO as AUTO
from sbon_node.placement.names import DEFAULT_STRATEGY as DEFAULT_STRATEGY
from sbon_node.placement.names import check_strategy
from sbon_node.placement.network_view import NetworkView
from sbon_node.placement.problem import Placement, PlacementProblem
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.strategies.ants.strategy import ants
from sbon_node.placement.strategies.auto import auto
from sbon_node.placement.strategies.bottom_up import bottom_up
from sbon_node.placement.strategies.centralized import centralized
from sbon_node.placement.strategies.consumer import consumer
from sbon_node.placement.strategies.edge import edge
from sbon_node.placement.strategies.edge_plus import edge_plus
from sbon_node.placement.strategies.hybrid import hybrid
from sbon_node.placement.strategies.ifcop import ifcop
from sbon_node.placement.strategies.in_network import in_network
from sbon_node.placement.strategies.in_network_plus import in_network_plus
from sbon_node.placement.strategies.ip_multicast import ip_multicast
from sbon_node.placement.strategies.local_search import local_search
from sbon_node.placement.strategies.min_delay import min_delay
from sbon_node.placement.strategies.opb import opb
from sbon_node.placement.strategies.optimal import optimal
from sbon_node.placement.strategies.producer import producer
from sbon_node.placement.strategies.random_choice import random_choice
from sbon_node.placement.strategies.relaxation import relaxation
from sbon_node.placement.strategies.top_down import top_down

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
