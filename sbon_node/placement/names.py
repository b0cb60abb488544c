"""Names of strategies and objectives, for those who only name them: strategies themselves are in ``strategies.py``."""

from __future__ import annotations

import difflib

from sbon_node.errors import SbonError
from sbon_node.placement.problem import Objective

AUTO = "auto"
"""Takes one of the others, by a rule: :mod:`~sbon_node.placement.auto`."""

DEFAULT_STRATEGY = "hybrid"

STRATEGY_NAMES = (
    *("relaxation", "hybrid", "optimal", "ip-multicast", "producer", "consumer", "random", "opb", "min-delay", "bottom-up"),
    *("top-down", "ifcop", "local-search", "edge", "edge+", "in-network", "in-network+", "ants", "centralized"),
)
"""All but ``auto``."""

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
    """A name, or weights such as ``usage=1,delay=50``. Raises :class:`SbonError` ``unknown-objective``."""
    if name in OBJECTIVES:
        return OBJECTIVES[name]
    weights: dict[str, float] = dict.fromkeys(Objective.__struct_fields__, 0.0)
    for part in name.split(","):
        key, _, weight = part.partition("=")
        try:
            value = float(weight)
        except ValueError:
            value = -1.0
        if key.strip() not in weights or not 0 <= value <= MOST_WEIGHT:
            hint = f"there are {', '.join(OBJECTIVES)}, or weights such as usage=1,delay=50"
            raise SbonError("unknown-objective", f"there is no objective {name!r}", where="objective", hint=hint)
        weights[key.strip()] = value
    if not any(weights.values()):
        hint = "give one of them a weight"
        raise SbonError("unknown-objective", f"{name!r} minimises nothing", where="objective", hint=hint)
    return Objective(**weights)
