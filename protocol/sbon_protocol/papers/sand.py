"""Calls between the coordinators of a query's zones, by which SAND's strategies place it; they are among those of
:mod:`sbon_protocol.calls`.

Ahmad and Cetintemel, "Network-Aware Query Processing for Stream-based Applications", VLDB 2004, Figure 4. ``placement``
names the placement of one query by one proxy, ``round`` one pass over its operators: a later round replaces the earlier ones.
Locations are numbers in the list ``locations`` of the round's AddSubtree. ``left_s`` is the time within which the caller needs
the answer, which comes once all messages that this one caused are answered.
"""

from typing import Annotated

from msgspec import Meta

from sbon_protocol.base import Call, Count, Line, Message, Name, Quantity

MAX_LOCATIONS = 1024
MAX_VERTICES = 1024
MAX_TOLD_PAIRS = 8192

Place = Annotated[int, Meta(ge=0, le=MAX_LOCATIONS - 1)]
Places = Annotated[tuple[Place, ...], Meta(max_length=MAX_LOCATIONS)]
Values = Annotated[tuple[Quantity, ...], Meta(max_length=MAX_LOCATIONS)]


class MeasuredPair(Message, frozen=True):
    """A measured one-way latency between two locations."""

    first: Place
    second: Place
    latency_ms: Quantity


class ZoneLink(Message, frozen=True):
    """A stream of a vertex: the operator or source at its other end, that one's coordinator, and the rate, 0 where unneeded."""

    vertex: Line
    coordinator: Name
    rate_bytes_s: Quantity = 0.0


class ZoneVertex(Message, frozen=True):
    """An operator of the zone ``root``, which is the id of the zone's last operator; or a source, if it has no ``children``.

    ``readers`` are the operators that read it. It sends ``sent_bytes_s`` in all; ``shared`` says that more than one vertex reads
    it. ``allowed`` has a bit for each location at which the operator may be, the first one highest in the first byte.
    """

    vertex: Line
    children: Annotated[tuple[ZoneLink, ...], Meta(max_length=MAX_VERTICES)]
    readers: Annotated[tuple[ZoneLink, ...], Meta(max_length=MAX_VERTICES)]
    sent_bytes_s: Quantity
    shared: bool
    allowed: Annotated[bytes, Meta(max_length=MAX_LOCATIONS // 8)]
    root: Line


class AddSubtree(Call, frozen=True):
    """Make the receiver the coordinator of all zones with ``vertices`` (ADDSUBTREE).

    ``rule`` is the strategy's name, ``proxy`` the consumer's location, ``max_delay_ms`` the bound on delay, and ``measured`` what
    the caller has measured.
    """

    placement: Line
    round: Count
    rule: Line
    locations: Annotated[tuple[Name, ...], Meta(min_length=1, max_length=MAX_LOCATIONS)]
    proxy: Place
    max_delay_ms: Quantity | None
    measured: Annotated[tuple[MeasuredPair, ...], Meta(max_length=MAX_TOLD_PAIRS)]
    vertices: Annotated[tuple[ZoneVertex, ...], Meta(min_length=1, max_length=MAX_VERTICES)]


class OperatorMapped(Call, frozen=True):
    """Tell a node that an operator is placed there, or that it is a source's (OPERATOR MAPPED). Reserves nothing.

    The node of a source then informs the source's readers.
    """

    placement: Line
    round: Count
    vertex: Line
    generation: Count
    left_s: Quantity


class OperatorConfigurations(Message, frozen=True):
    """Costs of an operator and of all below it, by its location; it is at ``place``, and its sources are at ``leaves``.

    ``places`` are the possible locations, in order, with the cost and the longest delay from a source at each.
    """

    places: Places
    costs: Values
    delays_ms: Values
    place: Place
    leaves: Places


class MapOperator(Call, frozen=True):
    """Tell the coordinator of ``vertex`` that its ``child`` is placed (MAP)."""

    placement: Line
    round: Count
    vertex: Line
    child: Line
    configurations: OperatorConfigurations
    left_s: Quantity


class InvalidateMap(Call, frozen=True):
    """Tell a node that an operator is not placed there any more (INVALIDATE MAP)."""

    placement: Line
    round: Count
    vertex: Line
    generation: Count


class OperatorRemapped(Call, frozen=True):
    """Tell the coordinator of ``vertex`` that its reader wants it at ``place``, one of its alternatives (OPERATOR REMAPPED)."""

    placement: Line
    round: Count
    vertex: Line
    place: Place
    left_s: Quantity


class OperatorPlace(Message, frozen=True):
    """The location of an operator; a greater generation is newer."""

    vertex: Line
    place: Place
    generation: Count


class PlacedOperators(Message, frozen=True):
    """The operators placed because of a message; ``dead_end`` names an operator without a possible location."""

    placed: Annotated[tuple[OperatorPlace, ...], Meta(max_length=MAX_VERTICES)] = ()
    dead_end: Line = ""
