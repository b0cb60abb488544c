"""Stops of queries, which the query holder carries out to their end, even if the node that asked for one dies meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from sbon_node.errors import SbonError
from sbon_node.tasks import Tasks


class Stops:
    """The stops under way at a query holder, one for each query.

    ``carry_out`` ends a query and informs its hosts; it runs as one of ``tasks``. ``node`` is this node's name.
    """

    def __init__(self, tasks: Tasks, carry_out: Callable[[str], Awaitable[None]], node: str) -> None:
        self._tasks, self._carry_out, self._node = tasks, carry_out, node
        self._under_way: dict[str, asyncio.Future[None]] = {}

    async def stop(self, query: str) -> None:
        """Wait until the query is stopped. The stop goes on if the caller gives up.

        Raises :class:`SbonError`: the failure of the stop, or ``stopping`` if this node ends first.
        """
        if query not in self._under_way:
            ended = self._under_way[query] = asyncio.get_running_loop().create_future()
            self._tasks.start(f"stop {query}", self._run(query, ended))
            if f"stop {query}" not in self._tasks:
                del self._under_way[query]
                raise self._away()
        await asyncio.shield(self._under_way[query])

    async def _run(self, query: str, ended: asyncio.Future[None]) -> None:
        try:
            await self._carry_out(query)
        except BaseException as error:
            if not ended.done():
                ended.set_exception(error if isinstance(error, SbonError) else self._away())
                ended.exception()  # Seen, even if nobody waits any more.
            if not isinstance(error, SbonError):
                raise
        else:
            ended.set_result(None)
        finally:
            self._under_way.pop(query, None)

    def _away(self) -> SbonError:
        return SbonError("stopping", "this node is about to end", where=self._node)
