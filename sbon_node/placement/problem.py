"""The placement problem and its answer, as data (SBON, section 2.1): strategies are functions from the one to the other."""

from __future__ import annotations

import msgspec

from sbon_node.engine.interface import Needs


class Edge(msgspec.Struct, frozen=True):
    """A stream between two vertices (ids of producers, operators or consumers) and what it carries."""

    source: str
    target: str
    rate_bytes_s: float


class Operator(msgspec.Struct, frozen=True, kw_only=True):
    """An unpinned vertex; ``refused`` are nodes that said no when asked to reserve."""

    id: str
    needs: Needs = Needs()
    refused: frozenset[str] = frozenset()


class PlacementProblem(msgspec.Struct, frozen=True, kw_only=True):
    """``pinned`` maps producers and consumers to their nodes; ``operators`` are in topological order."""

    pinned: dict[str, str]
    operators: tuple[Operator, ...]
    edges: tuple[Edge, ...]


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A node that was asked for one operator: its distance to the virtual place (ms, load included) and its answer."""

    node: str
    distance_ms: float
    accepted: bool
    reason: str = ""


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """Where one operator goes and why; ``virtual`` is its place in the latency dimensions, where the strategy has one."""

    operator: str
    node: str
    reason: str
    virtual: tuple[float, ...] = ()
    candidates: tuple[Candidate, ...] = ()


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """``usage`` is the predicted network usage, sum over edges of rate x one-way latency, in bytes in flight."""

    strategy: str
    assignments: tuple[Assignment, ...]
    usage: float
    questions: int = 0

    def hosts(self) -> dict[str, str]:
        return {a.operator: a.node for a in self.assignments}
