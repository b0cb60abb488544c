"""Local socket between daemon, engine process and Spark's Python processes, for :mod:`.messages` after a token.

It never leaves the machine unless the executors do, and both ends are ours; the token keeps other users of the machine out.
"""

import faulthandler
import os
import signal
import socket
from contextlib import suppress
from typing import TypeVar

import msgspec

from sbon_node.engine.spark.messages import LENGTH, MAX_BYTES, Hello, Message, Refused, Role, answer_decoder, decode, encode

FEED_VARIABLE = "SBON_FEED"
"""``host:port:token`` of the daemon, in the environment of the engine process, its JVM and Spark's Python processes."""

JVM_LOST = 3
"""Exit code of an engine process whose JVM has died."""

T = TypeVar("T")
A = TypeVar("A", bound=Message)


class FeedLostError(Exception):
    """The daemon has closed the connection, or never listened."""


class FeedError(Exception):
    """The daemon refused, with a code and a reason."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class MessageTooLargeError(Exception):
    """The message is longer than ``MAX_BYTES``; nothing of it was sent."""


class Feed:
    """A blocking connection to the daemon, for threads and processes without other work."""

    def __init__(self, role: Role) -> None:
        host, port, token = os.environ[FEED_VARIABLE].rsplit(":", 2)
        try:
            self._socket = socket.create_connection((host, int(port)), timeout=30)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.settimeout(None)
        except OSError as error:
            raise FeedLostError(str(error)) from error
        self.send(Hello(role=role, token=token))

    def call(self, request: Message, answer: type[A]) -> A:
        """Send a request and return the answer, of type ``answer``.

        Raises :class:`FeedError`, :class:`FeedLostError`, :class:`MessageTooLargeError`, and :class:`SbonError` for another
        answer.
        """
        self.send(request)
        received = self.receive(answer_decoder(answer))
        if isinstance(received, Refused):
            raise FeedError(received.code, str(received.error()))
        return received

    def send(self, message: msgspec.Struct) -> None:
        """Send a message. Raises :class:`MessageTooLargeError`: the daemon would close the connection without a reason."""
        body = encode(message)
        if len(body) - LENGTH.size > MAX_BYTES:
            raise MessageTooLargeError(f"{len(body) - LENGTH.size:,} bytes are over the limit of {MAX_BYTES:,}")
        try:
            self._socket.sendall(body)
        except OSError as error:
            raise FeedLostError(str(error)) from error

    def receive(self, decoder: msgspec.msgpack.Decoder[T]) -> T:
        """Return the next message; raise :class:`FeedLostError`, and :class:`SbonError` for one of another type."""
        return decode(self._exactly(LENGTH.unpack(self._exactly(LENGTH.size))[0]), decoder)

    def close(self) -> None:
        self._socket.close()

    def _exactly(self, count: int) -> bytes:
        received_bytes = bytearray()
        while len(received_bytes) < count:
            try:
                received = self._socket.recv(min(count - len(received_bytes), 1 << 20))
            except OSError as error:
                raise FeedLostError(str(error)) from error
            if not received:
                raise FeedLostError("the node has closed the connection")
            received_bytes += received
        return bytes(received_bytes)


# -- Stacks of an engine process that does not answer, for its log: without them, nobody could say of what it hung -----

STACKS_ASKED = signal.SIGUSR1
STACKS_S = 1.0
"""Ample time for both processes to write."""


def write_stacks_when_asked() -> None:
    """Let the engine process write the stacks of its threads to its log whenever it is asked."""
    faulthandler.register(STACKS_ASKED, all_threads=True)


def ask_for_stacks(engine_pid: int, jvm_pid: int) -> None:
    """Ask the engine process and its JVM for the stacks of their threads."""
    for pid, asked in ((engine_pid, STACKS_ASKED), (jvm_pid, signal.SIGQUIT)):
        with suppress(ProcessLookupError):
            os.kill(pid, asked)
