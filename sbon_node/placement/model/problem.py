"""The placement problem and its answer, as data (SBON, section 2). A strategy maps a problem to a placement."""

from collections.abc import Callable, Iterable, Sequence

import msgspec
from msgspec.structs import replace

from sbon_protocol.api.adaptation import OFF, Adapt
from sbon_protocol.api.operators import Needs
from sbon_protocol.api.strategies import Bounds, Objective


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """Service time of a message on a processor of speed 1: its mean ``mean_ms``, and squared coefficient of variation ``scv``."""

    mean_ms: float = 0.0
    scv: float = 1.0


class Edge(msgspec.Struct, frozen=True):
    """A stream between two vertices, ids of producers, operators or consumers; 0 rows where these are not counted."""

    source: str
    target: str
    rate_bytes_s: float
    rows_s: float = 0.0


class Operator(msgspec.Struct, frozen=True, kw_only=True):
    """An unpinned vertex of the problem.

    ``refused`` are nodes that refused to reserve capacity for it. ``rows_s`` rows per second come in. Each takes a core for
    ``row_core_ms`` on average, with a squared coefficient of variation of ``row_scv``; 0 where that is unknown.
    """

    id: str
    needs: Needs = Needs()
    refused: frozenset[str] = frozenset()
    rows_s: float = 0.0
    row_core_ms: float = 0.0
    row_scv: float = 1.0

    @property
    def load(self) -> float:
        """Cores that the operator keeps busy."""
        return self.rows_s * self.row_core_ms / 1000.0

    @property
    def service(self) -> Service:
        """Service time of a row, for the queueing model."""
        return Service(mean_ms=self.row_core_ms, scv=self.row_scv)


class PlacementProblem(msgspec.Struct, frozen=True, kw_only=True):
    """A query to place. ``pinned`` maps producers and consumers to their nodes; ``operators`` are in topological order."""

    pinned: dict[str, str]
    operators: tuple[Operator, ...]
    edges: tuple[Edge, ...]
    objective: Objective = Objective()
    bounds: Bounds = Bounds()
    adapt: Adapt = OFF
    """How the running query will be adapted; only ``auto`` asks."""

    def __post_init__(self) -> None:
        """Raise each operator's bandwidth to the bound on throughput, so that every strategy keeps it."""
        least = self.bounds.min_throughput_bytes_s
        if least is not None:
            raised = []
            for one in self.operators:
                bandwidth_bytes_s = max(one.needs.bandwidth_bytes_s, least)
                raised.append(replace(one, needs=replace(one.needs, bandwidth_bytes_s=bandwidth_bytes_s)))
            msgspec.structs.force_setattr(self, "operators", tuple(raised))

    def selectivity(self, operator: str) -> float:
        """Return the bytes sent to the busiest reader for each byte read; 0 without input."""
        read = sum(edge.rate_bytes_s for edge in self.edges if edge.target == operator)
        sent = max((edge.rate_bytes_s for edge in self.edges if edge.source == operator), default=0.0)
        return sent / read if read else 0.0


def total(needs: Sequence[Needs]) -> Needs:
    """Return what several operators need of one host together."""
    return _of_each(sum, needs)


def least(needs: Sequence[Needs]) -> Needs:
    """Return the least of each resource that the operators need."""
    return _of_each(min, needs)


def _of_each(united: Callable[[Iterable[float]], float], needs: Sequence[Needs]) -> Needs:
    return Needs(**{name: united(getattr(need, name) for need in needs) for name in Needs.__struct_fields__})


def has_capacity(needs: Sequence[Needs], free: Needs) -> bool:
    """Return whether all operators fit together."""
    needed = total(needs)
    return all(need <= has + 1e-9 for need, has in zip(needed.amounts, free.amounts, strict=True))


def in_order(problem: PlacementProblem) -> Sequence[str]:
    """Return all vertices, each after those it reads."""
    operators = [operator.id for operator in problem.operators]
    sources = {edge.source for edge in problem.edges}
    producers = [vertex for vertex in problem.pinned if vertex in sources]
    return [*producers, *operators, *(vertex for vertex in problem.pinned if vertex not in sources)]
