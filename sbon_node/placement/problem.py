"""The placement problem and its answer, as data (SBON, section 2.1): strategies are functions from the one to the other."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from sbon_node.engine.interface import Needs
from sbon_node.placement.service import Service


class Edge(msgspec.Struct, frozen=True):
    """A stream between two vertices (ids of producers, operators or consumers) and what it carries; 0 rows where these are not
    counted."""

    source: str
    target: str
    rate_bytes_s: float
    rows_s: float = 0.0


class Operator(msgspec.Struct, frozen=True, kw_only=True):
    """An unpinned vertex; ``refused`` are nodes that said no when asked to reserve; ``rows_s`` come in, and each takes a
    core for ``row_core_ms`` on average, with a squared coefficient of variation of ``row_scv``; 0 where that is not known."""

    id: str
    needs: Needs = Needs()
    refused: frozenset[str] = frozenset()
    rows_s: float = 0.0
    row_core_ms: float = 0.0
    row_scv: float = 1.0

    @property
    def load(self) -> float:
        """Cores it keeps busy."""
        return self.rows_s * self.row_core_ms / 1000.0

    @property
    def service(self) -> Service:
        """Of a row, for the queueing model."""
        return Service(mean_ms=self.row_core_ms, scv=self.row_scv)


class Objective(msgspec.Struct, frozen=True, kw_only=True):
    """What is minimised: a weighted sum of the network usage (bytes in flight), the delay of the longest way from a producer to a
    consumer (milliseconds), the bytes a second that leave one node for another, and the latency by queueing: of the longest way
    with queues and services of its nodes, and what other queries' messages wait longer there (milliseconds)."""

    usage: float = 1.0
    delay: float = 0.0
    bandwidth: float = 0.0
    latency: float = 0.0

    @property
    def additive(self) -> bool:
        """Whether it is a sum over links."""
        return self.delay == 0.0 and self.latency == 0.0


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """What a placement must keep to; None where nothing is asked.

    ``max_delay_ms`` is of the longest way from a producer to a consumer through the operators' hosts: one-way latencies, and the
    time hosts take for a row, where it is known what that is (:func:`~sbon_node.placement.objective.processing_ms`);
    ``min_throughput_bytes_s`` is what each operator's host must have left to send, where the operator's own rate is less.
    """

    max_delay_ms: float | None = None
    min_throughput_bytes_s: float | None = None


class PlacementProblem(msgspec.Struct, frozen=True, kw_only=True):
    """``pinned`` maps producers and consumers to their nodes; ``operators`` are in topological order."""

    pinned: dict[str, str]
    operators: tuple[Operator, ...]
    edges: tuple[Edge, ...]
    objective: Objective = Objective()
    bounds: Bounds = Bounds()

    def __post_init__(self) -> None:
        """A bound on throughput is a need of every operator that would do with less, so that every strategy keeps to it."""
        least = self.bounds.min_throughput_bytes_s
        if least is not None:
            raised = tuple(_sending(operator, least) for operator in self.operators)
            msgspec.structs.force_setattr(self, "operators", raised)

    def selectivity(self, operator: str) -> float:
        """Bytes out, to its busiest reader, for a byte in; 0 where nothing comes in."""
        read = sum(edge.rate_bytes_s for edge in self.edges if edge.target == operator)
        sent = max((edge.rate_bytes_s for edge in self.edges if edge.source == operator), default=0.0)
        return sent / read if read else 0.0


def _sending(operator: Operator, least_bytes_s: float) -> Operator:
    bandwidth_bytes_s = max(operator.needs.bandwidth_bytes_s, least_bytes_s)
    needs = msgspec.structs.replace(operator.needs, bandwidth_bytes_s=bandwidth_bytes_s)
    return msgspec.structs.replace(operator, needs=needs)


def total(needs: Sequence[Needs]) -> Needs:
    """What several operators need of one host."""
    return Needs(
        cores=sum(one.cores for one in needs),
        memory_mb=sum(one.memory_mb for one in needs),
        bandwidth_bytes_s=sum(one.bandwidth_bytes_s for one in needs),
    )


def least(needs: Sequence[Needs]) -> Needs:
    """What each of several operators needs at least."""
    return Needs(
        cores=min(one.cores for one in needs),
        memory_mb=min(one.memory_mb for one in needs),
        bandwidth_bytes_s=min(one.bandwidth_bytes_s for one in needs),
    )


def has_room(needs: Sequence[Needs], free: Needs) -> bool:
    """Whether all of them fit together."""
    whole = total(needs)
    pairs = ((whole.cores, free.cores), (whole.memory_mb, free.memory_mb), (whole.bandwidth_bytes_s, free.bandwidth_bytes_s))
    return all(need <= has + 1e-9 for need, has in pairs)


def in_order(problem: PlacementProblem) -> Sequence[str]:
    """Vertices, each after all it reads from."""
    operators = [operator.id for operator in problem.operators]
    sources = {edge.source for edge in problem.edges}
    producers = [vertex for vertex in problem.pinned if vertex in sources]
    return [*producers, *operators, *(vertex for vertex in problem.pinned if vertex not in sources)]


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A node that was considered for one operator: its distance to the virtual place (ms, load included) and its answer.

    ``accepted`` unless it was asked for room and refused. ``predicted`` and ``measured`` are the least cost of the whole query
    with the operator there, by estimated latencies and by those that were measured; None where a strategy reckons with neither.
    """

    node: str
    distance_ms: float
    accepted: bool
    reason: str = ""
    predicted: float | None = None
    measured: float | None = None


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """Where one operator goes and why; ``virtual`` is its place in the latency dimensions, where the strategy has one."""

    operator: str
    node: str
    reason: str
    virtual: tuple[float, ...] = ()
    candidates: tuple[Candidate, ...] = ()


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """``usage`` is the predicted network usage, sum over edges of rate x one-way latency, in bytes in flight; ``delay_ms`` the
    predicted longest way from a producer to a consumer; ``questions`` counts nodes asked and pairs measured.

    ``predicted`` is the usage by what was estimated before anything was measured for this placement, None where nothing was.
    ``discoveries`` counts searches for nodes with room.
    ``reason`` says why this strategy was taken, where the user left that open.
    """

    strategy: str
    assignments: tuple[Assignment, ...]
    usage: float
    questions: int = 0
    delay_ms: float = 0.0
    predicted: float | None = None
    discoveries: int = 0
    reason: str = ""

    def hosts(self) -> dict[str, str]:
        return {a.operator: a.node for a in self.assignments}
