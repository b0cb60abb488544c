"""Strategies by name. Each is an async function of problem, view and settings, the same for the daemon and experiments.

The SBON paper's strategies and our own are listed here; ``sbon_node/papers/table.py`` adds those of other papers.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from sbon_node.placement.strategies.hybrid.auto import Strategy as Strategy
from sbon_node.placement.strategies.hybrid.auto import auto
from sbon_node.placement.strategies.hybrid.hybrid import hybrid
from sbon_node.placement.strategies.sbon.baselines import consumer, ip_multicast, producer, random_choice
from sbon_node.placement.strategies.sbon.optimal import optimal
from sbon_node.placement.strategies.sbon.relaxation import relaxation
from sbon_protocol.api.strategies import AUTO as AUTO
from sbon_protocol.api.strategies import DEFAULT_STRATEGY as DEFAULT_STRATEGY
from sbon_protocol.api.strategies import STRATEGY_NAMES, check_strategy


class Profile(msgspec.Struct, frozen=True):
    """A strategy in words: its knowledge, its messages, how its queries adapt, and the loss if a node dies meanwhile."""

    knows: str
    sends: str
    adapts: str
    lost: str


NOTHING_SENT = "a probe to each host"
KNOWN = "the latencies between all nodes, as far as known, else by coordinates"
ENDS = "the query's ends and rates"
MEASURED, ROUTES = "coordinates, then measured latencies of candidates", "the routes between nodes"

BY_HOSTS = "local, or full: also placed again by the strategy"
NOT_FULL = "local; full places it again by chance, and moves only if that pays"
REFUSED = "a dead host refuses, and the query is placed again without it"


class Registered(NamedTuple):
    """A strategy and its profile."""

    place: Strategy
    profile: Profile


class Strategies(Mapping[str, Strategy]):
    """Strategies by name, in the order of ``STRATEGY_NAMES``; ``auto`` is none of them, but chooses one."""

    def __init__(self, *tables: Mapping[str, Registered]) -> None:
        """Join the tables. Raises ``ValueError`` unless each known name is in one of them, and no other name is."""
        registered = [(name, one) for table in tables for name, one in table.items()]
        if sorted(name for name, _ in registered) != sorted(STRATEGY_NAMES):
            raise ValueError("the registered strategies are not those of sbon_protocol.api.strategies.STRATEGY_NAMES")
        by_name = dict(registered)
        self._by_name = {name: by_name[name].place for name in STRATEGY_NAMES}
        self.profiles: Mapping[str, Profile] = {name: by_name[name].profile for name in STRATEGY_NAMES}
        """By name; ``auto`` has those of the strategy that it takes."""

    def __getitem__(self, name: str) -> Strategy:
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    def named(self, name: str, instead: Mapping[str, Strategy] = MappingProxyType({})) -> Strategy:
        """Return the strategy of that name; those ``instead`` take the place of others of their names, also for ``auto``.

        Raises :class:`SbonError` ``unknown-strategy``, which lists the known names.
        """
        check_strategy(name)
        known = {**self._by_name, **instead}
        return partial(auto, strategies=known) if name == AUTO else known[name]


OWN: Mapping[str, Registered] = {
    "relaxation": Registered(relaxation, Profile("coordinates", NOTHING_SENT, BY_HOSTS, REFUSED)),
    "hybrid": Registered(hybrid, Profile(MEASURED, "measurements, and a probe to each candidate", BY_HOSTS, REFUSED)),
    "optimal": Registered(optimal, Profile(KNOWN, NOTHING_SENT, BY_HOSTS, REFUSED)),
    "ip-multicast": Registered(ip_multicast, Profile(ROUTES, NOTHING_SENT, "never: daemons refuse it", REFUSED)),
    "producer": Registered(producer, Profile(ENDS, NOTHING_SENT, BY_HOSTS, REFUSED)),
    "consumer": Registered(consumer, Profile(ENDS, NOTHING_SENT, BY_HOSTS, REFUSED)),
    "random": Registered(random_choice, Profile("the names of the nodes", NOTHING_SENT, NOT_FULL, REFUSED)),
}
