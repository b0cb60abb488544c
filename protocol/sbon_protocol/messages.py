"""Every message of the protocol, as data. The codec encodes each as a MessagePack array whose first element is its tag.

Fields are only ever appended, with defaults: a reader ignores the ones it does not know, and fills in the ones it misses.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

Name = Annotated[str, Meta(min_length=1, max_length=63, pattern=r"^[a-z0-9]([a-z0-9._-]*[a-z0-9])?\Z")]
Text = Annotated[str, Meta(max_length=65_536)]
Line = Annotated[str, Meta(max_length=512)]
Port = Annotated[int, Meta(ge=0, le=65535)]
Host = Annotated[str, Meta(min_length=1, max_length=253)]
Count = Annotated[int, Meta(ge=0, le=2**62)]
Milliseconds = Annotated[int, Meta(ge=-(2**62), le=2**62)]
Quantity = Annotated[float, Meta(ge=0, le=1e15)]
Tag = Annotated[str, Meta(min_length=1, max_length=32)]


class Message(msgspec.Struct, frozen=True, array_like=True):
    """What travels. Subclasses name their tag."""


class Endpoint(Message, frozen=True):
    """Where a node is reached: UDP and TCP share ``port``."""

    host: Host
    port: Port


# -- the cost space ---------------------------------------------------------------------------------------------------


class Coordinate(Message, frozen=True):
    """A place in the cost space: ``vector`` and ``height`` in milliseconds, ``error`` relative, ``load`` in milliseconds."""

    vector: Annotated[tuple[float, ...], Meta(min_length=1, max_length=8)]
    height: Annotated[float, Meta(ge=0, le=1e5)] = 0.0
    error: Annotated[float, Meta(ge=0, le=1e3)] = 1.0
    load: Annotated[float, Meta(ge=0, le=1e6)] = 0.0


# -- membership: datagrams --------------------------------------------------------------------------------------------

MemberState = Literal["alive", "suspect", "away", "left", "dead"]


class Traits(Message, frozen=True):
    """What a node says of itself beside its addresses: words its owner gave it, how much it could host in all, and the
    ``version`` of the program it runs."""

    tags: Annotated[dict[Tag, Tag], Meta(max_length=8)]
    cores: Quantity = 0.0
    memory_mb: Quantity = 0.0
    bandwidth_bytes_s: Quantity = 0.0
    version: Annotated[str, Meta(max_length=32)] = ""


class Member(Message, frozen=True):
    """What is rumoured of one node. ``away`` will come back (SIGTERM), ``left`` and ``dead`` are final for an incarnation.

    ``coordinate_version`` counts the owner's moves, so that an old rumour does not move a node back; ``instance`` tells two nodes
    of one name apart.
    """

    name: Name
    address: Endpoint
    api: Endpoint
    incarnation: Count
    state: MemberState
    coordinate: Coordinate | None = None
    coordinate_version: Count = 0
    instance: Annotated[str, Meta(max_length=32)] = ""
    traits: Traits | None = None


class Finding(Message, frozen=True):
    """What somebody has found out about a member whose Member the receiver has; ``by`` names who suspects, if it is that."""

    name: Name
    incarnation: Count
    state: MemberState
    by: Name | None = None


class Place(Message, frozen=True):
    """A member has moved in the cost space."""

    name: Name
    incarnation: Count
    coordinate: Coordinate
    coordinate_version: Count


class Ping(Message, frozen=True, tag="ping"):
    sequence: Count
    source: Name
    target: Name
    coordinate: Coordinate | None = None
    coordinate_version: Count = 0


class Ack(Message, frozen=True, tag="ack"):
    """Answers a Ping, or an indirect one on behalf of ``source``."""

    sequence: Count
    source: Name
    coordinate: Coordinate | None = None
    coordinate_version: Count = 0


class PingRequest(Message, frozen=True, tag="ping-req"):
    """Asks the receiver to ping ``target`` and to pass its Ack on."""

    sequence: Count
    source: Name
    target: Name
    address: Endpoint


class Nack(Message, frozen=True, tag="nack"):
    """The receiver of a PingRequest is alive but had no answer from the target in time."""

    sequence: Count
    source: Name


class Digest(Message, frozen=True, tag="digest"):
    """Opens a reconciliation: a fingerprint of 4 bytes for each bucket of the sender's table (SPEC.md, section 2)."""

    source: Name
    fingerprints: Annotated[bytes, Meta(min_length=4, max_length=1024)]


class Known(Message, frozen=True):
    """A line of a Summary."""

    name: Name
    incarnation: Count
    state: MemberState
    coordinate_version: Count


class Summary(Message, frozen=True, tag="summary"):
    """Answers a Digest: what the sender knows in buckets that differ, as room allows; of those in ``whole``, all it knows."""

    source: Name
    buckets: Annotated[int, Meta(ge=1, le=256)]
    whole: Annotated[tuple[Count, ...], Meta(max_length=256)]
    known: Annotated[tuple[Known, ...], Meta(max_length=256)]


class Want(Message, frozen=True, tag="want"):
    """Answers a Summary: asks for members that the receiver knows better."""

    source: Name
    names: Annotated[tuple[Name, ...], Meta(max_length=256)]


Gossip = Ping | Ack | PingRequest | Nack | Digest | Summary | Want
Rumour = Member | Finding | Place


class Packet(Message, frozen=True):
    """The content of one datagram: at most one message, and rumours as room allows."""

    cluster: Name
    message: Gossip | None = None
    members: Annotated[tuple[Member, ...], Meta(max_length=64)] = ()
    findings: Annotated[tuple[Finding, ...], Meta(max_length=64)] = ()
    places: Annotated[tuple[Place, ...], Meta(max_length=64)] = ()


# -- TCP: the handshake -----------------------------------------------------------------------------------------------


class Hello(Message, frozen=True, tag="hello"):
    """First frame of a connection, by who opens it."""

    version: Count
    oldest_version: Count
    cluster: Name
    node: Name
    role: Literal["rpc", "stream"]
    capabilities: Annotated[tuple[Line, ...], Meta(max_length=64)] = ()
    instance: Line = ""


class Welcome(Message, frozen=True, tag="welcome"):
    """Answer to a Hello: the version both speak, and the address the peer is seen at."""

    version: Count
    node: Name
    seen: Endpoint
    capabilities: Annotated[tuple[Line, ...], Meta(max_length=64)] = ()


class Refused(Message, frozen=True, tag="refused"):
    """Answer to a Hello or a Subscribe that cannot be served; the connection closes after it."""

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
    """The request was understood and is refused, or failed; fields as in the user's error."""

    id: Count
    code: Name
    message: Text
    where: Line = ""
    hint: Line = ""
    details: Annotated[tuple[Line, ...], Meta(max_length=256)] = ()


# -- TCP: streams -----------------------------------------------------------------------------------------------------


class Subscribe(Message, frozen=True, tag="subscribe"):
    """Asks for the frames of ``stream`` from number ``next`` on; 0 asks for the earliest retained.

    ``epoch`` is the greatest epoch of the stream's host that the subscriber has seen; a host below it is refused.
    """

    stream: Line
    subscriber: Line
    next: Count
    epoch: Count
    credit_bytes: Count


class Subscribed(Message, frozen=True, tag="subscribed"):
    """The host serves the stream in ``epoch``; the first Data that follows is numbered ``next``."""

    epoch: Count
    next: Count


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
    """The subscriber has ``received`` and durably finished with (``acknowledged``) frames up to these numbers, and takes
    ``credit_bytes`` more in all than it said in its Subscribe."""

    received: Count
    acknowledged: Count
    credit_bytes: Count
    epoch: Count


class Unsubscribe(Message, frozen=True, tag="unsubscribe"):
    """The subscription is over: the host forgets it, and keeps nothing for it."""


class Ended(Message, frozen=True, tag="ended"):
    """The host ends the subscription: ``code`` says why (``stream-dropped``, ``fenced``, ``quota``)."""

    code: Name
    reason: Line


Frame = Hello | Welcome | Refused | Request | Response | Failure | Subscribe | Subscribed | Data | Progress | Unsubscribe | Ended
"""Whatever one TCP frame may hold."""
