"""An examination of a running node: its machine, its ports as peers see them, clocks, versions, addresses; and of all nodes.

A node examines itself for any member that asks, at a limited rate. Its peers ping it and connect to it at the address they know;
the same answers give the clock offset. A node connects back only to the member that asks, at the address membership knows, and at
a limited rate: so no caller can make it connect elsewhere.
"""

import asyncio
import math
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from typing import NamedTuple

import structlog
from msgspec.structs import replace

from sbon_node.base.token_buckets import TokenBucket, TokenBuckets
from sbon_node.config.config import Config
from sbon_node.context import Context
from sbon_node.net.names import is_loopback
from sbon_node.net.peers import Caller
from sbon_node.net.transport import Address, ConnectionLostError
from sbon_node.operations.examination import CheckResult, Examination, failed, ok, warning
from sbon_node.operations.machine_checks import examine_machine
from sbon_node.overlay.membership.table import LOST, REACHABLE
from sbon_node.overlay.membership.views import MemberView
from sbon_protocol.api.bounded import MAX_REASON
from sbon_protocol.api.nodes import Readiness
from sbon_protocol.calls import AskNode, NodeAnswer
from sbon_protocol.codec import decode_record
from sbon_protocol.errors import ProtocolError, SbonError
from sbon_protocol.measuring import MAX_FINDINGS, ExamineNode, NodeExamined, ReachBack, ReachedBack
from sbon_protocol.messages import Endpoint

log = structlog.get_logger()

PING_S = 2.0
PINGS = 3
PATIENT_S = 6.0
"""Wait for one more ping where none came back: a busy machine may be late."""
REACH_BURST, PEER_BURST = 64, 4
REACH_PER_S, PEER_PER_S = 4.0, 0.2


class Reached(NamedTuple):
    """The answer of one peer, whose clock is ``offset_ms`` ahead of ours, plus or minus ``uncertain_ms``."""

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
        each = partial(TokenBucket, PEER_BURST, PEER_PER_S)
        self._buckets = TokenBuckets(whole=TokenBucket(REACH_BURST, REACH_PER_S), each=each, most=MAX_ASKERS)
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


MAX_PEERS = 16
"""Most peers that are asked; chosen at random if there are more."""
MAX_EXAMINED = 32
"""Most other nodes that examine themselves for one request: those that are not ready first. The others are as they say."""
EXAMINED_S = 30.0
"""Longest wait for the examination of another node."""
BURST, PER_S, MAX_ASKERS = 4, 0.1, 1024
"""Examinations that one member may ask for at once, and a second."""
LATE_MS, VERY_LATE_MS = 500.0, 10_000.0
OVERLOADED = 4.0
"""Load average of the last minute per core from which a node may answer pings so late that others suspect it."""


class Doctor:
    """Runs one examination at a time, for all that ask meanwhile; ``readiness`` and ``load`` (per core) are the node's own."""

    def __init__(
        self, config: Config, context: Context, reach: Reach, readiness: Callable[[], Readiness], load: Callable[[], float]
    ) -> None:
        self._config, self._context, self._reach, self._readiness, self._load = config, context, reach, readiness, load
        self._under_way: asyncio.Task[Examination] | None = None
        each = partial(TokenBucket, BURST, PER_S)
        self._buckets = TokenBuckets(whole=TokenBucket(4 * BURST, 4 * PER_S), each=each, most=MAX_ASKERS)
        context.server.handle(ExamineNode, self._examine_for)

    async def examine(self, *, everywhere: bool = False) -> Examination:
        """Examine this node, and have the others examine themselves if ``everywhere``; takes some seconds."""
        if not everywhere:
            return await self._examine()
        others = sorted(self._context.membership.members(), key=lambda one: (one.meta.ready is not False, one.name))
        there = [one for one in others if one.state in REACHABLE and one.name != self._context.name]
        own, *asked = await asyncio.gather(self._examine(), *(self._ask(one) for one in there[:MAX_EXAMINED]))
        told = [_as_told(one) for one in there[MAX_EXAMINED:]]
        findings = (replace(finding, node=one.node) for one in (own, *asked, *told) for finding in one.findings)
        return replace(own, findings=tuple(findings))

    async def _ask(self, member: MemberView) -> Examination:
        """Return the examination of another node by itself; else what it tells all members of itself."""
        try:
            answer = await self._context.ask(member.name, ExamineNode(), NodeExamined, timeout_s=EXAMINED_S)
            findings: tuple[CheckResult, ...] = tuple(decode_record(finding, CheckResult) for finding in answer.findings)
        except (SbonError, ProtocolError) as error:
            remedy = f"run there: sbon doctor --only; or see whether its process is stopped: sbon members --near {member.name}"
            told = _as_told(member)
            return replace(told, findings=(*told.findings, warning("examination", f"it was not examined: {error}", remedy)))
        return Examination(node=member.name, findings=findings)

    async def _examine_for(self, call: ExamineNode, caller: Caller) -> NodeExamined:
        self._context.membership.address_of(caller.node)  # Strangers are refused.
        again_s = self._buckets.take(caller.node, 1, self._context.clock.now())
        if again_s > 0:
            raise SbonError("too-many-measurements", "asked too often", where="node", hint=f"come again in {again_s:.0f} s")
        examination = await self._examine()
        return NodeExamined(findings=examination.findings[:MAX_FINDINGS])

    async def _examine(self) -> Examination:
        """Return the result of the examination under way; begin one if there is none."""
        if self._under_way is None:
            self._under_way = asyncio.ensure_future(self._examined())
            self._under_way.add_done_callback(self._over)
        return await asyncio.shield(self._under_way)

    def _over(self, examination: asyncio.Task[Examination]) -> None:
        self._under_way = None
        if not examination.cancelled():
            examination.exception()  # Those that have asked may be gone.

    async def _examined(self) -> Examination:
        machine = await self._context.executor(partial(examine_machine, self._config))
        peers = self._context.membership.alive()
        sampled = sorted(self._context.rng.sample(peers, min(len(peers), MAX_PEERS)))
        reached = await self._reach.ask(sampled)
        data_dir = ok("data-dir", f"{self._context.data_dir}, held by this node")
        members = _members(self._context.membership.members(), self._context.name)
        alone = _alone(self._config, peers)
        own = [*_node(self._readiness()), *machine, loaded(self._context.name, self._load()), data_dir]
        results = [*own, *members, *alone, *judged(reached, self._config.node.announced)]
        if len(sampled) < len(peers):
            results.append(ok("peers", f"{len(sampled)} of {len(peers)} others were asked"))
        return Examination(node=self._context.name, findings=tuple(results))


def loaded(node: str, per_core: float) -> CheckResult:
    """Judge the load average of a node's machine, per core. Pure."""
    message = f"{node} had {per_core:.1f} runnable processes for each core of its machine in the last minute"
    if per_core < OVERLOADED:
        return ok("load", message)
    remedy = "end other programs there, run fewer nodes on the machine, or move operators away: sbon query migrate, sbon drain"
    return warning("load", f"{message}: it answers late, and others may suspect it", remedy)


def judged(reached: list[Reached], announced: Address) -> list[CheckResult]:
    """Judge the peers' reports about a node that announces the address ``announced``. Pure."""
    results = [_reachable(peer, announced.port) for peer in reached]
    answers = {peer.node: peer.answer for peer in reached if peer.answer is not None}
    if answers:
        clocks = _clocks([peer for peer in reached if peer.node in answers])
        results += [_address(answers, announced), *clocks, _versions(answers)]
    return results


def _as_told(member: MemberView) -> Examination:
    """Return what a node tells all members of itself."""
    codes = ", ".join(member.meta.reasons)
    if member.meta.ready is None:
        finding = warning("node", "does not say whether it is ready", "update it to the version of this node")
    elif member.meta.ready is False:
        finding = failed("node", f"not ready: {codes}", f"see at the node: sbon doctor --only; {member.name} gives the reasons")
    elif codes:
        finding = warning("node", f"works only in part: {codes}", "see at the node: sbon doctor --only")
    else:
        finding = ok("node", "ready, as it tells all members")
    return Examination(node=member.name, findings=(finding,))


def _members(members: list[MemberView], own: str) -> list[CheckResult]:
    """Check for members that are not well, as the ``own`` node sees them; nodes that have left are no longer members."""
    lost = [f"{member.name} is {member.state}" for member in members if member.state in LOST]
    unwell = [f"{member.name} is suspect" for member in members if member.state == "suspect"]
    others = [member for member in members if member.state in REACHABLE and member.name != own]
    unwell += [f"{one.name} is not ready ({', '.join(one.meta.reasons)})" for one in others if one.meta.ready is False]
    unwell += [f"{one.name} works only in part ({', '.join(one.meta.reasons)})" for one in others if _is_impaired(one)]
    if not lost and not unwell:
        return [ok("members", f"{sum(member.state != 'left' for member in members)}, all alive")]
    seen = "its ports, clock and version were not looked at" if len(lost) == 1 else "ports, clocks and versions of these were not"
    parts = [", ".join(lost), seen] if lost else []
    message = "; ".join([*parts, ", ".join(unwell)] if unwell else parts)
    remedy = (
        "start them again, or see what keeps them from answering; which queries wait for them: sbon query list, sbon query show"
        if lost or any(member.state == "suspect" for member in members)
        else "see at each of them what it lacks: sbon doctor --only"
    )
    return [warning("members", message, remedy)]


def _is_impaired(member: MemberView) -> bool:
    return member.meta.ready is True and bool(member.meta.reasons)


def _alone(config: Config, peers: list[str]) -> list[CheckResult]:
    if peers:
        return []
    if not config.node.join:
        return [ok("peers", "this node is on its own")]
    remedy = "see whether the others run; join one of them: sbon join HOST:PORT"
    return [warning("peers", "no other member can be reached, so ports, clocks and versions were not compared", remedy)]


def _node(readiness: Readiness) -> list[CheckResult]:
    """Check the node's readiness, as /readyz reports it."""
    if not readiness.reasons:
        return [ok("node", "ready")]
    verdicts = {"unready": failed, "impaired": warning}
    return [
        verdicts[reason.weight]("node", f"{reason.code}: {reason.message}", reason.hint or "wait, and look again")
        for reason in readiness.reasons
    ]


def _reachable(peer: Reached, port: int) -> CheckResult:
    """Check UDP and TCP, to a peer and back from it."""
    check, answer = f"ports {peer.node}", peer.answer
    wrong = ["UDP to it or its answers are lost"] if peer.ping_ms is None else []
    if answer is None:
        wrong.append(f"TCP to it: {peer.refusal}")
    else:
        wrong += [f"{kind} from it: {why}" for kind, why in (("UDP", answer.udp), ("TCP", answer.tcp)) if why]
    if not wrong:
        return ok(check, f"UDP and TCP in both directions, {peer.ping_ms:.1f} ms there and back")
    remedy = (
        f"let UDP and TCP to port {port} through the firewalls on both sides; behind a NAT forward the port and set "
        f"node.advertise to the outer address; run sbon doctor on {peer.node} too"
    )
    return failed(check, "; ".join(wrong), remedy)


def _address(answers: dict[str, ReachedBack], announced: Address) -> CheckResult:
    """Check the node's address as peers know it, and the origin of its connections."""
    hosts = sorted({answer.seen.host for answer in answers.values()})
    message = f"announced as {announced}; peers see connections from {', '.join(hosts)}"
    unreached = [node for node, answer in answers.items() if answer.udp or answer.tcp]
    if unreached:
        remedy = f"set node.advertise to an address that they reach, perhaps {hosts[0]}"
        return failed("address", f"{message}; {', '.join(unreached)} cannot reach it there", remedy)
    if is_loopback(announced.host) and any(not is_loopback(address) for address in hosts):
        remedy = f"no other machine reaches a loopback address: set node.advertise, perhaps to {hosts[0]}"
        return failed("address", message, remedy)
    stale = sorted(node for node, answer in answers.items() if Address(answer.known.host, answer.known.port) != announced)
    if stale:
        return warning("address", f"{message}; {', '.join(stale)} know another address of it", "wait for gossip, then look again")
    return ok("address", message)


def _clocks(answered: list[Reached]) -> list[CheckResult]:
    """Report each clock whose offset exceeds its uncertainty, and the others in one line."""
    results, well = [], []
    for peer in answered:
        off_ms = max(0.0, abs(peer.offset_ms) - peer.uncertain_ms)
        if off_ms < LATE_MS:
            well.append(peer)
            continue
        side = "ahead of" if peer.offset_ms > 0 else "behind"
        message = f"the clock of {peer.node} is {abs(peer.offset_ms) / 1000:.1f} s {side} this node's"
        remedy = "synchronise both machines' clocks: timedatectl status, chronyc tracking"
        results.append((failed if off_ms > VERY_LATE_MS else warning)("clocks", message, remedy))
    if well:
        results.append(ok("clocks", _agreement(well)))
    return results


def _agreement(well: list[Reached]) -> str:
    """Report only offsets above the uncertainty, because the latency to a peer limits the precision."""
    names = ", ".join(peer.node for peer in well)
    off_ms = max(abs(peer.offset_ms) - peer.uncertain_ms for peer in well)
    if off_ms > 0:
        return f"at least one is {off_ms:.0f} ms off, which is tolerable: {names}"
    return f"no difference from those of {names}; one of {max(peer.uncertain_ms for peer in well):.0f} ms would be seen"


def _versions(answers: dict[str, ReachedBack]) -> CheckResult:
    own = version("sbon")
    by_version: dict[str, list[str]] = defaultdict(list)
    for node, answer in answers.items():
        if answer.version != own:
            by_version[answer.version].append(node)
    if not by_version:
        return ok("versions", f"{own} everywhere")
    others = "; ".join(f"{name}: {', '.join(sorted(nodes))}" for name, nodes in sorted(by_version.items()))
    return warning("versions", f"{own} here; {others}", "bring all nodes to the same version, one after another")
