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
from sbon_node.operations.machine import examine_machine
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
            asked = sorted(self._context.rng.sample(peers, min(len(peers), MAX_PEERS)))
            reached = await self._reach.ask(asked)
        finally:
            self._busy = False
        held = ok("data-dir", f"{self._context.data_dir}, held by this node")
        members = _members(self._context.membership.members())
        alone = _alone(self._config, peers)
        found = [*_node(readiness), *machine, held, *members, *alone, *judged(reached, self._config.node.announced)]
        if len(asked) < len(peers):
            found.append(ok("peers", f"{len(asked)} of {len(peers)} others were asked"))
        return Examination(node=self._context.name, findings=tuple(found))


def judged(reached: list[Reached], announced: Address) -> list[CheckResult]:
    """Judge the peers' reports about a node that announces the address ``announced``. Pure."""
    found = [_reachable(one, announced.port) for one in reached]
    answered = [one for one in reached if one.answer is not None]
    if answered:
        found += [_address(answered, announced), *_clocks(answered), _versions(answered)]
    return found


def _members(members: list[MemberView]) -> list[CheckResult]:
    """Check for members that are not well; nodes that have left are no longer members."""
    lost = [f"{one.name} is {one.state}" for one in members if one.state in LOST]
    suspect = [f"{one.name} is suspect" for one in members if one.state == "suspect"]
    if not lost and not suspect:
        return [ok("members", f"{sum(one.state != 'left' for one in members)}, all alive")]
    unseen = [
        "its ports, clock and version were not looked at" if len(lost) == 1 else "ports, clocks and versions of these were not"
    ]
    told = "; ".join([", ".join(lost), *unseen] if lost else []) + ("; " if lost and suspect else "") + ", ".join(suspect)
    remedy = (
        "start them again, or see what keeps them from answering; which queries wait for them: sbon query list, sbon query show"
    )
    return [warning("members", told, remedy)]


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


def _reachable(one: Reached, port: int) -> CheckResult:
    """Check UDP and TCP, to a peer and back from it."""
    check, wrong = f"ports {one.node}", []
    if one.ping_ms is None:
        wrong.append("UDP to it or its answers are lost")
    if one.answer is None:
        wrong.append(f"TCP to it: {one.refusal}")
    else:
        if one.answer.udp:
            wrong.append(f"UDP from it: {one.answer.udp}")
        if one.answer.tcp:
            wrong.append(f"TCP from it: {one.answer.tcp}")
    if not wrong:
        assert one.answer is not None
        return ok(check, f"UDP and TCP in both directions, {one.ping_ms:.1f} ms there and back")
    remedy = (
        f"let UDP and TCP to port {port} through the firewalls on both sides; behind a NAT forward the port and set "
        f"node.advertise to the outer address; run sbon doctor on {one.node} too"
    )
    return failed(check, "; ".join(wrong), remedy)


def _address(answered: list[Reached], announced: Address) -> CheckResult:
    """Check the node's address as peers know it, and the origin of its connections."""
    seen = sorted({one.answer.seen.host for one in answered if one.answer is not None})
    told = f"announced as {announced}; peers see connections from {', '.join(seen)}"
    unreached = [one.node for one in answered if one.answer is not None and (one.answer.udp or one.answer.tcp)]
    if unreached:
        remedy = f"set node.advertise to an address that they reach, perhaps {seen[0]}"
        return failed("address", f"{told}; {', '.join(unreached)} cannot reach it there", remedy)
    if is_loopback(announced.host) and any(not is_loopback(address) for address in seen):
        return failed("address", told, f"no other machine reaches a loopback address: set node.advertise, perhaps to {seen[0]}")
    stale = sorted({one.node for one in answered if one.answer is not None and _shown(one) != announced})
    if stale:
        return warning("address", f"{told}; {', '.join(stale)} know another address of it", "wait for gossip, then look again")
    return ok("address", told)


def _shown(one: Reached) -> Address:
    assert one.answer is not None
    return Address(one.answer.known.host, one.answer.known.port)


def _clocks(answered: list[Reached]) -> list[CheckResult]:
    """Report each clock whose offset exceeds its uncertainty, and the others in one line."""
    found, well = [], []
    for one in answered:
        off_ms = max(0.0, abs(one.offset_ms) - one.uncertain_ms)
        if off_ms < LATE_MS:
            well.append(one)
            continue
        side = "ahead of" if one.offset_ms > 0 else "behind"
        told = f"the clock of {one.node} is {abs(one.offset_ms) / 1000:.1f} s {side} this node's"
        remedy = "synchronise both machines' clocks: timedatectl status, chronyc tracking"
        found.append((failed if off_ms > VERY_LATE_MS else warning)("clocks", told, remedy))
    if well:
        found.append(ok("clocks", _agreement(well)))
    return found


def _agreement(well: list[Reached]) -> str:
    """Report only offsets above the uncertainty, because the latency to a peer limits the precision."""
    names = ", ".join(one.node for one in well)
    off_ms = max(abs(one.offset_ms) - one.uncertain_ms for one in well)
    if off_ms > 0:
        return f"at least one is {off_ms:.0f} ms off, which is tolerable: {names}"
    return f"no difference from those of {names}; one of {max(one.uncertain_ms for one in well):.0f} ms would be seen"


def _versions(answered: list[Reached]) -> CheckResult:
    own = version("sbon")
    said = Counter([own, *(one.answer.version for one in answered if one.answer is not None)])
    if len(said) == 1:
        return ok("versions", f"{own} everywhere")
    others = "; ".join(
        f"{name}: {', '.join(sorted(one.node for one in answered if one.answer is not None and one.answer.version == name))}"
        for name in sorted(said)
        if name != own
    )
    return warning("versions", f"{own} here; {others}", "bring all nodes to the same version, one after another")
