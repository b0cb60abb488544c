"""Explanations of a plan, with estimated and measured flows, and of a placement: alternatives, costs, and deciding latencies."""

from typing import ClassVar, Literal

from sbon_protocol.api.operators import Needs
from sbon_protocol.api.queries import MoveInfo
from sbon_protocol.api.shown import Columns, Shown
from sbon_protocol.api.strategies import Goal


class Flow(Shown, frozen=True, kw_only=True):
    """Output of a part of the plan; None if unknown. ``selectivity`` is rows out for one row in."""

    rows_s: float | None = None
    bytes_s: float | None = None
    row_bytes: float | None = None
    selectivity: float | None = None


class ExplainedComponent(Shown, frozen=True, kw_only=True):
    """The sink, an operator, or a source; ``reads`` are the ids of its inputs."""

    id: str
    kind: Literal["sink", "operator", "source"]
    node: str
    """Its current node, or the strategy's current choice."""
    state: str
    """State of the operator or source; ``planned`` if nothing runs."""
    reason: str = ""
    reads: tuple[str, ...] = ()
    result_of: str = ""
    """For a source: the query whose result its stream is, if it is any's."""
    fragment: str = ""
    signature: str = ""
    estimated: Flow = Flow()
    """From declarations and samples, without measurements."""
    measured: Flow = Flow()
    """Measured while it runs; otherwise the remembered values of an equal operator, at the planned rates of its inputs."""
    remembered: bool = False
    """Whether the plan used a measurement of an equal part instead of the estimate."""
    assumed: bool = False
    """Whether the plan takes a source for one of 1,000 rows a second, because nothing is known of its rate."""
    ratio: float | None = None
    """Estimated over measured rows: of an operator, for the rows that it has read; of a source, a second. While nothing runs, of
    the last run of an equal operator. None if unknown.
    """
    late: int | None = None
    """For a source: rows dropped because they came later than the stream's delay allows."""
    rows: int | None = None
    """Rows that have left it, or that the sink has taken. None if unknown."""
    watermark_ms: int | None = None
    """Watermark of a source or operator (ms since 1970): no row that follows is earlier. None if unknown."""
    ended: bool = False
    """Whether no row will follow at all."""
    batch_ms: float | None = None
    """For an operator: time per batch, later batches counting more; None before the first batch."""
    under_way_s: float | None = None
    """For an operator: the age of its running batch, which has read ``under_way_rows``; None if no batch runs."""
    under_way_rows: int = 0
    under_way_bytes: int = 0
    state_provider: str = ""
    """For an operator with state: where it keeps it, ``hdfs`` or ``rocksdb``; ``state_mb`` megabytes are expected."""
    state_mb: float | None = None
    move: MoveInfo | None = None
    """For an operator: its move to another node, while one is under way."""
    queries: tuple[str, ...] = ()
    """For an operator that several queries share: their uids, that of this query too once it runs."""


class ExplainedLink(Shown, frozen=True, kw_only=True):
    """Flow from one part to another; ``usage`` is its rate x one-way latency, in bytes."""

    stream: str
    source_node: str
    target: str
    target_node: str
    latency_ms: float | None
    """None if the latency, and therefore the usage, is unknown."""
    bytes_s: float
    """The planned rate, which the placement uses."""
    usage: float | None
    measured_bytes_s: float | None = None
    """The recent rate at which the stream grows."""
    measured_usage: float | None = None
    """The mean usage since the query began, of the bytes that its :class:`~sbon_protocol.api.usage.QueryUsage` counts."""
    queries: int = 1
    """Queries that share the target: each bears an equal part of the usage, which is that of one."""


class Explanation(Shown, frozen=True, kw_only=True):
    """Explanation of a plan: ``components`` in the order of the tree, the sink first; usages are sums over links, in bytes."""

    COLUMNS: ClassVar[Columns] = {one: one for one in ("query", "state", "strategy", "consumer", "usage", "sql")}

    query: str
    """Empty if nothing runs."""
    sql: str
    state: str
    reason: str = ""
    strategy: str
    consumer: str
    components: tuple[ExplainedComponent, ...]
    links: tuple[ExplainedLink, ...]
    usage: float | None
    """Predicted by the planned rates; None unless the latency of every link is known."""
    baseline_usage: float | None
    """Predicted usage of the consumer baseline."""
    measured_usage: float | None = None
    """Its :class:`~sbon_protocol.api.usage.QueryUsage` over the time since it began; None unless every latency is known."""
    measured_baseline_usage: float | None = None
    saved_usage: float = 0.0
    """Predicted usage that the query would have in addition with operators of its own in place of shared ones, at their nodes."""
    median_ratio: float | None = None
    """Factors by which estimated rows of the operators were more than the measured ones, or less."""
    worst_ratio: float | None = None


# -- placement ---------------------------------------------------------------------------------------------------------


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
    load_ms: float = 0.0
    """Its place in the load dimension of the cost space above that of the least loaded node, which its links are charged for."""
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

    COLUMNS: ClassVar[Columns] = {one: one for one in ("query", "state", "strategy", "objective", "consumer", "sql")}

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
