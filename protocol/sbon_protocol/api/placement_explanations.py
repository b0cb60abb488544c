"""Data of an explained placement: alternatives, their costs, and the latencies that decide."""

from __future__ import annotations

from sbon_protocol.api.goal import Goal
from sbon_protocol.api.operators import Needs
from sbon_protocol.api.shown import Shown


class WeighedNode(Shown, frozen=True, kw_only=True):
    """A node that could host an operator.

    ``predicted`` and ``measured`` are the least cost of the whole query with the operator there and all others at their best
    nodes: by coordinates alone, and by all knowledge; None if the node cannot host it.
    """

    node: str
    distance_ms: float | None = None
    """Distance to the operator's virtual coordinate, height and load included; None if either has no coordinate."""
    predicted: float | None = None
    measured: float | None = None
    delay_ms: float | None = None
    """Delay of that placement, by all knowledge."""
    free: Needs | None = None
    """Free capacity, which includes the capacity held by the explained query if it runs; None if the node did not report it."""
    lost: str = ""
    """Why it was not chosen; empty if it was."""


class WeighedOperator(Shown, frozen=True, kw_only=True):
    """Weighed nodes of an operator: ``candidates`` are sorted by ``measured``, with impossible nodes last."""

    id: str
    node: str
    """The current or proposed host; empty if the strategy placed nothing."""
    now: str
    """The node that the strategy would choose now."""
    reason: str = ""
    virtual: tuple[float, ...] = ()
    """Virtual coordinate in the latency dimensions (ms): the strategy's, else the query's geometric median."""
    needs: Needs
    candidates: tuple[WeighedNode, ...] = ()


class WeighedLink(Shown, frozen=True, kw_only=True):
    """A link of the placement.

    ``known`` is the source of its one-way latency: ``self``, ``probes``, ``measured``, ``coordinates`` or ``unknown``; ``age_s``
    is the age of the measurement, or of the older coordinate. ``rate_measured`` is false for an estimated rate.
    """

    source: str
    target: str
    source_node: str
    target_node: str
    rate_bytes_s: float
    latency_ms: float | None
    known: str
    age_s: float | None
    rate_measured: bool = False


class Alternative(Shown, frozen=True, kw_only=True):
    """The current result of another strategy for the same problem, or its refusal.

    The costs of all strategies use the latest knowledge.
    """

    strategy: str
    hosts: dict[str, str] = {}
    cost: float | None = None
    """Cost by the objective."""
    usage: float | None = None
    delay_ms: float | None = None
    bandwidth_bytes_s: float | None = None
    probes: int = 0
    refused: str = ""
    breaks: str = ""
    """The bound that it breaks, and by how much."""
    knows: str = ""
    """The knowledge that it places by; this and the following three in words, for the strategies of an explanation alone."""
    sends: str = ""
    """Its messages before it has placed a query."""
    adapts: str = ""
    """The kinds of adaptation that queries placed by it can have."""
    lost: str = ""
    """Loss if a node dies meanwhile."""


class BoundCheck(Shown, frozen=True, kw_only=True):
    """A bound and its use.

    ``slack`` is the rest: negative if the bound is broken. ``where`` is the host, for a bound of a host.
    """

    bound: str
    """``max_delay_ms``, ``cores``, ``memory_mb`` or ``bandwidth_bytes_s``."""
    where: str = ""
    limit: float | None
    """None, as is ``slack``, if the host did not report its capacity."""
    value: float | None
    """None, as is ``slack``, if it is infinite: a host cannot keep up with the rows."""
    slack: float | None


class TurningPoint(Shown, frozen=True, kw_only=True):
    """A latency without a recent measurement whose change would change the best placement.

    This happens if the one-way latency is less than ``below_ms`` or more than ``above_ms``: ``moves_below`` and ``moves_above``
    name the operators that would move, and their new nodes.
    """

    a: str
    b: str
    latency_ms: float | None
    known: str
    age_s: float | None
    below_ms: float | None = None
    moves_below: dict[str, str] = {}
    above_ms: float | None = None
    moves_above: dict[str, str] = {}


class KnownNode(Shown, frozen=True, kw_only=True):
    """Last known coordinate of a node that has a part in this; ``age_s`` is its age."""

    node: str
    vector: tuple[float, ...] | None
    height_ms: float = 0.0
    load_ms: float = 0.0
    age_s: float | None = None


class PlacementExplanation(Goal, frozen=True, kw_only=True):
    """Explanation of a placement.

    Costs are by the objective; usage in bytes in flight, latencies one-way in milliseconds.

    ``current`` is the current or proposed placement; ``now`` is the strategy's current choice, the same if nothing runs; ``best``
    is the best placement over the listed candidates, by all knowledge.
    """

    query: str
    """Empty if nothing runs."""
    sql: str
    state: str
    consumer: str
    pinned: dict[str, str]
    """Nodes of sources and sink."""
    away: dict[str, str]
    """Unreachable endpoints and hosts, with the reason (``is dead``, ``does not answer``).

    Latencies to and from them count as last known.
    """
    current: Alternative
    now: Alternative
    now_reason: str = ""
    """Why ``auto`` chose that strategy, if the user did not name any."""
    best: Alternative
    operators: tuple[WeighedOperator, ...]
    links: tuple[WeighedLink, ...]
    strategies: tuple[Alternative, ...]
    checks: tuple[BoundCheck, ...]
    """The bound on the delay, and the capacity at every host."""
    turns: tuple[TurningPoint, ...]
    """The turning points with the least change first."""
    settled: int = 0
    """The number of examined latencies that change nothing, whatever their value."""
    nodes: tuple[KnownNode, ...]
