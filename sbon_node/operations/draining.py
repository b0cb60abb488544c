"""Draining: a node stops taking part in queries for good, so that it can be removed.

A node that hosts an operator, a source, a sink or the record of a query refuses to drain, and names them. A user can move
operators to other nodes first.
"""

from __future__ import annotations

from sbon_node.errors import SbonError
from sbon_node.hosting.operators import OperatorHost
from sbon_node.hosting.sources import SourceHost
from sbon_node.operations.leaving import Leaving
from sbon_node.workflow.context import Context


class Draining:
    """Marks this node as drained, if it hosts nothing."""

    def __init__(self, context: Context, leaving: Leaving, operators: OperatorHost, sources: SourceHost) -> None:
        self._context, self._leaving, self._operators, self._sources = context, leaving, operators, sources

    def drain(self) -> None:
        """Drain the node; raise ``node-in-use`` with a line for each part or record here. A drained node stays drained."""
        context = self._context
        needed = self._needed_for()
        if needed:
            raise SbonError(
                "node-in-use",
                f"{context.name} {'; '.join(needed)}",
                where="node",
                hint="move operators with sbon query migrate, stop the other queries and drop those streams first",
                details=tuple(needed),
            )
        context.drained.mark(context.clock.wall_ms())

    def _needed_for(self) -> list[str]:
        """Return a line for each part or record that would have to move, or cannot."""
        promised = [f"holds capacity for {operator}" for operator in self._operators.promised()]
        pinned = [f"has the source {report.source.id}" for report in self._sources.reports()]
        return [*self._leaving.needed_for(), *promised, *pinned]
