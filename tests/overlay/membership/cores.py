"""The core of SWIM alone, driven with times and messages."""

from __future__ import annotations

import random

from sbon_node.overlay.membership.detector.instructions import Instruction, Send
from sbon_node.overlay.membership.detector.swim import Swim
from sbon_node.overlay.membership.dissemination.gossip import GossipQueue
from sbon_node.overlay.membership.settings import MembershipSettings
from sbon_node.overlay.membership.table import Table
from sbon_protocol.messages import Ack, Coordinate, Endpoint, Member, MemberState, Ping, Rumour

SETTINGS = MembershipSettings()


def address(name: str) -> Endpoint:
    return Endpoint(f"host-{name}", 7400)


def member(name: str, state: MemberState = "alive", incarnation: int = 1, *, version: int = 0, instance: str = "") -> Member:
    place = Coordinate((float(version), 0.0, 0.0))
    return Member(name, address(name), address(name), incarnation, state, place, version, instance or f"i-{name}")


def core(name: str = "a", others: str = "", *, incarnation: int = 1, most: int = 100, seed: int = 1) -> Swim:
    table = Table(member(name, incarnation=incarnation), most)
    swim = Swim(table, GossipQueue(SETTINGS.retransmit_margin), SETTINGS, random.Random(f"{seed}/{name}"))
    for other in others:
        table.hear(member(other), 0.0)
    return swim


def heard(swim: Swim, *rumours: Rumour, now: float = 1.0) -> list[Instruction]:
    """Return the instructions after rumours, if every node pinged for its name answers as rumoured; without the pings."""
    out: list[Instruction] = []
    for rumour in rumours:
        waiting = swim.take_rumours((rumour,), now)
        for one in waiting:
            message = one.message if isinstance(one, Send) else None
            if isinstance(message, Ping) and message.identify and isinstance(rumour, Member):
                ack = Ack(message.sequence, rumour.name, None, 0, rumour.incarnation, rumour.instance)
                out += swim.received(ack, rumour.address, now)
            else:
                out.append(one)
    return out


def sent(out: list[Instruction]) -> list[tuple[Endpoint, object]]:
    return [(i.to, i.message) for i in out if isinstance(i, Send)]


def only_this(swim: Swim) -> None:
    """Suppress regular probes and reconciliation, which would disturb the test."""
    swim._ticked = 0.0
    swim._next_probe = swim._outreach.next_sync = 1e9
