"""Acknowledgements of a follower, sent beside its reading: a few each second, however many frames come."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from sbon_cli.client import Client
from sbon_node.errors import SbonError

PAUSE_S = 0.1
"""Shortest time between two requests; what is written out meanwhile goes with the next."""
RETRY_S = 1.0


class Acknowledger:
    """Tells the node how far a query's rows have been written out, in a thread of its own, for as long as the block lasts.

    A request that fails is made again: losing one would leave the query waiting for its last frames. The end of the block tries
    once more, so that the next follower begins where this one ended.
    """

    def __init__(self, client: Client, query: str, notice: Callable[[str], None]) -> None:
        self._client, self._query, self._notice = client, query, notice
        self._due: dict[str, int] = {}
        self._changed = threading.Condition()
        self._over = False
        self._thread = threading.Thread(target=self._run, name=f"acknowledge {query}", daemon=True)

    def written(self, stream: str, number: int) -> None:
        """Everything up to ``number`` has been written out."""
        with self._changed:
            self._due[stream] = number
            self._changed.notify()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._changed:
            self._over = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        failing = False
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._due or self._over)
                over, numbers = self._over, dict(self._due)
            if numbers:
                refusal = self._send(numbers)
                if refusal is not None and not failing and not over:
                    self._notice(f"cannot acknowledge rows yet: {refusal.message}")
                failing = refusal is not None
            if over:
                return
            with self._changed:
                self._changed.wait_for(lambda: self._over, timeout=RETRY_S if failing else PAUSE_S)

    def _send(self, numbers: dict[str, int]) -> SbonError | None:
        try:
            self._client.acknowledge(self._query, numbers)
        except SbonError as error:
            return error
        with self._changed:
            self._due = {stream: number for stream, number in self._due.items() if number > numbers.get(stream, 0)}
        return None
