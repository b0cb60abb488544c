"""The core of SWIM alone, told the time and what arrives."""

from __future__ import annotations

import random

from sbon_node.membership.gossip import GossipQueue
from sbon_node.membership.instructions import Instruction, Send
from sbon_node.membership.settings import MembershipSettings
from sbon_node.membership.swim import Swim
from sbon_node.membership.table import Table
from sbon_protocol.messages import Coordinate, Endpoint, Member, MemberState

SETTINGS = MembershipSettings()


def address(name: str) -> Endpoint:
    return Endpoint(f"host-{name}", 7400)


def member(name: str, state: MemberState = "alive", incarnation: int = 1, *, version: int = 0, instance: str = "") -> Member:
    place = Coordinate((float(version), 0.0, 0.0))
    return Member(name, address(name), address(name), incarnation, state, place, version, instance or f"i-{name}")


def core(name: str = "a", others: str = "", *, incarnation: int = 1, most: int = 100, seed: int = 1) -> Swim:
    table = Table(member(name, incarnation=incarnation), most)
    swim = Swim(table, GossipQueue(SETTINGS.retransmit_margin), SETTINGS, random.Random(f"{seed}/{name}"))
    swim.heard(tuple(member(other) for other in others), 0.0)
    for other in others:
        swim.gossip.forget(other)
    return swim


def sent(out: list[Instruction]) -> list[tuple[Endpoint, object]]:
    return [(i.to, i.message) for i in out if isinstance(i, Send)]


def only_this(swim: Swim) -> None:
    """No probe in turn, and no reconciliation, disturbs what the test has begun."""
    swim._ticked = 0.0
    swim._next_probe = swim._next_sync = 1e9
