"""All messages of the protocol, as data. The codec encodes each as a MessagePack array with its tag first.

New fields are only appended, with defaults: a reader ignores unknown fields, and uses defaults for missing fields.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from msgspec import Meta

from sbon_protocol.base import Count, Host, Line, Message, Milliseconds, Name, Port, Quantity, Tag, Text
from sbon_protocol.papers.ants import Ant


class Endpoint(Message, frozen=True):
    """A node's address: UDP and TCP share ``port``."""

    host: Host
    port: Port


# -- the cost space ---------------------------------------------------------------------------------------------------


MAX_COORDINATE_MS = 1e5
"""Limit of a coordinate, which is refused beyond it: no two places on Earth are that far apart."""


class Coordinate(Message, frozen=True):
    """A coordinate in the cost space: ``vector``, ``height`` and ``load`` in milliseconds, ``error`` relative."""

    vector: Annotated[tuple[float, ...], Meta(min_length=1, max_length=8)]
    height: Annotated[float, Meta(ge=0, le=MAX_COORDINATE_MS)] = 0.0
    error: Annotated[float, Meta(ge=0, le=1e3)] = 1.0
    load: Annotated[float, Meta(ge=0, le=MAX_COORDINATE_MS)] = 0.0

    def distance_ms(self, other: Coordinate) -> float:
        """Return the estimated round-trip time |x - y| + h_x + h_y; the load dimension does not count."""
        return math.dist(self.vector, other.vector) + self.height + other.height


# -- membership: datagrams --------------------------------------------------------------------------------------------

MemberState = Literal["alive", "suspect", "away", "left", "dead"]

MAX_REASONS = 16


class NodeMeta(Message, frozen=True):
    """Node metadata beside the addresses: the owner's tags, the capacity in all, and the program's ``version``.

    ``ready`` says whether it can work, None if it does not say that; ``reasons`` are codes, also of what works only in part.
    """

    tags: Annotated[dict[Tag, Tag], Meta(max_length=8)]
    cores: Quantity = 0.0
    memory_mb: Quantity = 0.0
    bandwidth_bytes_s: Quantity = 0.0
    version: Annotated[str, Meta(max_length=32)] = ""
    ready: bool | None = None
    reasons: Annotated[tuple[Tag, ...], Meta(max_length=MAX_REASONS)] = ()


class Member(Message, frozen=True):
    """The membership record of a node. ``away`` will come back (SIGTERM); ``left`` and ``dead`` are final for an
    incarnation.

    ``coordinate_version`` counts the owner's moves, so that an old rumour does not move a node back; ``instance``
    distinguishes two nodes with the same name.
    """

    name: Name
    address: Endpoint
    api: Endpoint
    incarnation: Count
    state: MemberState
    coordinate: Coordinate | None = None
    coordinate_version: Count = 0
    instance: Annotated[str, Meta(max_length=32)] = ""
    meta: NodeMeta | None = None


class StateUpdate(Message, frozen=True):
    """A new state of a member whose Member the receiver has; ``by`` names the suspecting node, for a suspicion."""

    name: Name
    incarnation: Count
    state: MemberState
    by: Name | None = None


class CoordinateUpdate(Message, frozen=True):
    """A member's new coordinate in the cost space."""

    name: Name
    incarnation: Count
    coordinate: Coordinate
    coordinate_version: Count


class Ping(Message, frozen=True, tag="ping"):
    """Membership probe. ``identify`` asks the target for its instance; ``padding`` makes the request as long as its answer."""

    sequence: Count
    source: Name
    target: Name
    coordinate: Coordinate | None = None
    coordinate_version: Count = 0
    identify: bool = False
    padding: Annotated[bytes, Meta(max_length=1024)] = b""


class Ack(Message, frozen=True, tag="ack"):
    """Answer to a Ping, or to an indirect Ping on behalf of ``source``, with that node's own ``incarnation``.

    ``wall_us`` is the wall clock of ``source`` as it answers; microseconds since 1970, 0 if not given.
    """

    sequence: Count
    source: Name
    coordinate: Coordinate | None = None
    coordinate_version: Count = 0
    incarnation: Count = 0
    instance: Annotated[str, Meta(max_length=32)] = ""
    wall_us: Count = 0


class PingRequest(Message, frozen=True, tag="ping-req"):
    """Ask the receiver to ping ``target`` and to pass its Ack on."""

    sequence: Count
    source: Name
    target: Name
    address: Endpoint


class Nack(Message, frozen=True, tag="nack"):
    """The receiver of a PingRequest is alive but had no answer from the target in time."""

    sequence: Count
    source: Name


class Digest(Message, frozen=True, tag="digest"):
    """Start of a reconciliation: a 4-byte fingerprint for each bucket of the sender's table (SPEC.md, section 2)."""

    source: Name
    fingerprints: Annotated[bytes, Meta(min_length=4, max_length=1024)]


class Known(Message, frozen=True):
    """An entry of a Summary."""

    name: Name
    incarnation: Count
    state: MemberState
    coordinate_version: Count


class Summary(Message, frozen=True, tag="summary"):
    """Answer to a Digest: the sender's entries in differing buckets, as many as fit; complete for buckets in ``whole``."""

    source: Name
    buckets: Annotated[int, Meta(ge=1, le=256)]
    whole: Annotated[tuple[Count, ...], Meta(max_length=256)]
    known: Annotated[tuple[Known, ...], Meta(max_length=256)]


class Want(Message, frozen=True, tag="want"):
    """Answer to a Summary: a request for members of which the receiver has newer records."""

    source: Name
    names: Annotated[tuple[Name, ...], Meta(max_length=256)]


Gossip = Ping | Ack | PingRequest | Nack | Digest | Summary | Want
Rumour = Member | StateUpdate | CoordinateUpdate


class Packet(Message, frozen=True):
    """The content of one datagram: at most one message, and as many rumours as fit."""

    cluster: Name
    message: Gossip | Ant | None = None
    members: Annotated[tuple[Member, ...], Meta(max_length=64)] = ()
    state_updates: Annotated[tuple[StateUpdate, ...], Meta(max_length=64)] = ()
    coordinate_updates: Annotated[tuple[CoordinateUpdate, ...], Meta(max_length=64)] = ()


# -- TCP: the handshake -----------------------------------------------------------------------------------------------


Role = Literal["rpc", "stream", "copy"]


class Hello(Message, frozen=True, tag="hello"):
    """First frame of a connection, from the node that opens it.

    ``expected_node`` and ``expected_instance`` name the node that it wants to reach; empty if it does not know. Any other node
    refuses with ``wrong-node``.
    """

    version: Count
    oldest_version: Count
    cluster: Name
    node: Name
    role: Role
    capabilities: Annotated[tuple[Line, ...], Meta(max_length=64)] = ()
    instance: Line = ""
    expected_node: Line = ""
    expected_instance: Line = ""


class Welcome(Message, frozen=True, tag="welcome"):
    """Answer to a Hello: the version that both speak, and the address from which the peer connects."""

    version: Count
    node: Name
    seen: Endpoint
    capabilities: Annotated[tuple[Line, ...], Meta(max_length=64)] = ()
    instance: Line = ""


class Refused(Message, frozen=True, tag="refused"):
    """Rejection of a Hello, a Subscribe or an OpenCopy; the connection closes after it."""

    code: Name
    reason: Line


# -- TCP: requests ----------------------------------------------------------------------------------------------------


class Request(Message, frozen=True, tag="request"):
    """``body`` is the MessagePack form of the message that ``method`` names (see :mod:`sbon_protocol.calls`)."""

    id: Count
    method: Name
    body: Any


class Response(Message, frozen=True, tag="response"):
    id: Count
    body: Any


class Failure(Message, frozen=True, tag="failure"):
    """The request was understood and was rejected or failed; fields as in :class:`~sbon_protocol.errors.SbonError`."""

    id: Count
    code: Name
    message: Text
    where: Line = ""
    hint: Line = ""
    details: Annotated[tuple[Line, ...], Meta(max_length=256)] = ()


# -- TCP: streams -----------------------------------------------------------------------------------------------------


class Subscribe(Message, frozen=True, tag="subscribe"):
    """Request the frames of ``stream`` from number ``next`` on; 0 asks for the earliest retained.

    ``epoch`` is the greatest epoch of the stream's host that the subscriber has seen; a host below it is rejected. ``lineage``
    identifies the stream that it has read, 0 before its first subscription; a stream of another lineage is rejected.
    ``acknowledged`` is the last frame that it has durably finished with, and ``reader_epoch`` its own epoch: the host rejects a
    reader below the greatest that it has seen.
    """

    stream: Line
    subscriber: Line
    next: Count
    epoch: Count
    credit_bytes: Count
    lineage: Count = 0
    acknowledged: Count = 0
    reader_epoch: Count = 0


class Subscribed(Message, frozen=True, tag="subscribed"):
    """Acceptance: the host serves the stream of this ``lineage`` in ``epoch``, and the next Data has the number ``next``.

    ``reader_epoch`` is the greatest epoch of this subscriber that it has seen.
    """

    epoch: Count
    next: Count
    lineage: Count = 0
    reader_epoch: Count = 0


class Data(Message, frozen=True, tag="data"):
    """One frame of a stream; ``payload`` is a compressed Arrow IPC stream, or empty."""

    number: Count
    epoch: Count
    rows: Count
    watermark_ms: Milliseconds
    ended: bool
    born_ms: Milliseconds
    payload: bytes


class Progress(Message, frozen=True, tag="progress"):
    """The numbers of the last frame ``received`` and the last durably finished (``acknowledged``), with further credit.

    ``credit_bytes`` is the total credit beyond that of the Subscribe; the other fields are as in the Subscribe.
    """

    received: Count
    acknowledged: Count
    credit_bytes: Count
    epoch: Count
    lineage: Count = 0
    reader_epoch: Count = 0


class Unsubscribe(Message, frozen=True, tag="unsubscribe"):
    """End of a subscription: the host forgets it, and keeps nothing for it."""


class Ended(Message, frozen=True, tag="ended"):
    """End of a subscription by the host: ``code`` says why (``stream-dropped``, ``fenced``, ``quota``)."""

    code: Name
    reason: Line


class OpenShared(Message, frozen=True, tag="open-shared"):
    """Start of a connection that carries several subscriptions.

    Both sides remember at most ``window_frames`` frames with ``window_bytes`` of weight for a :class:`Repeated`.
    """

    window_bytes: Count
    window_frames: Count


class Repeated(Message, frozen=True, tag="repeated"):
    """Data with this number, of which the connection has carried the rest for another subscription."""

    number: Count
    epoch: Count


class Closed(Message, frozen=True, tag="closed"):
    """End of a subscription's messages on a shared connection, as the end of a connection of its own."""


class Shared(Message, frozen=True, tag="shared"):
    """A message of one ``subscription`` of a shared connection. The subscriber numbers them upwards."""

    subscription: Count
    message: Subscribe | Subscribed | Refused | Data | Repeated | Progress | Unsubscribe | Ended | Closed


# -- TCP: the files of a copy (SPEC.md, section 6a) -------------------------------------------------------------------


class OpenCopy(Message, frozen=True, tag="open-copy"):
    """Request for the files of a copy that the receiver has made ready for this node.

    ``credit_bytes`` is the weight of chunks that may be under way or unread.
    """

    operator: Line
    attempt: Line
    credit_bytes: Count


class CopyOpened(Message, frozen=True, tag="copy-opened"):
    """Acceptance: the number of ``files``, and size and SHA-256 digest (hexadecimal) of file 0, which lists the others."""

    files: Count
    list_bytes: Count
    list_digest: Line


class WantFiles(Message, frozen=True, tag="want-files"):
    """Request for files in this order, the first from byte ``offset`` on; ``credit_bytes`` is as in Progress."""

    numbers: Annotated[tuple[Count, ...], Meta(max_length=4096)]
    offset: Count = 0
    credit_bytes: Count = 0


class Chunk(Message, frozen=True, tag="chunk"):
    """Bytes of a file from ``offset`` on; only an empty file has an empty chunk."""

    file: Count
    offset: Count
    payload: bytes


_Handshake = Hello | Welcome | Refused
_Answered = Request | Response | Failure
_OfStream = Subscribe | Subscribed | Data | Progress | Unsubscribe | Ended | OpenShared | Shared | Repeated | Closed
Frame = _Handshake | _Answered | _OfStream | OpenCopy | CopyOpened | WantFiles | Chunk
"""All messages that a TCP frame may hold."""
