"""The goal of a query's placement: names of strategies, the objective that it minimises, and the bounds it keeps.

``sbon_node/papers/table.py`` has the strategies themselves.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from sbon_protocol.api.shown import Shown
from sbon_protocol.errors import SbonError, did_you_mean


class Objective(msgspec.Struct, frozen=True, kw_only=True):
    """The minimised objective: a weighted sum of usage, delay, bandwidth and queueing latency.

    The network usage is the bytes in transit. The delay is that of the longest path from a producer to a consumer (milliseconds).
    The bandwidth is the bytes a second that leave a node for another. The latency by queueing is that of the longest path with
    the queues and services of its nodes, and the longer waits of other queries' messages there (milliseconds).
    """

    usage: float = 1.0
    delay: float = 0.0
    bandwidth: float = 0.0
    latency: float = 0.0

    @property
    def additive(self) -> bool:
        """Whether it is a sum over links."""
        return self.delay == 0.0 and self.latency == 0.0


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of a placement; None for no bound.

    ``max_delay_ms`` limits the longest path from a producer to a consumer through the operators' hosts: one-way latencies, and
    the hosts' processing time for a row, if known (:func:`~sbon_node.placement.model.objective.processing_ms`).
    ``min_throughput_bytes_s`` is the bandwidth that each operator's host must have left, unless the operator's own rate is
    larger.
    """

    max_delay_ms: float | None = None
    min_throughput_bytes_s: float | None = None


AUTO = "auto"
"""Chooses another strategy by a rule: :mod:`~sbon_node.placement.strategies.hybrid.auto`."""

DEFAULT_STRATEGY = "hybrid"

STRATEGY_NAMES = (
    *("relaxation", "hybrid", "optimal", "ip-multicast", "producer", "consumer", "random", "opb", "min-delay", "bottom-up"),
    *("top-down", "ifcop", "local-search", "edge", "edge+", "in-network", "in-network+", "ants", "centralized"),
)
"""All but ``auto``."""

LOOKING_EVERYWHERE = ("optimal", "local-search", "centralized", "bottom-up", "top-down", "ifcop")
"""Strategies that always use the latencies between all nodes, and refuse too many (see ``latency_matrix.py``).

Some other strategies do so if few nodes have capacity."""

OBJECTIVES: dict[str, Objective] = {
    "usage": Objective(),
    "delay": Objective(usage=1e-9, delay=1.0),
    "bandwidth": Objective(usage=1e-9, bandwidth=1.0),
    "latency": Objective(usage=1e-9, latency=1.0),
}
"""Objectives by name; among otherwise equal placements the least network usage wins."""

MOST_WEIGHT = 1e12
"""Largest weight in an objective, so that costs stay finite."""


def check_strategy(name: str) -> None:
    """Raise :class:`SbonError` ``unknown-strategy``, which lists the known strategies."""
    known = (AUTO, *STRATEGY_NAMES)
    if name in known:
        return
    hint = f"{did_you_mean(name, known)} there are {', '.join(known)}".lstrip()
    raise SbonError("unknown-strategy", f"there is no strategy {name!r}", where="strategy", hint=hint)


def objective_named(name: str) -> Objective:
    """Return the objective of a name, or of weights such as ``usage=1,delay=50``; missing weights are 0.

    Raises :class:`SbonError` ``unknown-objective``.
    """
    if name in OBJECTIVES:
        return OBJECTIVES[name]
    weights: dict[str, float] = {}
    for term in name.split(","):
        key, given, weight = (word.strip() for word in term.partition("="))
        if key not in Objective.__struct_fields__ or not given:
            known = ", ".join(OBJECTIVES)
            raise _no_objective(f"there is no objective {term.strip()!r}", f"there are {known}, or weights of them")
        if key in weights:
            raise _no_objective(f"{key} has two weights", "give it one")
        try:
            weights[key] = float(weight)
        except ValueError:
            weights[key] = -1.0
        if not 0 <= weights[key] <= MOST_WEIGHT:
            raise _no_objective(f"{weight!r} is no weight of {key}", f"a weight is a number from 0 to {MOST_WEIGHT:g}")
    if not any(weights.values()):
        raise _no_objective(f"{name!r} minimises nothing", "give one of them a weight")
    return Objective(**{**dict.fromkeys(Objective.__struct_fields__, 0.0), **weights})


def _no_objective(message: str, hint: str) -> SbonError:
    return SbonError("unknown-objective", message, where="objective", hint=f"{hint}, such as usage=1,delay=50")


class Goal(Shown, frozen=True, kw_only=True):
    """Goal of a query, kept in its record for later placements.

    ``objective`` is a name or weights (:func:`objective_named`); the bounds are :class:`Bounds`.
    """

    strategy: str = DEFAULT_STRATEGY
    objective: Annotated[str, Meta(min_length=1, max_length=200)] = "usage"
    max_delay_ms: Annotated[float, Meta(gt=0, le=1e9)] | None = None
    min_throughput_bytes_s: Annotated[float, Meta(gt=0, le=1e15)] | None = None

    def check(self) -> None:
        """Raise :class:`~sbon_protocol.errors.SbonError` ``unknown-strategy`` or ``unknown-objective``."""
        check_strategy(self.strategy)
        objective_named(self.objective)

    def goal_options(self) -> dict[str, Any]:
        """Return these fields by name, for another type that has them too."""
        return {name: getattr(self, name) for name in Goal.__struct_fields__}

    @property
    def minimised(self) -> Objective:
        return objective_named(self.objective)

    @property
    def bounds(self) -> Bounds:
        return Bounds(max_delay_ms=self.max_delay_ms, min_throughput_bytes_s=self.min_throughput_bytes_s)
