"""The engine process as it is, which also answers how many records Spark keeps: ``analyse`` of ``kept OPERATOR QUESTION`` gives a
column with their number as its name. No two questions are the same, for the node remembers answers."""

from __future__ import annotations

from sbon_node.engine.spark import engine_process
from sbon_node.engine.spark.messages import Analyse, Analysed, Command, Message
from sbon_protocol.api.columns import Column

KEPT = "kept "


class CountingEngine(engine_process.EngineProcess):
    def _obey(self, command: Command) -> Message:
        if isinstance(command, Analyse) and command.fragment.startswith(KEPT):
            return Analysed(schema=(Column(str(self._kept(command.fragment.removeprefix(KEPT).split()[0])), "records"),))
        return super()._obey(command)

    def _kept(self, operator: str) -> int:
        """The records in the state of the newest batch; -1 before the first."""
        query = self._operators[operator]._query
        assert query is not None
        progress = query.lastProgress
        return -1 if progress is None else sum(of_state["numRowsTotal"] for of_state in progress["stateOperators"])
