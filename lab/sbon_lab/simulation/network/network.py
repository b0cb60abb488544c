"""A realistic network in memory: real bytes, the datagram limit, latency with jitter, loss, duplicates, cuts.

Datagrams are lost, doubled and overtake each other. Connections are ordered and bounded. Data held up by a cut arrives after
the heal, or the connection breaks after ``stall_timeout_s``. A killed process loses its ports: the data that its kernel had
taken still arrives, then the end of the connection. A peer that writes to it gets a reset.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from functools import partial

from sbon_lab.simulation.network.paths import Latency, NetworkQuality, Paths
from sbon_lab.simulation.network.stream import SimulatedConnection
from sbon_lab.simulation.process import NO_PROCESS, Process
from sbon_node.net.transport import (
    Address,
    Connection,
    ConnectionHandler,
    ConnectionLostError,
    DatagramEndpoint,
    DatagramHandler,
    Listener,
)
from sbon_protocol.datagram import MAX_DATAGRAM_BYTES, kind_of

ANY_HOSTS = ("0.0.0.0", "127.0.0.1", "localhost", "")
_FIRST_FREE_PORT = 20_000
KERNEL_DATAGRAMS = 256
"""Number of datagrams that the kernel keeps for a paused process; more are lost."""


class SimulatedNetwork(Paths):
    """Nodes connected by name; ``transport(process, node, host)`` is the network of one incarnation of a node."""

    def __init__(self, rng: random.Random, latency: Latency, quality: NetworkQuality | None = None) -> None:
        super().__init__(rng, latency, quality)
        self._nodes: dict[str, str] = {}
        self._endpoints: dict[Address, _Endpoint] = {}
        self._listeners: dict[Address, _Listener] = {}
        self._ports: dict[str, int] = {}

    def transport(self, process: Process, node: str, host: str) -> SimulatedTransport:
        self._nodes[host] = node
        return SimulatedTransport(self, process, node, host)

    # -- datagrams -----------------------------------------------------------------------------------------------------

    def node_at(self, host: str) -> str | None:
        return self._nodes.get(host)

    def send_datagram(self, source: _Endpoint, payload: bytes, to: Address) -> None:
        traffic, quality = self.traffic(source.node), self.quality
        traffic.datagrams_sent += 1
        traffic.datagram_bytes_sent += len(payload)
        kind = kind_of(payload)
        traffic.kinds[kind] = traffic.kinds.get(kind, 0) + len(payload)
        traffic.counts[kind] = traffic.counts.get(kind, 0) + 1
        target = self.node_at(to.host)
        if target is None or self.is_cut(source.node, target) or self._rng.random() < quality.loss:
            return
        now = source.loop.time()
        for _ in range(2 if self._rng.random() < quality.duplicate else 1):
            delay = self.delay_s(source.node, target)
            if self._rng.random() < quality.spike:
                delay *= 10
            arrival = (source.node, source.local, target, payload, to)
            source.loop.call_at(now + delay, self._arrive, *arrival, context=NO_PROCESS)

    def _arrive(self, source: str, sender: Address, target: str, payload: bytes, to: Address) -> None:
        endpoint = self._endpoints.get(to)
        if endpoint is None or self.is_cut(source, target):
            return
        traffic = self.traffic(target)
        traffic.datagrams_received += 1
        traffic.datagram_bytes_received += len(payload)
        endpoint.take(payload, sender)

    # -- ports ---------------------------------------------------------------------------------------------------------

    def claim(self, host: str, bind: Address, sockets: Mapping[Address, object]) -> Address:
        """Return the address of ``bind`` at ``host``, with a free port if none is given; raise ``OSError``."""
        if bind.host not in (host, *ANY_HOSTS):
            raise OSError(f"cannot assign requested address {bind}")
        if bind.port:
            local = Address(host, bind.port)
            if local in sockets:
                raise OSError(f"address already in use: {local}")
            return local
        while True:
            self._ports[host] = port = self._ports.get(host, _FIRST_FREE_PORT - 1) + 1
            if Address(host, port) not in self._endpoints and Address(host, port) not in self._listeners:
                return Address(host, port)

    def bind_datagrams(self, process: Process, node: str, host: str, bind: Address, handler: DatagramHandler) -> _Endpoint:
        local = self.claim(host, bind, self._endpoints)
        self._endpoints[local] = endpoint = _Endpoint(self, process, node, local, handler)
        return endpoint

    def bind_listener(self, process: Process, node: str, host: str, bind: Address, handler: ConnectionHandler) -> _Listener:
        local = self.claim(host, bind, self._listeners)
        self._listeners[local] = listener = _Listener(self, process, node, local, handler)
        return listener

    def unbind_datagrams(self, endpoint: _Endpoint) -> None:
        if self._endpoints.get(endpoint.local) is endpoint:
            del self._endpoints[endpoint.local]

    def unbind_listener(self, listener: _Listener) -> None:
        if self._listeners.get(listener.local) is listener:
            del self._listeners[listener.local]

    def listener_at(self, address: Address) -> _Listener | None:
        return self._listeners.get(address)


class _Endpoint:
    def __init__(self, network: SimulatedNetwork, process: Process, node: str, local: Address, handler: DatagramHandler) -> None:
        self._network = network
        self.loop = asyncio.get_running_loop()
        self.process = process
        self.node = node
        self.local = local
        self.handler = handler
        self._open = True
        self._kept = 0
        process.on_kill(self.close)

    def send(self, payload: bytes, to: Address) -> float:
        if len(payload) > MAX_DATAGRAM_BYTES:
            raise ValueError(f"datagram of {len(payload)} bytes, {MAX_DATAGRAM_BYTES} is the limit")
        now = self.loop.time()
        if self._open:
            self._network.send_datagram(self, payload, to)
        return now

    def take(self, payload: bytes, sender: Address) -> None:
        """Hand a datagram to the process. While it is paused, its kernel keeps some and loses the others."""
        if not self.process.paused:
            self.process.context.copy().run(self.handler, payload, sender, self.loop.time())
        elif self._kept < KERNEL_DATAGRAMS:
            self._kept += 1
            self.process.on_resume(partial(self._read, payload, sender, self.loop.time()))

    def _read(self, payload: bytes, sender: Address, stamp: float) -> None:
        self._kept -= 1
        if self.process.alive:
            self.loop.call_soon(self.handler, payload, sender, stamp, context=self.process.context.copy())

    def close(self) -> None:
        self._open = False
        self._network.unbind_datagrams(self)


class _Listener:
    def __init__(
        self, network: SimulatedNetwork, process: Process, node: str, local: Address, handler: ConnectionHandler
    ) -> None:
        self._network = network
        self._process = process
        self.node = node
        self.local = local
        self._handler = handler
        self._accepted: dict[asyncio.Task[None], Connection] = {}
        process.on_kill(lambda: network.unbind_listener(self))

    def accept(self, client: SimulatedConnection, client_address: Address) -> SimulatedConnection:
        """Return the server's end of a connection; its handler runs in the listener's process."""
        server = SimulatedConnection(self._network, self._process, self.node, client_address)
        server.join(client)
        task = self._process.start(self._serve(server))
        self._accepted[task] = server
        task.add_done_callback(lambda done: self._accepted.pop(done, None))
        return server

    async def _serve(self, connection: SimulatedConnection) -> None:
        try:
            await self._handler(connection)
        except ConnectionLostError:
            pass
        finally:
            connection.close()

    async def close(self) -> None:
        self._network.unbind_listener(self)
        handlers = dict(self._accepted)
        for connection in handlers.values():
            connection.close()
        for task in handlers:
            task.cancel()
        if handlers:
            await asyncio.wait(handlers)


class SimulatedTransport:
    """The network of one process of one node (:class:`sbon_node.net.transport.Transport`)."""

    def __init__(self, network: SimulatedNetwork, process: Process, node: str, host: str) -> None:
        self._network = network
        self._process = process
        self._node = node
        self._host = host
        self._client_ports = 0

    async def open_datagrams(self, bind: Address, handler: DatagramHandler) -> DatagramEndpoint:
        self._process.check_alive()
        return self._network.bind_datagrams(self._process, self._node, self._host, bind, handler)

    async def listen(self, bind: Address, handler: ConnectionHandler) -> Listener:
        self._process.check_alive()
        return self._network.bind_listener(self._process, self._node, self._host, bind, handler)

    async def connect(self, to: Address, *, timeout_s: float) -> Connection:
        self._process.check_alive()
        try:
            async with asyncio.timeout(timeout_s):
                return await self._connect(to)
        except TimeoutError:
            raise ConnectionLostError(f"{to} does not answer") from None

    async def _connect(self, to: Address) -> Connection:
        network = self._network
        target = network.node_at(self._host if to.host in ANY_HOSTS else to.host)
        await self._travel(self._node, target)
        assert target is not None
        listener = network.listener_at(Address(self._host, to.port) if to.host in ANY_HOSTS else to)
        client = None
        if listener is not None:
            self._client_ports += 1
            client = SimulatedConnection(network, self._process, self._node, to)
            listener.accept(client, Address(self._host, 40_000 + self._client_ports % 20_000))
        try:
            await self._travel(target, self._node)
            self._process.check_alive()
        except BaseException:
            if client is not None:
                client.close()
            raise
        if client is None:
            raise ConnectionLostError(f"{to} refuses connections")
        return client

    async def _travel(self, source: str, target: str | None) -> None:
        """Let one packet of the handshake travel; waits for ever if a cut loses it, so the caller sets a time limit."""
        if target is None or self._network.is_cut(source, target):
            await asyncio.get_running_loop().create_future()
        else:
            await asyncio.sleep(self._network.delay_s(source, target))
            if self._network.is_cut(source, target):
                await asyncio.get_running_loop().create_future()
