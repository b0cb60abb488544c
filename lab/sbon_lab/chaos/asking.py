"""Requests to whichever node of the cluster can answer now."""

import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TypeVar

from sbon import SbonError, endpoints, states
from sbon.client import Client
from sbon.local.cluster import LocalCluster
from sbon.model import QueryInfo

R = TypeVar("R")

ANSWER_S = 20.0
"""Longest wait for an answer: a node may be stopped at any time."""
AGAIN_S = 1.0
ENDED = (states.FINISHED, states.FAILED, states.STOPPED)


class Asking:
    """Asks the nodes that suffer from no fault first; ``busy`` returns those that do."""

    def __init__(self, cluster: LocalCluster, names: Collection[str], busy: Callable[[], Collection[str]]) -> None:
        self._cluster, self._names, self._busy = cluster, names, busy

    def clients(self) -> list[Client]:
        busy = self._busy()
        names = sorted(self._names, key=lambda name: name in busy)
        return [self._cluster[name].client for name in names if self._cluster[name].running]

    def client(self) -> Client:
        """Return the client of the node that is most likely to answer; raise ``node-unreachable`` while all are down."""
        clients = self.clients()
        if not clients:
            raise SbonError("node-unreachable", "no node runs")
        return clients[0]

    def ask(self, question: Callable[[Client], R]) -> R:
        """Return the first answer. Raise the last node's error, also ``node-unreachable`` if no node runs."""
        failure = SbonError("node-unreachable", "no node runs")
        for client in self.clients():
            try:
                return question(client)
            except SbonError as error:
                failure = error
        raise failure

    def query(self, query: str) -> QueryInfo:
        return self.ask(lambda client: client.ask(endpoints.query(query)._replace(within_s=ANSWER_S)))

    def live(self) -> list[QueryInfo]:
        """Return the descriptions of all queries that have not ended."""
        found = self.ask(lambda client: client.ask(endpoints.queries()._replace(within_s=ANSWER_S)))
        return [self.query(one.id) for one in found if one.state not in ENDED]

    def insist(self, question: Callable[[Client], R], patience_s: float, done: Collection[str] = ()) -> R | None:
        """Ask again until there is an answer; None after an error of a code in ``done``: an earlier attempt has succeeded."""
        deadline_s = time.monotonic() + patience_s
        while True:
            try:
                return self.ask(question)
            except SbonError as error:
                if error.code in done:
                    return None
                if time.monotonic() > deadline_s:
                    raise
            time.sleep(AGAIN_S)


class Gate:
    """Lets either submissions pass, several at once, or a fault that must know where all operators are."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._submitting, self._is_closed = 0, False

    @contextmanager
    def submitting(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._is_closed)
            self._submitting += 1
        try:
            yield
        finally:
            with self._changed:
                self._submitting -= 1
                self._changed.notify_all()

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Wait until no submission is under way, and let none begin within the block."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_closed)
            self._is_closed = True
            self._changed.wait_for(lambda: not self._submitting)
        try:
            yield
        finally:
            with self._changed:
                self._is_closed = False
                self._changed.notify_all()
