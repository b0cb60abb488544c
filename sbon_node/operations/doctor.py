"""An examination of a running node: its machine, its ports as peers see them, clocks, versions, addresses."""

from __future__ import annotations

from collections import Counter
from functools import partial
from importlib.metadata import version

from sbon_node.config.config import Config
from sbon_node.errors import SbonError
from sbon_node.membership.table import LOST
from sbon_node.membership.views import MemberView
from sbon_node.net.names import is_loopback
from sbon_node.net.transport import Address
from sbon_node.operations.examination import CheckResult, Examination, failed, ok, warning
from sbon_node.operations.machine_checks import examine_machine
from sbon_node.operations.reachability import Reach, Reached
from sbon_node.operations.readiness import Readiness
from sbon_node.workflow.context import Context

MAX_PEERS = 16
"""Most peers that are asked; chosen at random if there are more."""
LATE_MS, VERY_LATE_MS = 500.0, 10_000.0


class Doctor:
    """Runs one examination at a time."""

    def __init__(self, config: Config, context: Context, reach: Reach) -> None:
        self._config, self._context, self._reach = config, context, reach
        self._busy = False

    async def examine(self, readiness: Readiness) -> Examination:
        """Examine this node; takes some seconds. Raises :class:`SbonError` ``examination-under-way``."""
        if self._busy:
            raise SbonError("examination-under-way", "an examination of this node is under way", hint="try again in some seconds")
        self._busy = True
        try:
            machine = await self._context.executor(partial(examine_machine, self._config))
            peers = self._context.membership.alive()
            sampled = sorted(self._context.rng.sample(peers, min(len(peers), MAX_PEERS)))
            reached = await self._reach.ask(sampled)
        finally:
            self._busy = False
        data_dir = ok("data-dir", f"{self._context.data_dir}, held by this node")
        members = _members(self._context.membership.members())
        alone = _alone(self._config, peers)
        results = [*_node(readiness), *machine, data_dir, *members, *alone, *judged(reached, self._config.node.announced)]
        if len(sampled) < len(peers):
            results.append(ok("peers", f"{len(sampled)} of {len(peers)} others were asked"))
        return Examination(node=self._context.name, findings=tuple(results))


def judged(reached: list[Reached], announced: Address) -> list[CheckResult]:
    """Judge the peers' reports about a node that announces the address ``announced``. Pure."""
    results = [_reachable(peer, announced.port) for peer in reached]
    answered = [peer for peer in reached if peer.answer is not None]
    if answered:
        results += [_address(answered, announced), *_clocks(answered), _versions(answered)]
    return results


def _members(members: list[MemberView]) -> list[CheckResult]:
    """Check for members that are not well; nodes that have left are no longer members."""
    lost = [f"{member.name} is {member.state}" for member in members if member.state in LOST]
    suspect = [f"{member.name} is suspect" for member in members if member.state == "suspect"]
    if not lost and not suspect:
        return [ok("members", f"{sum(member.state != 'left' for member in members)}, all alive")]
    unseen = [
        "its ports, clock and version were not looked at" if len(lost) == 1 else "ports, clocks and versions of these were not"
    ]
    message = "; ".join([", ".join(lost), *unseen] if lost else []) + ("; " if lost and suspect else "") + ", ".join(suspect)
    remedy = (
        "start them again, or see what keeps them from answering; which queries wait for them: sbon query list, sbon query show"
    )
    return [warning("members", message, remedy)]


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
    check, wrong = f"ports {peer.node}", []
    if peer.ping_ms is None:
        wrong.append("UDP to it or its answers are lost")
    if peer.answer is None:
        wrong.append(f"TCP to it: {peer.refusal}")
    else:
        if peer.answer.udp:
            wrong.append(f"UDP from it: {peer.answer.udp}")
        if peer.answer.tcp:
            wrong.append(f"TCP from it: {peer.answer.tcp}")
    if not wrong:
        assert peer.answer is not None
        return ok(check, f"UDP and TCP in both directions, {peer.ping_ms:.1f} ms there and back")
    remedy = (
        f"let UDP and TCP to port {port} through the firewalls on both sides; behind a NAT forward the port and set "
        f"node.advertise to the outer address; run sbon doctor on {peer.node} too"
    )
    return failed(check, "; ".join(wrong), remedy)


def _address(answered: list[Reached], announced: Address) -> CheckResult:
    """Check the node's address as peers know it, and the origin of its connections."""
    hosts = sorted({peer.answer.seen.host for peer in answered if peer.answer is not None})
    message = f"announced as {announced}; peers see connections from {', '.join(hosts)}"
    unreached = [peer.node for peer in answered if peer.answer is not None and (peer.answer.udp or peer.answer.tcp)]
    if unreached:
        remedy = f"set node.advertise to an address that they reach, perhaps {hosts[0]}"
        return failed("address", f"{message}; {', '.join(unreached)} cannot reach it there", remedy)
    if is_loopback(announced.host) and any(not is_loopback(address) for address in hosts):
        return failed(
            "address", message, f"no other machine reaches a loopback address: set node.advertise, perhaps to {hosts[0]}"
        )
    stale = sorted({peer.node for peer in answered if peer.answer is not None and _shown(peer) != announced})
    if stale:
        return warning("address", f"{message}; {', '.join(stale)} know another address of it", "wait for gossip, then look again")
    return ok("address", message)


def _shown(peer: Reached) -> Address:
    assert peer.answer is not None
    return Address(peer.answer.known.host, peer.answer.known.port)


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


def _versions(answered: list[Reached]) -> CheckResult:
    own = version("sbon")
    counts = Counter([own, *(peer.answer.version for peer in answered if peer.answer is not None)])
    if len(counts) == 1:
        return ok("versions", f"{own} everywhere")
    others = "; ".join(
        f"{name}: {', '.join(sorted(peer.node for peer in answered if peer.answer is not None and peer.answer.version == name))}"
        for name in sorted(counts)
        if name != own
    )
    return warning("versions", f"{own} here; {others}", "bring all nodes to the same version, one after another")
