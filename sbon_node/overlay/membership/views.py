"""Members as other packages see them."""

from collections.abc import Callable, Iterable

import msgspec

from sbon_node.net.transport import Address
from sbon_node.overlay.membership.table import Change
from sbon_node.overlay.space.coordinate import Coordinate
from sbon_protocol.errors import SbonError, did_you_mean
from sbon_protocol.messages import Member, NodeMeta

Listener = Callable[[str, Change], None]
"""Called with (name, change) of another member: joined, suspected, died, went-away, returned, left, updated; returns quickly."""


class MemberView(msgspec.Struct, frozen=True, kw_only=True):
    """One node; ``rtt_ms`` is this node's own fresh measurement, ``meta`` the other node's metadata.

    ``instance`` is random and lives in the node's data directory; empty while it is unknown."""

    name: str
    state: str
    address: Address
    api: Address
    incarnation: int
    coordinate: Coordinate | None
    rtt_ms: float | None
    meta: NodeMeta
    instance: str = ""


def view_of(member: Member, coordinate: Coordinate | None, rtt_ms: float | None) -> MemberView:
    """Return a member's view from its record and this node's measurements."""
    return MemberView(
        name=member.name,
        state=member.state,
        address=Address(member.address.host, member.address.port),
        api=Address(member.api.host, member.api.port),
        incarnation=member.incarnation,
        coordinate=coordinate,
        rtt_ms=rtt_ms,
        meta=member.meta or NodeMeta({}),
        instance=member.instance,
    )


def unknown_node(name: str, names: Iterable[str], where: str = "node") -> SbonError:
    """Return the error for an unknown name, with names that are spelt alike; ``where`` says what it was to be the node of."""
    return SbonError(
        "unknown-node", f"there is no node {name!r}", where=where, hint=did_you_mean(name, names, "see: sbon members")
    )
