"""A node as a coordinator of other nodes' placements: what it keeps of each, and the messages that a message causes.

A message is answered once all messages that it caused are answered, so the proxy knows the end of a round when its own
messages are answered. The answer has the operators placed meanwhile. An error goes up the same way, and names the node that
failed. Each message has a share of the time that its cause has left: a node that waits for a silent one gives up before its own
caller does.

A coordinator uses its own knowledge of the network: what it has measured, the measurements in ADDSUBTREE, and elsewhere the
coordinates that it knows. Peers are not trusted: all is checked, limited and forgotten after a time.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, NamedTuple, TypeVar

import msgspec
import numpy as np

from sbon_node.papers.sand.algorithm.configurations import DeadEndError, Locations
from sbon_node.papers.sand.algorithm.coordinator import SHARE, Coordinator, Rule, Step, bad, failed, newer
from sbon_node.papers.sand.algorithm.strategies import RULES
from sbon_node.placement.model.latency_matrix import LatencyMatrix
from sbon_node.placement.model.network_view import NetworkView, Sent
from sbon_node.placement.settings import PlacementSettings
from sbon_protocol.base import Call
from sbon_protocol.errors import SbonError
from sbon_protocol.papers.sand import AddSubtree, InvalidateMap, MapOperator, OperatorMapped, OperatorRemapped, PlacedOperators

Send = Callable[[str, Call, float], Awaitable[PlacedOperators | None]]
"""Function that sends a message to a node, waits for so many seconds at most, and returns the answer."""

ROUNDING_MS = 1e-9
HOSTED_OF_PLACEMENT = 64
"""Operators of a placement that may be mapped to one node, on average over the placements kept."""


class MappedHere(NamedTuple):
    """An operator placed on this node in a round."""

    round: int
    generation: int


class Coordinators:
    """The coordinators at the node ``name``. ``now`` is the time in seconds."""

    def __init__(self, name: str, settings: PlacementSettings, view: NetworkView, now: Callable[[], float], send: Send) -> None:
        self._name, self._settings, self._view, self._now, self._send = name, settings, view, now, send
        kept, of_peer, kept_s = settings.zones_kept, settings.zones_kept_of_peer, settings.zones_kept_s
        self._placements: BoundedCache[str, Coordinator] = BoundedCache(kept, of_peer, kept_s)
        self._mapped: BoundedCache[tuple[str, str], MappedHere] = BoundedCache(
            kept * HOSTED_OF_PLACEMENT, of_peer * HOSTED_OF_PLACEMENT, kept_s
        )
        self._serving: Counter[str] = Counter()
        """Messages under way, by caller."""

    def __len__(self) -> int:
        """Return the number of placements kept."""
        return len(self._placements)

    def mapped(self) -> dict[tuple[str, str], MappedHere]:
        """Return the operators placed here, by placement and operator."""
        return dict(self._mapped.items(self._now()))

    async def serve(self, call: Call, caller: str) -> PlacedOperators | None:
        """Do as a message says, and return the answer; raises :class:`SbonError`.

        The errors are ``bad-zone``, ``zones-busy``, ``unknown-zone`` where the round is not known, and ``zone-failed`` with the
        node that failed in ``where``.
        """
        if isinstance(call, AddSubtree):
            self._add(call, caller)
            return None
        self._check_free(caller)
        self._serving[caller] += 1
        try:
            return await self._served(call, caller)
        finally:
            self._serving -= Counter([caller])  # Drops callers without a message.

    def _check_free(self, caller: str) -> None:
        """Raise :class:`SbonError` ``zones-busy`` if too many messages, or too many of the caller, are under way."""
        settings = self._settings
        for under_way, most, where in (
            (self._serving.total(), settings.zone_messages, "placement.zone_messages"),
            (self._serving[caller], settings.zone_messages_of_peer, "placement.zone_messages_of_peer"),
        ):
            if under_way >= most:
                whose = f" of {caller}" if where.endswith("_of_peer") else ""
                message = f"{self._name} has {under_way} messages of placements{whose} under way"
                raise SbonError("zones-busy", message, where=where, hint="try again in some seconds")

    async def _served(self, call: Call, caller: str) -> PlacedOperators | None:
        if isinstance(call, OperatorMapped | MapOperator | OperatorRemapped):
            return await self._follow(call, caller)
        if not isinstance(call, InvalidateMap):
            raise TypeError(f"{type(call).__name__} is no message of coordinators")
        self._invalidate(call)
        return None

    def _add(self, call: AddSubtree, caller: str) -> None:
        now_s = self._now()
        known = self._placements.get(call.placement, now_s)
        if known is not None and known.peer != caller:
            raise bad(f"{call.placement} is a placement of {known.peer}", call.placement)
        if known is not None and known.value.round >= call.round:
            raise bad(f"round {call.round} comes after {known.value.round}", call.placement)
        if len(call.locations) > self._settings.zone_locations:
            message = f"{len(call.locations)} locations, and {self._name} considers {self._settings.zone_locations} at most"
            raise SbonError("too-large", message, where="placement.zone_locations", hint="raise it at all nodes")
        rule = checked(call)
        self._placements.put(call.placement, Coordinator(self._name, call, rule, self._locations(call, rule)), caller, now_s)

    def _locations(self, call: AddSubtree, rule: Rule) -> Locations:
        """Return the locations as this node knows them; without latencies if it only has sources."""
        nodes = list(call.locations)
        if not any(vertex.children for vertex in call.vertices):
            return Locations(nodes, np.empty((0, 0)), np.empty((0, 0)), call.proxy, np.empty(0))
        matrix = LatencyMatrix(self._view, nodes, [node for node in nodes if self._view.coordinate(node) is None])
        matrix.learn_pairs([(pair.first, pair.second, pair.latency_ms) for pair in call.measured])
        latency_ms = matrix.believed_ms()
        bound, to_proxy_ms = call.max_delay_ms, latency_ms[:, call.proxy]
        slack_ms = np.full(len(nodes), np.inf) if bound is None else bound + ROUNDING_MS - to_proxy_ms
        return Locations(nodes, latency_ms, rule.charge(latency_ms), call.proxy, slack_ms)

    def _invalidate(self, call: InvalidateMap) -> None:
        key = (call.placement, call.vertex)
        known = self._mapped.get(key, self._now())
        if known is not None and known.value == (call.round, call.generation):
            self._mapped.drop(key)

    async def _follow(self, call: OperatorMapped | MapOperator | OperatorRemapped, caller: str) -> PlacedOperators:
        """Take the step, and send the messages of it one after another until one is answered with a dead end."""
        until_s = self._now() + min(call.left_s, self._settings.zone_s)  # A peer must not keep this node waiting for ever.
        try:
            step = self._step(call, caller)
        except DeadEndError as error:
            return PlacedOperators(dead_end=error.operator)
        placed = {place.vertex: place for place in step.placed}
        for sent in step.sent:
            answer = await self._sent(sent, until_s)
            if answer is not None:
                newer(placed, answer.placed)
                if answer.dead_end:
                    return PlacedOperators(tuple(placed.values()), answer.dead_end)
        return PlacedOperators(tuple(placed.values()))

    def _step(self, call: OperatorMapped | MapOperator | OperatorRemapped, caller: str) -> Step:
        now_s = self._now()
        known = self._placements.get(call.placement, now_s)
        in_round = known if known is not None and known.value.round == call.round else None
        if isinstance(call, OperatorMapped):
            if in_round is not None and in_round.peer == caller and in_round.value.is_source(call.vertex):
                return in_round.value.inform(call.vertex)
            self._mapped.put((call.placement, call.vertex), MappedHere(call.round, call.generation), caller, now_s)
            return Step([], [])
        if in_round is None:
            message = f"{self._name} does not know round {call.round} of {call.placement}"
            raise SbonError("unknown-zone", message, where=call.vertex, hint="place the query again")
        if isinstance(call, MapOperator):
            return in_round.value.map(call, caller)
        return in_round.value.remap(call, caller)

    async def _sent(self, sent: Sent, until_s: float) -> PlacedOperators | None:
        """Send a message; one to this node is served at once. A former node that is away forgets the operator by itself."""
        message, left_s = sent.message, until_s - self._now()
        if isinstance(message, OperatorMapped | MapOperator | OperatorRemapped):
            message = msgspec.structs.replace(message, left_s=max(left_s, 0.0) * SHARE)
        try:
            if sent.node == self._name:
                return await self._served(message, self._name)
            if left_s <= 0:
                raise failed(sent.node, "the time is over", self._name)
            return await self._send(sent.node, message, left_s)
        except SbonError as error:
            if isinstance(message, InvalidateMap):
                return None
            if error.code == "zone-failed":
                raise
            raise failed(sent.node, f"{error.message} ({self._name} says so)", self._name) from error


def checked(call: AddSubtree) -> Rule:
    """Return the rule of the strategy; raise :class:`SbonError` ``bad-zone`` for a message that contradicts itself."""
    rule, count = RULES.get(call.rule), len(call.locations)
    if rule is None:
        raise bad(f"{call.rule} is no strategy with zones", call.placement)
    if len(set(call.locations)) < count or call.proxy >= count:
        raise bad("locations are named twice, or the proxy is none of them", call.placement)
    if any(max(pair.first, pair.second) >= count or pair.first == pair.second for pair in call.measured):
        raise bad("a measured pair is none of the locations", call.placement)
    by_id = {vertex.vertex: vertex for vertex in call.vertices}
    if len(by_id) < len(call.vertices):
        raise bad("a vertex is named twice", call.placement)
    for vertex in call.vertices:
        children = [link.vertex for link in vertex.children]
        if len({*children, vertex.vertex}) <= len(children):
            raise bad("a child is named twice, or is the operator itself", vertex.vertex)
        if vertex.root != vertex.vertex:
            reader = by_id.get(vertex.readers[0].vertex) if len(vertex.readers) == 1 and not vertex.shared else None
            if reader is None or reader.root != vertex.root or vertex.vertex not in [link.vertex for link in reader.children]:
                raise bad(f"its only reader is not in its zone {vertex.root}", vertex.vertex)
    return rule


# -- Entries kept for others: limited in number, in all and for each peer, and forgotten after a time -----------------

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Entry(NamedTuple, Generic[V]):
    """A value, the peer that it is kept for, and when it is forgotten."""

    value: V
    peer: str
    until_s: float


class BoundedCache(Generic[K, V]):
    """At most ``most`` entries, ``most_of_peer`` for a peer, each forgotten ``kept_s`` after it was put.

    A peer with too many loses its oldest. If there are too many of all, the peer with the most loses its oldest: so one that
    floods this node displaces nobody else's.
    """

    def __init__(self, most: int, most_of_peer: int, kept_s: float) -> None:
        self._most, self._most_of_peer, self._kept_s = most, most_of_peer, kept_s
        self._entries: dict[K, Entry[V]] = {}
        """In the order in which they were put."""
        self._of_peer: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K, now_s: float) -> Entry[V] | None:
        """Return the entry; None if there is none, or none any more."""
        self._forget(now_s)
        return self._entries.get(key)

    def put(self, key: K, value: V, peer: str, now_s: float) -> None:
        """Keep a value instead of an earlier one."""
        self._forget(now_s)
        self.drop(key)
        if self._of_peer[peer] >= self._most_of_peer:
            self._drop_oldest(peer)
        elif len(self._entries) >= self._most:
            self._drop_oldest(max(self._of_peer, key=lambda other: self._of_peer[other]))
        self._entries[key] = Entry(value, peer, now_s + self._kept_s)
        self._of_peer[peer] += 1

    def drop(self, key: K) -> None:
        """Forget the entry, if there is one."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._of_peer[entry.peer] -= 1
            if not self._of_peer[entry.peer]:
                del self._of_peer[entry.peer]

    def items(self, now_s: float) -> list[tuple[K, V]]:
        """Return the keys and values, the oldest first."""
        self._forget(now_s)
        return [(key, entry.value) for key, entry in self._entries.items()]

    def _drop_oldest(self, peer: str) -> None:
        self.drop(next(key for key, entry in self._entries.items() if entry.peer == peer))

    def _forget(self, now_s: float) -> None:
        while self._entries:
            key = next(iter(self._entries))
            if self._entries[key].until_s > now_s:
                return
            self.drop(key)
