"""The daemon's side of its engine host: starts the process, gives it commands one by one, notices its death."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import structlog

from sbon_node.engine.settings import EngineSettings
from sbon_node.engine.spark.wire import FEED_VARIABLE, LENGTH, MAX_BYTES, pack, unpack
from sbon_node.errors import SbonError

log = structlog.get_logger()

Serve = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
"""Answers one request of a reader or an output."""


class HostLostError(Exception):
    """The engine host, or its JVM, is gone."""


class Supervisor:
    """One host process at a time. Every host has a token of its own: what an older one still sends is refused."""

    def __init__(self, settings: EngineSettings, data_dir: Path, serve: Serve, on_lost: Callable[[], None]) -> None:
        self._settings, self._data_dir, self._serve, self._on_lost = settings, data_dir, serve, on_lost
        self._server: asyncio.Server | None = None
        self._token = ""
        self._process: asyncio.subprocess.Process | None = None
        self._control: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._connected: asyncio.Future[None] | None = None
        self._turn = asyncio.Lock()
        self._connections: set[asyncio.Task[None]] = set()
        self._reaper: asyncio.Task[None] | None = None
        self._commands: set[asyncio.Task[dict[str, Any]]] = set()
        self._closed = False
        self.status = "idle"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    async def command(self, command: dict[str, Any]) -> dict[str, Any]:
        """Starts the host if need be, and has it do one thing. Raises :class:`SbonError` as the host refuses, or
        :class:`HostLostError`."""
        # A caller that is cancelled leaves its answer to be read all the same, or the next caller would take it for its own.
        exchange = asyncio.get_running_loop().create_task(self._exchange(command), name=f"engine {command['do']}")
        self._commands.add(exchange)
        exchange.add_done_callback(self._exchanged)
        return await asyncio.shield(exchange)

    def _exchanged(self, exchange: asyncio.Task[dict[str, Any]]) -> None:
        self._commands.discard(exchange)
        if not exchange.cancelled() and (error := exchange.exception()) is not None:
            log.debug("engine-command-refused", command=exchange.get_name(), reason=str(error))

    async def _exchange(self, command: dict[str, Any]) -> dict[str, Any]:
        async with self._turn:
            if self._closed:
                raise HostLostError("the engine is closed")
            if self._control is None:
                await self._start()
            assert self._control is not None
            reader, writer = self._control
            writer.write(pack(command))
            try:
                async with asyncio.timeout(self._settings.start_timeout_s):
                    answer = await self._answer(reader)
            except TimeoutError as error:
                reason = f"no answer to {command['do']} within {self._settings.start_timeout_s:g} s"
                await self._lose(reason)
                raise HostLostError(reason) from error
        if "error" in answer:
            raise SbonError(answer["error"], answer["message"], where=answer.get("where", ""), hint=answer.get("hint", ""))
        return answer

    async def close(self) -> None:
        """Ends the host after committed batches; then nothing of it is left."""
        if self._control is not None:
            try:
                async with asyncio.timeout(60):
                    await self.command({"do": "close"})
            except (HostLostError, SbonError, TimeoutError) as error:
                log.warning("engine-not-closed", reason=str(error))
        self._closed = True
        await self._kill()
        await asyncio.gather(*self._commands, return_exceptions=True)
        if self._server is not None:
            self._server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _start(self) -> None:
        self.status = "starting"
        try:
            await self._listen()
            await self._launch()
        except (SbonError, HostLostError) as error:
            self.status = f"failed: {error}"
            await self._kill()
            raise
        self.status = "running"

    async def _listen(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)

    async def _launch(self) -> None:
        assert self._server is not None
        self._token = secrets.token_hex(16)
        port = self._server.sockets[0].getsockname()[1]
        self._connected = asyncio.get_running_loop().create_future()
        output = (self._data_dir / "engine.log").open("ab")
        try:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "sbon_node.engine.spark.host",
                str(self._data_dir / "operators"),
                msgspec.json.encode(self._settings).decode(),
                env={**os.environ, FEED_VARIABLE: f"127.0.0.1:{port}:{self._token}"},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        finally:
            output.close()
        self._reaper = asyncio.get_running_loop().create_task(self._reap(self._process), name="engine-host")
        log.info("engine-starting", pid=self._process.pid)
        try:
            async with asyncio.timeout(self._settings.start_timeout_s):
                await self._connected
                assert self._control is not None
                ready = await self._answer(self._control[0])
        except TimeoutError as error:
            raise SbonError("engine-failed", f"not ready within {self._settings.start_timeout_s:g} s") from error
        if "ready" not in ready:
            raise SbonError(ready.get("error", "engine-failed"), ready.get("message", "the host did not start"))
        log.info("engine-running", pid=self._process.pid, jvm=ready["ready"])

    async def _reap(self, process: asyncio.subprocess.Process) -> None:
        code = await process.wait()
        if self._process is not process:
            return
        if self._connected is not None and not self._connected.done():
            self._connected.set_exception(HostLostError(f"the engine host ended with code {code}, see engine.log"))
        await self._lose(f"the engine host ended with code {code}")

    async def _lose(self, reason: str) -> None:
        """What is left of the host is killed; whoever counts on it is told, unless it never came to run."""
        ran = self._control is not None
        await self._kill()
        if ran and not self._closed:
            log.warning("engine-lost", reason=reason)
            self.status = f"failed: {reason}"
            self._on_lost()

    async def _kill(self) -> None:
        """The host's session dies as one: host, JVM, Spark's Python processes."""
        process, self._process, self._token = self._process, None, ""
        control, self._control = self._control, None
        if control is not None:
            control[1].close()
        if process is None:
            return
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            log.debug("engine-gone", pid=process.pid)
        await process.wait()

    async def _answer(self, reader: asyncio.StreamReader) -> dict[str, Any]:
        message = await _receive(reader)
        if message is None:
            raise HostLostError("the engine host is gone")
        return message

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hello = await _receive(reader)
        if hello is None or not self._token or not secrets.compare_digest(str(hello.get("token", "")), self._token):
            log.warning("engine-connection-refused", reason="wrong token")
            writer.close()
            return
        if hello.get("role") == "host":
            self._control = (reader, writer)
            if self._connected is not None and not self._connected.done():
                self._connected.set_result(None)
            return
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await self._requests(reader, writer, self._token)
        except asyncio.CancelledError:
            log.debug("engine-connection-closed")
        finally:
            self._connections.discard(task)
            writer.close()

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str) -> None:
        while (request := await _receive(reader)) is not None:
            if token != self._token:
                return
            try:
                answer = await self._serve(request)
            except SbonError as error:
                answer = {"error": error.code, "message": str(error)}
            writer.write(pack(answer))
            try:
                await writer.drain()
            except OSError:
                return


async def _receive(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    try:
        (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
        if length > MAX_BYTES:
            return None
        return unpack(await reader.readexactly(length))
    except (asyncio.IncompleteReadError, OSError, ValueError):
        return None
