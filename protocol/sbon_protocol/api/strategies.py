"""Names of strategies and objectives; ``sbon_node/papers/table.py`` has the strategies themselves."""

from __future__ import annotations

import difflib

from sbon_protocol.api.objective import Objective
from sbon_protocol.errors import SbonError

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
    near = difflib.get_close_matches(name, known, n=1)
    guess = f"did you mean {near[0]}? " if near else ""
    raise SbonError(
        "unknown-strategy", f"there is no strategy {name!r}", where="strategy", hint=f"{guess}there are {', '.join(known)}"
    )


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
