"""Nodes that have just started, put into the state of a long time together.

A test of a cluster at rest need not wait until it is at rest, which takes a thousand nodes a million rumours.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

import numpy as np

from sbon_node.membership.service import CHOOSE_EVERY, Membership
from sbon_node.space.coordinate import Coordinate
from sbon_node.space.local import LocalCoordinate

SETTLED_MOVES = 1000
"""Number of moves of a coordinate that has been at rest for long."""


def warm_start(members: Mapping[str, Membership], coordinates: Mapping[str, Coordinate], rng: random.Random) -> None:
    """Give every node all members, its coordinate, its neighbours' latencies, and no rumours to send."""
    for name, membership in members.items():
        _settle(membership._space, name, coordinates)
        membership._measurements = rng.randrange(CHOOSE_EVERY)
        membership._next_measurement = membership._clock.now() + membership._measuring_interval_s() * rng.random()
        membership.publish_coordinate()
        pause_s = membership._settings.coordinate_pause_s * len(members)
        membership._coordinate_throttle.settled(coordinates[name], -pause_s * rng.random())
    everyone = tuple(membership._table.own for membership in members.values())
    for name, membership in members.items():
        now = membership._clock.now()
        for member in everyone:
            if member.name != name:
                membership._table.hear(member, now)
            membership._gossip.forget(member.name)


def _settle(space: LocalCoordinate, name: str, coordinates: Mapping[str, Coordinate]) -> None:
    place = coordinates[name]
    space._coordinate = place
    space._position = np.array([*place.vector, place.height])
    space._moves = SETTLED_MOVES
    space.choose_neighbours({other: there for other, there in coordinates.items() if other != name})
    for other in space.neighbours():
        space.take(other, place.distance_ms(coordinates[other]), coordinates[other], 0.0)
    space._steps = 0
