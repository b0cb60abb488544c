"""The commands' client of a node: shows slow requests on a terminal, and asks what only the keeper of a node needs."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from sbon import client
from sbon.requests import DEFAULT_API, Ask
from sbon.signs_of_life import Watch
from sbon.transport import Answer
from sbon_cli import operations
from sbon_cli.terminal.waiting import waiting
from sbon_node.base.events import Kind, Level, NodeEvent
from sbon_node.base.logging.levels import LogLevels
from sbon_node.operations.examination import Examination
from sbon_protocol.api.operations import DebugDump, Resources


class Client(client.Client):
    """A client of one node; ``patience_s`` is the longest wait for a plain answer, in place of the default."""

    def __init__(self, api: str = DEFAULT_API, *, patience_s: float | None = None) -> None:
        super().__init__(api)
        self._patience_s = patience_s

    def answer(self, ask: Ask[Any]) -> Answer:
        return super().answer(ask if self._patience_s is None else ask._replace(within_s=self._patience_s))

    @contextmanager
    def awaiting(self, ask: Ask[Any]) -> Iterator[Watch]:
        path = ask.path.partition("?")[0]
        slow = "; where its engine has to start first, that takes some seconds" if path.startswith("/v1/explain") else ""
        what = f"{ask.method} {path} at {self.api}{slow}"
        tells_itself = (ask.method, path) == ("POST", "/v1/queries")
        with nullcontext() if tells_itself else waiting(what), super().awaiting(ask) as watch:
            yield watch

    def examine(self, *, everywhere: bool = False) -> Examination:
        return self.ask(operations.examine(everywhere=everywhere))

    def debug_dump(self) -> DebugDump:
        return self.ask(operations.debug_dump())

    def resources(self) -> Resources:
        return self.ask(operations.resources())

    def log_levels(self) -> LogLevels:
        return self.ask(operations.log_levels())

    def set_log_levels(self, levels: LogLevels) -> LogLevels:
        return self.ask(operations.set_log_levels(levels))

    def node_events(self, kinds: Collection[Kind] = (), level: Level = "info") -> Iterator[NodeEvent]:
        """Yield events at the node from now on, without end; of all kinds by default."""
        return self.events(operations.events(kinds, level))
