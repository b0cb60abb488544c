"""A follower's pursuit of its origin: how far it may read, and when the origin should stop.

A follower that is behind takes all batches that the origin has planned at once: one that repeats batch by batch and is no faster
would never get near. But the last batch before the switch must be the origin's own, since it runs with the watermark of the input
before it. The origin should stop while the follower has that batch alone to run, or runs it already.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from sbon_node.engine.alignment import Cut

Batch = tuple[int, ...]
"""The last frame of each input after a batch."""


class Position(NamedTuple):
    """The newest visible cut of an origin, and the batches that it has planned after that.

    The batch of the cut began at ``before``, which is empty where that is unknown.
    """

    cut: Cut
    batches: tuple[Batch, ...] = ()
    before: Batch = ()


class Pursuit:
    """The newest batches of the origin. Without ``has_state`` an operator emits the same rows in any batches.

    A follower that is behind by ``near_batches`` at most is near: it waits ``near_s`` seconds for the best moment to stop its
    origin.
    """

    def __init__(self, *, has_state: bool, near_s: float, near_batches: int) -> None:
        self._has_state, self._patience_s = has_state, near_s
        self._origin: Position | None = None
        self._ends: deque[Batch] = deque(maxlen=near_batches + 1)
        """Where its newest batches end, oldest first; without those that ran between two positions."""
        self._begins: dict[Batch, Batch] = {}
        """Where the newest batch begins, by its end."""
        self._near_s: float | None = None

    def note(self, origin: Position) -> None:
        """Take notice of the position of the origin."""
        self._origin = origin
        for end in (origin.cut.frames, *origin.batches):
            if end not in self._ends:
                self._ends.append(end)
        known = [end for end in (origin.before, origin.cut.frames, *origin.batches) if end]
        if len(known) > 1:
            self._begins = {known[-1]: known[-2]}

    @property
    def newest(self) -> Batch:
        """The end of the origin's newest batch, up to which the follower may read."""
        return self._ends[-1]

    @property
    def before(self) -> Batch:
        """The end of the batch before that, from which the follower must repeat the newest one."""
        return self._begins.get(self.newest) or (self._ends[-2] if len(self._ends) > 1 else self._ends[-1])

    def is_level(self, ours: Cut | None, planned: tuple[Batch, Batch] | None, now_s: float) -> bool:
        """Return whether the origin should stop now.

        ``ours`` is the visible cut of the follower, and ``planned`` where its newest batch begins and ends.
        """
        if ours is None or self._origin is None:
            return False
        cut, batches, _ = self._origin
        if not batches and ours.frames == cut.frames and (cut.is_settled or ours.has_emitted_as(cut)):
            return True
        begin, end = planned or (ours.frames, ours.frames)
        if end == self.newest:
            return begin == self.before or not self._has_state
        if end == self.before and ours.frames == end:
            return True
        if end not in self._ends:
            self._near_s = None
        elif self._near_s is None:
            self._near_s = now_s
        return self._near_s is not None and now_s - self._near_s > self._patience_s

    def frames_behind(self, ours: Cut | None) -> int:
        """Return the frames of all inputs that the origin has planned and the follower has not shown."""
        return 0 if ours is None or self._origin is None else max(0, sum(self.newest) - sum(ours.frames))
