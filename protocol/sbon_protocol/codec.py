"""Conversion between bytes and messages: MessagePack with limits, then types and ranges, then finiteness.

The limits hold before anything large is allocated. Bad bytes raise :class:`ProtocolError` and nothing else.
"""

import math
import threading
from typing import Any, TypeVar

import msgpack
import msgspec

from sbon_protocol.errors import ProtocolError

MAX_PAYLOAD_BYTES = 4 * 1024 * 1024
MAX_ROW_BYTES = 2**20
MAX_MESSAGE_BYTES = MAX_PAYLOAD_BYTES + 64 * 1024
MAX_ITEMS = 16_384
MAX_DEPTH = 32
_PLAIN = frozenset({str, int, bool, bytes, type(None)})

T = TypeVar("T")

_prepared: set[Any] = set()
_preparing = threading.Lock()


def encode(message: msgspec.Struct) -> bytes:
    """Return the MessagePack form of a message, or of any struct.

    Raises ``ValueError`` for content that no peer accepts: a number that is not finite, too deep a nesting, text that is not
    Unicode.
    """
    value = msgspec.to_builtins(message, builtin_types=(bytes,))
    try:
        check_finite(value)
    except ProtocolError as error:
        raise ValueError(str(error)) from error
    packed: bytes = msgpack.packb(value, use_bin_type=True)
    return packed


def decode(payload: bytes | memoryview, type_: type[T] | Any) -> T:
    """Return the message of ``type_`` (a class, or a union) in ``payload``; raise :class:`ProtocolError`."""
    if len(payload) > MAX_MESSAGE_BYTES:
        raise ProtocolError("too-large", f"{len(payload)} bytes, the limit is {MAX_MESSAGE_BYTES}")
    try:
        value: Any = msgpack.unpackb(
            payload,
            raw=False,
            use_list=True,
            strict_map_key=True,
            max_str_len=MAX_PAYLOAD_BYTES,
            max_bin_len=MAX_PAYLOAD_BYTES,
            max_array_len=MAX_ITEMS,
            max_map_len=MAX_ITEMS,
            max_ext_len=0,
            ext_hook=_no_extension,
        )
    except (ValueError, RecursionError, OverflowError, msgpack.exceptions.UnpackException) as error:
        raise ProtocolError("malformed", str(error) or type(error).__name__) from error
    decoded: T = decode_record(value, type_)
    return decoded


def decode_record(value: Any, type_: type[T] | Any) -> T:
    """Decode a value that travelled inside a message as ``Any``; raise :class:`ProtocolError`."""
    try:
        check_finite(value)
        prepare(type_)
        converted: T = msgspec.convert(value, type_, strict=True)
    except (msgspec.ValidationError, RecursionError, OverflowError) as error:
        raise ProtocolError("invalid", str(error)) from error
    return converted


def prepare(type_: type | Any) -> None:
    """Make a type known to msgspec before its first use: two threads that begin with one struct at once crash the process."""
    if type_ not in _prepared:
        with _preparing:
            if type_ not in _prepared:
                msgspec.msgpack.Decoder(type_)
                _prepared.add(type_)


def check_finite(value: Any) -> None:
    """Raise :class:`ProtocolError` ``not-finite`` or ``too-deep``.

    It goes level by level: a call for each value would cost more than the rest of decoding.
    """
    level, depth = [value], MAX_DEPTH
    while level:
        nested: list[Any] = []
        for item in level:
            if type(item) in _PLAIN:
                continue
            if isinstance(item, float):
                if not math.isfinite(item):
                    raise ProtocolError("not-finite", f"{item} is no number to work with")
            elif isinstance(item, list | tuple | dict):
                if depth == 0:
                    raise ProtocolError("too-deep", f"nested deeper than {MAX_DEPTH}")
                nested.extend(item.values() if isinstance(item, dict) else item)
        level, depth = nested, depth - 1


def _no_extension(code: int, content: bytes) -> object:
    raise ValueError(f"extension type {code} is not part of the protocol")
