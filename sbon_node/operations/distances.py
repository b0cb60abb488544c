"""Distances between members for users: the nearest members, and known or measured round-trip times."""

import math

from sbon_node.context import Context
from sbon_node.overlay.directory.measuring import Measurement, Outcome, Pair
from sbon_node.overlay.membership.table import REACHABLE
from sbon_node.overlay.membership.views import MemberView, unknown_node
from sbon_node.overlay.space.load import per_core
from sbon_protocol.api.nodes import MemberInfo, PairInfo, RttRequest
from sbon_protocol.errors import SbonError


class Distances:
    """Answers from the directory. Raises :class:`SbonError` ``unknown-node`` for an unknown name."""

    def __init__(self, context: Context, load_weight_ms: float) -> None:
        self._context, self._load_weight_ms = context, load_weight_ms

    def members(self, near: str = "", within_ms: float | None = None) -> list[MemberInfo]:
        """Return all members by name, or by distance if ``near`` or ``within_ms`` is given.

        The distance counts from ``near``, by default this node. Those of unknown distance are last, or left out by a bound.
        """
        members = self._context.membership.members()
        if not near and within_ms is None:
            return [self._member(member) for member in members]
        self._check_member(near or self._context.name)
        shown = [self._member(member, near or self._context.name) for member in members]
        distances = {m.name: math.inf if m.distance_ms is None else m.distance_ms for m in shown}
        if within_ms is not None:
            shown = [m for m in shown if distances[m.name] <= within_ms]
        return sorted(shown, key=lambda m: (distances[m.name], m.name))

    async def rtt(self, question: RttRequest) -> list[PairInfo]:
        """Return round-trip times in the order of the request.

        A pair that cannot be measured carries the reason; a forbidden request is refused as a whole.
        """
        own = self._context.name
        pairs = [(a or own, b or own) for a, b in question.pairs]
        for pair in pairs:
            for node in pair:
                self._check_member(node)
        directory = self._context.directory
        outcomes = {} if question.cached else await directory.measure(pairs, max_age_s=question.max_age_s)
        return [self._pair(pair, outcomes.get(pair)) for pair in pairs]

    def _check_member(self, node: str) -> None:
        membership = self._context.membership
        if membership.get(node) is None:
            raise unknown_node(node, (member.name for member in membership.members()))

    def _member(self, member: MemberView, near: str = "") -> MemberInfo:
        directory, coordinate = self._context.directory, member.coordinate
        is_there = member.state in REACHABLE
        from_here = directory.estimate_rtt_ms(self._context.name, member.name)
        from_near = directory.estimate_rtt_ms(near, member.name) if near else None
        return MemberInfo(
            name=member.name,
            state=member.state,
            address=str(member.address),
            api=str(member.api),
            incarnation=member.incarnation,
            coordinate=coordinate.vector if coordinate else None,
            height_ms=coordinate.height if coordinate else None,
            load_ms=coordinate.load if coordinate else None,
            load_per_core=per_core(coordinate.load, self._load_weight_ms) if coordinate else None,
            rtt_ms=from_here.rtt_ms,
            measured=from_here.measured,
            distance_ms=from_near.rtt_ms if from_near else None,
            distance_measured=from_near.measured if from_near else False,
            tags=member.meta.tags,
            cores=member.meta.cores,
            memory_mb=member.meta.memory_mb,
            version=member.meta.version,
            ready=member.meta.ready if is_there else None,
            reasons=member.meta.reasons if is_there else (),
        )

    def _pair(self, pair: Pair, outcome: Outcome | None) -> PairInfo:
        directory = self._context.directory
        first, second = (directory.coordinate(node) for node in pair)
        known = outcome if isinstance(outcome, Measurement) else directory.known(pair)
        failed = outcome if isinstance(outcome, SbonError) else None
        estimate = directory.estimate_rtt_ms(*pair)
        return PairInfo(
            a=pair[0],
            b=pair[1],
            coordinates_ms=first.distance_ms(second) if first and second and pair[0] != pair[1] else None,
            measured_ms=known.rtt_ms if known else None,
            age_s=self._context.clock.now() - known.at if known else None,
            by=known.by if known else "",
            estimate_ms=estimate.rtt_ms,
            estimate_source=estimate.source,
            code=failed.code if failed else "",
            reason=failed.message if failed else "",
            where=failed.where if failed else "",
            hint=failed.hint if failed else "",
        )
