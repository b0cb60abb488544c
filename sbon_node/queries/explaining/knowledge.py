"""Source and age of the node coordinates and latencies that placement uses."""

from __future__ import annotations

from collections.abc import Container, Mapping

from msgspec.structs import replace

from sbon_node.context import Context
from sbon_node.placement.model.problem import PlacementProblem
from sbon_protocol.api.explanations import KnownNode, TurningPoint, WeighedLink

AGED = 0.5
"""A measurement counts as old after this share of the time for which it is used."""


class Knowledge:
    """Source and age of latencies; a measured pair is used for ``fresh_s`` seconds."""

    def __init__(self, context: Context, fresh_s: float) -> None:
        self._context, self._fresh_s = context, fresh_s

    def is_settled(self, a: str, b: str) -> bool:
        """Return whether the latency between the nodes is measured recently."""
        known, age_s = self.source(a, b)
        return known in ("self", "probes") or (known == "measured" and age_s is not None and age_s <= AGED * self._fresh_s)

    def source(self, a: str, b: str) -> tuple[str, float | None]:
        """Return source and age of the latency estimate; of two coordinates, the older age counts."""
        directory = self._context.directory
        known = directory.estimate_rtt_ms(a, b).source
        if known == "measured" and (measured := directory.known((a, b))) is not None:
            return known, self._context.clock.now() - measured.at
        if known != "coordinates":
            return known, None
        ages = [age_s for node in (a, b) if (age_s := directory.coordinate_age_s(node)) is not None]
        return known, max(ages, default=None)

    def dated(self, turn: TurningPoint) -> TurningPoint:
        known, age_s = self.source(turn.a, turn.b)
        return replace(turn, known=known, age_s=age_s)

    def links(self, problem: PlacementProblem, hosts: Mapping[str, str], measured: Container[str]) -> list[WeighedLink]:
        """Return the links of a placement; ``measured`` are the streams whose rate is."""
        at = {**problem.pinned, **hosts}
        links = []
        for edge in problem.edges:
            if edge.source in at and edge.target in at:
                a, b = at[edge.source], at[edge.target]
                known, age_s = self.source(a, b)
                links.append(
                    WeighedLink(
                        source=edge.source,
                        target=edge.target,
                        source_node=a,
                        target_node=b,
                        rate_bytes_s=edge.rate_bytes_s,
                        rate_measured=edge.source in measured,
                        latency_ms=self._context.directory.estimate_rtt_ms(a, b).one_way_ms,
                        known=known,
                        age_s=age_s,
                    )
                )
        return links

    def node(self, node: str) -> KnownNode:
        coordinate = self._context.directory.coordinate(node)
        if coordinate is None:
            return KnownNode(node=node, vector=None)
        age_s = self._context.directory.coordinate_age_s(node)
        return KnownNode(node=node, vector=coordinate.vector, height_ms=coordinate.height, load_ms=coordinate.load, age_s=age_s)
