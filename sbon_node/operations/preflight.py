"""Preflight of a node that does not run: its data directory, its ports, the addresses to join."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import asyncio_dgram

from sbon_node.config.config import Config
from sbon_node.net.transport import Address
from sbon_node.operations.examination import CheckResult, failed, ok, warning
from sbon_protocol import datagram
from sbon_protocol.errors import ProtocolError
from sbon_protocol.messages import Endpoint, Nack, Packet, PingRequest

CONNECT_S = 3.0
DATAGRAMS = 3
"""Datagrams sent to an address to join, since one may be lost."""
LOCK = "lock"


def preflight(config: Config) -> list[CheckResult]:
    """Check the configuration; blocks for some seconds for each address to join that does not answer."""
    node = config.node
    data_dir = _data_dir(Path(node.data_dir))
    return [
        data_dir,
        _port("port-udp", socket.SOCK_DGRAM, node.bind, node.port, "node.bind", "node.port"),
        _port("port-tcp", socket.SOCK_STREAM, node.bind, node.port, "node.bind", "node.port"),
        _port("port-api", socket.SOCK_STREAM, node.api_bind, node.api_port, "node.api_bind", "node.api_port"),
        *(result for address in node.seeds for result in _seed(address, node.cluster)),
    ]


def _data_dir(folder: Path) -> CheckResult:
    if not folder.exists():
        return ok("data-dir", f"{folder} is made at the first start")
    lock = folder / LOCK
    if not lock.exists():
        return ok("data-dir", f"{folder} belongs to no node yet")
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = holder_of(lock)
        holder = f"process {owner}" if owner else "another process"
        remedy = "a node runs on it: name its API with --node URL" + (f", or end process {owner}" if owner else "")
        return failed("data-dir", f"{holder} holds {folder}", remedy)
    except OSError as error:
        return failed("data-dir", f"{lock}: {error.strerror}", "run this as the node's user")
    if not os.access(folder, os.W_OK):
        return failed("data-dir", f"{folder} cannot be written", "run this as the node's user, or give it the folder")
    return ok("data-dir", f"{folder}, which no node runs on")


def holder_of(lock: Path) -> int | None:
    """Return the process that holds the lock, if the system reports it."""
    number = lock.stat().st_ino
    try:
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    for words in map(str.split, lines):
        if len(words) > 5 and words[1] == "FLOCK" and words[5].rpartition(":")[2] == str(number) and int(words[4]) > 0:
            return int(words[4])
    return None


def _port(check: str, kind: socket.SocketKind, host: str, port: int, bind: str, key: str) -> CheckResult:
    endpoint = f"{'UDP' if kind == socket.SOCK_DGRAM else 'TCP'} {host}:{port}"
    try:
        family = socket.getaddrinfo(host, port, type=kind)[0][0]
        with closing(socket.socket(family, kind)) as probe:
            if kind == socket.SOCK_STREAM:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return failed(
                check, f"{endpoint} is in use", f"stop what uses it (ss -tulpn 'sport = :{port}'), or choose another: {key}"
            )
        return failed(check, f"{endpoint}: {error.strerror}", f"name an address of this machine: {bind}")
    return ok(check, f"{endpoint} is free")


def _seed(address: Address, cluster: str) -> Iterator[CheckResult]:
    try:
        with closing(socket.create_connection(address, timeout=CONNECT_S)):
            yield ok(f"join {address}", "accepts connections")
    except OSError as error:
        remedy = "see whether a node runs there (sbon doctor on it), and whether a firewall lets TCP and UDP through"
        yield warning(f"join {address}", f"cannot be reached: {error.strerror or error}", remedy)
        return
    check = f"join-udp {address}"
    if asyncio.run(_answers(address, cluster)):
        yield ok(check, "answers datagrams")
    else:
        remedy = f"check that firewalls let UDP through in both directions, and that the other node's cluster is {cluster!r} too"
        yield warning(check, f"has not answered a datagram within {CONNECT_S:g} s", remedy)


async def _answers(address: Address, cluster: str) -> bool:
    """Return whether a node of the cluster answers over UDP. A stranger's request is declined, which is an answer."""
    # The answer may have as many bytes as the request: the target's name leaves space for the longest.
    request = PingRequest(1, "preflight", "x" * 63, Endpoint(*address))
    payload = datagram.pack(Packet(cluster, request))
    try:
        stream = await asyncio_dgram.connect(tuple(address))
    except OSError:
        return False
    try:
        async with asyncio.timeout(CONNECT_S):
            for _ in range(DATAGRAMS):
                await stream.send(payload)
                with suppress(TimeoutError):
                    async with asyncio.timeout(CONNECT_S / DATAGRAMS):
                        answer, _ = await stream.recv()
                    return isinstance(datagram.unpack(answer).message, Nack)
    except (OSError, ProtocolError, TimeoutError):
        pass
    finally:
        stream.close()
    return False


def not_running(api: str) -> Iterator[CheckResult]:
    """Report that no node answers, which is no failure of the machine."""
    remedy = "start one with sbon node, or name another's API with --node URL; only this machine was looked at"
    yield warning("node", f"none answers at {api}", remedy)
