"""Checks of a machine: Java, byte-code, the JVM's class archive, the disk, file descriptors; and before a node starts on it.

A running node runs them in a thread; ``sbon doctor`` runs them itself if no node runs.
"""

import asyncio
import errno
import fcntl
import os
import resource
import socket
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from importlib.util import cache_from_source, find_spec
from pathlib import Path

import asyncio_dgram

from sbon_node.config.config import Config
from sbon_node.engine.java import NEWER, Java, find_java
from sbon_node.engine.settings import EngineSettings
from sbon_node.engine.spark.jvm.archive import archive_path
from sbon_node.net.transport import Address
from sbon_node.operations.examination import CheckResult, failed, ok, warning
from sbon_node.operations.readiness import MIN_FREE_BYTES, MIN_FREE_INODES
from sbon_protocol import datagram
from sbon_protocol.errors import ProtocolError, SbonError
from sbon_protocol.messages import Endpoint, Nack, Packet, PingRequest

ENOUGH_BYTES = 5 * 1024**3
"""Room for streams, checkpoints and logs; less causes a warning."""
ENOUGH_INODES = 100_000
SLOW_SYNC_MS = 50.0
SYNCS = 10
IMPORTED = ("pyspark", "pyspark/sql", "pyspark/sql/streaming", "pyspark/sql/worker", "pyarrow", "sbon_node/engine/spark")
"""Folders of the packages that every Python worker of Spark imports."""
OTHER_FILES = 256
"""Descriptors beside connections: files of the outbox, logs, the engine."""


def examine_machine(config: Config) -> list[CheckResult]:
    """Examine the machine; blocks for some seconds, because it starts a JVM for its version and syncs files."""
    data_dir = Path(config.node.data_dir)
    return [*_java(config.engine), _byte_code(), *_disk(data_dir, fsync=config.streams.fsync), _descriptors(config)]


def _java(settings: EngineSettings) -> list[CheckResult]:
    try:
        java = find_java()
    except SbonError as error:
        return [failed("java", f"{error.message} ({error.where})", error.hint)]
    newer = "; the packaged one or a newer one, which Spark runs on with some modules left out" if java.version >= NEWER else ""
    return [
        ok("java", f"version {java.version} ({java.build.strip()}) at {java.path}, by {java.origin}{newer}"),
        _archive(settings, java),
    ]


def _archive(settings: EngineSettings, java: Java) -> CheckResult:
    path = archive_path(settings, java)
    if path is None:
        return ok("class-archive", "switched off by engine.archive")
    if path.exists():
        return ok("class-archive", f"{path}")
    remedy = f"make it once: {Path(sys.executable).name} -m sbon_node.engine.spark.jvm.archive (as the node's user)"
    return warning("class-archive", f"there is none at {path}: every start of the engine takes twice as long", remedy)


def _byte_code() -> CheckResult:
    missing: set[str] = set()
    for folder in IMPORTED:
        package, _, below = folder.partition("/")
        spec = find_spec(package)
        if spec is None or spec.origin is None:
            remedy = "install sbon with all it needs: make .venv/installed"
            return failed("byte-code", f"the package {package} is not installed", remedy)
        sources = list((Path(spec.origin).parent / below).glob("*.py"))
        if any(not Path(cache_from_source(str(source))).exists() for source in sources):
            missing.add(str(Path(spec.origin).parent))
    if missing:
        remedy = f"{sys.executable} -m compileall -q {' '.join(sorted(missing))}"
        return warning("byte-code", "not all is compiled: every Python worker of Spark starts a second later", remedy)
    return ok("byte-code", "compiled, of all that Spark's Python workers import")


def _disk(data_dir: Path, *, fsync: bool) -> list[CheckResult]:
    """Check the disk of the data directory, or of its nearest existing parent before the first start."""
    folder = data_dir
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    system = os.statvfs(folder)
    free, inodes = system.f_bavail * system.f_frsize, system.f_favail
    room = f"{free / 1e9:.1f} GB free on the disk of {data_dir}"
    remedy = "free some, or move the data directory: node.data_dir"
    results = [_enough("disk", room, remedy, free, MIN_FREE_BYTES, ENOUGH_BYTES)]
    # Some file systems create inodes on demand, and report none.
    if system.f_files:
        left = f"{inodes:,} inodes free"
        remedy = "delete small files that you do not need: find DIR -xdev -type f | cut -d/ -f2-4 | sort | uniq -c"
        results.append(_enough("inodes", left, remedy, inodes, MIN_FREE_INODES, ENOUGH_INODES))
    return [*results, _sync(folder, fsync=fsync)]


def _enough(check: str, message: str, remedy: str, free: int, least: int, enough: int) -> CheckResult:
    if free >= enough:
        return ok(check, message)
    return (failed if free < least else warning)(check, message, remedy)


def _sync(folder: Path, *, fsync: bool) -> CheckResult:
    """Measure how long a small write takes to reach the disk."""
    name = folder / f".sbon-doctor-{os.getpid()}"
    took_ms = []
    try:
        with name.open("wb", buffering=0) as file:
            for _ in range(SYNCS):
                file.write(b"x" * 4096)
                began = time.monotonic()
                os.fsync(file.fileno())
                took_ms.append((time.monotonic() - began) * 1000)
    except OSError as error:
        remedy = "give the node's user a data directory it may write to"
        return failed("fsync", f"cannot write to {folder}: {error.strerror}", remedy)
    finally:
        with suppress(OSError):
            name.unlink(missing_ok=True)
    middle = statistics.median(took_ms)
    message = f"a synced write takes {middle:.1f} ms (streams.fsync is {'on' if fsync else 'off'})"
    if fsync and middle > SLOW_SYNC_MS:
        return warning("fsync", message, "a faster disk for the data directory, or streams.fsync = false where power is not lost")
    return ok("fsync", message)


def _descriptors(config: Config) -> CheckResult:
    limit, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Connections are accepted and made: the limit applies to each direction.
    needed = 2 * config.net.max_connections + config.api.max_connections + OTHER_FILES
    message = f"{limit:,} files may be open, at most {needed:,} are needed"
    if limit != resource.RLIM_INFINITY and limit < needed:
        remedy = f"ulimit -n {needed} (hard limit {hard:,}), LimitNOFILE={needed} in the unit, or lower net.max_connections"
        return warning("descriptors", message, remedy)
    return ok("descriptors", message)


CONNECT_S = 3.0
DATAGRAMS = 3
"""Datagrams sent to an address to join, since one may be lost."""
LOCK = "lock"


def preflight(config: Config) -> list[CheckResult]:
    """Check the configuration; blocks for some seconds for each address to join that does not answer."""
    node = config.node
    return [
        _data_dir(Path(node.data_dir)),
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
        remedy = "a node runs on it: name its API by sbon --node URL doctor" + (f", or end process {owner}" if owner else "")
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
            remedy = f"stop what uses it (ss -tulpn 'sport = :{port}'), or choose another: {key}"
            return failed(check, f"{endpoint} is in use", remedy)
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
    remedy = "start one with sbon node, or name another's API by sbon --node URL doctor; only this machine was looked at"
    yield warning("node", f"none answers at {api}", remedy)
