"""Frames on a TCP connection: a big-endian length of four bytes, then a :data:`sbon_protocol.messages.Frame`."""

import struct
from collections.abc import Awaitable, Callable

from sbon_protocol.codec import MAX_MESSAGE_BYTES, decode, encode
from sbon_protocol.errors import ProtocolError
from sbon_protocol.messages import Frame

_LENGTH = struct.Struct(">I")
LENGTH_BYTES = _LENGTH.size


def encode_frame(frame: Frame) -> bytes:
    """Encode a frame. Raise ``ValueError`` if it exceeds the limit: the sender has to cut it."""
    payload = encode(frame)
    if len(payload) > MAX_MESSAGE_BYTES:
        raise ValueError(f"a frame of {len(payload)} bytes, the limit is {MAX_MESSAGE_BYTES}")
    return _LENGTH.pack(len(payload)) + payload


def frame_length(header: bytes | bytearray) -> int:
    """Return the length in a frame's first four bytes; raise :class:`ProtocolError` ``too-large`` or ``empty``."""
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
    """Read a frame with ``read_exactly``; raise :class:`ProtocolError`, and the reader's own errors."""
    length = frame_length(await read_exactly(LENGTH_BYTES))
    return decode_frame(await read_exactly(length))
