"""What the network is to the rest of the node: datagrams and byte connections, nothing more.

Three implementations keep this contract and one conformance suite checks them: real sockets (``sockets``), real sockets with
the delays of a wide area (``emulation``) and the simulated network (``simulation.network``).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

from sbon_node.errors import SbonError


class Address(NamedTuple):
    """An IP address or host name, and a port; UDP and TCP of a node share both."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str, *, field: str = "address", default_port: int | None = None) -> Address:
        """``host:port``, ``[v6]:port``, or ``host`` alone where a default port is given; raises :class:`SbonError`."""
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
    """The other side closed, or the network cut, a connection; or it could not be made at all."""


DatagramHandler = Callable[[bytes, Address, float], None]
"""Takes payload, sender, and the arrival stamp in seconds of the loop's clock (taken as early as possible); must not raise."""


class DatagramEndpoint(Protocol):
    """One bound UDP port. Loss is silent, as on any network."""

    @property
    def local(self) -> Address: ...

    def send(self, payload: bytes, to: Address) -> float:
        """Sends and returns the stamp taken just before. Never raises for the network's sake; larger than 1,200 bytes
        is our own bug and raises ``ValueError``."""
        ...

    def close(self) -> None: ...


class Connection(Protocol):
    """One ordered byte connection."""

    @property
    def peer(self) -> Address: ...

    async def read_exactly(self, count: int) -> bytes:
        """Waits for exactly so many bytes; raises :class:`ConnectionLostError`."""
        ...

    def write(self, payload: bytes) -> None:
        """Queues; follow with ``drain`` so that memory stays bounded. Silent after the connection is lost."""
        ...

    async def drain(self) -> None:
        """Waits until the queue is short; raises :class:`ConnectionLostError`."""
        ...

    def close(self) -> None: ...


class Listener(Protocol):
    @property
    def local(self) -> Address: ...

    async def close(self) -> None:
        """Stops accepting, closes what was accepted, and waits for the handlers."""
        ...


ConnectionHandler = Callable[[Connection], Awaitable[None]]


class Transport(Protocol):
    async def open_datagrams(self, bind: Address, handler: DatagramHandler) -> DatagramEndpoint:
        """Raises ``OSError`` where the port is taken or not ours."""
        ...

    async def listen(self, bind: Address, handler: ConnectionHandler) -> Listener:
        """Each accepted connection runs ``handler`` in a task of its own and is closed when it returns."""
        ...

    async def connect(self, to: Address, *, timeout_s: float) -> Connection:
        """Raises :class:`ConnectionLostError`."""
        ...
