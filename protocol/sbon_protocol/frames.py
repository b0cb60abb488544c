"""Frames on a TCP connection: four bytes of length, big-endian, then one message of :data:`sbon_protocol.messages.Frame`."""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable

from sbon_protocol.codec import MAX_MESSAGE_BYTES, decode, encode
from sbon_protocol.errors import ProtocolError
from sbon_protocol.messages import Frame

_LENGTH = struct.Struct(">I")
LENGTH_BYTES = _LENGTH.size


def encode_frame(frame: Frame) -> bytes:
    """Raises ``ValueError`` for a frame over the limit: the sender has to cut it."""
    payload = encode(frame)
    if len(payload) > MAX_MESSAGE_BYTES:
        raise ValueError(f"a frame of {len(payload)} bytes, the limit is {MAX_MESSAGE_BYTES}")
    return _LENGTH.pack(len(payload)) + payload


def frame_length(header: bytes | bytearray) -> int:
    """The length a frame's first four bytes announce; raises :class:`ProtocolError` ``too-large`` or ``empty``."""
    length: int = _LENGTH.unpack(header)[0]
    if length > MAX_MESSAGE_BYTES:
        raise ProtocolError("too-large", f"a frame of {length} bytes, the limit is {MAX_MESSAGE_BYTES}")
    if length == 0:
        raise ProtocolError("empty", "a frame without a message")
    return length


def decode_frame(payload: bytes | memoryview) -> Frame:
    frame: Frame = decode(payload, Frame)
    return frame


async def read_frame(read_exactly: Callable[[int], Awaitable[bytes]]) -> Frame:
    """One frame from whatever ``read_exactly`` reads from; raises :class:`ProtocolError`, and what the reader raises."""
    length = frame_length(await read_exactly(LENGTH_BYTES))
    return decode_frame(await read_exactly(length))
