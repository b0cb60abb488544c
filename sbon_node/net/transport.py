"""The network that the rest of the node sees: datagrams and byte connections, nothing more.

Three implementations keep this contract and one conformance suite checks them: real sockets (``sockets``), real sockets with
the delays of a wide area (``emulation``) and the simulated network (``simulation.network``).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

from sbon_protocol.errors import SbonError


class Address(NamedTuple):
    """An IP address or host name, and a port; UDP and TCP of a node share both."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str, *, field: str = "address", default_port: int | None = None) -> Address:
        """Parse ``host:port``, ``[v6]:port``, or ``host`` with a default port; raises :class:`SbonError`."""
        host, separator, port = text.rpartition(":")
        if not separator or (":" in host and not host.startswith("[")):
            host, port = text, ""
        host = host.strip("[]")
        if not port and default_port is not None:
            return cls(host, default_port)
        if not host or not port.isascii() or not port.isdigit() or not 0 <= int(port) <= 65535:
            raise SbonError("bad-address", f"{text!r} is not host:port", where=field, hint="for example 127.0.0.1:7400")
        return cls(host, int(port))


class ConnectionLostError(Exception):
    """The other side or the network has closed a connection, or it could not be opened."""


class NameUnresolvedError(ConnectionLostError):
    """A connection could not be opened, since the host's name has no address here."""


DatagramHandler = Callable[[bytes, Address, float], None]
"""Takes payload, sender and arrival stamp, in seconds of the loop's clock; must not raise."""


class DatagramEndpoint(Protocol):
    """One bound UDP port. Loss is silent, as on any network."""

    @property
    def local(self) -> Address: ...

    def send(self, payload: bytes, to: Address) -> float:
        """Send, and return the stamp taken just before.

        Never raises for network failures; more than 1,200 bytes is our own bug and raises ``ValueError``.
        """

    def close(self) -> None: ...


class Connection(Protocol):
    """One ordered byte connection."""

    @property
    def peer(self) -> Address: ...

    async def read_exactly(self, count: int) -> bytes:
        """Wait for exactly ``count`` bytes; raises :class:`ConnectionLostError`."""

    def write(self, payload: bytes) -> None:
        """Queue bytes; follow with ``drain`` so that memory stays bounded. Does nothing after the connection is lost."""

    async def drain(self) -> None:
        """Wait until the queue is short; raises :class:`ConnectionLostError`."""

    def close(self) -> None: ...


class Listener(Protocol):
    @property
    def local(self) -> Address: ...

    async def close(self) -> None:
        """Stop accepting, close accepted connections, and wait for the handlers."""


ConnectionHandler = Callable[[Connection], Awaitable[None]]


class Transport(Protocol):
    async def open_datagrams(self, bind: Address, handler: DatagramHandler) -> DatagramEndpoint:
        """Bind a UDP port; raises ``OSError`` where the port is taken or not ours."""

    async def listen(self, bind: Address, handler: ConnectionHandler) -> Listener:
        """Run ``handler`` in a new task for each accepted connection, which closes when it returns."""

    async def connect(self, to: Address, *, timeout_s: float) -> Connection:
        """Open a connection; raises :class:`ConnectionLostError`."""
