"""An engine process without Spark, for cases that Spark cannot provoke: a process on the real wire, with real checkpoints and the
real output, that plans, runs, writes and commits batches, and whose operators do what their rows and fragments say.

A row's ``act``: empty, ``kill`` (the engine dies of it, whenever it is read), ``end`` (the query ends of it), either of them
with ``once``, ``slow`` or ``brief``. A fragment lists the runs that end before their start is answered; a run is never answered
if the fragment is ``hang``, and after some seconds if it is ``late``. Every batch leaves ten threads, as the engine process says
when it is asked for its footprint.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa

from sbon_node.engine.checkpoint import BatchLog
from sbon_node.engine.interface import Footprint
from sbon_node.engine.lock import take_lock
from sbon_node.engine.spark.messages import (
    COMMAND,
    Close,
    Done,
    Ended,
    Fetch,
    Fetched,
    Inspect,
    Inspected,
    Poll,
    Polled,
    Ready,
    Start,
    Stop,
)
from sbon_node.engine.spark.operators.output import Output
from sbon_node.engine.spark.wire import JVM_LOST, Feed, FeedError, write_stacks_when_asked
from sbon_node.model.frames import InputOffset
from sbon_node.streams.payload import unpack
from tests.engine.states import PATIENCE_S

ACT_S = {"slow": 0.3, "brief": 0.1}
LATE_S = 3.0
LEFT_OF_A_BATCH = 10
CLOSED = "closed"
"""The file that it makes in the data directory once all operators have stopped."""


class Batch:
    """As much of a DataFrame as the output takes."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def toArrow(self) -> pa.Table:
        return self._table


batches: list[int] = []
"""Those that this engine process has committed."""


class ActedError(Exception):
    """A row has said so."""


class Operator:
    def __init__(self, command: Start) -> None:
        self._id, self._run, self._checkpoint = command.spec.id, command.run, Path(command.checkpoint)
        self._log = BatchLog(self._checkpoint)
        self._feed = Feed("reader")
        self._output = Output(command.spec, self._log, 1 << 18, self.tell_end, lambda: 0)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        if command.spec.fragment == "hang":
            self._checkpoint.with_name(f"{self._checkpoint.name}.hangs").touch()
            time.sleep(PATIENCE_S)
        if command.spec.fragment == "late":
            time.sleep(LATE_S)
            (self._checkpoint / "sources").mkdir(parents=True, exist_ok=True)  # as Spark does at the start of a query
        if str(self._run) in command.spec.fragment.split():
            self.tell_end(ActedError(f"run {self._run} ends before its start is answered"))
        else:
            self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._output.close()

    def tell_end(self, error: Exception) -> None:
        if not self._stopping.is_set():
            Feed("output").call(Ended(operator=self._id, run=self._run, code="", reason=str(error)), Done)

    def _work(self) -> None:
        try:
            commits, offsets = self._log.commits(), self._log.offsets()
            number = commits[-1] + 1 if commits else 0
            after = self._log.read_offsets(number - 1)[0] if commits else InputOffset()
            planned = self._log.read_offsets(number)[0] if number in offsets else None
            while not self._stopping.is_set():
                upto = planned or self._poll(after)
                if upto == after:
                    continue
                self._log.write_offsets(number, (upto,))
                self._output(Batch(self._read(after, upto)), number)  # type: ignore[arg-type]
                self._log.write_commit(number)
                batches.append(number)
                after, planned, number = upto, None, number + 1
        except (ActedError, FeedError) as error:
            self.tell_end(error)

    def _poll(self, after: InputOffset) -> InputOffset:
        return self._feed.call(Poll(operator=self._id, position=0, after=after, wait_s=0.2), Polled).offset

    def _read(self, after: InputOffset, upto: InputOffset) -> pa.Table:
        fetch = Fetch(operator=self._id, position=0, after=after.frame, upto=upto.frame)
        tables = [pa.Table.from_batches([unpack(payload)]) for payload in self._feed.call(fetch, Fetched).payloads if payload]
        for table in tables:
            for number, act in zip(table["n"].to_pylist(), table["act"].to_pylist(), strict=True):
                self._act(number, act)
        return pa.concat_tables(tables) if tables else pa.table({"n": pa.array([], pa.int64()), "act": pa.array([], pa.string())})

    def _act(self, number: int, act: str) -> None:
        if act in ACT_S:
            time.sleep(ACT_S[act])
            return
        mark = self._checkpoint.with_name(f"{self._checkpoint.name}.acted-{number}")
        if not act or (act.endswith("once") and mark.exists()):
            return
        mark.touch()
        if act.startswith("kill"):
            os._exit(JVM_LOST)
        raise ActedError(f"row {number} said so")


def main(folder: str) -> None:
    write_stacks_when_asked()
    signal.signal(signal.SIGQUIT, signal.SIG_IGN)  # It passes for its JVM, too.
    take_lock(Path(folder), 30.0)
    feed = Feed("engine")
    feed.send(Ready(pid=os.getpid()))
    operators: dict[str, Operator] = {}
    while not isinstance(command := feed.receive(COMMAND), Close):
        if isinstance(command, Inspect):
            threads = LEFT_OF_A_BATCH * len(batches)
            feed.send(Inspected(footprint=Footprint(threads=threads, descriptors=10, heap_mb=10.0, max_heap_mb=512.0)))
            continue
        if isinstance(command, Start):
            operators[command.spec.id] = Operator(command)
        elif isinstance(command, Stop) and command.operator in operators:
            operators.pop(command.operator).stop()
        feed.send(Done())
    for operator in operators.values():
        operator.stop()
    Path(CLOSED).touch()
    feed.send(Done())


if __name__ == "__main__":
    main(sys.argv[1])
