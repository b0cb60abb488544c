"""A node's position in the cost space (SBON, section 3.1.1): the wire's own type, and the check of peers' coordinates.

Peers' coordinates are checked once, where membership takes their messages. All other code trusts a coordinate that it gets.
"""

from sbon_protocol.messages import MAX_COORDINATE_MS, Coordinate

__all__ = ["MAX_MS", "Coordinate", "checked", "origin"]

MAX_MS = MAX_COORDINATE_MS


def origin(dimensions: int) -> Coordinate:
    """Return the coordinate of a node that has measured nothing."""
    return Coordinate(vector=(0.0,) * dimensions)


def checked(coordinate: Coordinate, dimensions: int) -> Coordinate | None:
    """Return a peer's coordinate, or None if it is impossible.

    A possible coordinate has the right dimension, finite components within ``MAX_MS``, and nothing negative but those.
    """
    if len(coordinate.vector) != dimensions:
        return None
    for component in coordinate.vector:
        if not -MAX_MS <= component <= MAX_MS:  # nor is NaN
            return None
    others = (coordinate.height, coordinate.error, coordinate.load)
    return coordinate if all(0 <= part <= MAX_MS for part in others) else None
