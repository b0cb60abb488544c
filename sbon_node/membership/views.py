"""Members as those above this room see them."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

import msgspec

from sbon_node.errors import SbonError
from sbon_node.net.transport import Address
from sbon_node.space.coordinate import Coordinate
from sbon_protocol.messages import Traits


class MemberView(msgspec.Struct, frozen=True, kw_only=True):
    """One node as this one knows it; ``rtt_ms`` is this node's own fresh measurement, ``traits`` what it says of
    itself."""

    name: str
    state: str
    address: Address
    api: Address
    incarnation: int
    coordinate: Coordinate | None
    rtt_ms: float | None
    traits: Traits


def unknown_node(name: str, names: Iterable[str]) -> SbonError:
    """The error for a name that no node has, with those that are spelt alike."""
    near = get_close_matches(name, names, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else "see: sbon members"
    return SbonError("unknown-node", f"there is no node {name!r}", where="node", hint=hint)
