"""One look at an operator of this node, from its measures and neighbours to the decision; it moves nothing.

The rules are in :mod:`sbon_node.adaptation.rules`; here are the questions to other nodes that they need. Linked operators of a
query that share a host may all be at their best places by themselves, and yet better elsewhere together: each would lengthen the
link between them. So where an operator stays by itself, its host weighs the whole group, too.
"""

import asyncio
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec

from sbon_node.adaptation import rules
from sbon_node.adaptation.rules import Glance, Link, Offer, Why, once_a_node, usage_of, way_of
from sbon_node.adaptation.settings import AdaptationSettings
from sbon_node.context import Context
from sbon_node.hosting.components import HostedOperator
from sbon_node.hosting.operators.host import OperatorHost, neighbours
from sbon_node.overlay.directory.measuring import unordered
from sbon_node.ownership.acceptors import RecordAcceptors
from sbon_node.placement.model.network_view import Answer, Point
from sbon_node.placement.model.problem import Operator, PlacementProblem, total
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.solvers.geometric_median import median_positions
from sbon_node.placement.strategies.hybrid.hybrid import hybrid
from sbon_node.placing import LiveNetworkView
from sbon_protocol.api.adaptation import BY_HOSTS, MOVES, STAYS, MoveDecision, PastMove
from sbon_protocol.api.bounded import MAX_REASON
from sbon_protocol.api.delivery import SinkDelay
from sbon_protocol.api.operators import Needs
from sbon_protocol.api.query_ids import sink_of
from sbon_protocol.api.strategies import Bounds
from sbon_protocol.calls import ComponentStates, DescribeComponents
from sbon_protocol.codec import decode_record
from sbon_protocol.errors import ProtocolError, SbonError
from sbon_protocol.moving import ComponentHost, LocateComponent

IS_BEST = "is-best"
ALONE = frozenset({IS_BEST, rules.NO_BETTER, rules.SAVES_LITTLE})
"""Codes of decisions to stay after which the operator is weighed with its neighbours on this node."""
MOST_JOINED = 64
"""Most nodes that have joined since the last look of which the usage is estimated."""
NEAREST = 32
"""Nodes around a virtual coordinate that has moved of which the usage is estimated before any is measured. No setting: estimates
cost no message, and only decide whether to look."""
MOST_TOGETHER = 8
"""Most operators that move together."""
HERE = "here"
"""Vertex that makes the present host a candidate. No operator, source or sink has this id."""

LATENCY_UNKNOWN = "latency-unknown"
"""Code of a scene without the latency to a neighbour."""
GLANCE_S = 2.0
"""Wait for the answer to a ping at a glance. No setting: without it the neighbour is measured in full."""


# -- the network ------------------------------------------------------------------------------------------------------------


class LookView(LiveNetworkView):
    """View for one look at a running query: its own measurements outrank what was known.

    They are newer than the filtered round-trip times of this node's probes, which need many samples to follow a change. Each pair
    is measured once.
    """

    sparing = True

    def __init__(self, context: Context, beside: str, max_age_s: float) -> None:
        """Create it; the capacity that the query ``beside`` holds at nodes counts as free."""
        super().__init__(context, beside)
        self.max_age_s = max_age_s
        self._measured_ms: dict[tuple[str, str], float] = {}

    async def measure(self, pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], float]:
        apart = [pair for pair in dict.fromkeys(pairs) if pair[0] != pair[1]]
        if new := [pair for pair in apart if unordered(pair) not in self._measured_ms]:
            measured_ms = await super().measure(new)
            self._measured_ms |= {unordered(pair): ms for pair, ms in measured_ms.items()}
        known = {pair: self._measured_ms.get(unordered(pair)) for pair in apart}
        return {pair: ms for pair, ms in known.items() if ms is not None}

    async def measure_links(self, problem: PlacementProblem, hosts: Mapping[str, str]) -> None:
        """Measure the links between different nodes with the operators on ``hosts``."""
        at = {**problem.pinned, **hosts}
        await self.measure(sorted((at[edge.source], at[edge.target]) for edge in problem.edges))

    def latency_ms(self, a: str, b: str) -> float:
        known_ms = self._measured_ms.get(unordered((a, b)))
        return super().latency_ms(a, b) if known_ms is None else known_ms


class OperatorView(LookView):
    """View for one look at an operator of this node.

    This node counts as having capacity for it. Nodes with a load per core above ``most_load`` count as without capacity.
    """

    def __init__(self, context: Context, beside: str, max_age_s: float, most_load: float) -> None:
        super().__init__(context, beside, max_age_s)
        self._here, self._most_load = context.name, most_load

    async def measured_ms(self, node: str, others: Sequence[str]) -> dict[str, float]:
        """Measure and return one-way latencies between ``node`` and others; those that gave no answer are missing."""
        pairs = {other: (other, node) if self._here != node else (node, other) for other in others if other != node}
        measured_ms = await self.measure(list(pairs.values()))
        found = {other: measured_ms[pair] for other, pair in pairs.items() if pair in measured_ms}
        return found | {other: 0.0 for other in others if other == node}

    async def glanced_ms(self, others: Sequence[str]) -> dict[str, float]:
        """Return one-way latencies from this node to others by one ping each; those that gave no answer are missing.

        It costs a third of :meth:`measured_ms`, and shows too much more often: it is enough to see that nothing has grown.
        """
        apart = [other for other in others if other != self._here]
        answers = await asyncio.gather(*(self._context.membership.ping(other, GLANCE_S) for other in apart))
        found = {other: answer.rtt_ms / 2 for other, answer in zip(apart, answers, strict=True) if answer is not None}
        return found | {other: 0.0 for other in others if other == self._here}

    async def ask(self, node: str, needs: Needs) -> Answer:
        if node == self._here:
            return Answer(accepted=True)
        answer = await super().ask(node, needs)
        if answer.accepted and answer.load > self._most_load:
            return msgspec.structs.replace(answer, accepted=False, reason=f"its load is {answer.load:.1f} per core")
        return answer


class OptimizerParts(NamedTuple):
    """Parts that a node's optimizer is given, and from which each decision reads."""

    context: Context
    operators: OperatorHost
    records: RecordAcceptors
    settings: AdaptationSettings
    placement: PlacementSettings

    async def links_of(self, operator: str) -> tuple[Link, ...]:
        """Return the links of an operator of this node to all queries that read it, as :func:`once_a_node`.

        Errors are those of :func:`~sbon_node.hosting.operators.host.neighbours`.
        """
        found = await neighbours(self.context, self.operators, operator)
        return once_a_node([Link(one.component, one.node, one.rate_bytes_s or 0.0, one.reads) for one in found])

    def state_bytes(self, operator: str) -> int:
        """Return the measured size of an operator's state; 0 while it is unknown."""
        measures = self.operators.ports.described(operator)
        return (measures.state_bytes or 0) if measures is not None else 0

    def view(self, beside: str = "") -> OperatorView:
        """Return the network for one look: measured within a period, without nodes that are half overloaded.

        The capacity that the query ``beside`` holds at other nodes counts as free.
        """
        return OperatorView(self.context, beside, self.settings.period_s, self.settings.overload / 2)


async def measured_delay_ms(context: Context, records: RecordAcceptors, hosted: HostedOperator) -> float | None:
    """Return the delay from source to sink that 95 % of the newest rows keep; None while it is unknown.

    Raises :class:`SbonError` as :meth:`RecordAcceptors.ask`, as a call to the consumer's node, and ``bad-answer`` for a report of
    that node that is none.
    """
    query = hosted.spec.query
    locate = LocateComponent(query=query, component=sink_of(query))
    host = await records.ask(query, hosted.acceptors, locate, ComponentHost)
    call = DescribeComponents(query=query, streams=(), targets=())
    answer = await context.ask(host.node, call, ComponentStates, timeout_s=context.settings.component_timeout_s)
    if answer.delay is None:
        return None
    try:
        return decode_record(answer.delay, SinkDelay).p95_ms
    except ProtocolError as error:
        raise SbonError("bad-answer", f"{host.node} reports no delay: {error}", where=query) from error


# -- the operator between its neighbours ------------------------------------------------------------------------------------


class Scene(NamedTuple):
    """The links of an operator, the latencies from its host to their nodes, its virtual coordinate, and usage as it is."""

    links: tuple[Link, ...]
    latencies_ms: dict[str, float]
    virtual: Point
    usage: float

    @property
    def nodes(self) -> list[str]:
        return sorted(self.latencies_ms)

    @property
    def way_ms(self) -> float:
        return way_of(self.links, self.latencies_ms)


async def scene_of(
    context: Context, operator: str, links: tuple[Link, ...], view: OperatorView, *, at_a_glance: bool = False
) -> Scene:
    """Measure the links of an operator, and return what its host sees; ``at_a_glance`` with one ping to each neighbour.

    Raises :class:`SbonError` ``latency-unknown`` if a neighbour gives no answer, or none has a coordinate.
    """
    nodes = sorted({link.node for link in links})
    latencies_ms = await (view.glanced_ms(nodes) if at_a_glance else view.measured_ms(context.name, nodes))
    if silent := [node for node in nodes if node not in latencies_ms]:
        raise SbonError(LATENCY_UNKNOWN, f"{', '.join(silent)} gives no answer", where=operator)
    known = {link.vertex: context.directory.coordinate(link.node) for link in links}
    points = {vertex: coordinate.vector for vertex, coordinate in known.items() if coordinate is not None}
    if not points:
        raise SbonError(LATENCY_UNKNOWN, "none of its neighbours has a coordinate", where=operator)
    virtual = median_positions([operator], rules.edges_of(operator, links), points)[operator]
    return Scene(links, latencies_ms, virtual, usage_of(links, latencies_ms))


def usage_at(context: Context, nodes: Iterable[str], links: tuple[Link, ...]) -> dict[str, float]:
    """Return the usage of the links with the operator at each of these nodes, by estimates; without those that are unknown."""
    usages = {}
    for node in nodes:
        latencies_ms = {link.node: context.directory.estimate_rtt_ms(node, link.node).one_way_ms for link in links}
        known = {other: ms for other, ms in latencies_ms.items() if ms is not None}
        if len(known) == len(latencies_ms):
            usages[node] = usage_of(links, known)
    return usages


async def best_host(
    operator: str,
    needs: Needs,
    scene: Scene,
    refused: Collection[str],
    view: OperatorView,
    placement: PlacementSettings,
    *,
    here: str,
    pairs: int,
    most_way_ms: float | None = None,
) -> Offer | None:
    """Return the best other host with capacity by the strategy hybrid, with the neighbours where they are.

    None if the operator is at its best host already; this node is a candidate unless it is among ``refused``. At most some
    ``pairs`` of nodes are measured. With ``most_way_ms`` the longest way through the operator is at most that. Raises
    :class:`SbonError` ``no-capacity``, ``delay-bound`` where no way is so short, and ``latency-unknown`` for a host that gives no
    answer.
    """
    problem = PlacementProblem(
        pinned={**{link.vertex: link.node for link in scene.links}, HERE: here},
        operators=(Operator(id=operator, needs=needs, refused=frozenset(refused)),),
        edges=rules.edges_of(operator, scene.links),
        bounds=Bounds(max_delay_ms=most_way_ms),
    )
    candidates = max(2, pairs // len(scene.latencies_ms))
    placed = await hybrid(problem, view, msgspec.structs.replace(placement, candidates=candidates))
    node = placed.hosts()[operator]
    if node == here:
        return None
    there_ms, path_ms = await view.measured_ms(node, scene.nodes), await view.measured_ms(here, [node])
    if not path_ms or len(there_ms) < len(scene.nodes):
        raise SbonError(LATENCY_UNKNOWN, f"{node} gives no answer", where=operator)
    return Offer(node, usage_of(scene.links, there_ms), way_of(scene.links, there_ms), path_ms[node])


# -- the decision -----------------------------------------------------------------------------------------------------------


class Memory:
    """An operator's memory between decisions: its last look, and until when targets are refused where a move has failed."""

    def __init__(self) -> None:
        self.glance: Glance | None = None
        self.failed_until_s: dict[str, float] = {}
        self.not_faster_until_s = -math.inf
        """Time until which no shorter way is looked for, since there was none."""
        self.no_capacity_until_s = -math.inf
        """Time until which no host is looked for to keep a bound on throughput, since there was none."""


class Made(NamedTuple):
    """A decision, and the operators that it moves."""

    decision: MoveDecision
    members: tuple[HostedOperator, ...]


class _Subject(NamedTuple):
    """An operator, or several that would move together, as one."""

    members: tuple[HostedOperator, ...]
    links: tuple[Link, ...]
    state_bytes: int

    @property
    def past_moves(self) -> tuple[PastMove, ...]:
        return tuple(sorted((move for one in self.members for move in one.spec.past_moves), key=lambda move: move.at_ms))

    @property
    def bound_ms(self) -> float | None:
        """The bound on delay of their query."""
        return self.members[0].spec.max_delay_ms


class _Look(NamedTuple):
    """One look at a subject between its neighbours, and the memory of the last one."""

    subject: _Subject
    scene: Scene
    memory: Memory
    view: OperatorView

    def cost_of_move(self, offer: Offer) -> float:
        return rules.cost_of_move(self.scene.links, self.subject.state_bytes, offer)


class Deciding:
    """Makes decisions; ``load`` returns this machine's load per core."""

    def __init__(self, parts: OptimizerParts, load: Callable[[], float]) -> None:
        self._parts, self._load = parts, load
        self._context, self._operators, self._settings = parts.context, parts.operators, parts.settings
        self.relieved_s = -math.inf
        """Time at which an operator was last moved because of load."""

    async def decide(self, hosted: HostedOperator, memory: Memory) -> Made:
        """Return a decision about an operator; raise :class:`SbonError` for what keeps this node from deciding."""
        if (why := self.waits(hosted)) is not None:
            return Made(self.made(hosted, STAYS, why), ())
        links = {hosted.spec.id: await self._parts.links_of(hosted.spec.id)}
        subject = self._subject((hosted,), links)
        made = await self._weigh(subject, memory)
        if made.verdict == MOVES or made.code not in ALONE:
            return Made(made, subject.members)
        together = await self._together(hosted, links, memory)
        return Made(made, subject.members) if together is None else together

    def waits(self, hosted: HostedOperator) -> Why | None:
        """Return why the operator may not move now; raise ``not-movable`` for one that does not run."""
        spec = hosted.spec
        self._operators.check_running(spec.id)
        measures = self._operators.ports.described(spec.id)
        if measures is None:
            return Why(rules.MEASURES, "nothing is measured yet")
        return rules.waits(measures.seconds, spec.past_moves, self._context.clock.wall_ms(), self._settings)

    def made(self, hosted: HostedOperator, verdict: str, why: Why, **numbers: Any) -> MoveDecision:
        return MoveDecision(
            operator=hosted.spec.id,
            node=self._context.name,
            at_ms=self._context.clock.wall_ms(),
            verdict=MOVES if verdict == MOVES else STAYS,
            code=why.code,
            reason=why.text[:MAX_REASON],
            **numbers,
        )

    # -- by itself ----------------------------------------------------------------------------------------------------

    async def _weigh(self, subject: _Subject, memory: Memory, *, group: bool = False) -> MoveDecision:
        """Look at the subject, for a better host if that may pay, and decide."""
        first, last = subject.members[0], memory.glance
        overloaded = not group and self._relieves(first)
        lacking = None if group else self._lacking(first, memory)
        view = self._parts.view()
        is_sure = group or overloaded or lacking is not None or subject.bound_ms is not None
        scene = await self._scene(subject, memory, view, is_sure=is_sure)
        look = _Look(subject, scene, memory, view)
        moved_ms = None if last is None or group else math.dist(scene.virtual, last.virtual)
        made = partial(self.made, first, usage=scene.usage, virtual_moved_ms=moved_ms)
        looked = self._looked(look, overloaded=overloaded, group=group)
        offer = None
        if not group and (faster := await self._faster(look, looked)) is not None:
            offer, why = faster
        elif lacking is not None:
            offer, why = await self._carrier(look, lacking)
        elif looked.code == rules.UNCHANGED:
            why = looked
        elif (offer := await self._offer(look, elsewhere=overloaded)) is None:
            why = Why(IS_BEST, f"{looked.text}; no node is better")
        else:
            why = self._worth(look, offer, looked, overloaded=overloaded)
        if offer is None:
            return made(STAYS, why, probes=view.probes)
        verdict, cost = MOVES if why.code in rules.MOVING else STAYS, look.cost_of_move(offer)
        return made(verdict, why, target=offer.node, usage_there=offer.usage, cost=cost, probes=view.probes)

    def _worth(self, look: _Look, offer: Offer, looked: Why, *, overloaded: bool) -> Why:
        """Return why the subject moves to the offer, or stays; ``looked`` comes first in the text."""
        why = rules.decide(
            look.scene.usage,
            look.scene.way_ms,
            offer,
            look.cost_of_move(offer),
            look.subject.past_moves,
            self._context.clock.wall_ms(),
            self._settings,
            bounded=look.subject.bound_ms is not None,
            overloaded=overloaded,
        )
        return Why(why.code, f"{looked.text}; {why.text}")

    async def _scene(self, subject: _Subject, memory: Memory, view: OperatorView, *, is_sure: bool) -> Scene:
        """Return the subject between its neighbours: at a glance where that shows no change since the last look."""
        operator = subject.members[0].spec.id
        if memory.glance is not None and not is_sure:
            try:
                scene = await scene_of(self._context, operator, subject.links, view, at_a_glance=True)
            except SbonError as error:  # A ping may be lost.
                if error.code != LATENCY_UNKNOWN:
                    raise
            else:
                if self._change(scene, memory)[0].code == rules.UNCHANGED:
                    return scene
        return await scene_of(self._context, operator, subject.links, view)

    def _change(self, scene: Scene, memory: Memory) -> tuple[Why, Glance]:
        """Return why to look for another host now, by the last look, and this look."""
        now_s, last = self._context.clock.now(), memory.glance
        nodes = frozenset({self._context.name, *self._context.membership.alive()})
        fresh = sorted(nodes - last.nodes)[:MOST_JOINED] if last is not None else []
        joined = usage_at(self._context, fresh, scene.links)
        links_ms = rules.mean_ms_of(scene.links, scene.latencies_ms)
        looked = rules.looks(scene.virtual, scene.usage, now_s, last, self._settings, joined=joined, links_ms=links_ms)
        if looked.code == rules.VIRTUAL_MOVED:
            near = [node for node, _ in self._context.directory.nearest(scene.virtual, NEAREST)]
            usages = usage_at(self._context, {self._context.name, *near}, scene.links)
            looked = rules.may_save(looked, usages, self._context.name, self._settings)
        return looked, Glance(scene.virtual, scene.usage, now_s, nodes)

    def _looked(self, look: _Look, *, overloaded: bool, group: bool) -> Why:
        """Return why to look for another host now; remember the look."""
        if group:
            others = ", ".join(one.spec.id for one in look.subject.members[1:])
            return Why(rules.TOGETHER, f"together with {others}")
        looked, glance = self._change(look.scene, look.memory)
        if overloaded:
            looked = Why(rules.OVERLOADED, f"this node has {self._load():.1f} runnable processes per core")
        if looked.code != rules.UNCHANGED:
            look.memory.glance = glance
        return looked

    async def _faster(self, look: _Look, looked: Why) -> tuple[Offer, Why] | None:
        """Return a host that shortens the way of rows, if the query is late; None if it is not, or there is no such host.

        Without one, the next look is after ``look_again_s``, or when anything else has changed.
        """
        subject, scene, memory, _ = look
        now_s, now_ms, settings = self._context.clock.now(), self._context.clock.wall_ms(), self._settings
        if subject.bound_ms is None or (now_s < memory.not_faster_until_s and looked.code == rules.UNCHANGED):
            return None
        delay_ms = await measured_delay_ms(self._context, self._parts.records, subject.members[0])
        if not (late_ms := rules.late_ms(delay_ms, subject.bound_ms, settings)):
            return None
        least_ms = rules.least_shortening_ms(scene.way_ms, subject.past_moves, now_ms, settings)
        for shorter_ms in sorted({max(late_ms, least_ms), least_ms}, reverse=True):
            if (most_way_ms := scene.way_ms - shorter_ms) <= 0:
                continue
            offer = await self._offer(look, most_way_ms=most_way_ms)
            if offer is not None:
                why = rules.hastens(scene.way_ms, late_ms, offer, subject.past_moves, now_ms, settings)
                if why.code == rules.HASTENS:
                    return offer, why
        memory.not_faster_until_s = now_s + settings.look_again_s
        return None

    async def _offer(self, look: _Look, *, elsewhere: bool = False, most_way_ms: float | None = None) -> Offer | None:
        """Return the best other host, ``elsewhere`` if this is no candidate; None if no way is as short as ``most_way_ms``."""
        subject, scene, memory, view = look
        try:
            return await best_host(
                subject.members[0].spec.id,
                total([one.spec.needs for one in subject.members]),
                scene,
                self.refused(subject.past_moves, memory) | ({self._context.name} if elsewhere else set()),
                view,
                self._parts.placement,
                here=self._context.name,
                pairs=self._settings.pairs,
                most_way_ms=most_way_ms,
            )
        except SbonError as error:
            if error.code != "delay-bound":
                raise
            return None

    def _lacking(self, hosted: HostedOperator, memory: Memory) -> Why | None:
        """Return why this node is about to break the query's bound on throughput; None also where no other host was found lately.

        An operator that has moved within ``return_s`` stays: if it falls behind again, no host has been of use.
        """
        spec, clock = hosted.spec, self._context.clock
        if clock.now() < memory.no_capacity_until_s or rules.left_lately(spec.past_moves, clock.wall_ms(), self._settings):
            return None
        measures, free = self._operators.ports.described(spec.id), self._operators.free()
        return rules.lacks(spec.min_throughput_bytes_s, measures, free.bandwidth_bytes_s, self._settings)

    async def _carrier(self, look: _Look, lacking: Why) -> tuple[Offer | None, Why]:
        """Return a host with the throughput that is ``lacking`` here, and why; without one, pause looking."""
        memory, until_s = look.memory, look.memory.no_capacity_until_s
        memory.no_capacity_until_s = self._context.clock.now() + self._settings.look_again_s
        offer = await self._offer(look, elsewhere=True)
        if offer is None:
            return None, Why(lacking.code, f"{lacking.text}; no other node has the capacity")
        why = rules.carries(look.scene.way_ms, offer, bounded=look.subject.bound_ms is not None)
        if why.code in rules.MOVING:
            memory.no_capacity_until_s = until_s
        return offer, Why(why.code, f"{lacking.text}; {why.text}")

    def refused(self, past_moves: tuple[PastMove, ...], memory: Memory) -> frozenset[str]:
        """Return the nodes that are no candidates: those where a move has failed lately, and those that a member has left."""
        now_s, now_ms = self._context.clock.now(), self._context.clock.wall_ms()
        memory.failed_until_s = {node: until_s for node, until_s in memory.failed_until_s.items() if until_s > now_s}
        left = rules.left_lately(past_moves, now_ms, self._settings)
        return (left | set(memory.failed_until_s)) - {self._context.name}

    def _relieves(self, hosted: HostedOperator) -> bool:
        """Return whether the operator should leave because of load: it keeps this overloaded node busier than others do."""
        if self._load() < self._settings.overload or self._context.clock.now() - self.relieved_s < rules.RELIEF_S:
            return False
        measures = {one.spec.id: self._operators.ports.described(one.spec.id) for one in self._adaptable()}
        busy = {one: (known.busy or 0.0) if known is not None else 0.0 for one, known in measures.items()}
        return hosted.spec.id == max(busy, key=lambda one: (busy[one], one), default="")

    # -- together -----------------------------------------------------------------------------------------------------

    async def _together(self, hosted: HostedOperator, links: dict[str, tuple[Link, ...]], memory: Memory) -> Made | None:
        """Return the decision, made by the first by id, to move the operator with its neighbours here; None if it stays."""
        peers = {one.spec.id: one for one in self._adaptable() if one.spec.query == hosted.spec.query}
        here = {link.vertex for link in links[hosted.spec.id] if link.vertex in peers}
        if not here or min(here) < hosted.spec.id:
            return None
        for one in sorted(peers):
            if one != hosted.spec.id:
                links[one] = await self._parts.links_of(one)
        group = rules.group_of(hosted.spec.id, links)
        if not 1 < len(group) <= MOST_TOGETHER or group[0] != hosted.spec.id:
            return None
        members = tuple(peers[one] for one in group)
        try:
            if any(self.waits(one) is not None for one in members):
                return None
        except SbonError:
            return None
        subject = self._subject(members, links)
        made = await self._weigh(subject, memory, group=True)
        return Made(made, members) if made.verdict == MOVES else None

    def _adaptable(self) -> list[HostedOperator]:
        return [one for one in self._operators.stored() if one.spec.adapt in BY_HOSTS]

    def _subject(self, members: tuple[HostedOperator, ...], links: Mapping[str, tuple[Link, ...]]) -> _Subject:
        state_bytes = sum(self._parts.state_bytes(one.spec.id) for one in members)
        return _Subject(members, rules.outer_links([one.spec.id for one in members], links), state_bytes)
