"""The daemon: a node on real time, sockets, disk and Spark, from its start to its end."""

import asyncio
import errno
import fcntl
import os
import random
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import structlog

from sbon_node.api.server.http import ApiServer
from sbon_node.base.clock import Clock
from sbon_node.base.logging.output import LogTap
from sbon_node.base.private_files import make_private
from sbon_node.base.tasks import Tasks
from sbon_node.config.config import Config
from sbon_node.config.node import FILES, SECRETS
from sbon_node.engine.interface import MovingEngine, OnOperatorState
from sbon_node.engine.spark.adapter import SparkEngine
from sbon_node.hosting.machine.machine_resources import Machine, no_load
from sbon_node.net.counters import Counters
from sbon_node.net.emulation import Delays, EmulatedTransport, keep_reread
from sbon_node.net.names import is_loopback
from sbon_node.net.sockets import SocketTransport
from sbon_node.net.transport import Transport
from sbon_node.node import Node
from sbon_protocol.errors import SbonError

log = structlog.get_logger()

CLEAN, FORCED = 0, 130


async def run_node(config: Config, tap: LogTap) -> int:
    """Run a node until a signal, or until it leaves; return the exit code. ``tap`` is this process's log.

    Raises :class:`SbonError` if it cannot start: ``data-dir`` and ``port-in-use`` among others.
    """
    stopping = asyncio.Event()
    _obey_signals(stopping)
    lock = lock_data_dir(Path(config.node.data_dir))
    try:
        return await _run(config, tap, stopping)
    finally:
        os.close(lock)


async def _run(config: Config, tap: LogTap, stopping: asyncio.Event) -> int:
    clock = Clock.real()
    counters = Counters(clock.now)
    rng = random.Random(os.urandom(16))
    tasks = Tasks()
    transport: Transport = SocketTransport(clock, config.net, counters, source_host=config.node.bind)
    emulated_load: Callable[[], float | None] = no_load
    if config.node.emulation:
        delays = Delays.load(Path(config.node.emulation))
        transport = EmulatedTransport(transport, delays, config.node.bind, clock, rng, config.net, counters)
        tasks.start("emulation", keep_reread(delays, Path(config.node.emulation), clock))
        emulated_load = partial(delays.load_per_core, config.node.bind)

    def engine(data_dir: Path, on_state: OnOperatorState) -> MovingEngine:
        return SparkEngine(config.engine, data_dir, clock, on_state, fsync=config.streams.fsync)

    machine = Machine(config.control, emulated_load)
    node = Node(config, transport=transport, clock=clock, rng=rng, engine=engine, counters=counters, machine=machine)
    tap.listen_to(node.bus)
    api = ApiServer(node, config.api, names=config.node.names, counters=counters, local_users=config.net.local_users)
    try:
        await api.start(config.node.api_bind, config.node.api_port)
        if not is_loopback(config.node.api_bind):
            hint = "it has no passwords: everyone who reaches it controls this node"
            log.warning("api-open", bind=config.node.api_bind, hint=hint)
        starting = asyncio.ensure_future(_start(node, config))
        stopped = asyncio.ensure_future(stopping.wait())
        left = asyncio.ensure_future(node.adaptation.leaving.left.wait())
        await asyncio.wait([starting, stopped], return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            api.set_ready()
            log.info("ready", api=f"{config.node.api_bind}:{config.node.api_port}", data_dir=config.node.data_dir)
            await asyncio.wait([stopped, left], return_when=asyncio.FIRST_COMPLETED)
            if not left.done():
                await node.operations.before_stop()
        for task in (starting, stopped, left):
            task.cancel()
        log.info("stopping", leaving=node.adaptation.leaving.left.is_set())
        return CLEAN
    finally:
        api.set_ready(False)
        await api.close()
        await node.close()
        await tasks.close()


async def _start(node: Node, config: Config) -> None:
    try:
        await node.start()
    except OSError as error:
        where = f"{config.node.bind}:{config.node.port}"
        if error.errno == errno.EADDRINUSE:
            message, hint = f"cannot listen at {where}: the port is in use", "choose another with --port, or stop what uses it"
            raise SbonError("port-in-use", message, where="node.port", hint=hint) from error
        hint = "name an address of this machine"
        raise SbonError("bad-address", f"cannot listen at {where}: {error.strerror}", where="node.bind", hint=hint) from error


def lock_data_dir(folder: Path) -> int:
    """Create and lock the data directory for this process; return the lock's file descriptor.

    Only its user may access the folder and its subfolders.

    Raises :class:`SbonError` ``data-dir`` if it cannot be written, ``data-dir-in-use`` if another node runs on it.
    """
    try:
        make_private(folder)
        for inner in (FILES, SECRETS):
            (folder / inner).mkdir(mode=0o700, exist_ok=True)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        message, hint = f"cannot write to it: {error.strerror}", "choose another with --data-dir"
        raise SbonError("data-dir", message, where=f"node.data_dir {folder}", hint=hint) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        hint = "give each node a data directory of its own"
        raise SbonError("data-dir-in-use", "another node runs on it", where=f"node.data_dir {folder}", hint=hint) from error
    return lock


def _obey_signals(stopping: asyncio.Event) -> None:
    """Stop on the first SIGTERM or SIGINT; end the process at once on the second, and the engine's after it."""

    def signalled() -> None:
        if stopping.is_set():
            os._exit(FORCED)
        log.info("signalled", hint="once more to end at once")
        stopping.set()

    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, signalled)
