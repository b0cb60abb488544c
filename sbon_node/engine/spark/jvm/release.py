"""Release of resources that Spark and py4j would keep of every ended query for the JVM's lifetime.

Measured with pyspark 4.3: each query left a thread for each of its readers, a connection with a thread at either end, and,
through these and through references from Python to the JVM and back, its session with all its plans.
"""

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sbon_node.engine.spark import zygote
from sbon_node.engine.spark.analysis import guard

_MONITOR = f"Idle Worker Monitor for {zygote.LAUNCHER}"
"""The thread that Spark starts for every factory of Python processes, and that never ends."""
_IGNORING = "(Ljava/lang/Thread;Ljava/lang/Throwable;)V"


class Sessions:
    """Reused sessions, each for one operator at a time, since a part of each stays in Spark for ever."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._free: list[SparkSession] = []

    def take(self) -> SparkSession:
        """Return a session without views."""
        return self._free.pop() if self._free else guard.fenced_session(self._session)

    def give_back(self, session: SparkSession) -> None:
        """Put back a session in which nothing runs any more."""
        session._jsparkSession.sessionState().catalog().clearTempTables()  # listing them takes Spark a query
        self._free.append(session)

    @contextmanager
    def lent(self) -> Iterator[SparkSession]:
        """Lend a session in which nothing runs."""
        session = self.take()
        try:
            yield session
        finally:
            self.give_back(session)


class Batches:
    """A ``foreachBatch`` function that can be removed from Spark again, with all that it references."""

    def __init__(self, session: SparkSession, take: Callable[[DataFrame, int], None]) -> None:
        self._gateway: Any = session.sparkContext._gateway
        self._connection: Any = None
        self._error: Exception | None = None
        self._take: Callable[[DataFrame, int], None] | None = take

    def __call__(self, batch: DataFrame, number: int) -> None:
        if self._connection is None:
            # The JVM's thread of a query has its own connection to Python, with a thread at this end.
            self._connection = self._callbacks().getPerThreadConnection()
        assert self._take is not None
        try:
            self._take(batch, number)
        except Exception as error:
            self._error = error
            raise

    def release(self) -> None:
        """Release the function; call after the query has ended."""
        self._take = None
        if self._error is not None:
            traceback.clear_frames(self._error.__traceback__)  # Spark keeps the error, and that the batch
            self._error = None
        if self._connection is not None:
            self._connection.shutdown()
            self._callbacks().connectionStopped(self._connection)
            self._connection = None

    def _callbacks(self) -> Any:
        return self._gateway.java_gateway_server.getCallbackClient()


def forget_listener(query: StreamingQuery) -> None:
    """Remove the listeners of the session that Spark clones for a query from the event bus.

    A query with state has some, and they would stay there for ever.
    """
    session: Any = query._jsq.streamingQuery().sparkSessionForStream()
    manager = session.streams()
    field = manager.getClass().getDeclaredField("listenerBus")
    field.setAccessible(True)
    session.sparkContext().listenerBus().removeListener(field.get(manager))


def end_monitors(session: SparkSession) -> None:
    """End the threads that watch for idle reader processes, which are never idle: each reader has its own.

    Only an interrupt ends these threads, which hold the session that started them.
    """
    jvm: Any = session._jvm
    for thread in jvm.java.util.ArrayList(jvm.org.apache.commons.lang3.ThreadUtils.findThreadsByName(_MONITOR)):
        factory = getattr(thread, "org$apache$spark$api$python$PythonWorkerFactory$MonitorThread$$$outer")()
        if not factory.useDaemonEnabled():
            thread.setUncaughtExceptionHandler(_ignoring(jvm))
            thread.interrupt()


def _ignoring(jvm: Any) -> Any:
    """Return a handler that ignores a thread's end."""
    handles = jvm.java.lang.invoke
    nothing = handles.MethodHandles.empty(handles.MethodType.fromMethodDescriptorString(_IGNORING, None))
    kind = jvm.java.lang.Class.forName("java.lang.Thread$UncaughtExceptionHandler")
    return handles.MethodHandleProxies.asInterfaceInstance(kind, nothing)
