"""Returns the outbox's free pages and its journal to the file system once nothing has reused them for some seconds.

A stream that flows reuses the pages of its deleted frames, and pays nothing here.
"""

from __future__ import annotations

from collections import deque

from sbon_node.errors import SbonError
from sbon_node.streams.outbox.store import PAGE_BYTES, FrameStore

LOOK_S = 1.0
"""Interval of the looks at the file after a change, in seconds."""
LOOKS = 5
"""Looks at which pages must have been free to be returned."""
STEP_PAGES = 128
STEP_S = 0.05
"""Pages returned at once, and seconds between two steps: at most 20 MB a second, while other work goes on."""
KEPT_BYTES = 2 * 1024 * 1024
"""Free bytes that stay in the file."""


class Shrinking:
    """Shrinks one outbox's file in steps, at the times that :meth:`step` returns."""

    def __init__(self, store: FrameStore) -> None:
        self._store = store
        self._free: deque[int] = deque(maxlen=LOOKS)
        """Free bytes at the last looks."""
        self._changes = -1
        self._quiet = 0

    def step(self) -> float | None:
        """Return the seconds until the next step; None if there is nothing to do before the next change.

        Raises :class:`SbonError` ``disk-error`` or ``outbox-corrupt``.
        """
        free, changes = self._store.free_bytes(), self._store.changes()
        self._quiet = self._quiet + 1 if changes == self._changes else 0
        self._changes = changes
        if self._spare(free) > 0:
            return self._shrink(free)
        self._free.append(free)
        if self._quiet < LOOKS or self._spare(free) > 0:
            return LOOK_S
        self._store.empty_journal()
        self._free.clear()
        return None

    def _spare(self, free: int) -> int:
        """Return the bytes that may go: free now, and at all of the last looks."""
        return min(free, *self._free) - KEPT_BYTES if len(self._free) == LOOKS else 0

    def _shrink(self, free: int) -> float | None:
        try:
            self._store.shrink(min(STEP_PAGES, -(-self._spare(free) // PAGE_BYTES)))
        except SbonError as error:
            if error.code != "disk-full":
                raise
            return LOOK_S  # Moving pages needs a little space itself.
        returned = free - self._store.free_bytes()
        if returned <= 0:  # An outbox of an earlier version cannot shrink.
            self._free.clear()
            return None
        self._free = deque((before - returned for before in self._free), LOOKS)
        return STEP_S
