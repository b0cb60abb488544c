"""A cluster of real nodes on this machine: one process each on loopback addresses of their own, in an emulated wide area.

with LocalCluster(3, latency="cities") as cluster:
    cluster.nodes[0].client.members()
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal, Self

from sbon_cli.client import Client
from sbon_cli.local.cities import WideArea, cities, load_wide_area, of_mapping
from sbon_cli.local.processes import MARK, end_all
from sbon_node.connectors.access.secrets import PREFIX
from sbon_node.errors import SbonError
from sbon_node.operations.readiness import Reason
from sbon_node.private_files import make_private

PORT, API_PORT = 7400, 7480
STATE = "cluster.json"
"""Name of the state file of a cluster whose nodes outlive the command that started them."""
LOCAL_ENDPOINTS = "*,localhost,127.0.0.0/8,::1"
"""Allowed endpoints: sources and sinks may use this machine's services, because all nodes belong to the same user."""
Latency = str | Path | Mapping[tuple[str, str], float] | WideArea | None
"""``cities``, a file (see :func:`sbon_cli.local.cities.load_wide_area`), round-trip times by pair of names, or none."""

LACKING = ("low-disk", "data-dir")
"""Codes of reasons against readiness that do not pass by themselves."""

SHORT_LIVED: Mapping[str, Any] = {"engine.jit": "c1"}
"""Settings for clusters that last some minutes: C2 would compile during all of their life."""


class LocalNode:
    """The process of one node."""

    def __init__(self, name: str, host: str, folder: Path, arguments: Sequence[str], mark: str, *, tied: bool) -> None:
        self.name, self.host, self.folder = name, host, folder
        self.client = Client(f"http://{host}:{API_PORT}")
        self.log = folder / "log"
        self.arguments, self._mark, self._tied = tuple(arguments), mark, tied
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{self.host}:{PORT}"

    @property
    def data_dir(self) -> Path:
        return self.folder / "data"

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} was never started"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, held: Sequence[int] = ()) -> None:
        """Start the process without waiting; ``held`` descriptors stay open in it."""
        assert not self.running, f"{self.name} runs"
        make_private(self.folder)
        tie = ("--until-stdin-closes",) if self._tied else ()
        command = [sys.executable, "-m", "sbon_cli.main", "node", "--data-dir", str(self.data_dir), *self.arguments, *tie]
        command += ["--set", f"log.file={self.log}"]  # limited by log.file_bytes; also takes the first lines
        environment = {k: v for k, v in os.environ.items() if not k.startswith("SBON_") or k.startswith(PREFIX)}
        environment[MARK] = self._mark
        with open(os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE if self._tied else subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
                pass_fds=tuple(held),
            )

    def wait_ready(self, timeout_s: float = 60.0) -> None:
        """Wait until the node is ready.

        Raises ``node-failed`` with the reason if it ends or lacks something that waiting does not bring, and with the end of
        its log after the timeout.
        """
        deadline = time.monotonic() + timeout_s
        while (lacks := self._unready()) is not None:
            if lacks:
                raise SbonError(
                    "node-failed", f"{self.name} is not ready: {lacks.message}", where=str(self.data_dir), hint=lacks.hint
                )
            if not self.running or time.monotonic() > deadline:
                raise self.failure("is not ready")
            time.sleep(0.05)

    def _unready(self) -> Reason | Literal[False] | None:
        """Return None if it is ready; the reason against it if it has started, and False while it starts."""
        try:
            found = self.client.readiness()
        except SbonError as error:
            if error.code == "node-unreachable":
                return False
            raise
        if found.ready:
            return None
        lasting = [reason for reason in found.reasons if reason.weight == "unready" and reason.code in LACKING]
        return lasting[0] if lasting else False

    def failure(self, reason: str) -> SbonError:
        code = self._process.poll() if self._process is not None else None
        ended = f"ended with exit code {code}" if code is not None else reason
        return SbonError("node-failed", f"{self.name} {ended}", where=str(self.log), details=self.log_tail())

    def log_tail(self, lines: int = 10) -> tuple[str, ...]:
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return tuple(text.splitlines()[-lines:])

    def kill(self, signum: signal.Signals = signal.SIGKILL, *, wait_s: float = 60.0) -> None:
        """Send the signal to the daemon alone and wait until it is gone; its engine host notices by itself."""
        self.signal(signum)
        self.wait(wait_s)

    def signal(self, signum: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(signum)

    def pause(self) -> None:
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def wait(self, timeout_s: float = 60.0) -> int:
        """Return the exit code; raise ``subprocess.TimeoutExpired``."""
        assert self._process is not None
        code = self._process.wait(timeout_s)
        if self._process.stdin is not None:
            self._process.stdin.close()
        return code

    def restart(self, timeout_s: float = 60.0) -> None:
        """Restart it on its data directory, ending it first if it runs, and wait until its API answers."""
        if self.running:
            self.kill(signal.SIGTERM)
        self.start()
        self.wait_ready(timeout_s)


class LocalCluster:
    """A cluster with ``nodes``, their number or names; ``latency`` is emulated between them in that order.

    ``overrides`` are settings for all (``{"streams.reconnect_s": 0.5}``), ``per_node`` more of them by name. The folder
    (logs, data) is temporary unless ``folder`` names it; ``keep`` leaves it, and the nodes too if ``detached``. No process
    remains after the block: even if this process is killed, its nodes notice and stop.
    """

    def __init__(
        self,
        nodes: int | Sequence[str],
        latency: Latency = None,
        *,
        folder: Path | None = None,
        overrides: Mapping[str, Any] | None = None,
        per_node: Mapping[str, Mapping[str, Any]] | None = None,
        keep: bool = False,
        detached: bool = False,
        timeout_s: float = 90.0,
    ) -> None:
        self._area, names = _placed(nodes, latency)
        self._temporary = folder is None
        self.folder = _made(folder)
        self.mark = secrets.token_hex(8)
        self._keep, self._detached, self._timeout_s = keep, detached, timeout_s
        self._lock, net = _own_network(len(names))
        hosts = [f"{net}.{number}" for number in range(1, len(names) + 1)]
        emulation = self._write_emulation(hosts, names)
        seeds = ",".join(f"{host}:{PORT}" for host in hosts[:3])
        self.nodes = [
            LocalNode(
                name,
                host,
                self.folder / name,
                _arguments(
                    name, host, "" if position == 0 else seeds, emulation, {**(overrides or {}), **(per_node or {}).get(name, {})}
                ),
                self.mark,
                tied=not detached,
            )
            for position, (name, host) in enumerate(zip(names, hosts, strict=True))
        ]

    def __getitem__(self, name: str) -> LocalNode:
        return next(node for node in self.nodes if node.name == name)

    def start(self) -> None:
        """Start all and wait until each knows every other alive; raise ``node-failed`` or ``not-converged``."""
        for position, node in enumerate(self.nodes):
            node.start(held=(self._lock.fileno(),))
            if position == 0:
                node.wait_ready(self._timeout_s)
        for node in self.nodes:
            node.wait_ready(self._timeout_s)
        self.wait_converged()

    def wait_converged(self, timeout_s: float | None = None) -> None:
        """Wait until every running node sees exactly the running nodes alive."""
        deadline = time.monotonic() + (timeout_s or self._timeout_s)
        expected = {node.name for node in self.nodes if node.running}
        while waiting := [node for node in self.nodes if node.running and _alive_at(node) != expected]:
            for node in self.nodes:
                if node.name in expected and not node.running:
                    raise node.failure("stopped")
            if time.monotonic() > deadline:
                seen = tuple(f"{node.name} sees {', '.join(sorted(_alive_at(node)))}" for node in waiting)
                raise SbonError("not-converged", "the nodes do not see each other", where=str(self.folder), details=seen)
            time.sleep(0.05)

    def stop(self, *, wait_s: float = 15.0) -> int:
        """Ask all nodes to stop, then kill the remaining processes; return the number of killed processes."""
        for node in self.nodes:
            if node.running:
                node.signal(signal.SIGCONT)
                node.signal(signal.SIGTERM)
        deadline = time.monotonic() + wait_s
        while any(node.running for node in self.nodes) and time.monotonic() < deadline:
            time.sleep(0.02)
        killed = end_all(self.mark, self.folder)
        for node in self.nodes:
            if node.running or node._process is not None:
                node.wait()
        self._lock.close()
        if self._temporary and not self._keep:
            shutil.rmtree(self.folder, ignore_errors=True)
        return killed

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop(wait_s=2.0)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not (self._detached and kind is None):
            self.stop()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await asyncio.to_thread(self.__exit__, kind, error, trace)

    def _write_emulation(self, hosts: Sequence[str], names: Sequence[str]) -> str:
        if self._area is None:
            return ""
        path = self.folder / "emulation.json"
        content = {"sites": dict(zip(hosts, names, strict=True)), "names": list(names), "rtt_ms": self._area.rtt_ms}
        path.write_text(json.dumps(content), encoding="utf-8")
        path.chmod(0o600)
        return str(path)


def _placed(nodes: int | Sequence[str], latency: Latency) -> tuple[WideArea | None, tuple[str, ...]]:
    """Return the emulated area, if any, and the nodes' names: given, those of the area's sites, or ``node-1`` and so on."""
    count = nodes if isinstance(nodes, int) else len(nodes)
    if not 1 <= count <= 250:
        raise SbonError("bad-cluster", f"a local cluster has 1 to 250 nodes, not {count}", where="nodes")
    names = tuple(f"node-{i}" for i in range(1, count + 1)) if isinstance(nodes, int) else tuple(nodes)
    if latency is None:
        return None, names
    if isinstance(latency, Mapping):
        return of_mapping(latency, names), names
    if isinstance(latency, str) and latency != "cities" and not Path(latency).exists():
        hint = "give cities, or a file: JSON with names and rtt_ms, or .npz with rtt_ms"
        raise SbonError("bad-latency", f"there is no file {latency!r}", where="--latency", hint=hint)
    area = latency if isinstance(latency, WideArea) else cities() if latency == "cities" else load_wide_area(Path(latency))
    if not isinstance(nodes, int) and set(names) <= set(area.names):
        order = [area.names.index(name) for name in names]
        return WideArea(names, tuple(tuple(area.rtt_ms[i][j] for j in order) for i in order)), names
    area = area.chosen(count)
    return area, area.names if isinstance(nodes, int) else names


def _made(folder: Path | None) -> Path:
    """Create the folder, or a temporary folder; raise ``data-dir`` on failure."""
    if folder is None:
        return Path(tempfile.mkdtemp(prefix="sbon-"))
    try:
        if not folder.exists() or (folder / STATE).exists() or not any(folder.iterdir()):
            make_private(folder)
    except OSError as error:
        raise SbonError("data-dir", f"the cluster's folder cannot be made: {error.strerror}", where=str(folder)) from error
    return folder.absolute()


def _arguments(name: str, host: str, join: str, emulation: str, overrides: Mapping[str, Any]) -> list[str]:
    flags = {"name": name, "bind": host, "port": PORT, "api-bind": host, "api-port": API_PORT, "log-format": "json"}
    arguments = [word for flag, value in flags.items() for word in (f"--{flag}", str(value))]
    if join:
        arguments += ["--join", join]
    if emulation:
        arguments += ["--emulation", emulation]
    # All nodes belong to the user who owns the files.
    for setting, value in {"connectors.data_roots": "/", "connectors.endpoints": LOCAL_ENDPOINTS, **overrides}.items():
        arguments += ["--set", f"{setting}={str(value).lower() if isinstance(value, bool) else value}"]
    return arguments


def _own_network(count: int) -> tuple[IO[bytes], str]:
    """Reserve a /24 of loopback, from 127.0.10 on. Every node holds the lock, so it lasts as long as the nodes."""
    for octet in range(10, 250):
        lock = (Path(tempfile.gettempdir()) / f"sbon-loopback-{os.getuid()}-{octet}.lock").open("ab")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            continue
        net = f"127.0.{octet}"
        if all(_free(f"{net}.{number}", port) for number in range(1, count + 1) for port in (PORT, API_PORT)):
            return lock, net
        lock.close()
    raise SbonError("no-addresses", "no loopback addresses are free", hint="stop other local clusters: sbon cluster down")


def _free(host: str, port: int) -> bool:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(socket.AF_INET, kind) as probe:
            if kind == socket.SOCK_STREAM:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError:
                return False
    return True


def _alive_at(node: LocalNode) -> set[str]:
    try:
        return {member.name for member in node.client.members() if member.state == "alive"}
    except SbonError:
        return set()
