"""What the failure detector says is to be done, as data."""

from __future__ import annotations

import msgspec

from sbon_node.membership.table import Change
from sbon_protocol.messages import Endpoint, Gossip, Member, Rumour


class Send(msgspec.Struct, frozen=True):
    """Send this message, or rumours alone; with ``timed``, remember the stamp of sending for the round-trip time.

    ``first`` is the rumour that must not miss the datagram: a suspect is told so, that it may refute (Lifeguard's buddy notice).
    What the receiver is to be told beside it, ``carries``, may take some datagrams.
    """

    to: Endpoint
    message: Gossip | None
    timed: bool = False
    first: Rumour | None = None
    carries: tuple[Rumour, ...] = ()


class Call(msgspec.Struct, frozen=True):
    """Ask a member that does not answer datagrams over TCP; what it answers is a rumour, and ends the probe ``sequence``."""

    member: Member
    sequence: int


class Happened(msgspec.Struct, frozen=True):
    """A member's state has changed; ``moved`` with its address."""

    change: Change
    name: str
    moved: bool = False


class Measured(msgspec.Struct, frozen=True):
    """The direct ping ``sequence`` of ``name`` has been answered."""

    name: str
    sequence: int


class Disputed(msgspec.Struct, frozen=True):
    """Somebody claims a name that is another node's, or lives under this node's own name at ``address``."""

    name: str
    address: Endpoint


Instruction = Send | Call | Happened | Measured | Disputed
