"""Acknowledgements of a follower, sent beside its reading: a few each second, for any number of frames."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

from sbon_protocol.errors import SbonError

from . import following


class Acknowledged(Protocol):
    """A client of a query's consumer."""

    def acknowledge(self, query_id: str, numbers: dict[str, int], reader: str, sink: str = "") -> None: ...


class Acknowledger:
    """Send a query's acknowledgements from a separate thread, for as long as the block lasts.

    It retries a failed request: without it the query would wait for the acknowledgement of its last frames. The end of the
    block tries once more, so that the next follower begins where this follower ended.
    """

    def __init__(self, client: Acknowledged, query: str, notice: Callable[[str], None]) -> None:
        self._client, self._query, self._notice = client, query, notice
        self.reader = ""
        """The word with which the rows began."""
        self.sink = ""
        """The further sink whose rows these are; empty for the query's first one."""
        self._due = following.Unacknowledged()
        self._changed = threading.Condition()
        self._over = False
        self._thread = threading.Thread(target=self._run, name=f"acknowledge {query}", daemon=True)

    def written(self, stream: str, number: int) -> None:
        """Record that all rows up to frame ``number`` have been written out."""
        with self._changed:
            self._due.written(stream, number)
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
                self._changed.wait_for(lambda: self._due.numbers or self._over)
                is_over, numbers = self._over, dict(self._due.numbers)
            if numbers:
                refusal = self._send(numbers)
                if refusal is not None and not failing and not is_over:
                    self._notice(f"cannot acknowledge rows yet: {refusal.message}")
                failing = refusal is not None
            if is_over:
                return
            with self._changed:
                self._changed.wait_for(
                    lambda: self._over, timeout=following.ACKNOWLEDGE_RETRY_S if failing else following.ACKNOWLEDGE_PAUSE_S
                )

    def _send(self, numbers: dict[str, int]) -> SbonError | None:
        try:
            self._client.acknowledge(self._query, numbers, self.reader, *([self.sink] if self.sink else []))
        except SbonError as error:
            return error
        with self._changed:
            self._due.sent(numbers)
        return None
