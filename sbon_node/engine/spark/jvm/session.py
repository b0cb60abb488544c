"""One JVM with a Spark session: launched directly, with a class archive, and warmed up.

``spark-submit`` takes about 20 seconds to the first job, this about 4 (with the archive), since it skips the launcher's own JVM
and the loading and checking of some 20,000 classes.
"""

import os
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyspark
from pyspark import SparkContext
from pyspark.sql import SparkSession

from sbon_node.engine.java import NEWER, find_java
from sbon_node.engine.settings import EngineSettings
from sbon_node.engine.spark import zygote
from sbon_node.engine.spark.jvm.archive import archive_path, class_path
from sbon_protocol.errors import SbonError

_OF_BASE = """java.lang java.lang.invoke java.lang.reflect java.io java.net java.nio java.util java.util.concurrent
    java.util.concurrent.atomic jdk.internal.ref sun.nio.ch sun.nio.cs sun.security.action sun.util.calendar"""
_OPENED = (*(f"java.base/{package}" for package in _OF_BASE.split()), "java.security.jgss/sun.security.krb5")
"""Modules that Spark's own launcher opens to its class path (org.apache.spark.launcher.JavaModuleOptions)."""

YOUNG_SHARE = 10
"""The young generation is one of so many parts of the largest heap. All of it is soon in use; by default it is a third of a heap
that Java sizes by the memory of the machine."""

_SPARE_HEAP = ("-XX:MinHeapFreeRatio=10", "-XX:MaxHeapFreeRatio=20")
"""Percent of the old generation that stays free after a collection; Java's own 40 to 70 let it grow beyond what operators keep.

A node with four operators takes some 70 MB less, at the same rows a second.
"""

_PATIENT_C2 = (
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
"""Ten times Java's thresholds of its second compiler, which otherwise spends more on Spark's planning than rows cost.

Loops over rows reach them within a batch. Two million rows at two nodes, CPU of the JVMs: a filter 4.6 s > 3.6 s, an aggregate
11.2 s > 9.1 s.
"""

_HISTORY = (
    "ui.retainedJobs", "ui.retainedStages", "ui.retainedTasks", "ui.dagGraph.retainedRootRDDs", "ui.retainedDeadExecutors",
    "sql.ui.retainedExecutions",
)  # fmt: skip
"""Settings of Spark's history: it keeps a thousand finished jobs with their plans for its web page, even if that is disabled."""

_CHECKPOINT_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"

CONF = {
    "spark.ui.enabled": "false",
    "spark.authenticate": "true",  # Else any user of this machine may send the JVM's ports serialized objects.
    # Driver and executor are one process, which need not watch itself. After a pause or a jump of the clock of more than this
    # time-out, by default 120 s, the driver counts its own executor as dead, which ends the JVM some minutes later.
    "spark.storage.blockManagerHeartbeatTimeoutMs": "1000d",
    **{f"spark.{setting}": "1" for setting in _HISTORY},
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.runSQLOnFiles": "false",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.streaming.pollingDelay": "1ms",
    "spark.sql.streaming.stopTimeout": "20s",
    "spark.sql.streaming.numRecentProgressUpdates": "2",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINT_FILES,
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.hadoop.fs.permissions.umask-mode": "077",  # Hadoop sets file modes itself, regardless of the process's umask.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.python.worker.reuse": "true",
    "spark.log.level": "ERROR",
    "spark.task.maxDirectResultSize": "64m",  # A larger result goes through the block manager and back over the network.
}


class Jvm:
    """The JVM process, and the zygote of its Python processes.

    Both end with this process, since they read from its pipes. The zygote listens in ``folder``, or in a temporary one. Their
    temporary files lie in this process's own temporary folder.
    """

    def __init__(
        self, settings: EngineSettings, *, keep: tuple[int, ...] = (), dump: str = "", folder: Path | None = None
    ) -> None:
        home = str(Path(pyspark.__file__).parent)
        self._own = tempfile.TemporaryDirectory(prefix="sbon-zygote-") if folder is None else None
        socket = (Path(self._own.name) if self._own is not None else folder or Path()) / "zygote.sock"
        self._zygote = zygote.start(socket, os.environ)
        os.environ.update({zygote.SOCKET_VARIABLE: str(socket), zygote.PYTHON_VARIABLE: sys.executable})
        with tempfile.TemporaryDirectory(prefix="sbon-jvm-") as scratch:
            gateway = Path(scratch) / "gateway"
            self._process = subprocess.Popen(
                [*_java_command(settings, dump), "org.apache.spark.api.python.PythonGatewayServer"],
                stdin=subprocess.PIPE,
                stdout=sys.stderr,
                stderr=sys.stderr,
                env={
                    **{name: value for name, value in os.environ.items() if name != "SPARK_LOCAL_DIRS"},
                    "LC_ALL": "C.UTF-8",  # The same words everywhere: for months, and for the system's error messages.
                    "SPARK_HOME": home,
                    "SPARK_SCALA_VERSION": "2.13",
                    "PYSPARK_PYTHON": str(zygote.LAUNCHER),
                    "_PYSPARK_DRIVER_CONN_INFO_PATH": str(gateway),
                },
                pass_fds=keep,
            )
            self.pid = self._process.pid
            port, secret = self._wait_gateway(gateway, settings.start_timeout_s)
        os.environ.update(
            PYSPARK_GATEWAY_PORT=str(port), PYSPARK_GATEWAY_SECRET=secret, PYSPARK_PYTHON=str(zygote.LAUNCHER), SPARK_HOME=home
        )

    def _wait_gateway(self, gateway: Path, timeout_s: float) -> tuple[int, str]:
        """Return port and secret, once the JVM has written them; the file is renamed into place, so it is whole."""
        deadline = time.monotonic() + timeout_s
        while not gateway.exists():
            if self._process.poll() is not None:
                reason = f"the JVM ended with code {self._process.returncode}"
                raise self._failed(reason, hint="see engine.log in the node's data directory")
            if time.monotonic() > deadline:
                raise self._failed(f"the JVM did not start within {timeout_s:g} s")
            time.sleep(0.005)
        payload = gateway.read_bytes()
        port, length = struct.unpack(">ii", payload[:8])
        return port, payload[8 : 8 + length].decode()

    def _failed(self, reason: str, hint: str = "") -> SbonError:
        """End all processes, and return the error."""
        for process in (self._process, self._zygote):
            process.kill()
            process.wait()
        return SbonError("engine-failed", reason, hint=hint)

    def wait(self) -> int:
        """Wait until the JVM has ended; return its exit code."""
        return self._process.wait()

    def close(self, timeout_s: float = 60.0) -> None:
        """End the JVM and its zygote, and wait for both. PySpark forgets this JVM, else it would send it the next one's calls."""
        for process in (self._process, self._zygote):
            if process.stdin is not None:
                process.stdin.close()
            try:
                process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if (gateway := SparkContext._gateway) is not None:
            gateway.close()
            SparkContext._gateway = SparkContext._jvm = None
        if self._own is not None:
            self._own.cleanup()


def _java_command(settings: EngineSettings, dump: str) -> list[str]:
    java = find_java()
    options = [
        java.path,
        f"-Xmx{settings.heap_mb}m",
        f"-Xmn{settings.heap_mb // YOUNG_SHARE}m",
        "-XX:+UseSerialGC",
        *_SPARE_HEAP,
        "-XX:+IgnoreUnrecognizedVMOptions",
        # Map the class archive at its own address: at a random one, the JVM rewrites 100 MB of it at each start.
        "-XX:+UnlockDiagnosticVMOptions",
        "-XX:ArchiveRelocationMode=0",
        "-XX:-UsePerfData",  # Performance data are a file in the system's temporary folder.
        "-Duser.timezone=UTC",
        f"-Djava.io.tmpdir={tempfile.gettempdir()}",
    ]
    if settings.jit == "c1":
        options.append("-XX:TieredStopAtLevel=1")
    else:
        options += _PATIENT_C2
    if java.version < NEWER:
        options.append("--add-modules=jdk.incubator.vector")
    else:
        options += ["--sun-misc-unsafe-memory-access=allow", "--enable-native-access=ALL-UNNAMED"]
    for package in _OPENED:
        options += ["--add-opens", f"{package}=ALL-UNNAMED"]
    options += ["-Djdk.reflect.useDirectMethodHandle=false", "-Dio.netty.tryReflectionSetAccessible=true"]
    options += ["-Dio.netty.allocator.type=pooled", "-cp", class_path()]
    archive = archive_path(settings, java)
    if dump:
        options += [f"-XX:ArchiveClassesAtExit={dump}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
    elif archive is not None and archive.exists():
        # A damaged or foreign archive is ignored by the JVM, which then starts as without one.
        options += [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", "-Xlog:cds=off"]
    return options


def open_session(settings: EngineSettings) -> SparkSession:
    """Return the session on the JVM that :class:`Jvm` has started; raises Spark's errors."""
    SparkContext._ensure_initialized()
    install(SparkContext._jvm)
    builder: Any = SparkSession.builder.master(settings.master).appName("sbon")
    # A batch whose output does not fit fails with a reason, and does not take the JVM with it.
    result_mb = max(64, settings.heap_mb // 2)
    own = {"spark.driver.maxResultSize": f"{result_mb}m", "spark.local.dir": _listed(tempfile.gettempdir())}
    for key, value in {**CONF, **own}.items():
        builder = builder.config(key, value)
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _listed(folder: str) -> str:
    """Return a path for Spark, relative if it has a comma, which Spark takes for a separator."""
    return os.path.relpath(folder) if "," in folder else folder


# -- The JVM's selectors from ``Selectors.java`` ----------------------------------------------------------------------

_PROPERTY = "java.nio.channels.spi.SelectorProvider"


def install(jvm: Any) -> None:
    """Install the selectors; call before the JVM opens a channel: it reads the property once.

    Raises :class:`SbonError` ``engine-failed`` if it was read already.
    """
    name = define(jvm, "Selectors")
    jvm.java.lang.System.setProperty(_PROPERTY, name)
    provider = jvm.java.nio.channels.spi.SelectorProvider.provider().getClass().getName()
    if provider != name:
        raise SbonError("engine-failed", f"the JVM's selectors are {provider}, which leaves descriptors open")


# -- Java classes of this package, compiled by Janino, one of Spark's jars, without a Java compiler --------------------

PACKAGE = "py4j.reflection"
"""Reflection names py4j's own invoker as the caller, so the classes join its package."""


def define(jvm: Any, name: str) -> str:
    """Define the class of the file ``name``.java in the JVM; return its whole name."""
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook(Path(__file__).with_name(f"{name}.java").read_text())
    whole = f"{PACKAGE}.{name}"
    jvm.java.lang.invoke.MethodHandles.lookup().defineClass(compiler.getBytecodes()[whole])
    return whole
