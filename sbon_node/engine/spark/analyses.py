"""Analyses of fragments that the engine has made: the same fragment over the same columns has the same output."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable

from sbon_node.engine.spark.messages import Analyse
from sbon_node.model.columns import Schema


class Analyses:
    """The newest ``most`` analyses, those asked for least recently forgotten first. Refusals are made anew each time.

    They hold for the life of a node, across its engine processes, which are all of one version.
    """

    def __init__(self, most: int, analyse: Callable[[Analyse], Awaitable[Schema]]) -> None:
        self._most, self._analyse = most, analyse
        self._known: OrderedDict[Analyse, Schema] = OrderedDict()

    async def schema(self, command: Analyse) -> Schema:
        """Return the output's schema; raises whatever the analysis does."""
        schema = self._known.get(command)
        if schema is None:
            schema = self._known[command] = await self._analyse(command)
        self._known.move_to_end(command)
        while len(self._known) > self._most:
            self._known.popitem(last=False)
        return schema
