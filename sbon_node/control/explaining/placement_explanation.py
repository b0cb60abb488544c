"""A placement explained, as data: what could have been chosen, what that would cost, and what the choice hangs on."""

from __future__ import annotations

import msgspec

from sbon_node.engine.interface import Needs
from sbon_node.placement.goal import Goal


class WeighedNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node that could have an operator. ``predicted`` and ``measured`` are the least cost of the whole query with the operator
    there, all others wherever is best: by coordinates alone, and by all that is known; None where it cannot be there."""

    node: str
    distance_ms: float | None = None
    """From the operator's virtual place, height and load included; None where either has no place."""
    predicted: float | None = None
    measured: float | None = None
    delay_ms: float | None = None
    """Of that placement, by all that is known."""
    free: Needs | None = None
    """What it has left; of a query that runs, without what that query holds there. None where it did not say."""
    lost: str = ""
    """Why it was not chosen; empty where it was."""


class WeighedOperator(msgspec.Struct, frozen=True, kw_only=True):
    """``candidates`` are sorted by ``measured``; those that cannot have it are last."""

    id: str
    node: str
    """Where it is, or would be; empty where the strategy placed nothing."""
    now: str
    """Where the strategy would have it now."""
    reason: str = ""
    virtual: tuple[float, ...] = ()
    """Its virtual place in the latency dimensions (ms): the strategy's, else the geometric median of the query."""
    needs: Needs
    candidates: tuple[WeighedNode, ...] = ()


class WeighedLink(msgspec.Struct, frozen=True, kw_only=True):
    """A link of the placement; ``known`` says what its one-way latency comes of: ``self``, ``probes``, ``measured``,
    ``coordinates`` or ``unknown``; ``age_s`` how old a measurement is, or the older of the two coordinates."""

    source: str
    target: str
    source_node: str
    target_node: str
    rate_bytes_s: float
    latency_ms: float | None
    known: str
    age_s: float | None


class Alternative(msgspec.Struct, frozen=True, kw_only=True):
    """What another strategy makes of the same problem now, or why it refuses; the costs of all are by what is known last."""

    strategy: str
    hosts: dict[str, str] = {}
    cost: float | None = None
    """By the objective."""
    usage: float | None = None
    delay_ms: float | None = None
    bandwidth_bytes_s: float | None = None
    questions: int = 0
    refused: str = ""
    breaks: str = ""
    """The bound it does not keep to, and by how much."""


class BoundCheck(msgspec.Struct, frozen=True, kw_only=True):
    """``slack`` is what is left: negative where the bound is broken. ``where`` is the host, of what is bounded at one."""

    bound: str
    """``max_delay_ms``, ``cores``, ``memory_mb`` or ``bandwidth_bytes_s``."""
    where: str = ""
    limit: float | None
    """None, as ``slack``, where the host did not say what it has."""
    value: float | None
    """None, as ``slack``, where it is without end: a host that cannot keep up with the rows."""
    slack: float | None


class TurningPoint(msgspec.Struct, frozen=True, kw_only=True):
    """A way that is not measured, or not lately. Were its one-way latency less than ``below_ms`` or more than ``above_ms``, the
    best placement would be another one: ``moves_below`` and ``moves_above`` name the operators that would move, and where to."""

    a: str
    b: str
    latency_ms: float | None
    known: str
    age_s: float | None
    below_ms: float | None = None
    moves_below: dict[str, str] = {}
    above_ms: float | None = None
    moves_above: dict[str, str] = {}


class KnownNode(msgspec.Struct, frozen=True, kw_only=True):
    """Where a node that has a part in this was last heard to be; ``age_s`` is how long ago."""

    node: str
    vector: tuple[float, ...] | None
    height_ms: float = 0.0
    load_ms: float = 0.0
    age_s: float | None = None


class PlacementExplanation(Goal, frozen=True, kw_only=True):
    """Costs are by the objective; usage in bytes in flight, latencies one way in milliseconds.

    ``stands`` is the placement as it is, or as it would be; ``now`` what the strategy would choose now, the same where nothing
    runs; ``best`` the best placement over the candidates listed, by all that is known.
    """

    query: str
    """Empty where nothing runs."""
    sql: str
    state: str
    consumer: str
    pinned: dict[str, str]
    """Nodes of sources and sink."""
    away: dict[str, str]
    """Of those and of the hosts: who cannot be asked, and how that is known (``is dead``, ``does not answer``). Ways to
    and from them count as they were known last."""
    stands: Alternative
    now: Alternative
    now_reason: str = ""
    """Why it took that strategy, where the user left that open."""
    best: Alternative
    operators: tuple[WeighedOperator, ...]
    links: tuple[WeighedLink, ...]
    strategies: tuple[Alternative, ...]
    checks: tuple[BoundCheck, ...]
    """The bound on the delay, and the room at every host."""
    turns: tuple[TurningPoint, ...]
    """Those that turn with the least change first."""
    settled: int = 0
    """How many of the ways that were looked at would change nothing, whatever they measured."""
    nodes: tuple[KnownNode, ...]
