"""Reachability of a node by its peers: they ping it and connect to it at the address they know.

The same answers give the clock offset. A node connects back only to the member that asks, at the address membership knows, and at
a limited rate: so no caller can make it connect elsewhere.
"""

from __future__ import annotations

import asyncio
import math
from importlib.metadata import version
from typing import NamedTuple

import structlog

from sbon_node.base.token_buckets import TokenBucket, TokenBuckets
from sbon_node.context import Context
from sbon_node.net.peers import Caller
from sbon_node.net.transport import ConnectionLostError
from sbon_protocol.api.bounded import MAX_REASON
from sbon_protocol.calls import AskNode, NodeAnswer
from sbon_protocol.errors import ProtocolError, SbonError
from sbon_protocol.measuring import ReachBack, ReachedBack
from sbon_protocol.messages import Endpoint

log = structlog.get_logger()

PING_S = 2.0
PINGS = 3
PATIENT_S = 6.0
"""Wait for one more ping where none came back: a busy machine may be late."""
BURST, PEER_BURST = 64, 4
PER_S, PEER_PER_S = 4.0, 0.2
MAX_ASKERS = 1024


class Reached(NamedTuple):
    """The answer of one peer.

    ``offset_ms`` is how far its clock is ahead of ours, plus or minus ``uncertain_ms``.
    """

    node: str
    ping_ms: float | None
    answer: ReachedBack | None
    refusal: str
    offset_ms: float
    uncertain_ms: float


class Reach:
    """Asks peers, and answers peers that ask."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._buckets = TokenBuckets(
            whole=TokenBucket(BURST, PER_S), each=lambda: TokenBucket(PEER_BURST, PEER_PER_S), most=MAX_ASKERS
        )
        context.server.handle(ReachBack, self._reach_back)

    async def ask(self, nodes: list[str]) -> list[Reached]:
        """Ask all nodes at the same time."""
        return list(await asyncio.gather(*(self._ask(node) for node in nodes)))

    async def _ask(self, node: str) -> Reached:
        context = self._context
        ping_ms = await self._ping(node)
        try:
            # Opens the connection if there is none, so that the timing covers a single round trip.
            await context.ask(node, AskNode(cores=0, memory_mb=0, bandwidth_bytes_s=0), NodeAnswer)
            before_ms = context.clock.wall_ms()
            answer = await context.ask(
                node, ReachBack(), ReachedBack, timeout_s=context.settings.call_timeout_s + 2 * PING_S + PATIENT_S
            )
        except SbonError as error:
            return Reached(node, ping_ms, None, f"{error.code}: {error.message}", 0.0, math.inf)
        if (known := context.membership.clocks.offset(node)) is not None:
            return Reached(node, ping_ms, answer, "", known.ahead_ms, known.error_ms + 1)
        within_ms = float(context.clock.wall_ms() - before_ms)  # Both nodes may be busy: the answer says nothing more.
        return Reached(node, ping_ms, answer, "", answer.wall_ms - before_ms - within_ms / 2, within_ms / 2 + 1)

    async def _ping(self, node: str) -> float | None:
        """Return the least of several round trips; None if no ping came back."""
        ping = self._context.membership.ping
        answers = [answer for _ in range(PINGS) if (answer := await ping(node, PING_S / PINGS)) is not None]
        answers = answers or [answer for answer in [await ping(node, PATIENT_S)] if answer is not None]
        return min((answer.rtt_ms for answer in answers), default=None)

    async def _reach_back(self, call: ReachBack, caller: Caller) -> ReachedBack:
        context, wall_ms = self._context, self._context.clock.wall_ms()
        address = context.membership.address_of(caller.node)
        again_s = self._buckets.take(caller.node, 1, context.clock.now())
        if again_s > 0:
            context.counters.count("reach-refused")
            raise SbonError("too-many-measurements", "asked too often", where="node", hint=f"come again in {again_s:.0f} s")
        ping_ms = await self._ping(caller.node)
        began = context.clock.now()
        refusal = await self._connect(caller.node)
        return ReachedBack(
            version=version("sbon"),
            wall_ms=wall_ms,
            seen=Endpoint(caller.address.host, caller.address.port),
            known=Endpoint(address.host, address.port),
            udp_ms=ping_ms or 0.0,
            udp="" if ping_ms is not None else f"{PINGS + 1} pings were not answered",
            tcp_ms=(context.clock.now() - began) * 1000,
            tcp=refusal[:MAX_REASON],
        )

    async def _connect(self, node: str) -> str:
        """Return why a new connection with its handshake fails; empty if it succeeds."""
        context = self._context
        try:
            address, expected = context.membership.address_of(node), context.membership.expected(node)
            channel = await context.peers.open_stream(address, expected)
        except (ConnectionLostError, ProtocolError, SbonError) as error:
            return str(error)
        channel.close()
        return ""
