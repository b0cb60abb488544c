"""Instructions of the failure detector, as data."""

import msgspec

from sbon_node.overlay.membership.table import Change
from sbon_protocol.messages import Endpoint, Gossip, Member, Rumour


class Send(msgspec.Struct, frozen=True):
    """Send this message, or rumours alone; with ``timed``, remember the send stamp for the round-trip time.

    ``first`` is the rumour that must travel in the datagram: a suspect learns of the suspicion, so that it may refute
    (Lifeguard's buddy notice). ``carries`` holds further updates for the receiver, and may take several datagrams. To an
    address of no member the message travels alone, in at most ``most`` bytes, or is dropped: this node sends no address more
    bytes than it received in its name.
    """

    to: Endpoint
    message: Gossip | None
    timed: bool = False
    first: Rumour | None = None
    carries: tuple[Rumour, ...] = ()
    most: int | None = None


class Call(msgspec.Struct, frozen=True):
    """Ask a member that does not answer datagrams over TCP; its answer is a rumour, and ends the probe ``sequence``."""

    member: Member
    sequence: int


class Happened(msgspec.Struct, frozen=True):
    """A member's state has changed, or with ``moved`` its address."""

    change: Change
    name: str
    moved: bool = False


class Measured(msgspec.Struct, frozen=True):
    """The direct ping ``sequence`` of ``name`` has been answered, with that node's wall clock; 0 if it is not given."""

    name: str
    sequence: int
    wall_us: int = 0


class Disputed(msgspec.Struct, frozen=True):
    """Another node claims a name that is taken, or uses this node's own name at ``address``."""

    name: str
    address: Endpoint


class Refused(msgspec.Struct, frozen=True):
    """A rumour of this name failed validation; ``kind`` is its counter."""

    kind: str
    name: str


Instruction = Send | Call | Happened | Measured | Disputed | Refused
