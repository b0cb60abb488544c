"""The engine process: a process with the JVM and its operators, controlled by its daemon over one connection.

It ends, and its JVM with it, when that connection closes. It holds a lock on the node's operators whose descriptor the JVM
inherits: a successor cannot start while either of the two still lives, so no batch is ever planned by two.
"""

import gc
import os
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path

import msgspec
from pyspark.sql import DataFrame, SparkSession

from sbon_node.base.arrow_without_pandas import hide_pandas
from sbon_node.engine.lock import take_lock
from sbon_node.engine.settings import EngineSettings
from sbon_node.engine.spark import messages
from sbon_node.engine.spark.analysis import guard
from sbon_node.engine.spark.analysis.constants import check_constants
from sbon_node.engine.spark.jvm.footprint import CpuTimes, footprint
from sbon_node.engine.spark.jvm.release import Sessions
from sbon_node.engine.spark.jvm.session import Jvm, open_session
from sbon_node.engine.spark.jvm.warmup import warm_up
from sbon_node.engine.spark.operators.failure_reports import no_room
from sbon_node.engine.spark.operators.on_error import tolerant
from sbon_node.engine.spark.operators.operator import INITIALIZING_S, Operator, check_jvm, ddl
from sbon_node.engine.spark.wire import JVM_LOST, Feed, FeedLostError, write_stacks_when_asked
from sbon_protocol.api.columns import Column, Schema
from sbon_protocol.api.operators import OnError
from sbon_protocol.errors import SbonError

SCRATCH = "scratch"
"""The folder for temporary files of Spark, its libraries and Python, in the data directory, where the engine process runs."""
STARTING = 3
"""Operators whose readers start side by side."""
LOCK_WAIT_S = 30.0
"""Ample time for an orphaned engine process and its JVM to end."""


class EngineProcess:
    """Executes one command at a time; the readers of a few operators start side by side."""

    def __init__(self, settings: EngineSettings, feed: Feed, lock: int) -> None:
        self._settings, self._feed = settings, feed
        self._jvm = Jvm(settings, keep=(lock,), folder=Path())  # The full path may be too long for a socket.
        self._session = open_session(settings)
        self._session.sql("SELECT 1").collect()
        self._warming = threading.Thread(target=warm_up, args=(self._session,), name="warm-up", daemon=True)
        self._fenced, self._cpu_times = Sessions(self._session), CpuTimes(self._session)
        self._operators: dict[str, Operator] = {}
        self._closing = False

    def run(self) -> None:
        """Run until the close command, or the node's end. A warm-up query runs while the first fragments are analysed."""
        self._warming.start()
        gc.freeze()
        threading.Thread(target=self._watch_jvm, name="jvm", daemon=True).start()
        self._feed.send(messages.Ready(pid=self._jvm.pid))
        while True:
            try:
                command = self._feed.receive(messages.COMMAND)
            except SbonError as error:
                self._feed.send(messages.Refused.of(error))
                continue
            try:
                answer = self._obey(command)
            except Exception as error:  # noqa: BLE001 - whatever Spark raises is the answer
                check_jvm(self._session)
                answer = refused(error)
            self._feed.send(answer)
            if isinstance(command, messages.Close):
                return

    def _obey(self, command: messages.Command) -> messages.Message:
        match command:
            case messages.Analyse():
                with self._fenced.lent() as session:
                    return messages.Analysed(schema=analyse(session, command.fragment, command.inputs, command.on_error))
            case messages.Start():
                self._warming.join()
                self._wait_for_others()
                self._operators[command.spec.id] = Operator(self._fenced, self._cpu_times, self._settings, command)
            case messages.Stop():
                operator = self._operators.pop(command.operator, None)
                if operator is not None:
                    operator.stop()
                    del operator
                    gc.collect()  # Python's reference cycles hold objects of the JVM.
            case messages.Close():
                self._closing = True
                for operator in self._operators.values():
                    operator.stop()
                if not self._warming.is_alive():
                    self._session.stop()
                self._jvm.close()
            case messages.Inspect():
                return messages.Inspected(footprint=footprint(self._session, self._jvm.pid, collect=command.collect))
        return messages.Done()

    def _wait_for_others(self) -> None:
        """Wait until few operators start: each reader is a process with 10 seconds for it, too few if many start at once."""
        deadline = time.monotonic() + INITIALIZING_S
        while sum(operator.is_starting for operator in self._operators.values()) >= STARTING and time.monotonic() < deadline:
            time.sleep(0.02)

    def _watch_jvm(self) -> None:
        """End this process with its JVM; the node starts another."""
        code = self._jvm.wait()
        if not self._closing:
            print(f"the JVM ended with code {code}", file=sys.stderr, flush=True)
            os._exit(JVM_LOST)


def analyse(session: SparkSession, fragment: str, inputs: tuple[Schema, ...], on_error: OnError = "fail") -> Schema:
    """Return the output schema by Spark's analyser on empty views; only constants are run.

    The views replace those of the session.
    """
    guard.check(session, fragment, len(inputs))
    for position, schema in enumerate(inputs):
        _empty(session, schema).createOrReplaceTempView(f"in{position}")
    try:
        rows = session.sql(fragment)
        fields = rows.schema.fields
    except Exception as error:
        raise guard.sql_error(error) from error
    check_constants(session, rows, on_error)
    tolerant(session, rows, on_error)
    return tuple(Column(field.name, field.dataType.simpleString()) for field in fields)


def _empty(session: SparkSession, schema: Schema) -> DataFrame:
    """Return no rows of the schema, as a local relation: ``createDataFrame`` would make an RDD of them."""
    jvm = session._jvm
    assert jvm is not None
    struct = jvm.org.apache.spark.sql.types.StructType.fromDDL(ddl(schema))
    return DataFrame(session._jsparkSession.createDataFrame(jvm.java.util.ArrayList(), struct), session)


def refused(error: Exception) -> messages.Refused:
    """Return the answer to a command that failed."""
    return messages.Refused.of(error if isinstance(error, SbonError) else no_room(error) or guard.sql_error(error))


def main(folder: str, settings_json: str) -> int:
    hide_pandas()
    write_stacks_when_asked()
    feed = Feed("engine")
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), name="parent", daemon=True).start()
    settings = msgspec.json.decode(settings_json, type=EngineSettings)
    try:
        lock = take_lock(Path(folder), min(LOCK_WAIT_S, settings.start_timeout_s / 2))
        use_scratch(Path(SCRATCH))
        EngineProcess(settings, feed, lock).run()
    except FeedLostError:
        os._exit(1)
    except SbonError as error:
        feed.send(refused(error))
        return 2
    return 0


def use_scratch(folder: Path) -> None:
    """Use ``folder``, emptied, for temporary files of this process and of its children.

    A killed process has left its files there. Call with the lock held.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(exist_ok=True)
    os.environ.update(dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder.absolute())))
    tempfile.tempdir = None


def _end_with_parent(parent: int) -> None:
    """End with the parent process: the main thread may wait for the lock or for Spark, and miss the connection's end."""
    while os.getppid() == parent:
        threading.Event().wait(0.2)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
