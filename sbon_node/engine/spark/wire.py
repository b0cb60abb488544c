"""Local socket between daemon, engine host and Spark's Python processes: length-prefixed MessagePack after a token.

It never leaves the machine unless the executors do, and both ends are ours; the token keeps other users of the machine out.
"""

from __future__ import annotations

import os
import socket
import struct
from typing import Annotated, Any, Literal

import msgpack
import msgspec
from msgspec import Meta

FEED_VARIABLE = "SBON_FEED"
"""``host:port:token`` of the daemon, in the environment of the host, its JVM and Spark's Python processes."""

LENGTH = struct.Struct(">I")
MAX_BYTES = 256 * 1024 * 1024
HELLO_BYTES = 256
JVM_LOST = 3
"""Exit code of a host whose JVM has died."""


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """The first message of every connection, at most ``HELLO_BYTES`` long."""

    role: Literal["host", "reader", "output"]
    token: Annotated[str, Meta(max_length=64)]


class FeedLostError(Exception):
    """The daemon has closed the connection, or never listened."""


class FeedError(Exception):
    """The daemon refused, with a code and a reason."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def pack(message: dict[str, Any]) -> bytes:
    payload: bytes = msgpack.packb(message, use_bin_type=True)
    return LENGTH.pack(len(payload)) + payload


def unpack(payload: bytes) -> dict[str, Any]:
    message: dict[str, Any] = msgpack.unpackb(
        payload, raw=False, strict_map_key=True, max_bin_len=MAX_BYTES, max_str_len=MAX_BYTES
    )
    return message


class Feed:
    """A blocking connection to the daemon, for threads and processes without other work."""

    def __init__(self, role: Literal["host", "reader", "output"]) -> None:
        host, port, token = os.environ[FEED_VARIABLE].rsplit(":", 2)
        try:
            self._socket = socket.create_connection((host, int(port)), timeout=30)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.settimeout(None)
        except OSError as error:
            raise FeedLostError(str(error)) from error
        self.send({"role": role, "token": token})

    def call(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send a message and return the answer; raises :class:`FeedError` and :class:`FeedLostError`."""
        self.send(message)
        answer = self.receive()
        if "error" in answer:
            raise FeedError(answer["error"], answer.get("message", ""))
        return answer

    def send(self, message: dict[str, Any]) -> None:
        try:
            self._socket.sendall(pack(message))
        except OSError as error:
            raise FeedLostError(str(error)) from error

    def receive(self) -> dict[str, Any]:
        return unpack(self._exactly(LENGTH.unpack(self._exactly(LENGTH.size))[0]))

    def close(self) -> None:
        self._socket.close()

    def _exactly(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            try:
                received = self._socket.recv(min(count - len(parts), 1 << 20))
            except OSError as error:
                raise FeedLostError(str(error)) from error
            if not received:
                raise FeedLostError("the node has closed the connection")
            parts += received
        return bytes(parts)
