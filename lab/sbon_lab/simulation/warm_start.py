"""Nodes that have just started, brought to where they are after a long time together.

A test of a cluster at rest need not wait until it is at rest, which takes a thousand nodes a million rumours.
"""

from collections.abc import Mapping

from sbon_node.overlay.membership.service import Membership
from sbon_node.overlay.space.coordinate import Coordinate
from sbon_node.overlay.space.local import LocalCoordinate

MOST_SAMPLES = 1000


def warm_start(members: Mapping[str, Membership], coordinates: Mapping[str, Coordinate], now: float) -> None:
    """Let every node measure its neighbours until its coordinate is at rest, and know all members without any rumour."""
    for name, membership in members.items():
        _measure(membership.space, name, coordinates, now)
        membership.publish_coordinate()
    everyone = tuple(membership.table.own for membership in members.values())
    for name, membership in members.items():
        for member in everyone:
            if member.name != name:
                membership.table.hear(member, now)
            membership.gossip.forget(member.name)


def _measure(space: LocalCoordinate, name: str, coordinates: Mapping[str, Coordinate], now: float) -> None:
    """Feed a node the samples that it would take at ``coordinates``, of its neighbours in turn."""
    own = coordinates[name]
    others = {other: coordinate for other, coordinate in coordinates.items() if other != name}
    space.choose_neighbours(others)
    for _ in range(MOST_SAMPLES):
        other = space.next_neighbour()
        if other is None or not space.settling:
            break
        space.observe(other, own.distance_ms(others[other]), others[other], now)
    space.choose_neighbours(others)
    for other in space.neighbours():
        space.observe(other, own.distance_ms(others[other]), others[other], now)
