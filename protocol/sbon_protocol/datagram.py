"""Datagrams: a four-byte header and one :class:`~sbon_protocol.messages.Packet`, at most 1,200 bytes in all.

Header: ``b"SB"``, version, flags. Flag bit 0 says that key id, nonce and sealed packet follow; no version seals yet.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from sbon_protocol.codec import decode, encode
from sbon_protocol.errors import ProtocolError
from sbon_protocol.messages import Ack, Coordinate, Finding, Gossip, Member, Packet, Ping, Place, Rumour
from sbon_protocol.version import OLDEST_VERSION, VERSION

MAX_DATAGRAM_BYTES = 1200
MAGIC = b"SB"
SEALED = 0x01
_HEADER = MAGIC + bytes((VERSION, 0))
_HEADER_BYTES = 4
_MAX_OF_A_KIND = 64
_KINDS: tuple[type[Rumour], ...] = (Member, Finding, Place)
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Packet)


def pack(packet: Packet) -> bytes:
    """Raises ``ValueError`` for a packet that does not fit: what goes in is the sender's choice, see :func:`fill`."""
    payload = _HEADER + encode(packet)
    if len(payload) > MAX_DATAGRAM_BYTES:
        raise ValueError(f"a datagram of {len(payload)} bytes, the limit is {MAX_DATAGRAM_BYTES}")
    return payload


def unpack(payload: bytes) -> Packet:
    """Raises :class:`ProtocolError`: ``too-large``, ``not-ours``, ``version``, ``sealed``, or what the codec refuses."""
    if len(payload) > MAX_DATAGRAM_BYTES:
        raise ProtocolError("too-large", f"a datagram of {len(payload)} bytes")
    if len(payload) < _HEADER_BYTES or payload[:2] != MAGIC:
        raise ProtocolError("not-ours", "no sbon datagram")
    if not OLDEST_VERSION <= payload[2] <= VERSION:
        raise ProtocolError("version", f"version {payload[2]}, this node speaks {OLDEST_VERSION} to {VERSION}")
    if payload[3] & SEALED:
        raise ProtocolError("sealed", "sealed with a key this node does not have")
    if payload[3]:
        raise ProtocolError("malformed", f"unknown flags {payload[3]:#04x}")
    packet = _as_we_write(payload[_HEADER_BYTES:])
    return decode(payload[_HEADER_BYTES:], Packet) if packet is None else packet


def _as_we_write(body: bytes) -> Packet | None:
    """The packet, if these are the very bytes this version writes for one: then they hold nothing that the codec would have to
    look for. None leaves it to the codec, which takes ten times as long."""
    try:
        packet: Packet = _DECODER.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    if _ENCODER.encode(packet) != body:
        return None
    message = packet.message
    finite = not isinstance(message, Ping | Ack) or message.coordinate is None or _finite(message.coordinate)
    finite = finite and all(m.coordinate is None or _finite(m.coordinate) for m in packet.members)
    finite = finite and all(m.traits is None or _bounded(m) for m in packet.members)
    return packet if finite and all(_finite(place.coordinate) for place in packet.places) else None


def _finite(place: Coordinate) -> bool:
    return math.isfinite(sum(place.vector) + place.height + place.error + place.load)


def _bounded(member: Member) -> bool:
    traits = member.traits
    return traits is None or math.isfinite(traits.cores + traits.memory_mb + traits.bandwidth_bytes_s)


def kind_of(payload: bytes) -> str:
    """The tag of the message in a datagram, ``rumours`` where there is none, and ``foreign`` for what is no datagram of ours."""
    if payload[:2] != MAGIC or len(payload) < _HEADER_BYTES + 3:
        return "foreign"
    cluster = payload[5]
    at = 6 + (cluster & 0x1F) if cluster & 0xE0 == 0xA0 else 7 + payload[6]
    if payload[at : at + 1] == b"\xc0":
        return "rumours"
    tag = payload[at + 1 : at + 2]
    return payload[at + 2 : at + 2 + (tag[0] & 0x1F)].decode("ascii", "replace") if tag else "foreign"


def fill(cluster: str, message: Gossip | None, rumours: Sequence[Rumour]) -> tuple[bytes, int]:
    """The datagram of ``message`` and as many of the rumours as fit, in the order given; and how many that are.

    Rumours have been checked by whoever made or took them. Raises ``ValueError`` where the message alone is too large.
    """
    head = b"".join((_HEADER, b"\x95", _ENCODER.encode(cluster), _ENCODER.encode(message)))
    size = len(head) + 3
    if size > MAX_DATAGRAM_BYTES:
        raise ValueError(f"a datagram of {size} bytes, the limit is {MAX_DATAGRAM_BYTES}")
    kinds: dict[type[Rumour], list[bytes]] = {kind: [] for kind in _KINDS}
    taken = 0
    for rumour in rumours:
        encoded = _ENCODER.encode(rumour)
        of_kind = kinds[type(rumour)]
        # The array's header grows from one byte to three with the sixteenth.
        size += len(encoded) + (2 if len(of_kind) == 15 else 0)
        if size > MAX_DATAGRAM_BYTES or len(of_kind) == _MAX_OF_A_KIND:
            break
        of_kind.append(encoded)
        taken += 1
    return head + b"".join([_array(encoded) for encoded in kinds.values()]), taken


def _array(of: list[bytes]) -> bytes:
    if not of:
        return b"\x90"
    return (bytes((0x90 + len(of),)) if len(of) < 16 else b"\xdc\x00" + bytes((len(of),))) + b"".join(of)
