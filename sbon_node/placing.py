"""The strategies' view of the live network: coordinates from gossip, answers from the nodes themselves."""

import asyncio
import math
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from sbon_node.context import Context
from sbon_node.model.servers import ServerReport
from sbon_node.overlay.directory.measuring import Measurement, unordered
from sbon_node.placement.model.network_view import UNKNOWN_MS, Answer, Answered, Sent, Window
from sbon_node.placement.model.queueing import Flow, Server, Service
from sbon_node.placement.selection.discovery import Discovery
from sbon_protocol.api.operators import Needs
from sbon_protocol.base import Call
from sbon_protocol.calls import CALLS, AskNode, NodeAnswer, method_of
from sbon_protocol.codec import decode_record
from sbon_protocol.errors import ProtocolError, SbonError
from sbon_protocol.papers.sand import PlacedOperators

T = TypeVar("T")

PARENT_TAG = "parent"
"""The tag that names a node's parent, as in ``membership.tags = ["parent=fog1"]``."""


class LiveNetworkView:
    """A :class:`~sbon_node.placement.model.network_view.NetworkView` over directory and peers.

    Counts its requests. Servers' flows are without those of the query ``beside``, if one is named.
    """

    sparing = False
    """Whether it leaves a part of this node's measurement limit to others."""
    max_age_s: float | None = None
    """Age of a measurement that counts as fresh; None for ``directory.fresh_s``."""

    def __init__(self, context: Context, beside: str = "") -> None:
        self._context, self._query = context, beside
        self.rng, self.probes = context.rng, 0
        self._discovery = Discovery(self, self._cores)
        self._answered_ms: dict[str, float] = {}

    def nodes(self) -> list[str]:
        return sorted({self._context.name, *self._context.membership.alive()})

    def coordinate(self, node: str) -> tuple[float, ...] | None:
        coordinate = self._context.directory.coordinate(node)
        return None if coordinate is None else tuple(float(x) for x in coordinate.vector)

    def coordinate_age_s(self, node: str) -> float | None:
        return self._context.directory.coordinate_age_s(node)

    def load_ms(self, node: str) -> float:
        coordinate = self._context.directory.coordinate(node)
        return self._answered_ms.get(node, 0.0 if coordinate is None else coordinate.load)

    def nearest(self, point: Sequence[float], k: int, *, exclude: Collection[str] = ()) -> list[tuple[str, float]]:
        return self._context.directory.nearest(tuple(point), k, exclude=frozenset(exclude), loads_ms=self._answered_ms)

    def latency_ms(self, a: str, b: str) -> float:
        """Return the one-way latency from a fresh measurement if there is one, else from the coordinates."""
        estimate = self._context.directory.estimate_rtt_ms(a, b).one_way_ms
        return UNKNOWN_MS if estimate is None else estimate

    async def measure(self, pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], float]:
        present = {self._context.name, *self._context.membership.alive()}
        pairs = [pair for pair in pairs if present.issuperset(pair)]
        new = {unordered(pair) for pair in pairs if self._context.directory.known(pair) is None}
        outcomes = await self._context.directory.measure(pairs, max_age_s=self.max_age_s, sparing=self.sparing)
        self.probes += len(new)
        return {pair: outcome.rtt_ms / 2 for pair, outcome in outcomes.items() if isinstance(outcome, Measurement)}

    def latencies_ms(self, sources: Sequence[str], targets: Sequence[str], *, measured: bool = True) -> NDArray[np.float64]:
        """Return the one-way latencies [sources, targets]; by the coordinates alone if not ``measured``."""
        rtt_ms = self._context.directory.estimates_ms(sources, targets, measured=measured)
        latencies: NDArray[np.float64] = np.where(np.isnan(rtt_ms), UNKNOWN_MS, rtt_ms / 2)
        return latencies

    def route(self, source: str, target: str) -> list[str] | None:
        """Return the route; nodes do not see the routers between them."""
        return None

    def parent(self, node: str) -> str | None:
        member = self._context.membership.get(node)
        return None if member is None else member.meta.tags.get(PARENT_TAG)

    def owner(self, key: str, exclude: Collection[str] = ()) -> str:
        owners = self._context.directory.owner(key, len(exclude) + 1)
        return next((node for node in owners if node not in exclude), owners[-1])

    async def send_all(self, sent: Sequence[Sent], within_s: float) -> list[Answered]:
        return list(await asyncio.gather(*(self._send(node, message, within_s) for node, message in sent)))

    async def _send(self, node: str, message: Call, within_s: float) -> Answered:
        try:
            return await send_to_coordinator(self._context, node, message, within_s)
        except SbonError as error:
            return error

    def overlay_route(self, source: str, target: str) -> list[str]:
        return self._context.directory.route_to(target, source)

    async def ask(self, node: str, needs: Needs) -> Answer:
        self.probes += 1
        call = AskNode(cores=needs.cores, memory_mb=needs.memory_mb, bandwidth_bytes_s=needs.bandwidth_bytes_s, query=self._query)
        try:
            answer = await self._context.ask(node, call, NodeAnswer)
        except SbonError as error:
            return Answer(accepted=False, reason=str(error))
        report = self._server_of(answer, node)
        self._answered_ms[node] = self._context.directory.load_ms(answer.load)
        return Answer(
            accepted=answer.accepted,
            reason=answer.reason,
            operators=answer.operators,
            free=Needs(cores=answer.free_cores, memory_mb=answer.free_memory_mb, bandwidth_bytes_s=answer.free_bandwidth_bytes_s),
            load=answer.load,
            other_load=None if report is None else report.other_load,
            server=None if report is None else _server(report),
        )

    def _server_of(self, answer: NodeAnswer, node: str) -> ServerReport | None:
        """Return what the node states of itself as a server; None if that is nothing, or impossible."""
        if answer.server is None:
            return None
        try:
            report: ServerReport = decode_record(answer.server, ServerReport)
        except ProtocolError as error:
            self._context.counters.refuse("server-refused", node=node, reason=str(error))
            return None
        return report

    async def ask_all(self, nodes: Sequence[str], needs: Needs) -> dict[str, Answer]:
        answers = await asyncio.gather(*(self.ask(node, needs) for node in nodes))
        return dict(zip(nodes, answers, strict=True))

    async def discover(self, window: Window) -> dict[str, Answer]:
        return await self._discovery.find(window)

    @property
    def discoveries(self) -> int:
        return self._discovery.count

    async def compute(self, work: Callable[[], T], /) -> T:
        return await self._context.computing(work)

    async def pause(self) -> None:
        await asyncio.sleep(0)

    def _cores(self, node: str) -> float:
        """Return the node's cores in all, as its gossip reports them."""
        member = self._context.membership.get(node)
        return member.meta.cores if member is not None and member.meta.cores > 0 else math.inf


async def send_to_coordinator(context: Context, node: str, message: Call, within_s: float) -> PlacedOperators | None:
    """Return the answer of a node to a message for a query's coordinators; raises :class:`SbonError`.

    A message that causes others is answered after them, and may take ``within_s``; the others get as long as any short answer.
    """
    if CALLS[method_of(message)][1] is None:
        await context.call(node, message, timeout_s=min(within_s, context.settings.call_timeout_s))
        return None
    return await context.ask(node, message, PlacedOperators, timeout_s=within_s)


def _server(report: ServerReport) -> Server:
    flows = (Flow(rate_s=flow.rows_s, service=Service(mean_ms=flow.row_ms, scv=flow.row_scv)) for flow in report.flows)
    return Server(speed=report.speed, flows=tuple(flows))
