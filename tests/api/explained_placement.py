"""An explanation of a placement such as a node gives: one operator between a source at ``b`` and the sink at ``a``."""

from __future__ import annotations

from msgspec.structs import asdict, replace

from sbon_node.papers.table import STRATEGIES
from sbon_protocol.api.explanations import (
    Alternative,
    BoundCheck,
    KnownNode,
    PlacementExplanation,
    TurningPoint,
    WeighedLink,
    WeighedNode,
    WeighedOperator,
)
from sbon_protocol.api.operators import Needs
from sbon_protocol.api.queries import QuerySpec

FREE = Needs(cores=1.5, memory_mb=4000.0, bandwidth_bytes_s=1e8)


def explained_placement(query: str, question: QuerySpec) -> PlacementExplanation:
    """Where a query runs, it is at ``a`` and would be at ``b`` now."""
    here = Alternative(strategy="consumer", hosts={"q.b0": "a"}, cost=4000.0, usage=4000.0, delay_ms=50.0, breaks="10.0 ms over")
    there = Alternative(strategy="hybrid", hosts={"q.b0": "b"}, cost=1000.0, usage=1000.0, delay_ms=50.0, probes=7)
    refused = Alternative(strategy="ip-multicast", refused="no-routes: which routers packets pass is not known")
    stands = here if query else there
    at = stands.hosts["q.b0"]
    return PlacementExplanation(
        **question.goal_options(),
        query=query,
        sql=question.sql,
        state="running" if query else "planned",
        consumer="a",
        pinned={"source/numbers@1/x": "b", "consumer": "a"},
        away={},
        current=stands,
        now=there,
        best=there,
        operators=(
            WeighedOperator(
                id="q.b0",
                node=at,
                now="b",
                reason="least cost of 3 measured",
                virtual=(2.0, 1.0, 0.0),
                needs=Needs(),
                candidates=(
                    WeighedNode(node="b", distance_ms=1.25, predicted=1100.0, measured=1000.0, delay_ms=50.0, free=FREE),
                    WeighedNode(
                        node="a", distance_ms=80.0, predicted=4100.0, measured=4000.0, free=FREE, lost="costs 300.0% more"
                    ),
                    WeighedNode(node="full", distance_ms=9.0, lost="0.01 cores free, 0.10 needed"),
                ),
            ),
        ),
        links=(
            WeighedLink(
                source="q.b0",
                target="consumer",
                source_node=at,
                target_node="a",
                rate_bytes_s=20_000.0,
                latency_ms=50.0,
                known="coordinates",
                age_s=12.0,
            ),
            WeighedLink(
                source="source/numbers@1/x",
                target="q.b0",
                source_node="b",
                target_node=at,
                rate_bytes_s=80_000.0,
                latency_ms=None,
                known="unknown",
                age_s=None,
            ),
        ),
        strategies=tuple(replace(one, **asdict(STRATEGIES.profiles[one.strategy])) for one in (refused, here, there)),
        checks=(
            BoundCheck(bound="cores", where=at, limit=1.5, value=0.1, slack=1.4),
            BoundCheck(bound="cores", where="away", limit=None, value=0.1, slack=None),
        ),
        turns=(
            TurningPoint(
                a="a", b="b", latency_ms=50.0, known="coordinates", age_s=12.0, below_ms=12.5, moves_below={"q.b0": "full"}
            ),
        ),
        settled=3,
        nodes=(
            KnownNode(node="a", vector=(0.0, 0.0, 0.0), age_s=0.0),
            KnownNode(node="b", vector=(50.0, 0.0, 3.0), age_s=12.0),
            KnownNode(node="full", vector=(9.0, 40.0, 0.0), age_s=12.0),
            KnownNode(node="new", vector=None),
        ),
    )
