"""The commands' client of a node: shows slow requests on a terminal, and asks what only the keeper of a node needs."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from sbon import client
from sbon.client import asked, streamed
from sbon.requests import DEFAULT_API, Answer, Ask
from sbon.signs_of_life import Watch
from sbon_cli import operations
from sbon_cli.terminal.waiting import waiting


class Client(client.Client):
    """A client of one node; ``patience_s`` is the longest wait for a plain answer, in place of the default."""

    def __init__(self, api: str = DEFAULT_API, *, patience_s: float | None = None) -> None:
        super().__init__(api)
        self._patience_s = patience_s

    examine = asked(operations.examine)
    debug_dump = asked(operations.debug_dump)
    resources = asked(operations.resources)
    log_levels = asked(operations.log_levels)
    set_log_levels = asked(operations.set_log_levels)
    node_events = streamed(operations.events)

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
