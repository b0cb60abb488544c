"""Names of strategies and objectives, for those who only name them: strategies themselves are in ``strategies.py``."""

from __future__ import annotations

import difflib

from sbon_node.errors import SbonError
from sbon_node.placement.problem import Objective

AUTO = "auto"
"""Takes one of the others, by a rule: :mod:`~sbon_node.placement.strategies.auto`."""

DEFAULT_STRATEGY = "hybrid"

STRATEGY_NAMES = (
    *("relaxation", "hybrid", "optimal", "ip-multicast", "producer", "consumer", "random", "opb", "min-delay", "bottom-up"),
    *("top-down", "ifcop", "local-search", "edge", "edge+", "in-network", "in-network+", "ants", "centralized"),
)
"""All but ``auto``."""

LOOKING_EVERYWHERE = ("optimal", "local-search", "centralized", "bottom-up", "top-down", "ifcop")
"""Those that always reckon with the ways between all nodes, and refuse where these are too many (see ``all_pairs.py``); some
others come to that where few nodes have room."""

OBJECTIVES: dict[str, Objective] = {
    "usage": Objective(),
    "delay": Objective(usage=1e-9, delay=1.0),
    "bandwidth": Objective(usage=1e-9, bandwidth=1.0),
    "latency": Objective(usage=1e-9, latency=1.0),
}
"""By name; of placements equal in all else the one that uses the network less is the better."""


MOST_WEIGHT = 1e12
"""Of a part of the objective: with it costs are numbers still."""


def check_strategy(name: str) -> None:
    """Raises :class:`SbonError` ``unknown-strategy`` that lists the known ones."""
    known = (AUTO, *STRATEGY_NAMES)
    if name in known:
        return
    near = difflib.get_close_matches(name, known, n=1)
    guess = f"did you mean {near[0]}? " if near else ""
    raise SbonError(
        "unknown-strategy", f"there is no strategy {name!r}", where="strategy", hint=f"{guess}there are {', '.join(known)}"
    )


def objective_named(name: str) -> Objective:
    """A name, or weights such as ``usage=1,delay=50``; what has none does not count.

    Raises :class:`SbonError` ``unknown-objective``.
    """
    if name in OBJECTIVES:
        return OBJECTIVES[name]
    weights: dict[str, float] = {}
    for part in name.split(","):
        key, given, weight = (word.strip() for word in part.partition("="))
        if key not in Objective.__struct_fields__ or not given:
            known = ", ".join(OBJECTIVES)
            raise _no_objective(f"there is no objective {part.strip()!r}", f"there are {known}, or weights of them")
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
