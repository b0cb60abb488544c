"""A cluster of real nodes on this machine: a process each on a loopback address of its own, in an emulated wide area.

with LocalCluster(3, latency="cities") as cluster, cluster.nodes[0].connect() as overlay:
    overlay.members()
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
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from sbon_protocol.errors import SbonError

from .node import API_PORT, PORT, LocalNode, make_private, write_private
from .processes import end_all
from .wide_area import WideArea, cities, load_wide_area, of_mapping

STATE = "cluster.json"
"""Name of the state file of a cluster whose nodes outlive the command that started them."""
EMULATION = "emulation.json"
LOCAL_ENDPOINTS = "*,localhost,127.0.0.0/8,::1"
"""Allowed endpoints: sources and sinks may use this machine's services, because all nodes belong to the same user."""
AS_ROOT = "the nodes run as root: sources and sinks may read and write every file of this machine"
"""Warning of commands that start nodes as root without a limit on the files that these use."""
Latency = str | Path | Mapping[tuple[str, str], float] | WideArea | None
"""``cities``, a file (see :func:`.wide_area.load_wide_area`), round-trip times by pair of names, or none."""

MAX_LOAD = 1000.0
"""Greatest emulated load of a node, in runnable processes per core."""
SHORT_LIVED: Mapping[str, Any] = {"engine.jit": "c1"}
"""Settings for clusters that last some minutes: C2 would compile during all of their life."""


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
        self._cuts: tuple[tuple[str, str], ...] = ()
        self._loads: dict[str, float] = {}
        self._temporary = folder is None
        self._lock, net = _own_network(len(names))
        self.folder = _made(folder)
        self.mark = secrets.token_hex(8)
        self._keep, self._detached, self._timeout_s = keep, detached, timeout_s
        hosts = [f"{net}.{number}" for number in range(1, len(names) + 1)]
        emulation = str(self.folder / EMULATION) if self._area is not None else ""
        seeds = ",".join(f"{host}:{PORT}" for host in hosts[:3])
        self.nodes: list[LocalNode] = []
        for name, host in zip(names, hosts, strict=True):
            settings = {**(overrides or {}), **(per_node or {}).get(name, {})}
            arguments = _arguments(name, host, seeds if self.nodes else "", emulation, settings)
            self.nodes.append(LocalNode(name, host, self.folder / name, arguments, self.mark, tied=not detached))
        if self._area is not None:
            self._write_emulation()

    def __getitem__(self, name: str) -> LocalNode:
        """Return the node of that name; raise ``KeyError``."""
        return {node.name: node for node in self.nodes}[name]

    def start(self) -> None:
        """Start all and wait until each knows every other alive; raise ``node-failed`` or ``not-converged``."""
        for position, node in enumerate(self.nodes):
            node.start(inherited=(self._lock.fileno(),))
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
                sights = tuple(f"{node.name} sees {', '.join(sorted(_alive_at(node)))}" for node in waiting)
                raise SbonError("not-converged", "the nodes do not see each other", where=str(self.folder), details=sights)
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
        entering = asyncio.ensure_future(asyncio.to_thread(self.__enter__))
        try:
            return await asyncio.shield(entering)
        except asyncio.CancelledError:
            # A thread cannot be cancelled: stop what it has started once it is done.
            await asyncio.wait([entering])
            if entering.exception() is None:
                await asyncio.to_thread(self.stop, wait_s=2.0)
            raise

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await asyncio.to_thread(self.__exit__, kind, error, trace)

    def change_latency(self, latency: Latency) -> None:
        """Emulate other round-trip times between the nodes, open connections included; they read them within a second.

        Raises ``bad-latency`` if the cluster emulates none, or for other sites.
        """
        area, _ = _placed([node.name for node in self.nodes], latency)
        if self._area is None or area is None or area.names != self._area.names:
            raise SbonError("bad-latency", "the cluster's nodes are not at these sites", where="latency")
        self._area = area
        self._write_emulation()

    def change_cuts(self, cuts: Iterable[tuple[str, str]]) -> None:
        """Let nothing pass from the first to the second node of each pair, and everything elsewhere; within a second.

        Raises ``bad-latency`` if the cluster emulates no latency, or for other sites.
        """
        chosen = tuple(cuts)
        self._check_sites((name for cut in chosen for name in cut), "cuts")
        self._cuts = chosen
        self._write_emulation()

    def change_load(self, load_per_core: Mapping[str, float]) -> None:
        """Emulate loads of nodes, in runnable processes per core; all others have this machine's. They read them in a second.

        Raises ``bad-latency`` if the cluster emulates no latency, or for other nodes; ``bad-load`` if a number is not 0 to 1000.
        """
        self._check_sites(load_per_core, "load_per_core")
        for name, load in load_per_core.items():
            if not 0 <= load <= MAX_LOAD:
                raise SbonError("bad-load", f"a load is from 0 to {MAX_LOAD:g} processes per core, not {load:g}", where=name)
        self._loads = dict(load_per_core)
        self._write_emulation()

    def _check_sites(self, names: Iterable[str], where: str) -> None:
        if self._area is None or not set(names) <= {node.name for node in self.nodes}:
            raise SbonError("bad-latency", "the cluster's nodes are not at these sites, or it emulates none", where=where)

    def _write_emulation(self) -> None:
        assert self._area is not None
        content = {
            "sites": {node.host: node.name for node in self.nodes},
            "names": [node.name for node in self.nodes],
            "rtt_ms": self._area.rtt_ms,
            "cuts": self._cuts,
            "load_per_core": self._loads,
        }
        write_private(self.folder / EMULATION, json.dumps(content).encode())


def _placed(nodes: int | Sequence[str], latency: Latency) -> tuple[WideArea | None, tuple[str, ...]]:
    """Return the emulated area, if any, and the nodes' names: given, those of the area's sites, or ``node-1`` and so on."""
    if isinstance(nodes, str) or not isinstance(nodes, int | Sequence):
        raise SbonError("bad-cluster", f"a number or a list of names is needed, not {type(nodes).__name__}", where="nodes")
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
        raise SbonError("bad-latency", f"there is no file {latency!r}", where="latency", hint=hint)
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
    # All nodes belong to the user who owns the files, and who alone may reach them.
    own = {"net.local_users": "own", "connectors.data_roots": "/", "connectors.endpoints": LOCAL_ENDPOINTS}
    for setting, value in {**own, **overrides}.items():
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
