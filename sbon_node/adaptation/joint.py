"""Joint moves of two linked operators at two nodes: their hosts agree on them, and make them one after the other.

The host of an operator that stays by itself proposes. It asks the neighbour's host for its side (WeighJointMove), looks for a
host of each, and if both moves together are worth it, asks that host to move its operator (MoveJointly). That one measures and
decides by itself before it agrees. The proposer's operator follows once the neighbour has moved. If it cannot, the neighbour
stays where it is, and both hosts go on deciding as always: the proposer's operator has not moved, so it does not rest.

Two hosts that propose to each other at the same time both ask; the proposal of the operator with the lower id is heard.
"""

import math
from collections.abc import Awaitable, Callable, Collection
from typing import NamedTuple

import msgspec

from sbon_node.adaptation.look import Deciding, Memory, OperatorView, OptimizerParts
from sbon_node.adaptation.mover import Mover
from sbon_node.adaptation.rules import TOGETHER, Hosts, Latency, Link, Pair, Side, Weighed, Why, weigh
from sbon_node.hosting.components import HostedOperator
from sbon_node.hosting.moving.arrivals import HostCheck
from sbon_node.net.peers import Caller
from sbon_node.overlay.directory.measuring import unordered
from sbon_node.placement.strategies.hybrid.hybrid import hybrid
from sbon_protocol.api.adaptation import BY_HOSTS, MOVES, MoveDecision, PastMove
from sbon_protocol.api.operators import Needs
from sbon_protocol.api.query_ids import sink_of
from sbon_protocol.api.states import move_states
from sbon_protocol.codec import decode_record
from sbon_protocol.errors import ProtocolError, SbonError
from sbon_protocol.moving import MAX_JOINT_LINKS, JointLink, JointSide, MoveJointly, MoveOperator, OperatorMove, WeighJointMove

REFUSED = "joint-move-refused"
MOST_REFUSED = 64
"""Most nodes that an operator's host names as no targets."""
TRIES, BETWEEN_S = 3, 1.0
"""Times that the neighbour's host is asked how its move goes on while it gives no answer, and the pause between; seconds."""
UNREACHABLE = "peer-unreachable"

Agreed = Callable[[HostedOperator, MoveDecision, str], Awaitable[OperatorMove]]
"""Begins a move of this node's operator to which it has agreed, under the proposer's attempt."""


class Proposal(NamedTuple):
    """A decision to move an operator of this node after its neighbour; ``call`` asks the neighbour's host, ``node``."""

    decision: MoveDecision
    node: str
    call: MoveJointly


class JointMoves:
    """Proposes joint moves, and answers proposals; ``busy`` returns why an operator takes no part, ``agreed`` begins a move."""

    def __init__(
        self,
        parts: OptimizerParts,
        deciding: Deciding,
        mover: Mover,
        host_check: HostCheck,
        memory_of: Callable[[str], Memory],
        busy: Callable[[str], str],
        agreed: Agreed,
    ) -> None:
        self._parts, self._deciding, self._mover, self._host_check = parts, deciding, mover, host_check
        self._context, self._operators, self._settings = parts.context, parts.operators, parts.settings
        self._memory_of, self._busy, self._agreed = memory_of, busy, agreed
        self.proposing: dict[str, None] = {}
        """Operators of this node for which a proposal is neither agreed to nor refused."""
        self._answering = False
        parts.context.server.handle(WeighJointMove, self._handle_weigh)
        parts.context.server.handle(MoveJointly, self._handle_move)

    # -- the proposer --------------------------------------------------------------------------------------------------

    async def propose(self, hosted: HostedOperator) -> tuple[Proposal | None, str]:
        """Return the joint move of an operator that stays by itself, or why there is none, for users.

        Its neighbours at other nodes are asked, those with the heaviest links first. Raises :class:`SbonError` as
        :meth:`~sbon_node.adaptation.look.OptimizerParts.links_of`.
        """
        operator, query = hosted.spec.id, hosted.spec.query
        links = await self._parts.links_of(operator)
        others = {
            link.vertex: link
            for link in links
            if link.vertex.startswith(f"{query}.") and link.vertex != sink_of(query) and link.node != self._context.name
        }
        heaviest = sorted(others.values(), key=lambda link: (-link.bytes_s, link.vertex))[: self._settings.joint_neighbours]
        if len(links) > MAX_JOINT_LINKS:
            return None, ""
        notes = []
        self.proposing[operator] = None
        for link in heaviest:
            try:
                proposal, note = await self._with(hosted, links, link)
            except SbonError as error:
                proposal, note = None, str(error)
            if proposal is not None:
                return proposal, ""
            notes.append(f"with {link.vertex} at {link.node}: {note}")
        del self.proposing[operator]
        return None, "; ".join(notes)

    async def _with(self, hosted: HostedOperator, links: tuple[Link, ...], link: Link) -> tuple[Proposal | None, str]:
        """Weigh the operator with its neighbour at the other end of a link."""
        spec, context = hosted.spec, self._context
        mine = self._side(hosted, links)
        call = WeighJointMove(query=spec.query, operator=link.vertex, neighbour=spec.id)
        answer = await context.ask(link.node, call, JointSide, timeout_s=context.settings.component_timeout_s)
        pair = self._pair(mine, _side_of(link.vertex, link.node, answer))
        if len(pair.measured(pair.hosts)) > self._settings.pairs:
            return None, "they have too many links"
        view = self._parts.view(beside=spec.query)
        before = await self._measured(view, pair.measured(pair.hosts))
        usage = pair.usage(pair.hosts, before)
        candidates = max(2, self._settings.pairs // max(1, len(pair.measured(pair.hosts))))
        placement = msgspec.structs.replace(self._parts.placement, candidates=candidates)
        placed = (await hybrid(pair.problem(), view, placement)).hosts()
        hosts = placed[spec.id], placed[link.vertex]
        if hosts[0] == mine.node or hosts[1] == link.node:
            return None, f"no two other hosts are better than {usage:,.0f} bytes in transit"
        weighed = await self._weighed(view, pair, hosts, bounded=spec.max_delay_ms is not None)
        if not weighed.pays:
            return None, weighed.why.text
        asked = MoveJointly(
            query=spec.query,
            operator=link.vertex,
            neighbour=spec.id,
            target=hosts[1],
            neighbour_target=hosts[0],
            attempt=self._mover.attempt(),
            side=_stated(mine),
        )
        decision = self._decision(hosted, hosts[0], f"after {link.vertex} has moved to {hosts[1]}", weighed, view)
        return Proposal(decision, link.node, asked), ""

    async def carry_out(self, proposal: Proposal) -> None:
        """Have the neighbour move; raise :class:`SbonError` why it has not, ``joint-move-refused`` if its host does not agree."""
        context, call, node = self._context, proposal.call, proposal.node
        how = MoveOperator(query=call.query, operator=call.operator, target=call.target, attempt=call.attempt)
        state, silent = None, 0
        try:
            state = await context.ask(node, call, OperatorMove)
        except SbonError as error:
            if error.code != UNREACHABLE:
                raise
        finally:
            self.proposing.pop(call.neighbour, None)

        async def unanswered(error: SbonError) -> bool:
            nonlocal silent
            silent += 1
            if error.code != UNREACHABLE or silent == TRIES:
                raise error
            await context.clock.sleep(BETWEEN_S)
            return True

        every_s = context.settings.component_timeout_s
        async for newest in self._mover.watch(how, every_s, first=state, host=node, unanswered=unanswered):
            state, silent = newest, 0 if newest is not state else silent
        assert state is not None
        if state.step == move_states.GIVEN_UP:
            raise SbonError(state.code or "move-unknown", f"{call.operator} has not moved: {state.reason}", where=node)

    # -- the other host ------------------------------------------------------------------------------------------------

    async def _handle_weigh(self, call: WeighJointMove, caller: Caller) -> JointSide:
        return _stated(await self._asked(call, caller))

    async def _handle_move(self, call: MoveJointly, caller: Caller) -> OperatorMove:
        """Move an operator of this node if the joint move is worth it by this node's own measurements, too."""
        if self._answering:
            raise _refused(call, "another joint move is weighed here")
        self._answering = True
        try:
            mine = await self._asked(call, caller)
            pair = self._pair(mine, _side_of(call.neighbour, caller.node, call.side))
            hosts = call.target, call.neighbour_target
            if call.target in (mine.node, *mine.refused) or call.neighbour_target in (caller.node, *pair.second.refused):
                raise _refused(call, "a target is no candidate")
            if len(pair.measured(pair.hosts) | pair.measured(hosts)) > 2 * self._settings.pairs:
                raise _refused(call, "they have too many links")
            hosted = self._operators.get(call.operator)
            assert hosted is not None
            view = self._parts.view(beside=call.query)
            weighed = await self._weighed(view, pair, hosts, bounded=hosted.spec.max_delay_ms is not None)
            if not weighed.pays:
                raise _refused(call, f"measured here, {weighed.why.text}")
            order = f"before {call.neighbour} moves to {call.neighbour_target}"
            decision = self._decision(hosted, call.target, order, weighed, view)
            if reason := self._occupied(call):
                raise _refused(call, reason)
            return await self._agreed(hosted, decision, call.attempt)
        finally:
            self._answering = False

    async def _asked(self, call: WeighJointMove | MoveJointly, caller: Caller) -> Side:
        """Return this node's side of a joint move for the host of the neighbour; refuse all others."""
        hosted = self._operators.get(call.operator)
        if hosted is None or hosted.spec.query != call.query:
            raise SbonError("operator-unknown", f"{self._context.name} does not host it", where=call.operator)
        if hosted.spec.adapt not in BY_HOSTS or not self._settings.joint_neighbours or self._context.drained:
            raise _refused(call, "this node moves it jointly with none")
        if reason := self._occupied(call):
            raise _refused(call, reason)
        if (why := self._deciding.waits(hosted)) is not None:
            raise _refused(call, why.text)
        await self._host_check.is_host(call.neighbour, caller)
        links = await self._parts.links_of(call.operator)
        if (call.neighbour, caller.node) not in {(link.vertex, link.node) for link in links} or len(links) > MAX_JOINT_LINKS:
            raise _refused(call, f"{call.neighbour} at {caller.node} is no neighbour of it, or it has too many")
        return self._side(hosted, links)

    def _occupied(self, call: WeighJointMove | MoveJointly) -> str:
        """Return why the operator is not free to move with the caller's; a lower id's proposal comes before its own."""
        if call.operator in self.proposing:
            return "" if call.neighbour < call.operator else "its own proposal comes first"
        return self._busy(call.operator)

    # -- both ----------------------------------------------------------------------------------------------------------

    def _side(self, hosted: HostedOperator, links: tuple[Link, ...]) -> Side:
        spec, state_bytes = hosted.spec, self._parts.state_bytes(hosted.spec.id)
        refused = self._deciding.refused(spec.past_moves, self._memory_of(spec.id))
        return Side(spec.id, self._context.name, links, spec.needs, state_bytes, spec.past_moves, refused)

    def _pair(self, mine: Side, other: Side) -> Pair:
        """Return both sides; raise ``bad-answer`` for sides that do not fit together."""
        pair = Pair(mine, other)
        nodes: dict[str, str] = {}
        if not pair.is_linked():
            raise SbonError("bad-answer", f"{other.node} knows no such link", where=other.operator)
        for link in (*pair.ends[0], *pair.ends[1]):
            if nodes.setdefault(link.vertex, link.node) != link.node or link.vertex in (mine.operator, other.operator):
                message = f"{mine.node} and {other.node} know {link.vertex} at two nodes"
                raise SbonError("bad-answer", message, where=other.operator)
        return pair

    async def _measured(self, view: OperatorView, pairs: Collection[tuple[str, str]]) -> Latency:
        """Measure pairs of nodes; raise ``latency-unknown`` if one gives no answer."""
        apart = sorted({unordered(pair) for pair in pairs if pair[0] != pair[1]})
        measured_ms = await view.measure(apart)
        if silent := [pair for pair in apart if not math.isfinite(measured_ms.get(pair, math.inf))]:
            raise SbonError("latency-unknown", f"from {silent[0][0]} to {silent[0][1]} there is no answer", where=silent[0][1])
        return lambda one, other: 0.0 if one == other else measured_ms[unordered((one, other))]

    async def _weighed(self, view: OperatorView, pair: Pair, hosts: Hosts, *, bounded: bool) -> Weighed:
        pairs = pair.measured(pair.hosts) | pair.measured(hosts) | set(zip(pair.hosts, hosts, strict=True))
        latency = await self._measured(view, pairs)
        return weigh(pair, hosts, latency, self._context.clock.wall_ms(), self._settings, bounded=bounded)

    def _decision(self, hosted: HostedOperator, target: str, order: str, weighed: Weighed, view: OperatorView) -> MoveDecision:
        why = Why(TOGETHER, f"moves together with its neighbour, {order}; {weighed.why.text}")
        usage, there, cost, _ = weighed
        return self._deciding.made(
            hosted, MOVES, why, target=target, usage=usage, usage_there=there, cost=cost, probes=view.probes
        )


def _stated(side: Side) -> JointSide:
    return JointSide(
        links=tuple(JointLink(*link) for link in side.links),
        cores=side.needs.cores,
        memory_mb=side.needs.memory_mb,
        bandwidth_bytes_s=side.needs.bandwidth_bytes_s,
        state_bytes=side.state_bytes,
        past_moves=msgspec.to_builtins(side.past_moves),
        refused=tuple(sorted(side.refused))[:MOST_REFUSED],
    )


def _side_of(operator: str, node: str, stated: JointSide) -> Side:
    """Return another node's side; raise ``bad-answer`` for impossible past moves."""
    try:
        past: tuple[PastMove, ...] = tuple(decode_record(move, PastMove) for move in stated.past_moves)
    except ProtocolError as error:
        raise SbonError("bad-answer", f"{node} states impossible moves: {error}", where=operator) from error
    needs = Needs(cores=stated.cores, memory_mb=stated.memory_mb, bandwidth_bytes_s=stated.bandwidth_bytes_s)
    links = tuple(Link(link.vertex, link.node, link.bytes_s, link.reads) for link in stated.links)
    return Side(operator, node, links, needs, stated.state_bytes, past, frozenset(stated.refused))


def _refused(call: WeighJointMove | MoveJointly, reason: str) -> SbonError:
    return SbonError(REFUSED, reason, where=call.operator, hint="it goes on where it is")
