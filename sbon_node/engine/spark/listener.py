"""The node's end of the local socket: serves an engine process, its JVM and Spark's Python processes, and rejects others.

Each connection must present the token in a first message that is short and comes soon; until then almost nothing is
read.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import msgspec
import structlog

from sbon_node.engine.spark.messages import HELLO, HELLO_BYTES, LENGTH, MAX_BYTES, Message, Refused, Role, decode, encode
from sbon_protocol.errors import SbonError

log = structlog.get_logger()

T = TypeVar("T")
R = TypeVar("R")

Serve = Callable[[R], Awaitable[Message]]
"""Answers one request of a reader or an output."""

Control = tuple[asyncio.StreamReader, asyncio.StreamWriter]

HELLO_S = 10.0
MAX_STRANGERS = 64
"""Connections at once that have not presented the token yet."""


class Listener(Generic[R]):
    """The listener for one engine process, with its own address and token, so that messages of an older process go nowhere.

    ``requests`` decodes what readers and outputs send.
    """

    def __init__(
        self,
        serve: Serve[R],
        requests: msgspec.msgpack.Decoder[R],
        *,
        hello_s: float = HELLO_S,
        max_strangers: int = MAX_STRANGERS,
    ) -> None:
        self._requests = requests
        self._serve, self._hello_s, self._max_strangers = serve, hello_s, max_strangers
        self._token = secrets.token_hex(16)
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._strangers = 0
        self.control: asyncio.Future[Control] = asyncio.get_running_loop().create_future()
        """The engine process's control connection, once open."""

    async def open(self) -> str:
        """Listen; return ``host:port:token`` for the engine process's environment."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}:{self._token}"

    async def close(self) -> None:
        """Close every connection, the engine process's too, whatever requests are under way."""
        if self._server is not None:
            self._server.close()
        connections = list(self._connections)
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        if not self.control.done():
            self.control.set_exception(ConnectionAbortedError("it was stopped while it started"))
            self.control.exception()  # Perhaps no task waits for it.

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._strangers >= self._max_strangers:
            log.warning("engine-connection-refused", reason=f"{self._strangers} others have not shown their token")
            writer.close()
            return
        self._strangers += 1
        task = asyncio.get_running_loop().create_task(self._converse(reader, writer), name="engine-connection")
        self._connections[task] = writer
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._connections.pop(task).close()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("engine-connection-failed", exc_info=error)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            role = await self._greeted(reader)
        finally:
            self._strangers -= 1
        if role == "engine" and not self.control.done():
            self.control.set_result((reader, writer))
            await asyncio.get_running_loop().create_future()  # Until the listener is closed.
        elif role in ("reader", "output"):
            await self._answer(reader, writer)

    async def _greeted(self, reader: asyncio.StreamReader) -> Role | None:
        """Return the role of a connection that has presented the token."""
        try:
            async with asyncio.timeout(self._hello_s):
                hello = await receive(reader, HELLO, HELLO_BYTES)
        except TimeoutError:
            reason = f"it said nothing for {self._hello_s:g} s"
        except SbonError as error:
            reason = f"no greeting: {error}"
        else:
            if hello is not None and secrets.compare_digest(hello.token.encode(), self._token.encode()):
                return hello.role
            reason = "no greeting" if hello is None else "wrong token"
        log.warning("engine-connection-refused", reason=reason)
        return None

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                request = await receive(reader, self._requests)
                if request is None:
                    return
                answer = await self._serve(request)
            except SbonError as error:
                answer = Refused.of(error)
            writer.write(encode(answer))
            try:
                await writer.drain()
            except OSError:
                return


async def receive(reader: asyncio.StreamReader, decoder: msgspec.msgpack.Decoder[T], max_bytes: int = MAX_BYTES) -> T | None:
    """Return the next message; None if the connection has ended, or for a message above ``max_bytes``.

    Raises :class:`SbonError` for a message that ``decoder`` does not know.
    """
    try:
        (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
        if length > max_bytes:
            return None
        body = await reader.readexactly(length)
    except (asyncio.IncompleteReadError, OSError):
        return None
    return decode(body, decoder)
