"""The engine host: a process of its own with the JVM and its operators, obeying its daemon over one control connection.

It ends, and its JVM with it, when that connection closes. It holds a lock on the node's operators whose descriptor the JVM
inherits: a successor cannot start while either of the two still lives, so no batch is ever planned by two.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from functools import reduce
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession

from sbon_node.engine.checkpoint import BatchLog
from sbon_node.engine.interface import InputSpec, OperatorSpec, Schema
from sbon_node.engine.lock import take_lock
from sbon_node.engine.settings import EngineSettings
from sbon_node.engine.spark import guard
from sbon_node.engine.spark.markers import MARK, with_watermark
from sbon_node.engine.spark.output import Output
from sbon_node.engine.spark.reports import no_room, why_ended
from sbon_node.engine.spark.session import Jvm, open_session
from sbon_node.engine.spark.source import PartitionedSource, SimpleSource
from sbon_node.engine.spark.warmup import warm_up
from sbon_node.engine.spark.wire import JVM_LOST, Feed, FeedError, FeedLostError
from sbon_node.errors import SbonError

INITIALIZING, INITIALIZING_S = "Initializing sources", 60.0
"""What Spark says of a query whose readers are still starting, and how long the next operator waits for them at most."""
LOCK_WAIT_S = 30.0
"""What an orphaned host and its JVM take to end, and much more."""


class Operator:
    """One streaming query in a session of its own, so that its views are its own. ``command`` is the node's ``start``."""

    def __init__(self, session: SparkSession, settings: EngineSettings, command: dict[str, Any]) -> None:
        spec = msgspec.convert(command["spec"], OperatorSpec)
        self._session, self._id, self._run = session, spec.id, command["run"]
        views = spec.views()
        guard.check(session, spec.fragment, len(views))
        own = guard.fenced_session(session)
        source = SimpleSource if spec.reader == "simple" else PartitionedSource
        own.dataSource.register(source)
        for number, inputs in enumerate(views):
            parts = [_rows_of(own, source.name(), spec.id, position, one, settings.poll_s) for position, one in inputs]
            reduce(DataFrame.union, parts).createOrReplaceTempView(f"in{number}")
        fragment = own.sql(spec.fragment)
        self._stopping, self._started = False, threading.Event()
        log = BatchLog(Path(command["checkpoint"]), fsync=command["fsync"])
        self._output = Output(spec, log, settings.frame_bytes, self._tell_end, self._dropped_rows)
        writer = fragment.writeStream.foreachBatch(self._output).option("checkpointLocation", command["checkpoint"])
        try:
            self._query = writer.queryName(spec.id).outputMode("append").start()
            self._started.set()
        except BaseException:
            self._output.close()
            raise
        threading.Thread(target=self._watch, name=f"end of {spec.id}", daemon=True).start()
        self._wait_for_readers()

    def _wait_for_readers(self) -> None:
        """Every reader is a Python process that has 10 seconds to start, of which many at once would take each other's."""
        deadline = time.monotonic() + INITIALIZING_S
        while self._query.isActive and self._query.status["message"] == INITIALIZING and time.monotonic() < deadline:
            time.sleep(0.02)

    def stop(self) -> None:
        """Stops the query; what it has committed by then is told."""
        self._stopping = True
        self._query.stop()
        self._output.close()

    def _dropped_rows(self) -> int:
        """Rows that Spark has dropped as late, in the batch under way; with markers there are none."""
        self._started.wait()
        return dropped_rows(self._query._jsq.streamingQuery().lastExecution().executedPlan())

    def _watch(self) -> None:
        try:
            self._query.awaitTermination()
            self._tell_end(RuntimeError("the query ended"))
        except Exception as error:  # noqa: BLE001 - whatever Spark raises is the reason
            self._tell_end(error)

    def _tell_end(self, error: Exception) -> None:
        """Tells the node that the query does its work no more, and why; ``code`` where that would come again, or is known to
        pass."""
        if self._stopping:
            return
        check_jvm(self._session)
        end = self._output.refusal or why_ended(error)
        told = {"do": "ended", "operator": self._id, "run": self._run, "code": end.code, "reason": str(end)}
        try:
            Feed("output").call(told)
        except FeedError:
            return  # the node has stopped it meanwhile
        except FeedLostError:
            os._exit(1)


def _rows_of(session: SparkSession, source: str, operator: str, position: int, one: InputSpec, wait_s: float) -> DataFrame:
    """One input as a stream of rows; with its watermark where the operator has state."""
    mark = f", `{MARK}` boolean" if one.event_time else ""
    options = {"operator": operator, "position": position, "wait": wait_s, "event_time": one.event_time, "lag": one.lag_ms}
    rows = session.readStream.format(source).schema(ddl(one.schema) + mark).options(**options).load()
    return with_watermark(rows, one.event_time) if one.event_time else rows


class Host:
    """Obeys: ``analyse``, ``start``, ``stop``, ``close``; one command at a time, so operators start one after another."""

    def __init__(self, settings: EngineSettings, feed: Feed, lock: int) -> None:
        self._settings, self._feed = settings, feed
        self._jvm = Jvm(settings, keep=(lock,), folder=Path())  # where a path of the data directory may be too long for a socket
        self._session = open_session(settings)
        self._session.sql("SELECT 1").collect()
        self._warming = threading.Thread(target=warm_up, args=(self._session,), name="warm-up", daemon=True)
        self._operators: dict[str, Operator] = {}
        self._closing = False

    def run(self) -> None:
        """Until told to close, or the node is gone. A query is warmed up with while the first ones are analysed."""
        self._warming.start()
        threading.Thread(target=self._watch_jvm, name="jvm", daemon=True).start()
        self._feed.send({"ready": self._jvm.pid})
        while True:
            command = self._feed.receive()
            try:
                answer = self._obey(command)
            except Exception as error:  # noqa: BLE001 - whatever Spark raises is the answer
                check_jvm(self._session)
                answer = refused(error)
            self._feed.send(answer)
            if command["do"] == "close":
                return

    def _obey(self, command: dict[str, Any]) -> dict[str, Any]:
        match command["do"]:
            case "analyse":
                inputs = msgspec.convert(command["inputs"], tuple[Schema, ...])
                return {"schema": analyse(self._session, command["fragment"], inputs)}
            case "start":
                self._warming.join()
                self._operators[command["spec"]["id"]] = Operator(self._session, self._settings, command)
            case "stop":
                operator = self._operators.pop(command["operator"], None)
                if operator is not None:
                    operator.stop()
            case "close":
                self._closing = True
                for operator in self._operators.values():
                    operator.stop()
                if not self._warming.is_alive():
                    self._session.stop()
                self._jvm.close()
            case unknown:
                raise SbonError("unknown-command", f"the host knows no {unknown!r}")
        return {"done": True}

    def _watch_jvm(self) -> None:
        """Without its JVM this process is of no use; the node starts another."""
        code = self._jvm.wait()
        if not self._closing:
            print(f"the JVM ended with code {code}", file=sys.stderr, flush=True)
            os._exit(JVM_LOST)


def analyse(session: SparkSession, fragment: str, inputs: tuple[Schema, ...]) -> list[tuple[str, str]]:
    """The output schema by Spark's analyser, on empty views; nothing is run."""
    guard.check(session, fragment, len(inputs))
    own = guard.fenced_session(session)
    for position, schema in enumerate(inputs):
        own.createDataFrame([], ddl(schema)).createOrReplaceTempView(f"in{position}")
    try:
        fields = own.sql(fragment).schema.fields
    except Exception as error:
        raise guard.sql_error(error) from error
    return [(field.name, field.dataType.simpleString()) for field in fields]


def ddl(schema: Schema) -> str:
    quoted = ((column.name.replace("`", "``"), column.type) for column in schema)
    return ", ".join(f"`{name}` {type_}" for name, type_ in quoted)


def check_jvm(session: SparkSession) -> None:
    """Ends this process where its JVM does not answer any more: what failed then was not an operator."""
    try:
        session._jvm.System.currentTimeMillis()
    except Exception:  # noqa: BLE001 - however it shows
        os._exit(JVM_LOST)


def dropped_rows(plan: Any) -> int:
    """By the state operators of an executed plan."""
    metric = plan.metrics().get("numRowsDroppedByWatermark")
    own = int(metric.get().value()) if metric.isDefined() else 0
    children = plan.children()
    return own + sum(dropped_rows(children.apply(position)) for position in range(children.size()))


def refused(error: Exception) -> dict[str, str]:
    """The answer to a command that failed."""
    told = error if isinstance(error, SbonError) else no_room(error) or guard.sql_error(error)
    return {"error": told.code, "message": told.message, "where": told.where, "hint": told.hint}


def main(folder: str, settings_json: str) -> int:
    feed = Feed("host")
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), name="parent", daemon=True).start()
    settings = msgspec.json.decode(settings_json, type=EngineSettings)
    try:
        lock = take_lock(Path(folder), min(LOCK_WAIT_S, settings.start_timeout_s / 2))
        Host(settings, feed, lock).run()
    except FeedLostError:
        os._exit(1)
    except SbonError as error:
        feed.send(refused(error))
        return 2
    return 0


def _end_with_parent(parent: int) -> None:
    """While the main thread waits for the lock or for Spark it cannot see the control connection close."""
    while os.getppid() == parent:
        threading.Event().wait(0.2)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
