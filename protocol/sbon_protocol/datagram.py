"""Datagrams: a four-byte header and one :class:`~sbon_protocol.messages.Packet`, at most 1,200 bytes in all.

Header: ``b"SB"``, version, flags. Flag bit 0 says that key id, nonce and sealed packet follow; no version seals yet.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgpack

from sbon_protocol.codec import decode, encode
from sbon_protocol.errors import ProtocolError
from sbon_protocol.messages import Gossip, Member, Packet
from sbon_protocol.version import OLDEST_VERSION, VERSION

MAX_DATAGRAM_BYTES = 1200
MAGIC = b"SB"
SEALED = 0x01
_HEADER_BYTES = 4
_MAX_MEMBERS = 64


def pack(packet: Packet) -> bytes:
    """Raises ``ValueError`` for a packet that does not fit: what goes in is the sender's choice, see :func:`fill`."""
    payload = MAGIC + bytes((VERSION, 0)) + encode(packet)
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
    packet: Packet = decode(payload[_HEADER_BYTES:], Packet)
    return packet


def fill(cluster: str, message: Gossip | None, members: Sequence[Member]) -> tuple[bytes, int]:
    """The datagram of ``message`` and as many of ``members`` as fit, in the order given; and how many that are."""
    head = pack(Packet(cluster=cluster, message=message))[:-1]  # all but the empty array of members
    taken: list[bytes] = []
    size = len(head) + 1
    for member in members[:_MAX_MEMBERS]:
        encoded = encode(member)
        # The array's header grows from one byte to three with the sixteenth member.
        size += len(encoded) + (2 if len(taken) == 15 else 0)
        if size > MAX_DATAGRAM_BYTES:
            break
        taken.append(encoded)
    header: bytes = msgpack.Packer().pack_array_header(len(taken))
    return b"".join((head, header, *taken)), len(taken)
