"""Datagrams: a four-byte header and a :class:`~sbon_protocol.messages.Packet`, at most 1,200 bytes in all.

Header: ``b"SB"``, version, flags. Flag bit 0 means that key id, nonce and sealed packet follow; no version seals yet.
"""

import math
from collections.abc import Sequence

import msgspec

from sbon_protocol.codec import check_finite, decode, encode
from sbon_protocol.errors import ProtocolError
from sbon_protocol.messages import Ack, Coordinate, CoordinateUpdate, Gossip, Member, Packet, Ping, Rumour, StateUpdate
from sbon_protocol.papers.ants import Ant
from sbon_protocol.version import OLDEST_VERSION, VERSION

MAX_DATAGRAM_BYTES = 1200
MAGIC = b"SB"
SEALED = 0x01
_HEADER = MAGIC + bytes((VERSION, 0))
_HEADER_BYTES = 4
_MAX_OF_A_KIND = 64
_KINDS: tuple[type[Rumour], ...] = (Member, StateUpdate, CoordinateUpdate)
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Packet)


def pack(packet: Packet) -> bytes:
    """Encode a packet. Raise ``ValueError`` if it does not fit; the sender chooses the content, see :func:`fill`."""
    payload = _HEADER + encode(packet)
    if len(payload) > MAX_DATAGRAM_BYTES:
        raise ValueError(f"a datagram of {len(payload)} bytes, the limit is {MAX_DATAGRAM_BYTES}")
    return payload


def unpack(payload: bytes) -> Packet:
    """Decode a packet.

    Raises :class:`ProtocolError` ``too-large``, ``not-ours``, ``version``, ``sealed``, or the codec's error.
    """
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
    """Return the packet if this version would write it with the same bytes, otherwise None.

    Such bytes need none of the codec's checks. For others the codec is called, which takes ten times as long.
    """
    try:
        packet: Packet = _DECODER.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    if _ENCODER.encode(packet) != body:
        return None
    message = packet.message
    finite = not isinstance(message, Ping | Ack) or message.coordinate is None or _finite(message.coordinate)
    if isinstance(message, Ant):
        check_finite(msgspec.to_builtins(message))
    finite = finite and all(m.coordinate is None or _finite(m.coordinate) for m in packet.members)
    finite = finite and all(m.meta is None or _bounded(m) for m in packet.members)
    return packet if finite and all(_finite(place.coordinate) for place in packet.coordinate_updates) else None


def _finite(place: Coordinate) -> bool:
    return math.isfinite(sum(place.vector) + place.height + place.error + place.load)


def _bounded(member: Member) -> bool:
    meta = member.meta
    return meta is None or math.isfinite(meta.cores + meta.memory_mb + meta.bandwidth_bytes_s)


def kind_of(payload: bytes) -> str:
    """Return the tag of a datagram's message, ``rumours`` without a message, and ``foreign`` for a foreign datagram."""
    if payload[:2] != MAGIC or len(payload) < _HEADER_BYTES + 3:
        return "foreign"
    cluster = payload[5]
    at = 6 + (cluster & 0x1F) if cluster & 0xE0 == 0xA0 else 7 + payload[6]
    if payload[at : at + 1] == b"\xc0":
        return "rumours"
    tag = payload[at + 1 : at + 2]
    return payload[at + 2 : at + 2 + (tag[0] & 0x1F)].decode("ascii", "replace") if tag else "foreign"


def fill(
    cluster: str, message: Gossip | Ant | None, rumours: Sequence[Rumour], most: int = MAX_DATAGRAM_BYTES
) -> tuple[bytes, int]:
    """Return the datagram of ``message`` and the first rumours that fit in ``most`` bytes, and the number of these.

    The node that made or accepted the rumours has checked them. Raises ``ValueError`` if the message alone is too large.
    """
    head = b"".join((_HEADER, b"\x95", _ENCODER.encode(cluster), _ENCODER.encode(message)))
    size = len(head) + 3
    if size > most:
        raise ValueError(f"a datagram of {size} bytes, the limit is {most}")
    kinds: dict[type[Rumour], list[bytes]] = {kind: [] for kind in _KINDS}
    taken = 0
    for rumour in rumours:
        encoded = _ENCODER.encode(rumour)
        of_kind = kinds[type(rumour)]
        # The array's header grows from one byte to three with the sixteenth.
        size += len(encoded) + (2 if len(of_kind) == 15 else 0)
        if size > most or len(of_kind) == _MAX_OF_A_KIND:
            break
        of_kind.append(encoded)
        taken += 1
    return head + b"".join([_array(encoded) for encoded in kinds.values()]), taken


def _array(of: list[bytes]) -> bytes:
    if not of:
        return b"\x90"
    return (bytes((0x90 + len(of),)) if len(of) < 16 else b"\xdc\x00" + bytes((len(of),))) + b"".join(of)
