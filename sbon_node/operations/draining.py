"""Draining: a node that takes no part in queries any more, for good, so that it can be taken away.

Nothing is moved to other nodes yet. So a node on which anything lives, be it an operator, a source, a sink or the record of a
query, refuses to be drained, and says what is there.
"""

from __future__ import annotations

from sbon_node.control.context import Context
from sbon_node.control.leaving import Leaving
from sbon_node.control.operators import OperatorHost
from sbon_node.control.sources import SourceHost
from sbon_node.errors import SbonError


class Draining:
    """Marks this node as drained, where nothing lives on it."""

    def __init__(self, context: Context, leaving: Leaving, operators: OperatorHost, sources: SourceHost) -> None:
        self._context, self._leaving, self._operators, self._sources = context, leaving, operators, sources

    def drain(self) -> None:
        """Raises ``node-in-use`` where anything lives here, with a line for each; drained already, it stays so."""
        context = self._context
        needed = self._needed_for()
        if needed:
            raise SbonError(
                "node-in-use",
                f"{context.name} {'; '.join(needed)}",
                where="node",
                hint="stop those queries and drop those streams first: nothing is moved to other nodes yet",
                details=tuple(needed),
            )
        context.drained.mark(context.clock.wall_ms())

    def _needed_for(self) -> list[str]:
        """One line for each thing that would have to move, or cannot."""
        promised = [f"holds room for {operator}" for operator in self._operators.promised()]
        pinned = [f"has the source {report.source.id}" for report in self._sources.reports()]
        return [*self._leaving.needed_for(), *promised, *pinned]
