"""The daemon's control of its engine process: starts the process, sends commands one by one, notices its death."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import structlog

from sbon_node.base.logging.output import cut
from sbon_node.engine.settings import NO_ARCHIVE, EngineSettings
from sbon_node.engine.spark import messages
from sbon_node.engine.spark.listener import Control, Listener, Serve, receive
from sbon_node.engine.spark.wire import FEED_VARIABLE, JVM_LOST, STACKS_S, ask_for_stacks
from sbon_protocol.errors import SbonError

log = structlog.get_logger()

A = TypeVar("A", bound=messages.Message)

ENGINE_MODULE = "sbon_node.engine.spark.engine_process"
LOG_LOOK_S = 1.0
"""Interval of the checks on the size of engine.log."""
LAST_WORDS_S = 10.0
"""Time for an engine process that has closed its control connection to end by itself, so that its exit code shows the reason."""
CLOSE_S = 60.0


class EngineLostError(Exception):
    """The engine process, or its JVM, is gone."""


class Patience:
    """Time for a start or command, ``first_s`` at first. One that takes longer gives all later ones twice the time, up to
    ``most_s``: on a busy machine, the same time again would end in the same death of the engine, for ever.
    """

    def __init__(self, first_s: float, most_s: float) -> None:
        self._most_s = max(first_s, most_s)
        self.limit_s = first_s

    def exhausted(self) -> str:
        """Return the limit that was too short, in words, and that of the next try, which is longer."""
        tried_s, self.limit_s = self.limit_s, min(2 * self.limit_s, self._most_s)
        if self.limit_s == tried_s:
            return f"within {tried_s:g} s; the machine may be too slow or too busy, see engine.start_timeout_max_s"
        return f"within {tried_s:g} s; the next try has {self.limit_s:g} s"


class Supervisor:
    """One engine process at a time, with a listener of its own. ``module`` is the module that the engine process runs.

    ``on_lost`` is called when a running engine process has died, before any command fails.
    """

    def __init__(
        self,
        settings: EngineSettings,
        data_dir: Path,
        serve: Serve[messages.Request],
        on_lost: Callable[[str], None],
        module: str = ENGINE_MODULE,
    ) -> None:
        # The engine process runs in the data directory, where Spark's files in its working directory do no harm.
        archive = settings.archive if settings.archive in ("", NO_ARCHIVE) else str(Path(settings.archive).absolute())
        self._settings = msgspec.structs.replace(settings, archive=archive)
        self._patience = Patience(settings.start_timeout_s, settings.start_timeout_max_s)
        self._data_dir, self._serve, self._on_lost = data_dir.absolute(), serve, on_lost
        self._module = module
        self._process: asyncio.subprocess.Process | None = None
        self._listener: Listener[messages.Request] | None = None
        self._control: Control | None = None
        self._jvm_pid = 0
        self._turn = asyncio.Lock()
        self._reaper: asyncio.Task[None] | None = None
        self._commands: set[asyncio.Task[Any]] = set()
        self._closed = False
        self.status = "idle"
        self.starts = 0
        self.died = False
        """Whether the last engine process has died after it ran, or was late with its start, instead of failing to start."""

    @property
    def _log(self) -> Path:
        return self._data_dir / "engine.log"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    async def command(self, command: messages.Command, answer: type[A]) -> A:
        """Run a command in the engine process, which is started if need be; return its answer, of type ``answer``.

        Raises the engine process's :class:`SbonError`, or :class:`EngineLostError`.
        """
        # After a cancellation the answer must still be read, or the next caller would take it for its own.
        exchange = asyncio.get_running_loop().create_task(self._exchange(command, answer), name=f"engine {_name(command)}")
        self._commands.add(exchange)
        exchange.add_done_callback(self._exchanged)
        return await asyncio.shield(exchange)

    def _exchanged(self, exchange: asyncio.Task[Any]) -> None:
        self._commands.discard(exchange)
        if not exchange.cancelled() and (error := exchange.exception()) is not None:
            log.debug("engine-command-refused", command=exchange.get_name(), reason=str(error))

    async def _exchange(self, command: messages.Command, type_: type[A]) -> A:
        async with self._turn:
            if self._closed:
                raise EngineLostError("the engine is closed")
            reader, writer = self._control or await self._start()
            writer.write(messages.encode(command))
            try:
                async with asyncio.timeout(self._patience.limit_s):
                    answer = await receive(reader, messages.answer_decoder(type_))
            except TimeoutError as error:
                reason = f"no answer to {_name(command)} {self._patience.exhausted()}"
                await self._write_stacks()
                await self._lose(reason)
                raise EngineLostError(reason) from error
            if answer is None:
                assert self._reaper is not None
                await asyncio.wait([self._reaper], timeout=LAST_WORDS_S)
                await self._lose("the engine process closed its connection")
                raise EngineLostError(self.status.removeprefix("failed: "))
        if isinstance(answer, messages.Refused):
            raise answer.error()
        return answer

    async def replace(self) -> None:
        """End the engine process after committed batches, without calling ``on_lost``; the next command starts a fresh one."""
        async with self._turn:
            if self._control is not None:
                reader, writer = self._control
                writer.write(messages.encode(messages.Close()))
                with suppress(TimeoutError, SbonError):
                    async with asyncio.timeout(CLOSE_S):
                        await receive(reader, messages.answer_decoder(messages.Done))
            await self._kill()
            self.status = "idle"

    async def close(self) -> None:
        """End the engine process after committed batches, with all its processes."""
        if self._control is not None:
            try:
                async with asyncio.timeout(CLOSE_S):
                    await self.command(messages.Close(), messages.Done)
            except (EngineLostError, SbonError, TimeoutError) as error:
                log.warning("engine-not-closed", reason=str(error))
        self._closed = True
        await self._kill()
        await asyncio.gather(*self._commands, return_exceptions=True)

    async def _start(self) -> Control:
        self.status = "starting"
        try:
            self._control = await self._launch()
        except (SbonError, EngineLostError) as error:
            await self._not_started(error)
            raise
        except OSError as error:
            await self._not_started(error)
            raise SbonError(
                "engine-failed", f"the engine process cannot be started: {error}", where=str(self._data_dir)
            ) from error
        self.status, self.died = "running", False
        return self._control

    async def _not_started(self, error: Exception) -> None:
        self.status, self.died = f"failed: {error}", isinstance(error.__cause__, TimeoutError)
        log.warning("engine-not-started", reason=str(error))
        await self._kill()

    async def _launch(self) -> Control:
        """Return the engine process's control connection, once it is ready for commands."""
        settings = msgspec.structs.replace(self._settings, start_timeout_s=self._patience.limit_s)
        self._listener = listener = Listener(self._serve, messages.REQUEST)
        address = await listener.open()
        with self._log.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                self._module,
                str(self._data_dir / "operators"),
                msgspec.json.encode(settings).decode(),
                cwd=self._data_dir,
                env={**os.environ, FEED_VARIABLE: address, "PYTHONSAFEPATH": "1"},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._reaper = asyncio.get_running_loop().create_task(self._reap(self._process, listener), name="engine-process")
        self.starts += 1
        log.info("engine-starting", pid=self._process.pid)
        try:
            async with asyncio.timeout(self._patience.limit_s):
                control = await listener.control
                ready = await receive(control[0], messages.answer_decoder(messages.Ready))
        except TimeoutError as error:
            raise SbonError("engine-failed", f"the engine was not ready {self._patience.exhausted()}") from error
        if ready is None:
            raise EngineLostError(f"the engine process ended while it started, see {self._log}")
        if isinstance(ready, messages.Refused):
            raise ready.error()
        self._jvm_pid = ready.pid
        log.info("engine-running", pid=self._process.pid, jvm=ready.pid)
        return control

    async def _write_stacks(self) -> None:
        """Let an engine process that does not answer write to its log where it is."""
        if self._process is not None:
            ask_for_stacks(self._process.pid, self._jvm_pid)
            await asyncio.sleep(STACKS_S)

    async def _reap(self, process: asyncio.subprocess.Process, listener: Listener[messages.Request]) -> None:
        ended = asyncio.ensure_future(process.wait())
        while not ended.done():
            await asyncio.to_thread(cut, self._log, self._settings.log_bytes)
            await asyncio.wait([ended], timeout=LOG_LOOK_S)
        code = ended.result()
        if self._process is not process:
            return
        reason = "the engine's JVM died" if code == JVM_LOST else f"the engine process ended with code {code}"
        reason += f", see {self._log}"
        if not listener.control.done():
            listener.control.set_exception(EngineLostError(reason))
        await self._lose(reason)

    async def _lose(self, reason: str) -> None:
        """Report the loss of the engine process, unless it never ran; kill the rest of it."""
        if self._control is not None and not self._closed:
            log.warning("engine-lost", reason=reason)
            self.status, self.died = f"failed: {reason}", True
            self._control = None
            self._on_lost(reason)
        await self._kill()

    async def _kill(self) -> None:
        """Kill the session of the engine process: itself, its JVM and Spark's Python processes, and so its connections."""
        process, self._process, self._control = self._process, None, None
        listener, self._listener = self._listener, None
        if process is not None:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                log.debug("engine-gone", pid=process.pid)
        if listener is not None:
            await listener.close()
        if process is not None:
            await process.wait()


def _name(command: messages.Command) -> str:
    return type(command).__name__.lower()
