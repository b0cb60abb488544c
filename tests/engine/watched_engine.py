"""The engine process as it is, and what fragments have done to its JVM can be asked for: ``analyse`` of the fragment ``effects``
and a number answers a column for each mark that is found. No two questions are the same, for the node remembers answers."""

from __future__ import annotations

import sys
from typing import Any

from pyspark.sql import SparkSession

from sbon_node.engine.spark import engine_process
from sbon_node.engine.spark.analysis import guard
from sbon_node.engine.spark.messages import Analyse, Analysed, Command, Message
from sbon_protocol.api.columns import Column

EFFECTS = "effects "
MARK = "sbon.mark."
"""How the names of settings and system properties begin that show that a fragment ran."""


class WatchedEngine(engine_process.EngineProcess):
    def __init__(self, *given: Any) -> None:
        self._sessions: list[SparkSession] = []
        made = guard.fenced_session

        def remembered(session: SparkSession) -> SparkSession:
            self._sessions.append(made(session))
            return self._sessions[-1]

        guard.fenced_session = remembered
        super().__init__(*given)

    def _obey(self, command: Command) -> Message:
        if isinstance(command, Analyse) and command.fragment.startswith(EFFECTS):
            return Analysed(schema=tuple(Column(effect, "found") for effect in self._effects()))
        return super()._obey(command)

    def _effects(self) -> list[str]:
        jvm, context = self._session._jvm, self._session._jsc.sc()
        found = {name for name in jvm.System.getProperties().stringPropertyNames() if name.startswith(MARK)}
        for session in (self._session, *self._sessions):
            settings = session._jsparkSession.sessionState().conf().getAllConfs()
            found |= {name for name in jvm.scala.jdk.javaapi.CollectionConverters.asJava(settings) if name.startswith(MARK)}
        for added in (context.listJars(), context.listFiles()):
            found |= {added.apply(i).rsplit("/", 1)[-1] for i in range(added.size())}
        return sorted(found)


def main() -> int:
    engine_process.EngineProcess = WatchedEngine  # type: ignore[misc]
    return engine_process.main(sys.argv[1], sys.argv[2])
